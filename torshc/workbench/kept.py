"""Whole bundles in the cache: what a compilation wrote is copied where the next would write the same.

The key is the hash of all that decides the bytes of a bundle: the model's files, the options with what they leave open
resolved, torshc's own files, the packages that it computes with, and the tools. Options that name more files, or ask
for files elsewhere than in the bundle, are compiled each time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import json
import platform
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.cache import MOST, Cache, content_key
from ..base.clock import Clock, Observer
from ..base.digest import PIECE, FileDigest, tree_sha256
from ..base.errors import TorshcError
from ..base.folders import sweep_scratch
from ..base.manifest import FILE, sizes_text
from ..base.options import CompileOptions
from ..base.resources import cache_folder, own_folders
from ..bundle.names import prefix_of
from ..bundle.package import BundleWriter
from ..targets.isa import resolve, versions_of
from ..targets.toolchain import Toolchain, program_stamp

if TYPE_CHECKING:
    from ..pipeline.compilation import Compilation

# What computes constants, weights and texts.
_PACKAGES = ("numpy", "onnx", "ml_dtypes", "protobuf", "jinja2", "pyyaml", "llvmlite")
_LINKERS = ("ld", "ld.bfd", "ld.gold", "ld.lld", "ld64.lld", "mold")


@dataclass(frozen=True)
class Report:
    """What a person is told of a compilation, as plain data.

    Attributes:
        kernels: how many the library has.
        compiled: sources that a compiler had to compile.
        refusals: what runs on the processor because the target has no kernel for it.
        copied_bytes: of weights that are there in two layouts.
        weights_by_name: why the library does not take a weight by its name, by that; empty where it does.
        variants: why there is none, by sizes; empty where there is.
        stages: seconds.
    """

    launches: int
    kernels: int
    compiled: int
    refusals: Sequence[str]
    warnings: Sequence[str]
    weights_bytes: int
    copied_bytes: int
    weights_by_name: Mapping[str, str]
    variants: Mapping[str, str]
    stages: Mapping[str, float]


def report_of(done: Compilation) -> Report:
    """The report of a compilation."""
    from ..explain import count_launches  # start-up: a copy has its report

    return Report(
        launches=count_launches(done),
        kernels=len({s for unit in done.units for s in unit.symbols}),
        compiled=done.compiled,
        refusals=done.refusals,
        warnings=done.warnings,
        weights_bytes=done.weights_bytes,
        copied_bytes=done.copied_bytes,
        weights_by_name={w.name: w.why for w in done.named},
        variants={sizes_text(v.case): v.why for v in done.variants},
        stages=dict(done.seconds),
    )


def compile_or_copy(
    model: Path, out: str, options: CompileOptions, observer: Observer | None = None, digest: FileDigest | None = None
) -> Report:
    """Compile a model and write its bundle, or copy the one that an equal compilation wrote.

    Args:
        digest: of the model, where it was begun before.

    Raises:
        TorshcError: as :func:`torshc.pipeline.compiler.compile_model`.
    """
    cache, clock = Cache(cache_folder() if options.cache else None), Clock(observer)
    digests, key = list[FileDigest](), ""
    if _is_whole(options):
        with contextlib.suppress(OSError, TorshcError):  # which the compilation tells of
            digest, torshc = digest or FileDigest(model), tree_sha256(own_folders())
            asked = dataclasses.replace(options, jobs=0, prefix=options.prefix or prefix_of(Path(out)))
            tools = _tools(asked, _toolchain(options.target, torshc, cache))
            digests = [digest, *map(FileDigest, _files_beside(model, digest, torshc, cache))]
            key = _key([model.name, torshc, *tools], asked, [d.text() for d in digests])
    with clock.stage("copy"):
        report = _copy(cache, key, Path(out)) if key else None
    if report is not None:
        return dataclasses.replace(report, compiled=0, stages=clock.seconds)

    def keep(folder: Path, done: Compilation) -> None:
        # Nobody knows what was read of a model that changed meanwhile, and users' operators are not in the key.
        if not cache.problem and not done.custom and all(d.is_current() for d in digests):
            _keep(cache, key, folder, report_of(done))

    from ..pipeline.compiler import compile_model  # start-up: a copy needs no compiler

    done = compile_model(model, out, options, observer, cache=cache, keep=keep if key else None)
    report = report_of(done)
    new = [cache.problem] if cache.problem and cache.problem not in report.warnings else []
    return dataclasses.replace(report, warnings=(*report.warnings, *new))


def _is_whole(options: CompileOptions) -> bool:
    """Whether a bundle depends on nothing but the model and words, and is all that is to be written."""
    values = [getattr(options, f.name) for f in dataclasses.fields(options)]
    words = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    files = any(isinstance(w, Path) for w in words) or any(w.startswith("@") for w in options.specialize)
    more = options.keep_intermediates or options.scheduler or options.emit != "bundle"
    return options.cache and not files and not more


def _files_beside(model: Path, digest: FileDigest, torshc: str, cache: Cache) -> list[Path]:
    """The files that a model names; one that is known is not read again.

    Raises:
        ModelError: it, or a file that it names, cannot be read.
        OSError: neither can its file.
    """
    key = content_key(["names of files", torshc, digest.text()])
    known = cache.get(key) if digest.text() else None
    if known is not None and not (names := json.loads(known)):
        return []
    from ..formats.files import external_names, locate_all  # start-up: a known model without such files has no reader

    if known is None:
        names = external_names(model)
        if digest.is_current():
            cache.put(key, json.dumps(names).encode())
    return locate_all(model, names)


def _toolchain(target: str, torshc: str, cache: Cache) -> Toolchain:
    """What builds the libraries of a target. Where that is known, the target's kernels are not loaded.

    Raises:
        ConfigError: there is no such target.
    """
    key = content_key(["toolchain", torshc, target])
    if (known := cache.get(key)) is not None:
        module, name = known.decode().split()
        found: Toolchain = getattr(import_module(module), name)()
        return found
    from ..targets import find_target  # start-up: as above

    kind = type(find_target(target).toolchain)
    cache.put(key, f"{kind.__module__} {kind.__qualname__}".encode())
    return kind()


def _tools(options: CompileOptions, toolchain: Toolchain) -> Iterator[str]:
    """What a compilation finds on this machine: processors, devices, compilers.

    Raises:
        TorshcError: options or tools are wrong.
    """
    for name in versions_of(options.isa, options.mcpu, options.triple):
        version, isa = dataclasses.replace(options, mcpu=name), resolve(name, options.triple)
        tools = toolchain.find(version, isa)
        compiler = tools.compiler.identity()
        yield from (repr(isa), repr(toolchain.archs(version)), *compiler, repr(tools.flags), repr(tools.host))
    yield from map(program_stamp, _LINKERS)


def _key(words: Sequence[str], options: CompileOptions, digests: Sequence[str]) -> str:
    """The key of a bundle; empty where a file is none.

    Args:
        words: what else decides it.
    """
    if not all(digests):
        return ""
    parts = [*words, *digests, repr(options), sys.version, *platform.libc_ver()]
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            parts += [name, importlib.metadata.version(name)]
    return content_key(["bundle", *parts])


def _files_key(key: str) -> str:
    return content_key(["bundle's files", key])


def _keep(cache: Cache, key: str, folder: Path, report: Report) -> None:
    """Keep a bundle that is not large: its files, one after the other, then what they are."""
    files, links = [], {}
    for path in sorted(folder.iterdir()):
        if path.is_symlink():
            links[path.name] = str(path.readlink())
        elif not path.is_file():
            return
        else:
            status = path.stat()
            files.append((path.name, status.st_size, bool(status.st_mode & stat.S_IXUSR)))
    size = sum(size for _, size, _ in files)
    if size <= MOST // 4 and cache.has_room(size):
        cache.put_parts(_files_key(key), (part for name, _, _ in files for part in _parts(folder / name)))
        body = {"files": files, "links": links, "report": dataclasses.asdict(report)}
        cache.put(key, json.dumps(body).encode())


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while part := file.read(PIECE):
            yield part


def _copy(cache: Cache, key: str, out: Path) -> Report | None:
    """Write the bundle that is kept under a key to its place; None where there is none.

    Raises:
        OutputError: it cannot be written.
    """
    if (head := cache.get(key)) is None:
        return None
    body = json.loads(head)
    with cache.reading(_files_key(key)) as kept:
        if kept is None:
            return None
        with BundleWriter(out) as bundle:
            for name, to in body["links"].items():
                bundle.add_link(name, to)
            for name, size, executable in body["files"]:
                bundle.add_file(name, executable, kept.parts(size))
            if not kept.is_intact():
                return None
            bundle.commit((bundle.folder / FILE).read_text(encoding="utf-8"))
    sweep_scratch()  # as compiling would have
    return Report(**body["report"])
