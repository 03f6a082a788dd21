"""The manifest of a bundle as data: the one schema of what the compiler writes and the runtime reads.

``bundle/manifest.schema.json`` is its JSON Schema. The text is the same for the same bundle everywhere: no time, no
path, fields in the order below. Names of a model stand only there, escaped to ASCII.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .errors import RunError

if TYPE_CHECKING:
    import numpy as np

FORMAT = "torshc-bundle"
FORMAT_VERSION = 3
FILE = "manifest.json"
RANKS_FORMAT = "torshc-ranks"  # of a bundle with a bundle for each process that shares a model
RANKS_VERSION = 1
MPI_LIBRARY = "libtorshc_mpi.so"
SERVE = "serve"  # of a bundle that trains, the folder of the bundle that runs the model
INTERFACE = ("inputs", "outputs", "symbols", "conditions", "operators")  # what a caller of the library goes by

NUMPY = {
    "f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "bool": "bool",
}  # fmt: skip
OBJECTS = ("string", "sequence", "optional", "map")
ML_DTYPES = {
    "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz", "f8e8m0": "float8_e8m0fnu", "f4e2m1": "float4_e2m1fn", "i4": "int4", "u4": "uint4",
    "i2": "int2", "u2": "uint2",
}  # fmt: skip
# Type codes and bits by DLPack; strings and what holds tensors have codes of ours.
DLPACK = {
    "f64": (2, 64), "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "i64": (0, 64), "i32": (0, 32), "i16": (0, 16),
    "i8": (0, 8), "u64": (1, 64), "u32": (1, 32), "u16": (1, 16), "u8": (1, 8), "bool": (6, 8),
    "f8e4m3fn": (10, 8), "f8e4m3fnuz": (11, 8), "f8e5m2": (12, 8), "f8e5m2fnuz": (13, 8), "f8e8m0": (14, 8),
    "f4e2m1": (17, 4), "i4": (0, 4), "u4": (1, 4), "i2": (0, 2), "u2": (1, 2),
    "string": (100, 128), "sequence": (101, 0), "optional": (102, 0), "map": (103, 0),
}  # fmt: skip


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model.

    Attributes:
        name: its name in the model.
        dtype: short name of its element type ("f32").
        dims: integers, or text for a symbolic dimension ("batch", "2*batch").
        inner: what a "sequence" or an "optional" holds; "?" for a dimension that differs, "..." for any number of them.
            Of a "map" its keys, whose ``inner`` are its values.
    """

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    inner: TensorSpec | None = None

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Its dimensions."""
        return self.dims

    @property
    def shape_text(self) -> str:
        """Its dimensions for a message: ``[batch, 16]``."""
        return f"[{', '.join(map(str, self.dims))}]"

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype.

        Raises:
            RunError: a type that NumPy lacks by itself, without the ml_dtypes package.
        """
        import numpy as np  # start-up: whoever copies a bundle needs no types

        if (other := ML_DTYPES.get(self.dtype)) is not None:
            try:
                import ml_dtypes  # optional package
            except ImportError as error:
                raise RunError(f"{self.name!r} is {other}, which NumPy lacks", "pip install ml_dtypes") from error
            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, other))
            return found
        return np.dtype(NUMPY.get(self.dtype, "object"))


@dataclass(frozen=True)
class ToleranceSpec:
    """How far an output may be from a reference's: ``relative`` of its largest element, and ``quantum`` more.

    Both follow from ``roundings``: how many are behind each other, by type.
    """

    relative: float
    quantum: float
    roundings: Mapping[str, int]


@dataclass(frozen=True)
class SymbolSpec:
    """A symbol, from ``min`` to ``max``: dimension ``dim`` of input number ``input`` where ``kind`` is "dim".

    Otherwise the input's element at that place, which is refused out of that range ("element") or moved into it
    ("clamped"); or how many of its elements are not 0 ("count").
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
    """What the elements of input number ``input`` are (``kind``), and the least and the largest of them.

    An "index" of a table, a "length" of a sequence, a "position" in one, a "number" of things; a float that is a
    "ratio" or "positive"; 1 where a mask is to "keep" a position, or to "hide" it. ``most`` is an integer, text over
    the symbols, or null for any.
    """

    input: int
    kind: str
    least: int
    most: int | str | None


@dataclass(frozen=True)
class SharedSpec:
    """Output number ``output`` of a run may be the very buffer of input number ``input``: a cache with new rows."""

    output: int
    input: int


@dataclass(frozen=True)
class Needs:
    """Conditions on inputs without which a run computes nothing.

    Attributes:
        conditions: what their sizes have to satisfy.
        preferences: what they should satisfy, so that no value inside is empty.
        uses: what their elements are.
        elements: elements of inputs that are sizes.
    """

    conditions: tuple[ConditionSpec, ...] = ()
    preferences: tuple[ConditionSpec, ...] = ()
    uses: tuple[UseSpec, ...] = ()
    elements: tuple[SymbolSpec, ...] = ()


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
        pinned: whether a person edited that.
        tuned: the choices of a tuning record that it was made with; empty for the usual ones.
    """

    id: int
    symbol: str
    template: str
    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    flops: int | str
    bytes: int | str
    source_sha256: str
    pinned: bool = False
    tuned: str = ""


@dataclass(frozen=True)
class StepInfo:
    """A step of a run: a launch of kernel ``kernel``, with the names of its model nodes.

    ``device`` is where it runs, by DLPack's code: 1 is the processor, also in a library for a device.
    """

    kernel: int
    nodes: tuple[str, ...]
    device: int


@dataclass(frozen=True)
class OperatorInfo:
    """A node that the host runs between launches: its number, its operator and the model's name of it."""

    node: int
    op: str
    name: str


@dataclass(frozen=True)
class CustomInfo:
    """An operator of the model that a user declared: what it is ("composite"), in which file, and the hash of that."""

    op: str
    domain: str
    form: str
    file: str
    sha256: str


@dataclass(frozen=True)
class WeightInfo:
    """A weight of the model: name, dtype and dimensions; ``why`` it cannot be exchanged by name, "" where it can."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    why: str


@dataclass(frozen=True)
class WeightsFile:
    """The weights: bytes of the payload, and the SHA-256 of the file; ``embedded`` when linked into the library.

    ``layout`` is a hash of how the library reads them: other weights of the same layout can take their place.
    ``dtype`` is what large weights of f32 are stored as, ``named`` what ``torshc_set_tensors`` knows.
    """

    bytes: int
    sha256: str
    embedded: bool
    layout: str = ""
    dtype: str = "f32"
    named: tuple[WeightInfo, ...] = ()


@dataclass(frozen=True)
class ToolInfo:
    """A tool that made the bundle."""

    name: str
    version: str
    flags: tuple[str, ...]


PADDED = "padded"  # what is written for the value of an input that says which rows are padding


@dataclass(frozen=True)
class SizeRange:
    """Sizes of a symbol, from ``least`` to ``most``."""

    name: str
    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.name}={self.least}" + (f"..{self.most}" if self.most != self.least else "")


@dataclass(frozen=True)
class InputValue:
    """A condition of a variant: all elements of an input are ``value``; a run checks it before it takes the variant."""

    name: str
    value: int

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


@dataclass(frozen=True)
class PaddedInput:
    """A condition of a variant: elements of an input are 0, and it leaves out the rows that these say are padding.

    ``stated`` is whether a person said that such rows mean nothing, so that they are 0 in outputs.
    """

    name: str
    stated: bool = False

    def __str__(self) -> str:
        return f"{self.name}={PADDED}"


def sizes_text(sizes: Iterable[SizeRange | InputValue | PaddedInput]) -> str:
    """Sizes of several symbols, and values of inputs, as a person writes them.

    >>> sizes_text([SizeRange("batch", 1, 1), SizeRange("seq", 64, 128)])
    'batch=1 seq=64..128'
    """
    return " ".join(map(str, sizes))


@dataclass(frozen=True)
class FormInfo:
    """The fields that differ in another form of a model; they are as the manifest's of these names.

    Its steps and conditions are numbered after those of the forms before it: the model itself, the variants in their
    order, and the loose form last.
    """

    conditions: tuple[ConditionSpec, ...]
    kernels: tuple[KernelInfo, ...]
    steps: tuple[StepInfo, ...]
    arena_bytes: int | str


@dataclass(frozen=True)
class LooseInfo:
    """Sizes by name that may be 1 and broadcast in runs of the loose ``form``, or ``why`` there is none."""

    sizes: tuple[str, ...]
    why: str
    form: FormInfo | None


@dataclass(frozen=True)
class VariantInfo:
    """The ``form`` of a model for runs of these sizes, which they take, or ``why`` there is none.

    ``seen`` is what profiles saw of these sizes; empty where a person named them. A run takes it only where the inputs
    in ``guards`` have these values throughout, and where those in ``padded`` have zeros, whose rows it leaves out.
    ``on_device`` says whether a device compares inputs that lie in its memory, where its driver can.
    """

    sizes: tuple[SizeRange, ...]
    seen: str
    why: str
    form: FormInfo | None
    guards: tuple[InputValue, ...] = ()
    padded: tuple[PaddedInput, ...] = ()
    on_device: bool = False


@dataclass(frozen=True)
class VersionInfo:
    """The fields that differ in a version for a lesser processor; they are as the manifest's of these names.

    ``loose`` is its loose form.
    """

    isa: IsaInfo
    kernels: tuple[KernelInfo, ...]
    steps: tuple[StepInfo, ...]
    arena_bytes: int | str
    loose: FormInfo | None = None
    variants: tuple[VariantInfo, ...] = ()


@dataclass(frozen=True)
class StateInfo:
    """A tensor that a model which trains keeps from step to step; ``trained`` where it is one of its weights."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    trained: bool


@dataclass(frozen=True)
class TrainingInfo:
    """What a library trains: loss and optimizer by their names in its file, the model's SHA-256, the states."""

    loss: str
    optimizer: str
    model_sha256: str
    states: tuple[StateInfo, ...]


@dataclass(frozen=True)
class Manifest:
    """All of it, for the best processor; ``other_versions``, the better first, says what the library has for others.
    ``prefix`` begins the names of the library's own functions, "" for none; ``library_sha256`` is of
    ``libmodel.so``; ``fallbacks`` says what took a slower path, and why;
    ``glibc`` is the oldest version of it that the library can be loaded with, "" where nobody looked or it needs none;
    ``approximations`` what trades accuracy for speed, on request; ``tolerances`` how far each output may be from a
    reference's; ``dynamic`` whether only a run shows the outputs' sizes; ``loose`` what there is for sizes of 1 that
    ``conditions`` refuse, null where none can be such a 1; ``variants`` what runs of some sizes take instead, the first
    that fits; ``preferences`` conditions with which no value inside is
    empty, and ``uses`` what elements of inputs are, for whoever chooses sizes and draws inputs; ``custom`` operators
    that users declare; ``training`` what a library trains, null for one that runs the model; ``shared`` which outputs
    may be an input's buffer; ``model_sha256`` is of the model's file without what lies beside it, "" where there was
    none."""

    torshc: str
    model: str
    prefix: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    symbols: tuple[SymbolSpec, ...]
    conditions: tuple[ConditionSpec, ...]
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
    tolerances: tuple[ToleranceSpec, ...] = field(default=(), kw_only=True)  # not in manifests of before there were any
    dynamic: bool
    arena_bytes: int | str
    weights: WeightsFile | None
    library_sha256: str
    tools: tuple[ToolInfo, ...]
    other_versions: tuple[VersionInfo, ...] = ()
    loose: LooseInfo | None = None
    variants: tuple[VariantInfo, ...] = ()
    model_sha256: str = ""
    glibc: str = ""
    preferences: tuple[ConditionSpec, ...] = ()
    uses: tuple[UseSpec, ...] = ()
    custom: tuple[CustomInfo, ...] = ()
    training: TrainingInfo | None = None
    shared: tuple[SharedSpec, ...] = ()

    @property
    def needs(self) -> Needs:
        """Conditions on inputs without which a run computes nothing."""
        elements = tuple(symbol for symbol in self.symbols if symbol.kind not in ("dim", "count"))
        return Needs(self.conditions, self.preferences, self.uses, elements)

    @property
    def interface_id(self) -> int:
        """64 bits of a hash over what a caller of the library goes by, for the library to hold as well."""
        return interface_id(dataclasses.asdict(self))

    def to_json(self) -> str:
        """The text of manifest.json."""
        body = {"format": FORMAT, "format_version": FORMAT_VERSION, **dataclasses.asdict(self)}
        body["sha256"] = manifest_hash(body)
        return json.dumps(body, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


@dataclass(frozen=True)
class RankInfo:
    """A process that shares a model.

    Attributes:
        folder: its bundle, inside the one around it.
        weights_bytes: size of its weights.
        manifest_sha256: of its manifest's file.
    """

    folder: str
    weights_bytes: int
    manifest_sha256: str


@dataclass(frozen=True)
class ExchangeInfo:
    """A tensor that ranks exchange in a run.

    Attributes:
        kind: the operator's name.
        source, target: the ranks; -1 for all of them.
        name: the model's name of the tensor, or of the node that makes it.
        dtype, dims: its type, of what one rank gives.
    """

    kind: str
    source: int
    target: int
    name: str
    dtype: str
    dims: tuple[int | str, ...]


@dataclass(frozen=True)
class RanksManifest:
    """The manifest of a model that several processes share.

    Attributes:
        torshc: the version that wrote it.
        model: its name.
        prefix: what the names of the libraries' functions begin with.
        ranks: the processes, in order.
        exchanges: the exchanges, in the order of a run.
    """

    torshc: str
    model: str
    prefix: str
    ranks: tuple[RankInfo, ...]
    exchanges: tuple[ExchangeInfo, ...]

    def to_json(self) -> str:
        """The text of manifest.json."""
        body = {"format": RANKS_FORMAT, "format_version": RANKS_VERSION, **dataclasses.asdict(self)}
        body["sha256"] = manifest_hash(body)
        return json.dumps(body, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def interface_id(body: Mapping[str, Any]) -> int:
    """The :attr:`Manifest.interface_id` of a manifest in JSON."""
    return int(manifest_hash({name: body[name] for name in INTERFACE})[:16], 16)


def manifest_hash(body: Mapping[str, Any]) -> str:
    """SHA-256 over the manifest without its own "sha256", or over a part, written compactly with sorted keys."""
    return hashlib.sha256(compact(body).encode()).hexdigest()


def compact(body: Mapping[str, Any]) -> str:
    """The bytes of a manifest that are hashed."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"))
