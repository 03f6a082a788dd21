"""What the runtime reads of a bundle's manifest, checked field by field; loading a bundle loads no compiler."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from torshc.base.errors import BundleError
from torshc.base.manifest import (
    FILE,
    FORMAT,
    FORMAT_VERSION,
    ML_DTYPES,
    NUMPY,
    OBJECTS,
    RANKS_FORMAT,
    ConditionSpec,
    FormInfo,
    InputValue,
    IsaInfo,
    LooseInfo,
    Manifest,
    Needs,
    PaddedInput,
    SizeRange,
    SymbolSpec,
    TensorSpec,
    ToleranceSpec,
    VariantInfo,
    VersionInfo,
    interface_id,
    manifest_hash,
)

REMEDY = "compile the model again"
_SIZE_MAX = 256 << 20
THREADS_MAX = 1024


@dataclass(frozen=True)
class StepSpec:
    """A step of a run: the kernel's symbol and template, the model nodes, and the number of its form."""

    kernel: str
    template: str
    nodes: tuple[str, ...]
    form: int = 0


@dataclass(frozen=True)
class VersionSpec:
    """What differs between versions of a library: steps in all forms, and what forms are for that are variants.

    ``forms`` has the sizes, and values of inputs, of each form, which are none but of variants; the last is the loose
    one where ``loose``.
    """

    steps: tuple[StepSpec, ...]
    forms: tuple[tuple[SizeRange | InputValue | PaddedInput, ...], ...]
    loose: bool


@dataclass(frozen=True)
class RunInfo:
    """What a run needs of a manifest."""

    model: str
    target: str
    device: int
    arch: str
    isa: str  # the processor's name
    profile: bool
    threads: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[SymbolSpec, ...]
    conditions: tuple[ConditionSpec, ...]
    more_conditions: tuple[ConditionSpec, ...]  # of the other forms, numbered after those
    version: VersionSpec  # the one that runs
    broadcast: tuple[str, ...]  # symbols that a loose form lets be 1
    strict: str  # why there is no such form although a symbol could be such a 1
    operators: dict[int, str]  # the model's names of the nodes that the host runs, by number
    dynamic: bool
    interface_id: int  # which the library must have too
    library_sha256: str
    weights_sha256: str
    weights_embedded: bool
    states: tuple[TensorSpec, ...]  # of a library that trains, what an open model keeps
    named: tuple[TensorSpec, ...]  # the model's weights, where the library takes others by name
    other_versions: Mapping[str, VersionSpec]  # by the processor's name
    versions: tuple[str, ...]  # all of them, the best first
    needs: Needs
    tolerances: tuple[ToleranceSpec, ...]  # of the outputs


def require_plain(path: Path) -> None:
    """Refuse what is there and no plain file: reading a pipe or a device may never end.

    Raises:
        BundleError: it is one.
    """
    if path.exists() and not path.is_file():
        raise BundleError(f"{path} is not a plain file", REMEDY)


def read_manifest(folder: Path) -> RunInfo:
    """Reads and checks ``manifest.json`` of a bundle.

    Raises:
        BundleError: there is none, it was altered, or another version of torshc wrote it.
    """
    path = folder / FILE
    require_plain(path)
    try:
        if path.stat().st_size > _SIZE_MAX:
            raise BundleError(f"{path} is too large to be a manifest", REMEDY)
        body = json.loads(path.read_bytes(), parse_constant=_no_number)
    except OSError as error:
        remedy = "name the folder that compile wrote"
        if folder.is_file() and (folder.parent / FILE).is_file():
            raise BundleError(f"{folder} is a file of a bundle", f"name the folder: {folder.parent}") from error
        if folder.is_file():
            model = f"if it is a model, compile it: torshc compile {folder} -o {folder.stem}.tsc"
            raise BundleError(f"{folder} is a file, and a bundle is a folder", f"{remedy}; {model}") from error
        why = f"is not a torshc bundle: {FILE}" if folder.is_dir() else "is not a folder"
        raise BundleError(f"{folder} {why}: {error.strerror or error}", remedy) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is not JSON: {error}", REMEDY) from error
    if isinstance(body, dict) and body.get("format") == RANKS_FORMAT:
        raise BundleError(
            f"{folder} is for several processes that share a model",
            "start as many with mpirun, and have each call torshc.load or `torshc run`",
        )
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise BundleError(f"{path} is not the manifest of a torshc bundle", "name the folder that compile wrote")
    if body.get("format_version") != FORMAT_VERSION:
        raise BundleError(
            f"{path} has format version {body.get('format_version')!r}; this torshc reads {FORMAT_VERSION}",
            "compile the model again with this torshc",
        )
    digest = body.pop("sha256", None)
    try:
        if digest != manifest_hash(body):
            raise BundleError(f"{path} was altered: its sha256 does not match", REMEDY)
        return _run_info(reader_of(Manifest)(body), interface_id(body))
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise BundleError(f"{path} lacks a field or has one of another type: {error}", REMEDY) from error


def _no_number(text: str) -> None:
    raise ValueError(f"{text} in it is no number")


def _run_info(full: Manifest, identity: int) -> RunInfo:
    weights, loose = full.weights, full.loose or LooseInfo((), "", None)
    if full.device < 1 or not 0 <= full.threads <= THREADS_MAX:
        raise TypeError(f"device {full.device} or threads {full.threads}")
    for use in full.uses:
        if not 0 <= use.input < len(full.inputs):
            raise IndexError(f"input {use.input}")
    named = weights.named if weights is not None else ()
    found = RunInfo(
        model=full.model,
        target=full.target,
        device=full.device,
        arch=full.isa.arch,
        isa=_processor(full.isa),
        profile=full.profile,
        threads=full.threads,
        inputs=full.inputs,
        outputs=full.outputs,
        symbols=full.symbols,
        conditions=full.conditions,
        more_conditions=tuple(c for f in _others(full.variants, loose.form) for c in f.conditions),
        version=_version(full, full.variants, loose.form),
        broadcast=loose.sizes,
        strict=loose.why,
        operators={o.node: o.name for o in full.operators},
        dynamic=full.dynamic,
        interface_id=identity,
        library_sha256=full.library_sha256,
        weights_sha256=weights.sha256 if weights is not None and not weights.embedded else "",
        weights_embedded=weights is not None and weights.embedded,
        states=tuple(TensorSpec(s.name, s.dtype, s.dims) for s in (full.training.states if full.training else ())),
        named=tuple(TensorSpec(w.name, w.dtype, w.dims) for w in named),
        other_versions={_processor(v.isa): _version(v, v.variants, v.loose) for v in full.other_versions},
        versions=tuple(map(_processor, (full.isa, *(v.isa for v in full.other_versions)))),
        needs=full.needs,
        tolerances=full.tolerances,
    )
    for spec in (*found.inputs, *found.outputs, *found.states, *found.named):
        _check_dtype(spec)
    return found


def _check_dtype(spec: TensorSpec) -> None:
    if spec.dtype not in (*ML_DTYPES, *NUMPY, *OBJECTS):
        raise TypeError(f"dtype {spec.dtype!r}")
    if spec.inner is not None:
        _check_dtype(spec.inner)


def _processor(isa: IsaInfo) -> str:
    return isa.mcpu or isa.arch


def _others(variants: Iterable[VariantInfo], loose: FormInfo | None) -> list[FormInfo]:
    """The forms of a version beside the usual one, in order."""
    return [form for form in (*(v.form for v in variants), loose) if form is not None]


def _version(first: Manifest | VersionInfo, variants: Sequence[VariantInfo], loose: FormInfo | None) -> VersionSpec:
    steps = [
        StepSpec(form.kernels[step.kernel].symbol, form.kernels[step.kernel].template, step.nodes, number)
        for number, form in enumerate((first, *_others(variants, loose)))
        for step in form.steps
    ]
    forms: list[tuple[SizeRange | InputValue | PaddedInput, ...]] = [
        (*v.sizes, *v.guards, *v.padded) for v in variants if v.form is not None
    ]
    return VersionSpec(tuple(steps), ((), *forms, *([()] if loose is not None else [])), loose is not None)


@cache
def reader_of(kind: Any) -> Callable[[Any], Any]:
    """What makes of JSON a value of a type that the schema names.

    It raises TypeError for another type, and KeyError for a field that is not there.
    """
    args = get_args(kind)
    if get_origin(kind) is tuple:
        each, items = reader_of(args[0]), reader_of(list)
        return lambda value: tuple(map(each, items(value)))
    if get_origin(kind) is Mapping:
        each, entries = reader_of(args[1]), reader_of(dict)
        return lambda value: {name: each(item) for name, item in entries(value).items()}
    if get_origin(kind) is UnionType:
        first, readers = reader_of(args[0]), {k: reader_of(k) for k in args}
        return lambda value: readers.get(type(value), first)(value)
    if dataclasses.is_dataclass(kind):
        return _object_reader(kind)

    def plain(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{str(value)[:40]!r} is not {kind.__name__}")
        return value

    return plain


def _object_reader(kind: Any) -> Callable[[Any], Any]:
    hints, body = get_type_hints(kind), reader_of(dict)
    fields = [(f.name, f.default is not MISSING, hints[f.name]) for f in dataclasses.fields(kind)]

    def read(value: Any) -> Any:
        given = body(value)
        return kind(**{n: reader_of(k)(given[n]) for n, optional, k in fields if not (optional and n not in given)})

    return read
