"""What the runtime reads of a bundle's manifest, checked field by field; loading a bundle loads no compiler."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from torshc.base.errors import BundleError, RunError

FILE = "manifest.json"
FORMAT = "torshc-bundle"
FORMAT_VERSION = 3
REMEDY = "compile the model again"
_SIZE_MAX = 256 << 20
THREADS_MAX = 1024
_T = TypeVar("_T")
_INTERFACE = ("inputs", "outputs", "symbols", "conditions", "operators")  # as torshc.bundle.manifest has it

_NUMPY = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
}  # fmt: skip
_OBJECTS = ("string", "sequence", "optional", "map")
_ML_DTYPES = {
    "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu", "f4e2m1": "float4_e2m1fn", "i4": "int4", "u4": "uint4",
    "i2": "int2", "u2": "uint2",
}  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model.

    Attributes:
        name: as in the model.
        dtype: short name of its element type ("f32").
        shape: integers, or text for a symbolic dimension ("batch", "2*batch").
        inner: what a "sequence" or an "optional" holds; "?" for a dimension that differs, "..." for any number of them.
            Of a "map" its keys, whose ``inner`` are its values.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    inner: TensorSpec | None = None

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype.

        Raises:
            RunError: a type that NumPy lacks by itself, without the ml_dtypes package.
        """
        if (other := _ML_DTYPES.get(self.dtype)) is not None:
            try:
                import ml_dtypes  # optional package
            except ImportError as error:
                raise RunError(f"{self.name!r} is {other}, which NumPy lacks", "pip install ml_dtypes") from error
            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, other))
            return found
        return np.dtype(_NUMPY.get(self.dtype, "object"))


@dataclass(frozen=True)
class SymbolSpec:
    """A symbol, from ``min`` to ``max``: dimension ``dim`` of input number ``input`` where ``kind`` is "dim".

    Otherwise the input's element at that place, which is refused out of that range ("element") or moved into it
    ("clamped").
    """

    name: str
    input: int
    dim: int
    min: int
    max: int
    kind: str


@dataclass(frozen=True)
class ConditionSpec:
    """Two sizes that have to be equal in a run, or a condition and "", and the symbols in them, by name."""

    left: str
    right: str
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class UseSpec:
    """What the elements of input number ``input`` are, from ``least`` to ``most``, as the manifest's ``uses`` say.

    ``most`` is an integer, text over the symbols, or None for any.
    """

    input: int
    kind: str
    least: int
    most: int | str | None


@dataclass(frozen=True)
class Needs:
    """What inputs have to be like, so that a run computes something.

    Attributes:
        conditions: what their sizes have to satisfy.
        preferences: what they should satisfy, so that no value inside is empty.
        uses: what their elements are.
        elements: those that are sizes.
    """

    conditions: tuple[ConditionSpec, ...] = ()
    preferences: tuple[ConditionSpec, ...] = ()
    uses: tuple[UseSpec, ...] = ()
    elements: tuple[SymbolSpec, ...] = ()


@dataclass(frozen=True)
class ToleranceSpec:
    """How far an output may be from a reference's: ``relative`` of its largest element, and ``quantum`` more.

    Both follow from ``roundings``: how many are behind each other, by type.
    """

    relative: float
    quantum: float
    roundings: Mapping[str, int]


@dataclass(frozen=True)
class StepSpec:
    """A step of a run: the kernel's symbol and template, the model nodes, and whether it is of the loose form."""

    kernel: str
    template: str
    nodes: tuple[str, ...]
    loose: bool = False


@dataclass(frozen=True)
class Manifest:
    """The part of a manifest that a run needs."""

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
    loose_conditions: tuple[ConditionSpec, ...]  # of the loose form, numbered after those
    steps: tuple[StepSpec, ...]  # of the fast form, then of the loose one
    broadcast: tuple[str, ...]  # symbols that a loose form lets be 1
    strict: str  # why there is no such form although a symbol could be such a 1
    operators: dict[int, str]  # the model's names of the nodes that the host runs, by number
    dynamic: bool
    interface_id: int  # which the library must have too
    library_sha256: str
    weights_sha256: str
    weights_embedded: bool
    named: tuple[TensorSpec, ...]  # the model's weights, where the library takes others by name
    other_versions: Mapping[str, tuple[StepSpec, ...]]  # steps of the library's other versions, by the processor's name
    versions: tuple[str, ...]  # all of them, the best first
    preferences: tuple[ConditionSpec, ...]
    uses: tuple[UseSpec, ...]
    tolerances: tuple[ToleranceSpec, ...]  # of the outputs; none in manifests of before there were any

    @property
    def needs(self) -> Needs:
        """What inputs have to be like."""
        elements = tuple(symbol for symbol in self.symbols if symbol.kind != "dim")
        return Needs(self.conditions, self.preferences, self.uses, elements)


def require_plain(path: Path) -> None:
    """Refuse what is there and no plain file: reading a pipe or a device may never end.

    Raises:
        BundleError: it is one.
    """
    if path.exists() and not path.is_file():
        raise BundleError(f"{path} is not a plain file", REMEDY)


def read_manifest(folder: Path) -> Manifest:
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
        if folder.is_file():
            model = f"if it is a model, compile it: torshc compile {folder} -o {folder.stem}.tsc"
            raise BundleError(f"{folder} is a file, and a bundle is a folder", f"{remedy}; {model}") from error
        why = "is not a torshc bundle" if folder.is_dir() else "is not a folder"
        raise BundleError(f"{folder} {why}: {error.strerror or error}", remedy) from error
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{path} is not JSON: {error}", REMEDY) from error
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise BundleError(f"{path} is not the manifest of a torshc bundle", "name the folder that compile wrote")
    if body.get("format_version") != FORMAT_VERSION:
        raise BundleError(
            f"{path} has format version {body.get('format_version')!r}; this torshc reads {FORMAT_VERSION}",
            "compile the model again with this torshc",
        )
    digest = body.pop("sha256", None)
    try:
        if digest != _hash(body):
            raise BundleError(f"{path} was altered: its sha256 does not match", REMEDY)
        return _read(body)
    except (KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise BundleError(f"{path} lacks a field or has one of another type: {error}", REMEDY) from error


def _no_number(text: str) -> None:
    raise ValueError(f"{text} in it is no number")


def _hash(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _is(value: Any, kind: type[_T]) -> _T:
    """The value, which has to be of that type and no other.

    Raises:
        TypeError: it is of another.
    """
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is not {kind.__name__}")
    return value


def _read(body: dict[str, Any]) -> Manifest:
    weights, others = body["weights"], body.get("other_versions", ())
    loose = body.get("loose") or {"sizes": (), "why": "", "form": None}
    if _is(body["device"], int) < 1 or not 0 <= _is(body["threads"], int) <= THREADS_MAX:
        raise TypeError(f"device {body['device']} or threads {body['threads']}")
    embedded = weights is not None and _is(weights["embedded"], bool)
    return Manifest(
        model=_is(body["model"], str),
        target=_is(body["target"], str),
        device=body["device"],
        arch=_is(body["isa"]["arch"], str),
        isa=_isa(body),
        profile=_is(body["profile"], bool),
        threads=body["threads"],
        inputs=tuple(_tensor(item) for item in body["inputs"]),
        outputs=tuple(_tensor(item) for item in body["outputs"]),
        symbols=tuple(_symbol(item) for item in body["symbols"]),
        conditions=_conditions(body["conditions"]),
        loose_conditions=_conditions(loose["form"]["conditions"]) if loose["form"] is not None else (),
        steps=_steps(body) + _steps(loose["form"], True),
        broadcast=tuple(_is(name, str) for name in loose["sizes"]),
        strict=_is(loose["why"], str),
        operators={_is(o["node"], int): _is(o["name"], str) for o in body["operators"]},
        dynamic=_is(body["dynamic"], bool),
        interface_id=int(_hash({name: body[name] for name in _INTERFACE})[:16], 16),
        library_sha256=_is(body["library_sha256"], str),
        weights_sha256=_is(weights["sha256"], str) if weights and not embedded else "",
        weights_embedded=embedded,
        named=_named(weights),
        other_versions={_isa(version): _steps(version) + _steps(version.get("loose"), True) for version in others},
        versions=tuple(_isa(version) for version in (body, *others)),
        preferences=_conditions(body.get("preferences", ())),  # not in manifests of before there were any
        uses=tuple(_use(item, len(body["inputs"])) for item in body.get("uses", ())),
        tolerances=tuple(map(_tolerance, body.get("tolerances", ()))),
    )


def _conditions(items: Sequence[dict[str, Any]]) -> tuple[ConditionSpec, ...]:
    return tuple(
        ConditionSpec(_is(c["left"], str), _is(c["right"], str), tuple(_is(n, str) for n in c["symbols"]))
        for c in items
    )


def _use(item: dict[str, Any], inputs: int) -> UseSpec:
    most, number = item["most"], _is(item["input"], int)
    if not 0 <= number < inputs:
        raise IndexError(f"input {number}")
    most = most if most is None or isinstance(most, str) else _is(most, int)
    return UseSpec(number, _is(item["kind"], str), _is(item["least"], int), most)


def _symbol(item: dict[str, Any]) -> SymbolSpec:
    place, dim, low, high = (_is(item[name], int) for name in ("input", "dim", "min", "max"))
    return SymbolSpec(_is(item["name"], str), place, dim, low, high, _is(item["kind"], str))


def _tolerance(item: dict[str, Any]) -> ToleranceSpec:
    roundings = {_is(name, str): _is(count, int) for name, count in item["roundings"].items()}
    return ToleranceSpec(_is(item["relative"], float), _is(item["quantum"], float), roundings)


def _named(weights: dict[str, Any] | None) -> tuple[TensorSpec, ...]:
    """The weights by name; nothing in manifests of before there were any."""
    return tuple(_tensor({**w, "inner": None}) for w in weights.get("named", ())) if weights else ()


def _isa(version: dict[str, Any]) -> str:
    return _is(version["isa"]["mcpu"], str) or _is(version["isa"]["arch"], str)


def _steps(version: dict[str, Any] | None, loose: bool = False) -> tuple[StepSpec, ...]:
    """The steps of a version in one form; none of a form that it does not have."""
    if version is None:
        return ()
    kernels = [(_is(k["symbol"], str), _is(k["template"], str)) for k in version["kernels"]]
    steps = ((kernels[step["kernel"]], tuple(_is(n, str) for n in step["nodes"])) for step in version["steps"])
    return tuple(StepSpec(symbol, template, nodes, loose) for (symbol, template), nodes in steps)


def _tensor(item: dict[str, Any]) -> TensorSpec:
    if _is(item["dtype"], str) not in (*_ML_DTYPES, *_NUMPY, *_OBJECTS):
        raise TypeError(f"dtype {item['dtype']!r}")
    inner = _tensor(item["inner"]) if item["inner"] else None
    dims = tuple(d if isinstance(d, str) else _is(d, int) for d in item["dims"])
    return TensorSpec(_is(item["name"], str), item["dtype"], dims, inner)
