"""The host program as data, and its C source.

A :class:`HostProgram` says what a run does: which input dimension each symbol is, what the shapes and sizes are, and
the steps in order. ``templates/c/host/`` renders it, with ``launch.j2`` of the target's folders for what differs;
the checks, the memory and the threads that every model shares stand in plain C beside it, by :class:`HostFiles`.

Sizes are integers or C expressions over the symbols ``s0``, ``s1``, ... and named parts of sizes ``z0``, ``z1``, ...,
made of integers, ``+ - * / %``, brackets, comparisons, ``?:`` and the functions ``t_imin t_imax t_idiv t_imod t_iquot``
(division rounds down, but for the last).
No text of a model is ever part of a program: tensors are known by their index, and comments are checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from torshc import resources
from torshc.errors import InternalError
from torshc.targets.base import environment

from .sizes import Size, names_in

if TYPE_CHECKING:
    from .script import ScriptProgram

# The largest value of a symbol unless the program says less: four of them still multiply in 128 bits.
SYMBOL_MAX = 2**31 - 1
SYMBOLS_MAX = 4096  # T_SYMBOLS_MAX
UNKNOWN = "(0 - 1)"
BYTES_MAX = 2**47

# DLPack's type code and bits; elements of fewer than 8 bits take a byte each.
_DLPACK = {
    "f64": (2, 64), "f32": (2, 32), "f16": (2, 16), "bf16": (4, 16), "i64": (0, 64), "i32": (0, 32), "i16": (0, 16),
    "i8": (0, 8), "u64": (1, 64), "u32": (1, 32), "u16": (1, 16), "u8": (1, 8), "bool": (6, 8),
    "f8e4m3fn": (10, 8), "f8e4m3fnuz": (11, 8), "f8e5m2": (12, 8), "f8e5m2fnuz": (13, 8), "f8e8m0": (14, 8),
    "f4e2m1": (17, 4), "i4": (0, 4), "u4": (1, 4), "i2": (0, 2), "u2": (1, 2),
    "string": (100, 128), "sequence": (101, 0), "optional": (102, 0), "map": (103, 0),
}  # fmt: skip

_TOKEN = re.compile(
    r"\s+|\d+|s(?P<symbol>\d+)(?!\w)|z(?P<part>\d+)(?!\w)|t_(?:imin|imax|idiv|imod|iquot)(?=\()|&&|\|\||[<>=!]=|[-+*/%()<>?:,!]"
)
_SYMBOL_NAME = re.compile(r"k[A-Za-z0-9_]*\Z")
_COMMENT = re.compile(r"[A-Za-z0-9 _,.:+\-<>()\[\]=']*\Z")
_CPU_FEATURE = re.compile(r"[a-z0-9.\-]+\Z")

CPU, CUDA, METAL = 1, 2, 8  # DLPack's device types
_KINDS = ("dim", "element", "clamped")
_INTEGERS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool")
_DEVICES = {CPU: "TORSHC_CPU", CUDA: "TORSHC_CUDA", METAL: "TORSHC_METAL"}


@dataclass(frozen=True)
class HostFiles:
    """What a target's libraries have beside host.c and their kernels.

    Attributes:
        search: folders of ``templates/`` in which a file is looked for, in order.
        sources: names of the sources.
        headers: names of what they include.
        launchers: whether a kernel for a device is a C function that launches it, or is found by its name alone.
    """

    search: tuple[str, ...] = ("c",)
    sources: tuple[str, ...] = ("t_host.c", "t_open.c", "t_check.c", "t_cpu.c", "t_pool.c")
    headers: tuple[str, ...] = ("model.h", "t_program.h", "t_host.h", "t_pool.h")
    launchers: bool = True

    def text(self, name: str) -> str:
        """The first file of this name."""
        return resources.find_template(self.search, name).read_text()


# Libraries for processors, and what all libraries for devices share; a target adds its device layer to the latter.
C_FILES = HostFiles()
GPU_FILES = HostFiles(
    search=("gpu", "c"),
    sources=("t_gpu_host.c", "t_gpu_steps.c", "t_open.c", "t_check.c", "t_cpu.c", "t_pool.c"),
    headers=("model.h", "t_program.h", "t_gpu_model.h", "t_device.h", "t_pool.h"),
)


@dataclass(frozen=True)
class Port:
    """An input or an output.

    Attributes:
        dtype: short name of the element type ("f32").
        dims: integers, or expressions over the symbols; :data:`UNKNOWN` for one that only a run tells.
        inner: what a sequence or an optional holds; of a map, its keys, whose `inner` are its values.
        ranked: whether there are as many dimensions in any case.
    """

    dtype: str
    dims: tuple[Size, ...] = ()
    inner: Port | None = None
    ranked: bool = True

    @property
    def rank(self) -> int:
        """Number of dimensions; -1 for any."""
        return len(self.dims) if self.ranked else -1

    @property
    def static_dims(self) -> tuple[int, ...]:
        """Dimensions with -1 for each symbolic one."""
        return tuple(d if isinstance(d, int) else -1 for d in self.dims)

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type code and bits."""
        return _DLPACK[self.dtype]


@dataclass(frozen=True)
class Symbol:
    """Symbol ``s<k>``, from ``min`` to ``max``: a dimension of an input, or one of its elements.

    Attributes:
        input: number of the input.
        dim: number of the dimension, or position of the element.
        kind: "dim"; "element"; or "clamped", an element that is moved into the range instead of refused.
    """

    input: int
    dim: int
    min: int = 0
    max: int = SYMBOL_MAX
    kind: str = "dim"


@dataclass(frozen=True)
class Buffer:
    """A place in memory.

    Attributes:
        space: where it lies.
        index: which input or output; 0 for weights and arena.
        offset: bytes from the start of that.
    """

    space: Literal["input", "output", "weights", "arena"]
    index: int = 0
    offset: Size = 0


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
        bytes: of a fallback, the size of each buffer.
        written: of a fallback, which buffers it writes.
        demands: flags among what it writes, each with what is out of range when it is set; the run ends then.
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
    kind: ClassVar[str] = "launch"


@dataclass(frozen=True)
class Copy:
    """Copies ``bytes`` bytes from ``source`` to ``target``, which do not overlap."""

    source: Buffer
    target: Buffer
    bytes: Size
    comment: str = ""
    kind: ClassVar[str] = "copy"


Step = Launch | Copy


@dataclass(frozen=True)
class HostProgram:
    """What a run of a model does.

    Attributes:
        inputs, outputs: in the model's order.
        symbols: symbol ``s<k>`` is ``symbols[k]``.
        parts: named parts of sizes; part ``z<k>`` is ``parts[k]``, of symbols and of parts before it.
        constraints: conditions on the symbols, C expressions that are non-zero when they hold.
        extents: dimensions of values between inputs and outputs that elements could make negative.
        arena_bytes: bytes of the arena that holds intermediate values.
        steps: in order.
        weights_bytes: payload of the weights file, 0 for none.
        weights_id: its 64-bit identity (:class:`torshc.bundle.weights.WeightsInfo`).
        embed_weights: whether they are linked into the library.
        cpu_features: what the processor must have (:attr:`torshc.bundle.isa.Isa.cpu_features`).
        device: where it runs, :data:`CPU`, :data:`CUDA` or :data:`METAL`.
        kernels: symbols of the kernels for that device; filled in.
        fallbacks: symbols of the kernels that run on the processor although that is not the device; filled in.
        scope: of a segment of a script, how many symbols the script has.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    symbols: tuple[Symbol, ...] = ()
    parts: tuple[Size, ...] = ()
    constraints: tuple[str, ...] = ()
    extents: tuple[Size, ...] = ()
    arena_bytes: Size = 0
    steps: tuple[Step, ...] = ()
    weights_bytes: int = 0
    weights_id: int = 0
    embed_weights: bool = False
    cpu_features: tuple[str, ...] = ()
    device: int = CPU
    scope: int = 0
    kernels: tuple[str, ...] = field(init=False, default=())
    fallbacks: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        launches = [step for step in self.steps if isinstance(step, Launch)]
        object.__setattr__(self, "kernels", tuple(dict.fromkeys(x.symbol for x in launches if not x.fallback)))
        object.__setattr__(self, "fallbacks", tuple(dict.fromkeys(x.symbol for x in launches if x.fallback)))

    @property
    def fallback_steps(self) -> int:
        """How many steps are fallbacks."""
        return sum(isinstance(step, Launch) and step.fallback for step in self.steps)


def _step_sizes(step: Step) -> list[Size]:
    if isinstance(step, Copy):
        return [step.source.offset, step.target.offset, step.bytes]
    return [*(b.offset for b in step.buffers), step.tasks, *_scratch(step), *step.bytes]


def _step_dims(step: Step) -> tuple[Size, ...]:
    return () if isinstance(step, Copy) else step.dims


def _scratch(step: Launch) -> list[Size]:
    """Scratch that the host provides: kernels for a device have their own."""
    return [] if step.threads else [step.scratch]


def _bad(what: str) -> InternalError:
    return InternalError(f"host program: {what}")


def _check_size(size: Size, symbols: int, parts: int) -> None:
    if isinstance(size, int):
        if not 0 <= size <= BYTES_MAX:
            raise _bad(f"size {size} is not in 0 .. 2^47")
        return
    at = 0
    while at < len(size):
        match = _TOKEN.match(size, at)
        if not match:
            raise _bad(f"{size[:200]!r} is not an expression over s0..: {size[at : at + 20]!r}")
        if match["symbol"] and int(match["symbol"]) >= symbols:
            raise _bad(f"{size[:200]!r} uses s{match['symbol']} of {symbols} symbols")
        if match["part"] and int(match["part"]) >= parts:
            raise _bad(f"{size[:200]!r} uses z{match['part']} of {parts} parts before it")
        at = match.end()
    if not size.strip() or re.search(r"/[/*]|\*/", size):
        raise _bad(f"{size[:200]!r} is empty or a comment")


def _check_buffer(buffer: Buffer, program: HostProgram) -> None:
    room = {"input": len(program.inputs), "output": len(program.outputs), "weights": 1, "arena": 1}[buffer.space]
    if not 0 <= buffer.index < room:
        raise _bad(f"{buffer.space} {buffer.index} of {room}")
    if buffer.space == "weights" and isinstance(buffer.offset, int) and buffer.offset > program.weights_bytes:
        raise _bad(f"weights offset {buffer.offset} of {program.weights_bytes} bytes")


def _check_launch(step: Launch, program: HostProgram) -> None:
    if not all(what.isidentifier() and what.isascii() for _, what in step.demands):
        raise _bad(f"demands {step.demands!r}")
    if not _SYMBOL_NAME.match(step.symbol):
        raise _bad(f"kernel symbol {step.symbol[:200]!r}")
    if (program.device == CPU or step.fallback) != (step.threads == 0) or not 0 <= step.threads <= 1024:
        raise _bad(f"{step.symbol} has blocks of {step.threads} threads on {_DEVICES[program.device]}")
    each = len(step.buffers) if step.fallback else 0
    if (step.fallback and program.device == CPU) or (len(step.bytes), len(step.written)) != (each, each):
        raise _bad(f"{step.symbol} is no fallback, or not that of {len(step.buffers)} buffers")


def _check(program: HostProgram) -> None:
    """Raises InternalError for what would not be correct, or not be safe, as C."""
    if program.device not in _DEVICES or set(program.kernels) & set(program.fallbacks):
        raise _bad(f"device {program.device}, or a kernel that is a fallback too")
    if len(program.symbols) > SYMBOLS_MAX:
        raise _bad(f"{len(program.symbols)} symbols; at most {SYMBOLS_MAX}")
    for k, symbol in enumerate(program.symbols):
        _check_symbol(k, symbol, program)
    for port in (*program.inputs, *program.outputs):
        if port.dtype not in _DLPACK or len(port.dims) > 64:
            raise _bad(f"dtype {port.dtype!r} with {len(port.dims)} dimensions")
    dims = [d for step in program.steps for d in _step_dims(step)]
    symbols = program.scope or len(program.symbols)
    for k, part in enumerate(program.parts):
        _check_size(part, symbols, k)
    for size in _all_sizes(program) + dims + list(program.constraints):
        _check_size(size, symbols, len(program.parts))
    for step in program.steps:
        if not _COMMENT.match(step.comment):
            raise _bad(f"comment {step.comment[:200]!r}")
        if isinstance(step, Launch):
            _check_launch(step, program)
        for buffer in step.buffers if isinstance(step, Launch) else (step.source, step.target):
            _check_buffer(buffer, program)
    for feature in program.cpu_features:
        if not _CPU_FEATURE.match(feature):
            raise _bad(f"processor feature {feature[:200]!r}")


def _check_symbol(k: int, symbol: Symbol, program: HostProgram) -> None:
    if symbol.kind not in _KINDS or not 0 <= symbol.input < len(program.inputs):
        raise _bad(f"s{k} is {symbol.kind!r} of input {symbol.input}, which there is not")
    port = program.inputs[symbol.input]
    places = len(port.dims) if symbol.kind == "dim" else math.prod(d for d in port.static_dims)
    if not 0 <= symbol.dim < places or (symbol.kind != "dim" and port.dtype not in _INTEGERS):
        raise _bad(f"s{k} is {symbol.kind} {symbol.dim} of input {symbol.input}, which there is not")
    least = 0 if symbol.kind == "dim" else -SYMBOL_MAX
    if not least <= symbol.min <= symbol.max <= SYMBOL_MAX:
        raise _bad(f"s{k} has range {symbol.min} .. {symbol.max}")


def _all_sizes(program: HostProgram) -> list[Size]:
    """All sizes of a run. The symbols that kernels get are none: elements may be negative."""
    sizes: list[Size] = [d for port in (*program.inputs, *program.outputs) for d in port.dims if d != UNKNOWN]
    sizes += [*program.extents, program.arena_bytes]
    for step in program.steps:
        sizes += _step_sizes(step)
    return sizes


def _distinct(sizes: Sequence[Size]) -> list[str]:
    return list(dict.fromkeys(size for size in sizes if isinstance(size, str)))


@dataclass(frozen=True)
class Part:
    """A program as the template renders it.

    Attributes:
        p: the program.
        x: ends its names in C.
        first: number of its first step.
        steps: how many there are; for a script, those of its segments.
    """

    p: HostProgram
    x: str = ""
    first: int = 0
    steps: int = 0
    scripted: bool = False

    @property
    def sizes(self) -> list[str]:
        return _distinct(_all_sizes(self.p))

    @property
    def _scratches(self) -> list[Size]:
        return [size for step in self.p.steps if isinstance(step, Launch) for size in _scratch(step)]

    @property
    def scratches(self) -> list[str]:
        return _distinct(self._scratches)

    @property
    def scratch_floor(self) -> int:
        return max((s for s in self._scratches if isinstance(s, int)), default=0)

    @property
    def run_expressions(self) -> list[Size]:
        return [size for step in self.p.steps for size in (*_step_sizes(step), *_step_dims(step))]


def render_host(program: HostProgram, files: HostFiles = C_FILES, script: ScriptProgram | None = None) -> str:
    """The source of host.c.

    Args:
        program: all of a run, or what surrounds a script's segments.
        script: what the host does between segments, or None.

    Raises:
        InternalError: the program contradicts itself or holds text that is no expression.
    """
    segments = script.programs if script is not None else ()
    parts, first = [], 0
    for k, segment in enumerate(segments):
        _check(segment)
        parts.append(Part(segment, f"_{k}", first, len(segment.steps)))
        first += len(segment.steps)
    _check(program)
    parts.append(Part(program, steps=first or len(program.steps), scripted=script is not None))
    return (
        environment(files.search)
        .get_template("host.c.j2")
        .render(
            p=program,
            parts=parts,
            script=script,
            header="t_frame.h" if script is not None else "",
            kernels=tuple(dict.fromkeys(k for q in parts for k in q.p.kernels)),
            device=_DEVICES[program.device],
            launchers=files.launchers,
            names_in=names_in,
        )
    )


def host_sources(
    program: HostProgram, files: HostFiles = C_FILES, script: ScriptProgram | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """The sources that a library has beside its kernels, and the headers that they include, by file name."""
    sources = {name: files.text(name) for name in files.sources}
    headers = {name: files.text(name) for name in files.headers}
    return {"host.c": render_host(program, files, script), **sources}, headers
