"""The host program as data.

A :class:`HostProgram` says what a run does: which input dimension each symbol is, what the shapes and sizes are, and
the steps in order. Sizes are expressions over the symbols; :mod:`.host_source` writes them as C.
No text of a model is ever part of a program: tensors are known by their index, and comments are checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..base.errors import InternalError
from ..base.manifest import DLPACK
from ..expr import Expr, as_expr, as_int, dims_of, stated
from ..graph import Value
from ..plan.script import Check, Script
from .copies import Copy

# The largest value of a symbol unless the program says less: four of them still multiply in 128 bits.
SYMBOL_MAX = 2**31 - 1
SYMBOLS_MAX = 4096
FORM = ""  # the symbol behind those of the inputs that says which form of several a run takes; no size has this name
BYTES_MAX = 2**47

Size = Expr | int

# DLPack's type code and bits; elements of fewer than 8 bits take a byte each.
_SYMBOL_NAME = re.compile(r"k[A-Za-z0-9_]*\Z")
_COMMENT = re.compile(r"[A-Za-z0-9 _,.:+\-<>()\[\]=']*\Z")
_CPU_FEATURE = re.compile(r"[A-Za-z0-9._+\-]*\Z")
_DIGEST = re.compile(r"([0-9a-f]{64})?\Z")
_VERSION = re.compile(r"[a-z0-9]*\Z")

CPU = 1  # DLPack's code of the processor
_KINDS = ("dim", "element", "clamped", "count")
_INTEGERS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool")


@dataclass(frozen=True)
class Port:
    """An input or an output.

    Attributes:
        dtype: short name of the element type ("f32").
        dims: sizes; None for a run-time dependent one.
        inner: what a sequence or an optional holds; of a map, its keys, whose `inner` are its values.
        ranked: whether there are as many dimensions in any case.
    """

    dtype: str
    dims: tuple[Size | None, ...] = ()
    inner: Port | None = None
    ranked: bool = True

    @property
    def rank(self) -> int:
        """Number of dimensions; -1 for any."""
        return len(self.dims) if self.ranked else -1

    @property
    def static_dims(self) -> tuple[int, ...]:
        """Dimensions with -1 for each symbolic one."""
        return tuple(-1 if d is None or (known := as_int(as_expr(d))) is None else known for d in self.dims)

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type code and bits."""
        return DLPACK[self.dtype]


@dataclass(frozen=True)
class Symbol:
    """Symbol ``s<k>``, from ``min`` to ``max``: a dimension of an input, or one of its elements.

    Attributes:
        input: number of the input.
        dim: number of the dimension, or position of the element.
        kind: "dim"; "element"; "clamped", an element that is moved into the range instead of refused; or "count", how
            many elements are not 0, as many as there are where the host does not see them.
    """

    input: int
    dim: int
    min: int = 0
    max: int = SYMBOL_MAX
    kind: str = "dim"


@dataclass(frozen=True)
class Between:
    """Symbol ``s<symbol>`` is from ``least`` to ``most``."""

    symbol: int
    least: int
    most: int


@dataclass(frozen=True)
class Guard:
    """All elements of input ``input``, of integers or truths, are ``value``, which 64 bits with a sign hold."""

    input: int
    value: int

    @property
    def text(self) -> str:
        """The value as C."""
        return str(self.value) if self.value > -(2**63) else "INT64_MIN"


@dataclass(frozen=True)
class Buffer:
    """A place in memory.

    Attributes:
        space: where it lies.
        index: which input or output; 0 for the others.
        offset: bytes from the start of that.
        base: where the weight begins that this is a part of.
    """

    space: Literal["input", "output", "weights", "arena", "state"]
    index: int = 0
    offset: Size = 0
    base: int = 0


@dataclass(frozen=True)
class Stored:
    """A weight of a file in which some are narrower than in memory.

    Attributes:
        dtype: "f16", "bf16" or "f8" for f32 that is stored so; "" for bytes as they are.
        place: where it begins in the file.
        offset: where it begins in memory.
        bytes: its size in memory.
    """

    dtype: str
    place: int
    offset: int
    bytes: int


@dataclass(frozen=True)
class NamedWeight:
    """A weight of the model that the library may be given by name.

    Attributes:
        name, dtype, dims: as the model has them.
        copies: what brings its elements to their places, in elements from the start of the weights in memory.
        why: what keeps it from being exchanged; empty where nothing does.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    copies: tuple[Copy, ...] = ()
    why: str = ""

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type code and bits."""
        return DLPACK[self.dtype]


@dataclass(frozen=True)
class HostState:
    """A tensor that an open model keeps from run to run.

    Attributes:
        name: what state files call it.
        dtype, dims: its type.
        offset: bytes from the start of all states in memory.
        bytes: its size there.
        first: where its first contents lie in the weights in memory; -1 for zeros.
        trained: whether it is a weight of the model.
        parts: how many ranks have a part of it, as long as those of others; `dims` are of the whole.
    """

    name: str
    dtype: str
    dims: tuple[int, ...]
    offset: int
    bytes: int
    first: int = -1
    trained: bool = False
    parts: int = 1

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type code and bits."""
        return DLPACK[self.dtype]


@dataclass(frozen=True)
class Move:
    """Bytes that are copied when all steps of a run are done."""

    source: Buffer
    target: Buffer
    bytes: int


@dataclass(frozen=True)
class Launch:
    """Runs kernel ``symbol`` over its tasks.

    Attributes:
        symbol: the kernel's external function, ``k...``.
        buffers: its ``buf`` argument, in order.
        dims: its ``dim`` argument, in order.
        tasks: number of tasks, on a device of blocks; none means that the launch is left out.
        scratch: bytes of scratch a thread, on the processor.
        comment: one line for the reader, e.g. the numbers of its nodes; never text of a model.
        threads: threads of a block, on a device.
        fallback: a kernel of the C target in a library for a device; its buffers are copied to the processor and back.
        bytes: for a fallback, the size of each buffer.
        written: for a fallback, which buffers it writes.
        spans: where arguments are bound, the bytes of each; None for one that is the same as another before it.
        demands: flags among what it writes, each with what is out of range when it is set; the run ends then.
        faults: of which operator the kernel is, where it may fail on the processor; it gets one more of `dim` then, the
            address of what says so.
        collective: of which operator the kernel is, where it exchanges tensors with other ranks; one more of `dim` is
            the address of the call then.
        results: what it writes of f32 and f64, with the type and the number of elements, on the processor where steps
            of training are refused whose loss is no finite number; the first with a NaN is looked for then.
        awaits: exchanges that were begun before have to be done first.
        begins: an exchange that goes on behind its step.
        meanwhile: exchanges go on behind this step, which the next one does not await.
    """

    symbol: str
    buffers: tuple[Buffer, ...]
    dims: tuple[Size, ...] = ()
    tasks: Size = 1
    scratch: Size = 0
    comment: str = ""
    threads: int = 0
    fallback: bool = False
    bytes: tuple[Size, ...] = ()
    written: tuple[bool, ...] = ()
    demands: tuple[tuple[Buffer, str], ...] = ()
    spans: tuple[Size | None, ...] = ()
    faults: str = ""
    collective: str = ""
    results: tuple[tuple[Buffer, str, Size], ...] = ()
    awaits: bool = False
    begins: bool = False
    meanwhile: bool = False

    @property
    def later(self) -> bool:
        """Whether other steps come before its exchange is awaited."""
        return self.begins and self.meanwhile

    @property
    def sized(self) -> bool:
        """Whether a kernel whose arguments are bound gets its number of blocks and sizes as another of them."""
        return bool(self.dims) or as_int(as_expr(self.tasks)) is None

    @property
    def host_scratch(self) -> tuple[Size, ...]:
        """Scratch that the host provides; kernels for a device have their own."""
        return () if self.threads else (self.scratch,)


@dataclass(frozen=True)
class Condition:
    """Two sizes that have to be equal.

    Attributes:
        number: its place among the conditions of a model, in the manifest.
        left, right: the sizes.
    """

    number: int
    left: Expr
    right: Expr

    @property
    def stated(self) -> Expr | None:
        """A condition that is no equation: what has to hold."""
        return stated(self.left, self.right)


@dataclass(frozen=True)
class Constant:
    """A slot of a script that holds a constant from the start: its type, shape and place in the weights."""

    slot: int
    port: Port
    offset: int


@dataclass(frozen=True)
class HostScript:
    """What the host does between segments, when sizes or steps are run-time dependent.

    Attributes:
        script: the steps.
        segments: the program of each segment.
        constants: slots that hold constants.
        stacked: results that loops join, with what they are when there was no round.
        checks: the conditions among the steps.
        first_node: what is added to the numbers of its nodes, so that those of two forms differ.
    """

    script: Script
    segments: tuple[HostProgram, ...] = ()
    constants: tuple[Constant, ...] = ()
    stacked: tuple[tuple[Value, Port], ...] = ()
    checks: Mapping[Check, Condition] = field(default_factory=dict)
    first_node: int = 0


@dataclass(frozen=True)
class HostProgram:
    """What a run of a model does.

    Attributes:
        inputs, outputs: in the model's order.
        symbols: where symbols are read from inputs; symbol ``s<k>`` is ``symbols[k]``.
        names: what sizes call symbol ``s<k>``; of a segment of a script, all symbols of the script.
        given: names of the sizes that kernels are given and that are no symbols; of a segment, those of all.
        conditions: what has to hold before a run.
        extents: dimensions of values between inputs and outputs that elements could make negative.
        arena_bytes: bytes of the arena that holds intermediate values.
        steps: the steps in order.
        states: what the model keeps from run to run.
        state_header: what the files begin with that hold the states; empty without states.
        moves: new states that no step can write in their places, and these.
        shared: for each output the input whose buffer it may be, -1 for none; empty where there are none.
        interface_id: identity of the manifest's names, types and dimensions (:class:`torshc.base.manifest.Manifest`).
        model_sha256: of the model's file, hexadecimal; empty where there was none.
        weights_bytes: size of the weights in memory, 0 for none.
        file_bytes: payload of the weights file.
        stored: the weights, where the file holds some in a narrower type; empty where it is used as it is.
        named: the model's weights by name, where the library takes others for them.
        weights_id: its 64-bit identity (:class:`torshc.bundle.weights.WeightsInfo`).
        embed_weights: whether they are linked into the library.
        cpu_features: what the processor must have (:attr:`torshc.targets.isa.Isa.cpu_features`).
        isa: the processor's name, as :attr:`torshc.targets.isa.Isa.name`.
        version: what tells its own names from those of the library's other versions; empty for the only one.
        device: where it runs, by DLPack's code; a segment of a script for a device may run on the processor.
        script: what the host does between segments, or None where `steps` are all.
        variants: the same model in forms for some sizes, over the same inputs, outputs, symbols and weights. Of those
            that fit the sizes of a run that this one takes, the run takes the first. Their steps are numbered after
            these.
        taken: sizes that a variant is for.
        guards: of a variant, the values of inputs that a run has to have that takes it.
        padded: numbers of the inputs whose zeros say which rows a variant leaves out.
        loose: the same model in the form that runs take whose sizes this one refuses, as variants are; its steps are
            numbered last. Or None.
        recorded: how many recordings of runs a card keeps; 0 for the usual number.
        rank, ranks: which of how many processes that share the model it is for; 0 ranks for a model that is whole.
        kernels: symbols of the kernels for that device; filled in.
        fallbacks: symbols of the kernels that run on the processor although that is not the device; filled in.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[Symbol, ...] = ()
    names: tuple[str, ...] = ()
    given: Mapping[Expr, str] = field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()
    extents: tuple[Size, ...] = ()
    arena_bytes: Size = 0
    steps: tuple[Launch, ...] = ()
    states: tuple[HostState, ...] = ()
    state_header: str = ""
    moves: tuple[Move, ...] = ()
    shared: tuple[int, ...] = ()
    interface_id: int = 0
    model_sha256: str = ""
    weights_bytes: int = 0
    file_bytes: int = 0
    stored: tuple[Stored, ...] = ()
    named: tuple[NamedWeight, ...] = ()
    weights_id: int = 0
    embed_weights: bool = False
    cpu_features: tuple[str, ...] = ()
    isa: str = ""
    version: str = ""
    device: int = CPU
    script: HostScript | None = None
    variants: tuple[HostProgram, ...] = ()
    taken: tuple[Between, ...] = ()
    guards: tuple[Guard, ...] = ()
    padded: tuple[int, ...] = ()
    loose: HostProgram | None = None
    recorded: int = 0
    rank: int = 0
    ranks: int = 0
    kernels: tuple[str, ...] = field(init=False, default=())
    fallbacks: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", tuple(dict.fromkeys(x.symbol for x in self.steps if not x.fallback)))
        object.__setattr__(self, "fallbacks", tuple(dict.fromkeys(x.symbol for x in self.steps if x.fallback)))

    @property
    def table(self) -> str:
        """The name of its table in C."""
        return f"t_table{self.version}"

    @property
    def state_bytes(self) -> int:
        """Bytes of all states in memory."""
        return max((s.offset + s.bytes for s in self.states), default=0)

    @property
    def used_bytes(self) -> int:
        """Bytes of the weights in memory, from the start on, that hold all that kernels read: others are behind them,
        where states begin."""
        first = min((s.first for s in self.states if s.first >= 0), default=self.weights_bytes)
        read = (b.base for step in self.steps for b in step.buffers if b.space == "weights")
        return first if all(base < first for base in read) else self.weights_bytes

    @property
    def is_variant(self) -> bool:
        """Whether it is for some sizes, or values, only."""
        return bool(self.taken or self.guards or self.padded)

    @property
    def parts(self) -> tuple[HostProgram, ...]:
        """The programs inside this one: the segments of a script, and the other forms."""
        return (*(self.script.segments if self.script is not None else ()), *self.forms[1:])

    @property
    def forms(self) -> tuple[HostProgram, ...]:
        """This one, the variants, and the loose form where there is one; a run says which by its place here."""
        return (self, *self.variants) if self.loose is None else (self, *self.variants, self.loose)

    @property
    def in_place(self) -> tuple[int, ...]:
        """Of each output the input whose buffer it may be in every form, -1 for none; empty where there are none."""
        return shared_by_all([f.shared for f in self.forms])

    @property
    def may_fail(self) -> bool:
        """Whether a step may fail of its own accord, also in segments and other forms."""
        return any(s.faults for f in self.forms for s in f.steps) or any(p.may_fail for p in self.parts)

    @property
    def is_chosen_by_values(self) -> bool:
        """Whether a device may take the form of a run by what its memory holds: one process knows all steps."""
        return any(v.guards for v in self.variants) and self.script is None and not self.ranks

    @property
    def collective(self) -> bool:
        """Whether a step exchanges tensors with other ranks."""
        return any(s.collective for f in self.forms for s in f.steps)

    @property
    def fallback_steps(self) -> int:
        """How many steps are fallbacks, those of segments and of other forms too."""
        return sum(step.fallback for step in self.steps) + sum(p.fallback_steps for p in self.parts)

    @property
    def for_processor(self) -> tuple[str, ...]:
        """Symbols of the kernels that run on the processor although the target is a device."""
        found = [k for p in self.parts for k in (*p.for_processor, *(p.kernels if p.device != self.device else ()))]
        return tuple(dict.fromkeys((*self.fallbacks, *found)))

    @property
    def for_device(self) -> tuple[str, ...]:
        """Symbols of the kernels that run on the target's device."""
        found = [k for p in self.parts if p.device == self.device for k in p.for_device]
        return tuple(dict.fromkeys((*self.kernels, *found)))


def shared_by_all(programs: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """What several programs of a model say alike in :attr:`HostProgram.shared`."""
    if not all(programs):
        return ()
    found = tuple(first if {first} == {*rest} else -1 for first, *rest in zip(*programs, programs[0], strict=True))
    return found if any(k >= 0 for k in found) else ()


def _bad(what: str) -> InternalError:
    return InternalError(f"host program: {what}")


def _check_size(size: Size, names: frozenset[str]) -> None:
    """A constant is a possible number of bytes; a symbol is one of the program's."""
    e = as_expr(size)
    if (known := as_int(e)) is not None and not 0 <= known <= BYTES_MAX:
        raise _bad(f"size {known} is not in 0 .. 2^47")
    if unknown := sorted(set(dims_of(e)) - names):
        raise _bad(f"a size uses {', '.join(map(repr, unknown))}, which it does not bind")


def _check_buffer(buffer: Buffer, program: HostProgram) -> None:
    count = {"input": len(program.inputs), "output": len(program.outputs), "weights": 1, "arena": 1, "state": 1}[
        buffer.space
    ]
    if not 0 <= buffer.index < count:
        raise _bad(f"{buffer.space} {buffer.index} of {count}")
    offset = as_int(as_expr(buffer.offset))
    if buffer.space == "weights" and offset is not None and offset > program.weights_bytes:
        raise _bad(f"weights offset {offset} of {program.weights_bytes} bytes")
    if buffer.space == "state" and not any(s.offset <= (offset or 0) <= s.offset + s.bytes for s in program.states):
        raise _bad(f"no state is at {offset!r}")


def _check_launch(step: Launch, program: HostProgram) -> None:
    words = [*(what for _, what in step.demands), *filter(None, (step.faults, step.collective))]
    if not all(what.isidentifier() and what.isascii() for what in words):
        raise _bad(f"demands or faults {words!r}")
    if not _SYMBOL_NAME.match(step.symbol):
        raise _bad(f"kernel symbol {step.symbol[:200]!r}")
    if (program.device == CPU or step.fallback) != (step.threads == 0) or not 0 <= step.threads <= 1024:
        raise _bad(f"{step.symbol} has blocks of {step.threads} threads on device {program.device}")
    each = len(step.buffers) if step.fallback else 0
    if (step.fallback and program.device == CPU) or (len(step.bytes), len(step.written)) != (each, each):
        raise _bad(f"{step.symbol} is not a fallback, or not that of {len(step.buffers)} buffers")


def check_program(program: HostProgram) -> None:
    """Raises InternalError for what would not be correct, or not be safe, as C."""
    if program.device < CPU or set(program.kernels) & set(program.fallbacks):
        raise _bad(f"device {program.device}, or a kernel that is a fallback too")
    if len(program.symbols) > SYMBOLS_MAX or len(program.names) < len(program.symbols):
        raise _bad(f"{len(program.symbols)} symbols of {len(program.names)} names; at most {SYMBOLS_MAX}")
    for k, symbol in enumerate(program.symbols):
        _check_symbol(k, symbol, program)
    for port in (*program.inputs, *program.outputs):
        if port.dtype not in DLPACK or len(port.dims) > 64:
            raise _bad(f"dtype {port.dtype!r} with {len(port.dims)} dimensions")
    names = frozenset(program.names)
    for size in sizes_of(program):
        _check_size(size, names)
    for step in program.steps:
        if not _COMMENT.match(step.comment):
            raise _bad(f"comment {step.comment[:200]!r}")
        _check_launch(step, program)
        for buffer in step.buffers:
            _check_buffer(buffer, program)
    for move in program.moves:
        _check_buffer(move.source, program)
        _check_buffer(move.target, program)
    for between in program.taken:
        if not 0 <= between.symbol < len(program.symbols) or not 0 <= between.least <= between.most <= SYMBOL_MAX:
            raise _bad(f"a variant for s{between.symbol} from {between.least} to {between.most}")
    for guard in program.guards:
        if not 0 <= guard.input < len(program.inputs) or program.inputs[guard.input].dtype not in _INTEGERS:
            raise _bad(f"a variant where input {guard.input} is something throughout")
        if not -(2**63) <= guard.value < 2**63:
            raise _bad(f"a variant where input {guard.input} is {guard.value}")
    if not _DIGEST.match(program.model_sha256):
        raise _bad(f"model {program.model_sha256[:200]!r}")
    if not _VERSION.match(program.version):
        raise _bad(f"version {program.version[:200]!r}")
    for feature in (*program.cpu_features, program.isa):
        if not _CPU_FEATURE.match(feature):
            raise _bad(f"processor feature {feature[:200]!r}")


def _check_symbol(k: int, symbol: Symbol, program: HostProgram) -> None:
    if symbol.kind not in _KINDS or not 0 <= symbol.input < len(program.inputs):
        raise _bad(f"s{k} is {symbol.kind!r} of input {symbol.input}, which does not exist")
    port = program.inputs[symbol.input]
    places = len(port.dims) if symbol.kind == "dim" else math.prod(d for d in port.static_dims)
    places = 1 if symbol.kind == "count" else places
    if not 0 <= symbol.dim < places or (symbol.kind != "dim" and port.dtype not in _INTEGERS):
        raise _bad(f"s{k} is {symbol.kind} {symbol.dim} of input {symbol.input}, which does not exist")
    least = 0 if symbol.kind in ("dim", "count") else -SYMBOL_MAX
    if not least <= symbol.min <= symbol.max <= SYMBOL_MAX:
        raise _bad(f"s{k} has range {symbol.min} .. {symbol.max}")


def sizes_of(program: HostProgram) -> Iterator[Size]:
    """All sizes of a run. What kernels get in ``dim`` is none: elements may be negative."""
    for port in (*program.inputs, *program.outputs):
        yield from (d for d in port.dims if d is not None)
    yield from program.extents
    yield program.arena_bytes
    for step in program.steps:
        yield from (b.offset for b in step.buffers)
        yield step.tasks
        yield from step.host_scratch
        yield from step.bytes
        yield from (s for s in step.spans if s is not None)
        yield from (count for _, _, count in step.results)
    yield from (move.source.offset for move in program.moves)
