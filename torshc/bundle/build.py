"""From C sources to a shared library: in parallel, through the cache, and the same bytes every time.

All names are relative to the work folder, so that nothing of its path gets into an object.
"""

from __future__ import annotations

import contextlib
import platform
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Self

from ..base.budget import Budget
from ..base.cache import Cache, content_key
from ..base.errors import OutputError, ResourceError, ToolchainError
from ..base.folders import scratch_folder
from ..base.resources import find_template
from ..targets.processes import end_commands
from ..targets.toolchain import LIBRARY, Archiver, Compiler, TooSlow, archive_name
from .cluster import Workers
from .precompiled import FIRST, Precompiled
from .sources import write_sources


@dataclass(frozen=True)
class Object:
    """A compiled source.

    Attributes:
        source: name of the source.
        path: the object file, relative to the work folder.
        seconds: what the compiler took; 0 when it came from the cache.
        cached: whether it came from the cache.
    """

    source: str
    path: str
    seconds: float
    cached: bool


_MARK = ".torshc-work"  # in a folder of --workdir, which later builds may write to again

# Called after each source, from the threads of the build but one at a time: sources done, sources in all, the object.
Progress = Callable[[int, int, Object], None]


@contextlib.contextmanager
def work_folder(named: Path | None = None, keep: bool = False) -> Iterator[Path]:
    """A folder to build in: ``named`` (made, and never deleted), or a temporary one, left when ``keep`` and it fails.

    Raises:
        OutputError: it cannot be made, or holds what no build left there.
    """
    with contextlib.ExitStack() as stack:
        try:
            if named is not None:
                named.mkdir(parents=True, exist_ok=True)
                _claim(named)
            folder = named.absolute() if named is not None else stack.enter_context(scratch_folder(keep))
        except OSError as error:
            what = f"cannot make the work folder {error.filename or ''}".strip()
            raise OutputError(
                f"{what}: {error.strerror or error}", "name another with --workdir, or set TMPDIR"
            ) from error
        yield folder


def _claim(folder: Path) -> None:
    """Mark a folder as one to build in, where files are written over; one with files of somebody else is left alone."""
    if not (folder / _MARK).exists() and any(folder.iterdir()):
        raise OutputError(f"the work folder {folder} holds other files", "name a new folder, or an empty one")
    (folder / _MARK).touch()


def build_objects(
    sources: Mapping[str, str],
    includes: Mapping[str, str],
    compiler: Compiler,
    flags: Sequence[str] | Callable[[str], Sequence[str]],
    cache: Cache,
    jobs: int,
    workdir: Path,
    progress: Progress | None = None,
    *,
    seconds: int = Budget().compiling,
    holds: Mapping[str, str] | None = None,
    fresh: Collection[str] = (),
    workers: Workers | None = None,
) -> list[Object]:
    """Compiles sources to objects: a :class:`Build` of sources that are all known.

    Raises:
        ToolchainError, OutputError, ResourceError: as :class:`Build`.
    """
    with Build(compiler, cache, jobs, workdir, progress, seconds, workers) as build:
        build.add(sources, includes, flags, holds or {}, fresh)
        return build.objects()


class _Stopped(Exception):
    """Another source has failed."""


@dataclass(frozen=True)
class _Batch:
    """Sources that are added together: what they may include, their flags, what they hold, which are compiled here."""

    includes: Mapping[str, str]
    flags: Sequence[str] | Callable[[str], Sequence[str]]
    holds: Mapping[str, str]
    fresh: frozenset[str]
    sent: object  # the headers, as workers know them
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(self.includes))

    def headers_of(self, text: str) -> set[str]:
        """The headers that a source may include: those that it names anywhere, and those that these name.

        So most sources have the same object in libraries that have other headers besides.
        """
        found, pending = set[str](), list(_named_in(text, self.names))
        while pending:
            if (header := pending.pop()) not in found:
                found.add(header)
                pending += _named_in_header(self.includes[header], self.names)
        return found


class Build:
    """Compilers at work on the sources of a library, which become known one after the other.

        with Build(compiler, cache, jobs, workdir) as build:
            build.add(kernels, headers, flags)
            ...                                     # compilers run meanwhile
            build.add(host, headers, flags)
            objects = build.objects()

    Leaving the block by an exception ends the compilers.

    Args:
        compiler: what compiles them.
        cache: where objects are kept.
        jobs: compilers at a time on this machine.
        workdir: where sources are written (``src/``) and objects (``obj/``).
        progress: called after each source, with the number of those that are known by then.
        seconds: how long a compiler may take for a source.
        workers: workers of other machines, which compile all sources but fresh ones.
    """

    def __init__(
        self,
        compiler: Compiler,
        cache: Cache,
        jobs: int,
        workdir: Path,
        progress: Progress | None = None,
        seconds: int = Budget().compiling,
        workers: Workers | None = None,
    ) -> None:
        self.compiler, self.cache, self.workdir, self.workers = compiler, cache, workdir, workers
        self.progress, self.seconds = progress, seconds
        self._tool = content_key((compiler.kind, *compiler.identity(), platform.machine()))
        self._names: dict[str, str] = {}  # of distinct texts
        self._headers: dict[str, str] = {}
        self._futures: list[Future[Object]] = []
        self._pool = ThreadPoolExecutor(max(1, workers.threads if workers else jobs))
        self._precompiled: Precompiled | None = None
        self._lock, self._threads = threading.Lock(), set[int]()
        self._done, self._stopped = 0, False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop()
        if kind is not None:  # maybe an interrupt, of which the threads that wait for compilers do not learn
            if self.workers:
                self.workers.stop()
            while self._threads:
                end_commands(tuple(self._threads))
                time.sleep(0.02)
        self._pool.shutdown()

    def add(
        self,
        sources: Mapping[str, str],
        includes: Mapping[str, str],
        flags: Sequence[str] | Callable[[str], Sequence[str]],
        holds: Mapping[str, str] | None = None,
        fresh: Collection[str] = (),
    ) -> None:
        """Begins to compile sources.

        Args:
            sources: text by file name; a text that occurs twice is compiled once, under its first name.
            includes: text by file name of every header that one of these sources may include.
            flags: their flags, for all sources or by source name.
            holds: what a source holds, in the model's words, by file name; for messages.
            fresh: sources that are compiled each time and here, as they include what nobody knows.

        Raises:
            OutputError: the work folder cannot be written.
            ResourceError: no thread can be started.
        """
        new: dict[str, str] = {}
        for name in sorted(sources):
            if sources[name] not in self._names:
                new[self._names.setdefault(sources[name], name)] = sources[name]
        sent = self.workers.headers(includes) if self.workers else None
        batch = _Batch(includes, flags, holds or {}, frozenset(fresh), sent)
        try:
            # Compilers may be reading what is there.
            headers = {name: text for name, text in includes.items() if self._headers.get(name) != text}
            self._headers |= headers
            write_sources(self.workdir / "src", {**headers, **new})
            (self.workdir / "obj").mkdir(exist_ok=True)
        except OSError as error:
            raise _cannot_write(self.workdir, error) from error
        if self._precompiled is None and (kernels := sum(FIRST in batch.headers_of(text) for text in new.values())):
            first = {name: includes[name] for name in batch.headers_of(FIRST)}
            self._precompiled = Precompiled(self.compiler, self._tool, first, self.cache, self.workdir, kernels)
        order = sorted(new, key=lambda name: -len(new[name]))  # so that no long one is left alone at the end
        try:
            self._futures.extend(self._pool.submit(self._one, batch, name, new[name]) for name in order)
        except RuntimeError as error:  # Python's for a thread that the system does not start
            raise ResourceError(
                f"compiling {len(order)} sources: {error}",
                "raise the limit of memory (ulimit -v) or processes (ulimit -u)",
            ) from error

    def objects(self) -> list[Object]:
        """One object a distinct text, ordered by source name, when all are compiled.

        Raises:
            ToolchainError: the compiler failed on one of them, or took too long; no other is started then.
            OutputError: the work folder cannot be written.
        """
        wait(self._futures, return_when=FIRST_EXCEPTION)
        self._stop()
        self._pool.shutdown()
        failed = [
            e for f in self._futures if not f.cancelled() and (e := f.exception()) and not isinstance(e, _Stopped)
        ]
        if failed:
            raise failed[0]
        return sorted((future.result() for future in self._futures), key=lambda o: o.source)

    def _stop(self) -> None:
        """Start no more compilers."""
        self._stopped = True
        for future in self._futures:
            future.cancel()

    def _one(self, batch: _Batch, name: str, text: str) -> Object:
        self._threads.add(threading.get_ident())
        try:
            if self._stopped:
                raise _Stopped
            return self._object(batch, name, text)
        finally:
            self._threads.discard(threading.get_ident())

    def _object(self, batch: _Batch, name: str, text: str) -> Object:
        flags = tuple(batch.flags(name) if callable(batch.flags) else batch.flags)
        target = f"obj/{Path(name).with_suffix('.o')}"
        # The name is part of the key: it is in the object's symbol table.
        headers = tuple((header, batch.includes[header]) for header in sorted(batch.headers_of(text)))
        key = content_key(["object", name, text, _texts_key(headers), self._tool, *flags])
        began = time.perf_counter()
        data = self.cache.get(key) if name not in batch.fresh else None
        try:
            if data is not None:
                (self.workdir / target).write_bytes(data)
            else:
                if self.workers and name not in batch.fresh:
                    compiled = self.workers.compile(name, text, batch.sent, flags, self.seconds)
                    (self.workdir / target).write_bytes(compiled)
                else:
                    self._compile(batch, name, text, target, flags)
                if name not in batch.fresh:
                    self.cache.put(key, (self.workdir / target).read_bytes())
        except OSError as error:
            raise _cannot_write(self.workdir, error) from error
        except TooSlow as error:
            raise _too_slow(name, batch.holds.get(name, ""), error) from error
        seconds = 0.0 if data is not None else time.perf_counter() - began
        result = Object(name, target, seconds, data is not None)
        with self._lock:
            self._done += 1
            if self.progress:
                self.progress(self._done, len(self._names), result)
        return result

    def _compile(self, batch: _Batch, name: str, text: str, target: str, flags: Sequence[str]) -> None:
        of_kernel = name not in batch.fresh and FIRST in batch.headers_of(text)
        if self._precompiled and of_kernel and (more := self._precompiled.flags(text, flags, self.seconds)):
            try:
                self.compiler.compile(f"src/{name}", target, [*flags, *more, "-Isrc"], self.workdir, self.seconds)
                return
            except TooSlow:
                raise
            except ToolchainError:  # of the source, as it says without the precompiled header, or of that
                self._precompiled.drop()
        self.compiler.compile(f"src/{name}", target, [*flags, "-Isrc"], self.workdir, self.seconds)


def _too_slow(name: str, inside: str, error: TooSlow) -> ToolchainError:
    """The error of a compiler that took too long for a source, which says what that holds."""
    less = " make kernels smaller with --max-fusion-size NUMBER," if inside else ""
    return ToolchainError(
        f"{error.message}{f', for the kernel of {inside}' if inside else ''}",
        f"give it more with --budget compiling=SECONDS,{less} or name another compiler with --cc",
    )


def _named_in(text: str, headers: tuple[str, ...]) -> tuple[str, ...]:
    """The headers that a text names anywhere, without their folders."""
    return tuple(header for header in headers if header.rpartition("/")[2] in text)


# Of headers, which hardly differ between builds; all of them take a hundredth of a second.
_named_in_header = lru_cache(maxsize=256)(_named_in)


@lru_cache(maxsize=64)
def _texts_key(texts: tuple[tuple[str, str], ...]) -> str:
    """The key of files, by name and text; sources share their headers."""
    return content_key(part for file in texts for part in file)


def _cannot_write(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot build in {folder}: {error.strerror or error}", "name another folder with --workdir, or set TMPDIR"
    )


def link_library(
    compiler: Compiler,
    objects: Sequence[Object],
    workdir: Path,
    weights: Path | None = None,
    sanitize: Sequence[str] = (),
    name: str = "",
    libraries: Sequence[str] = (),
) -> Path:
    """Links objects to ``libmodel.so`` in the work folder; ``weights`` is a file to link in as ``t_weights``.

    Programs that are linked with it look for ``name``. `libraries` are those that it needs, as flags.

    Returns:
        The library.

    Raises:
        ToolchainError: the assembler or the linker failed.
        OutputError: the work folder cannot be written.
    """
    try:
        names = _list_link_inputs(compiler, objects, workdir, weights)
        compiler.link([*names, *libraries], LIBRARY, workdir, sanitize, name)
    except OSError as error:
        raise _cannot_write(workdir, error) from error
    return workdir / LIBRARY


def make_archive(
    archiver: Archiver, compiler: Compiler, objects: Sequence[Object], workdir: Path, weights: Path | None, prefix: str
) -> Path:
    """A static library of objects in the work folder; ``weights`` as in :func:`link_library`.

    Raises:
        ToolchainError: a tool failed.
        OutputError: the work folder cannot be written.
    """
    try:
        names = _list_link_inputs(compiler, objects, workdir, weights)
        archiver.make(names, prefix, archive_name(prefix), workdir)
    except OSError as error:
        raise _cannot_write(workdir, error) from error
    return workdir / archive_name(prefix)


def _list_link_inputs(compiler: Compiler, objects: Sequence[Object], workdir: Path, weights: Path | None) -> list[str]:
    embedded = [] if weights is None else [_embed(compiler, weights, workdir)]
    return [*(item.path for item in objects), *embedded]


def weights_source() -> str:
    """Assembly that puts the file ``t_weights.bin`` into a library."""
    return find_template(["c"], "t_weights.S").read_text()


def _embed(compiler: Compiler, weights: Path, workdir: Path) -> str:
    """An object that holds the weights file, read by the assembler under a fixed name: paths are not ours to spell."""
    link = workdir / "src" / "t_weights.bin"
    link.parent.mkdir(parents=True, exist_ok=True)
    (workdir / "obj").mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(weights.absolute())
    (workdir / "src" / "t_weights.S").write_text(weights_source())
    compiler.compile("src/t_weights.S", "obj/t_weights.o", ["-Isrc", "-Wa,-Isrc"], workdir)
    return "obj/t_weights.o"
