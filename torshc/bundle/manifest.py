"""The manifest of a bundle: what it holds, for people and machines, as JSON.

``manifest.schema.json`` beside this file is its JSON Schema. The text is the same for the same bundle everywhere:
no time, no path, fields in the order below. Names of a model stand only here, escaped to ASCII.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from torshc.errors import BundleError

FORMAT = "torshc-bundle"
FORMAT_VERSION = 3
FILE = "manifest.json"
SCHEMA = Path(__file__).with_name("manifest.schema.json")

T = TypeVar("T")


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: its name, short dtype ("f32"), and dimensions, integers or text like "2*batch".

    A "sequence" or an "optional" says in ``inner`` what it holds, "?" for dimensions that differ and "..." for any; a
    "map" names its keys there, whose ``inner`` are its values.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    inner: TensorInfo | None = None


@dataclass(frozen=True)
class SymbolInfo:
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
class ConditionInfo:
    """Two sizes that have to be equal in a run, and the symbols in them, by name."""

    left: str
    right: str
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class IsaInfo:
    """The instruction set that kernels were compiled for; ``lanes`` counts 32-bit lanes of a vector."""

    arch: str
    mcpu: str
    features: tuple[str, ...]
    lanes: int


@dataclass(frozen=True)
class KernelInfo:
    """A distinct kernel.

    Attributes:
        id: its number, the index in the list.
        symbol: its name in the library and in the sources.
        template: the template that rendered it.
        nodes: names of all model nodes that it serves.
        ops: their operators, in the same order.
        flops, bytes: arithmetic and memory traffic of one launch, integers or text over the symbols.
        source_sha256: of its C source.
    """

    id: int
    symbol: str
    template: str
    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    flops: int | str
    bytes: int | str
    source_sha256: str


@dataclass(frozen=True)
class StepInfo:
    """A step of a run: a launch of kernel ``kernel``, with the names of its model nodes."""

    kernel: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class OperatorInfo:
    """A node that the host runs between launches: its number, its operator and the model's name of it."""

    node: int
    op: str
    name: str


@dataclass(frozen=True)
class WeightsFile:
    """The weights: bytes of the payload, and the SHA-256 of the file; ``embedded`` when linked into the library."""

    bytes: int
    sha256: str
    embedded: bool


@dataclass(frozen=True)
class ToolInfo:
    """A tool that made the bundle."""

    name: str
    version: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """All of it. ``library_sha256`` is of ``libmodel.so``; ``fallbacks`` says what took a slower path, and why;
    ``approximations`` what trades accuracy for speed, on request; ``dynamic`` whether only a
    run tells the outputs' sizes."""

    torshc: str
    model: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    symbols: tuple[SymbolInfo, ...]
    conditions: tuple[ConditionInfo, ...]
    target: str
    device: int
    isa: IsaInfo
    opt_level: int
    profile: bool
    threads: int
    passes: tuple[str, ...]
    kernels: tuple[KernelInfo, ...]
    steps: tuple[StepInfo, ...]
    operators: tuple[OperatorInfo, ...]
    fallbacks: tuple[str, ...]
    approximations: tuple[str, ...]
    dynamic: bool
    arena_bytes: int | str
    weights: WeightsFile | None
    library_sha256: str
    tools: tuple[ToolInfo, ...]

    def to_json(self) -> str:
        """The text of manifest.json."""
        body = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        body["sha256"] = manifest_hash(body)
        return json.dumps(body, indent=1, ensure_ascii=True, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> Manifest:
        """Reads a manifest.

        Raises:
            BundleError: it is not one, of another version, or was altered.
        """
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BundleError(f"manifest.json is not JSON: {error}", "compile the model again") from error
        if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
            raise BundleError("manifest.json is not of a torshc bundle", "compile the model again")
        version, digest = body.pop("format_version", None), body.pop("sha256", None)
        if version != FORMAT_VERSION:
            raise BundleError(
                f"manifest.json has format version {version!r}; this torshc reads {FORMAT_VERSION}",
                "compile the model again with this torshc",
            )
        if digest != manifest_hash({"format": FORMAT, "format_version": version, **body}):
            raise BundleError("manifest.json was altered: its sha256 does not match", "compile the model again")
        return _decode(Manifest, body, "manifest")


def manifest_hash(body: dict[str, Any]) -> str:
    """SHA-256 over the manifest without its own "sha256", written compactly with sorted keys."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _decode(kind: type[T], value: object, where: str) -> T:
    """Reads ``value`` as a dataclass; nothing may be missing, extra or of another type."""
    hints = get_type_hints(kind)
    if not isinstance(value, dict) or set(value) != set(hints):
        found = set(value) if isinstance(value, dict) else set()
        raise BundleError(f"{where} does not have the fields of this version: {sorted(found ^ set(hints))}")
    return kind(**{name: _decode_any(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


def _decode_any(hint: Any, value: object, where: str) -> object:
    if get_origin(hint) in (types.UnionType,):
        hint = next((h for h in get_args(hint) if _is_plain(h, value)), get_args(hint)[0])
    if hint is types.NoneType and value is None:
        return None
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _decode(hint, value, where)
    if get_origin(hint) is tuple and isinstance(value, list):
        return tuple(_decode_any(get_args(hint)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if _is_plain(hint, value):
        return value
    raise BundleError(f"{where} is {type(value).__name__}")


def _is_plain(hint: Any, value: object) -> bool:
    if hint is types.NoneType:
        return value is None
    return hint in (int, str, bool) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
