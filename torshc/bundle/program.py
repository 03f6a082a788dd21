"""From kernels in launch order to the host program: buffers get places, symbols get numbers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.budget import budget, remedy
from ..base.errors import UnsupportedError
from ..expr import BOOL, F32, F64, STRING, Expr, as_int, call, const, dims_of, is_nonnegative, select, walk
from ..graph import Graph, Value
from ..kernels.base import Buffer as Part
from ..kernels.base import Kernel, Operand, Packed, Store, Temporary
from ..kernels.collective import CollectiveKernel
from ..kernels.nest import MapKernel
from ..ops.core.bounds import LOSS
from ..plan.memory import Item, place
from ..plan.place import Plan
from ..plan.storage import Storage
from .host import (
    CPU,
    FORM,
    SYMBOL_MAX,
    SYMBOLS_MAX,
    Between,
    Buffer,
    Condition,
    Guard,
    HostProgram,
    HostScript,
    HostState,
    Launch,
    Move,
    Port,
    Size,
    Symbol,
)
from .sizes import names_of_given
from .weights import ALIGN, weight_offsets


@dataclass(frozen=True)
class Placed:
    """A kernel in launch order.

    Attributes:
        kernel: the kernel.
        symbol: its name in C.
        dims: the sizes that it wants, in order.
        comment: a line for the reader of the host program.
        threads: threads of a block, on a device.
        fallback: whether it runs on the processor although that is not the device.
        explicit_bindings: whether its arguments are ranges of known sizes that must not overlap.
        faults: the operator of a kernel that may fail in a run; empty for others.
        collective: the operator of a kernel that exchanges tensors with other ranks; empty for others.
    """

    kernel: Kernel
    symbol: str
    dims: tuple[Expr, ...]
    comment: str
    threads: int = 0
    fallback: bool = False
    explicit_bindings: bool = False
    faults: str = ""
    collective: str = ""


@dataclass
class Weight:
    """A constant of the model as the bundle stores it."""

    operand: Value | Packed

    @property
    def source(self) -> Value:
        """The model's constant."""
        return self.operand.source if isinstance(self.operand, Packed) else self.operand

    @property
    def nbytes(self) -> int:
        if isinstance(self.operand, Packed):
            return self.operand.nbytes
        assert self.operand.const is not None
        if self.operand.dtype is STRING:
            return text_blob(self.operand.const).size
        return int(self.operand.const.size) * self.operand.dtype.size

    def parts(self, contents: npt.NDArray[Any] | None = None) -> Iterable[npt.NDArray[Any]]:
        """Its contents in memory order, made again at each call, so that a part of one weight is held at a time.

        Args:
            contents: an array in place of the model's constant.
        """
        source = self.source
        given = source.const if contents is None else contents
        assert given is not None
        if isinstance(self.operand, Packed):
            return self.operand.make(given)
        if source.dtype is STRING:
            return [text_blob(given)]
        array = np.ascontiguousarray(given)
        return [array.view(f"u{source.dtype.size}") if source.dtype is BOOL or source.dtype.is_storage else array]


def text_blob(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Strings as the weights hold them: where each ends as i64, then the UTF-8."""
    texts = [x if isinstance(x, bytes) else str(x).encode() for x in array.reshape(-1)]
    ends = np.cumsum([len(t) for t in texts], dtype=np.int64) if texts else np.zeros(0, np.int64)
    return np.frombuffer(ends.tobytes() + b"".join(texts), np.uint8)


@dataclass(frozen=True)
class Program:
    """The host program and what goes into the weights file, in order.

    Attributes:
        weights, offsets: the constants, and where each lies in the file.
        names: names of all symbols, by number; the inputs bind the first of them (`symbols`).
        segments: for a script, the program of each segment, whose weights are these.
        conditions: all that has to hold, those of the segments and of the script's steps too.
        Others are as of :class:`.host.HostProgram`.
    """

    weights: list[Weight] = field(default_factory=list)
    offsets: tuple[int, ...] = ()
    arena_bytes: Expr = field(default_factory=lambda: const(0))
    steps: tuple[Launch, ...] = ()
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    names: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    extents: tuple[Expr, ...] = ()
    segments: tuple[Program, ...] = ()
    script: HostScript | None = None
    states: tuple[HostState, ...] = ()
    moves: tuple[Move, ...] = ()
    shared: tuple[int, ...] = ()
    taken: tuple[Between, ...] = ()
    guards: tuple[Guard, ...] = ()
    padded: tuple[int, ...] = ()

    @property
    def is_variant(self) -> bool:
        """Whether it is for some sizes, or values, only."""
        return bool(self.taken or self.guards or self.padded)

    @property
    def sizes(self) -> tuple[str, ...]:
        """The names of symbols that are sizes."""
        counted = {n for n, s in zip(self.names, self.symbols, strict=False) if s.kind == "count"}
        return tuple(name for name in self.names if name != FORM and name not in counted)

    @property
    def weights_read(self) -> set[int]:
        """Where the weights begin that steps read."""
        steps = (step for p in (self, *self.segments) for step in p.steps)
        found = {b.base for step in steps for b in step.buffers if b.space == "weights"}
        return found | {c.offset for c in (self.script.constants if self.script is not None else ())}

    @property
    def given(self) -> dict[Expr, str]:
        """Names of the sizes that kernels are given and that are no symbols."""
        return names_of_given(d for p in (self, *self.segments) for step in p.steps for d in step.dims)

    @property
    def size_names(self) -> dict[Any, str]:
        """What the host program calls its symbols, by theirs, and the sizes that kernels are given."""
        return {**{name: f"s{k}" for k, name in enumerate(self.names)}, **self.given}

    def host(self, **more: Any) -> HostProgram:
        """The program for the template, with its other forms and what is known only once the weights are written."""
        more = {"given": self.given, **more}
        script, inside = None, set[int]()
        if self.script is not None:
            inside = {c.number for part in self.segments for c in part.conditions}
            inside |= {c.number for c in self.script.checks.values()}
            here = self.script.script.for_host
            places = (CPU if k in here else more["device"] for k in range(len(self.segments)))
            parts = zip(self.segments, places, strict=True)
            same = {name: more[name] for name in ("weights_bytes", "given")}
            script = replace(self.script, segments=tuple(p.host(device=d, **same) for p, d in parts))
        return HostProgram(
            inputs=self.inputs,
            outputs=self.outputs,
            symbols=self.symbols,
            names=self.names,
            conditions=tuple(c for c in self.conditions if c.number not in inside),
            extents=self.extents,
            arena_bytes=self.arena_bytes if script is None else 0,
            steps=self.steps,
            states=self.states,
            moves=self.moves,
            shared=self.shared,
            taken=self.taken,
            guards=self.guards,
            padded=self.padded,
            script=script,
            **more,
        )


def assemble(plan: Plan, placed: Sequence[Placed]) -> Program:
    """Give every operand a place and every launch its arguments.

    Raises:
        UnsupportedError: when a symbolic dimension is not a dimension of an input.
    """
    names = tuple(dict.fromkeys(plan.graph.symbols()))
    symbols = bind_symbols(plan.graph, names)
    if plan.graph.states:  # the mean over nothing is NaN, which a run would leave in all states
        symbols = tuple(replace(s, min=max(s.min, 1)) if s.kind == "dim" else s for s in symbols)
    assembler = Assembler(plan.graph, plan.storage, placed, names)
    assembler.weigh()
    return assembler.run(symbols)


class Assembler:
    """Gives every operand a place and every launch its arguments.

    Args:
        graph: the graph that the kernels compute.
        storage: where its values lie.
        placed: the kernels in launch order.
        names: names of the symbols, by number.
        beside: the assembler of another segment of the same script, whose weights are this one's too.
    """

    def __init__(
        self,
        graph: Graph,
        storage: Mapping[Value, Storage],
        placed: Sequence[Placed],
        names: tuple[str, ...],
        beside: Assembler | None = None,
    ) -> None:
        self.graph, self.storage = graph, storage
        self.placed = placed
        self.names = names
        self.inputs = {v: k for k, v in enumerate(self.graph.given)}
        self.outputs = self._roots(self.graph.returned)
        self.faults = self._roots(self.graph.outputs[len(self.graph.results) :])
        self.states = place_states(self.graph)
        held = [v for _, v, _ in self.graph.updates]
        renewed = self._roots([v for _, _, v in self.graph.updates])
        self.held = dict(zip(held, self.states, strict=True))  # by the input that holds a state
        pairs = {new: (held[k], self.states[k]) for new, k in renewed.items() if new is not held[k]}
        brought = {b.operand for p in placed if p.collective for b in p.kernel.buffers if b.written}
        self.exchanges = Exchanges(placed, {*self.inputs, *self.outputs, *held, *(renewed.keys() - brought)})
        safe = in_place({new: old for new, (old, _) in pairs.items()}, placed, self.faults, self.exchanges)
        self.renewed = {new: state for new, (_, state) in pairs.items() if new in safe}
        self.moved = {new: state for new, (_, state) in pairs.items() if new not in safe}
        self.weights: dict[tuple[object, str], int] = beside.weights if beside else {}
        self.list: list[Weight] = beside.list if beside else []
        self.shared = self._shared()
        self.home: dict[Operand, Operand] = {}  # a result that takes over the memory of a dying operand

    def _shared(self) -> tuple[int, ...]:
        """Of each output the input whose buffer it may be, -1 for none; empty where there are none."""
        found: dict[Value, Value] = {}
        for p in self.placed:
            new, old = (None, None) if p.fallback else appended(p.kernel)
            if isinstance(new, Value) and isinstance(old, Value) and new in self.outputs and old in self.inputs:
                found[new] = old
        safe = in_place(found, self.placed, self.faults, self.exchanges)
        inputs = {self.outputs[new]: self.inputs[found[new]] for new in safe}
        return tuple(inputs.get(k, -1) for k in range(len(self.graph.returned))) if inputs else ()

    def _roots(self, values: Sequence[Value]) -> dict[Value, int]:
        """The values whose memory is that of one of these: it, or what it is an alias of."""
        roots: dict[Value, int] = {}
        for k, v in enumerate(values):
            where = self.storage.get(v)
            roots[where.root if where is not None else v] = k
        return roots

    def weigh(self) -> None:
        """Note the weights; before :meth:`run`, for all segments of a script."""
        for p in self.placed:
            for b in p.kernel.buffers:
                self.add_weight(b.operand)
        for state in self.graph.states:
            if state.first is not None:
                self.add_weight(state.first)

    def run(self, symbols: tuple[Symbol, ...] = (), first: int = 0) -> Program:
        """The program, its conditions numbered from `first` on."""
        items = self._items()
        self._require_memory(items)
        offsets, arena = place(items)
        starts = weight_offsets([w.nbytes for w in self.list])
        steps = [self._launch(p, offsets, starts) for p in self.placed]
        steps = [self.exchanges.mark(k, step) for k, step in enumerate(steps)]
        moves = [
            Move(self._buffer(new, offsets, starts), Buffer("state", 0, state.offset), state.bytes)
            for new, state in self.moved.items()
        ]
        firsts = [None if s.first is None else self._buffer(s.first, offsets, starts).base for s in self.graph.states]
        states = tuple(
            replace(state, first=-1 if first is None else first)
            for state, first in zip(self.states, firsts, strict=True)
        )
        return Program(
            self.list,
            starts,
            arena,
            tuple(steps),
            tuple(Port(v.dtype.name, v.shape) for v in self.graph.given),
            tuple(Port(v.dtype.name, v.shape) for v in self.graph.returned),
            symbols,
            self.names,
            self._conditions(first),
            self._extents(),
            states=states,
            moves=tuple(moves),
            shared=self.shared,
        )

    def _launch(self, p: Placed, offsets: dict[Any, Expr], starts: tuple[int, ...]) -> Launch:
        roots = [self._buffer(b.operand, offsets, starts) for b in p.kernel.buffers]
        buffers = tuple(
            replace(root, offset=root.offset + _start(b)) if b.start else root
            for b, root in zip(p.kernel.buffers, roots, strict=True)
        )
        known = p.kernel.buffers if p.fallback else ()
        demands = tuple(
            (place, self.graph.demands[self.faults[b.operand]])
            for b, place in zip(p.kernel.buffers, buffers, strict=True)
            if b.written and not p.threads and isinstance(b.operand, Value) and b.operand in self.faults
        )
        results = tuple(
            (place, b.operand.dtype.name, b.operand.type.size)
            for b, place in zip(p.kernel.buffers, roots, strict=True)
            if b.written and isinstance(b.operand, Value) and b.operand.dtype in (F32, F64)
        )
        return Launch(
            p.symbol,
            buffers,
            p.dims,
            p.kernel.if_launched(p.kernel.tasks),
            p.kernel.scratch,
            p.comment,
            p.threads,
            p.fallback,
            tuple(_whole(b) - _start(b) for b in known),
            tuple(b.written for b in known),
            demands,
            _spans(p.kernel.buffers) if p.explicit_bindings and not p.fallback else (),
            p.faults,
            p.collective,
            results if LOSS in self.graph.demands and not (p.threads or p.fallback) else (),
        )

    def _items(self) -> list[Item]:
        """What lives in the arena, from the launch that writes it first to the one that reads it last."""
        life: dict[Operand, list[int]] = {}
        for k, p in enumerate(self.placed):
            for b in p.kernel.buffers:
                if self._in_arena(b.operand):
                    life.setdefault(b.operand, []).append(k)
        for k, end in self.exchanges.ends.items():
            for o in self.exchanges.operands[k]:
                if o in life:
                    life[o].append(end)
        for new in self.moved:
            life[new].append(len(self.placed))
        for k, p in enumerate(self.placed):
            for out, source in _elementwise_pairs(p.kernel) if not p.explicit_bindings else ():
                source = self.home.get(source, source)
                if {out, source} <= life.keys() and min(life[out]) == k == max(life[source]):
                    self.home[out] = source
                    life[source] += life.pop(out)
        return [Item(o, self._in_use(o, at), min(at), max(at)) for o, at in life.items()]

    def _in_use(self, o: Operand, at: Sequence[int]) -> Expr:
        """Bytes of an operand that the launches `at` touch: none of a temporary where none of these is made."""
        if not isinstance(o, Temporary):
            return _nbytes(o)
        used = const(False)
        for k in at:
            used = used | self.placed[k].kernel.when
        return select(used, _nbytes(o), const(0))

    def _require_memory(self, items: Sequence[Item]) -> None:
        """Refuse a model whose run would need more memory than machines have.

        Raises:
            UnsupportedError: naming the nodes of what is too large.
        """
        stored = dict.fromkeys((*(i.key for i in items), *self.outputs))
        most = budget().memory
        large = [v for v in stored if isinstance(v, Value) and (as_int(v.type.nbytes) or 0) > most]
        if large:
            made = [(v.producer.describe() if v.producer else f"input {v.name!r}", v.type) for v in large]
            problems = [f"{who} makes {t!r}, {(as_int(t.nbytes) or 0) / (1 << 40):.3g} TiB" for who, t in made]
            problems = [f"{p}, more than the budget 'memory' of {most} bytes" for p in problems]
            raise UnsupportedError(problems, remedy("memory"))

    def _in_arena(self, o: Operand) -> bool:
        if isinstance(o, Packed):
            return False
        if isinstance(o, Temporary):
            return True
        return o.const is None and not any(o in place for place in (self.inputs, self.outputs, self.held, self.renewed))

    def add_weight(self, o: Operand) -> None:
        if isinstance(o, Packed) or (isinstance(o, Value) and o.const is not None):
            key = _weight_key(o)
            if key not in self.weights:
                self.weights[key] = len(self.list)
                self.list.append(Weight(o))

    def _buffer(self, o: Operand, offsets: dict[Any, Expr], starts: tuple[int, ...]) -> Buffer:
        if isinstance(o, Packed) or (isinstance(o, Value) and o.const is not None):
            start = starts[self.weights[_weight_key(o)]]
            return Buffer("weights", 0, start, start)
        if isinstance(o, Value):
            if o in self.inputs:
                return Buffer("input", self.inputs[o])
            if o in self.outputs:
                return Buffer("output", self.outputs[o])
            if (state := self.held.get(o) or self.renewed.get(o)) is not None:
                return Buffer("state", 0, state.offset)
        return Buffer("arena", 0, offsets[self.home.get(o, o)])

    def _extents(self) -> tuple[Expr, ...]:
        """Dimensions that depend on elements: no kernel may see a negative one."""
        if not self.graph.sources:
            return ()
        dims = dict.fromkeys(d for v in self.graph.values() for d in v.shape)
        return tuple(d for d in dims if not is_nonnegative(d))

    def _conditions(self, first: int) -> tuple[Condition, ...]:
        pairs = dict.fromkeys((a, b) for a, b in self.graph.constraints if a is not b)
        return tuple(Condition(first + k, a, b) for k, (a, b) in enumerate(pairs))


class Exchanges:
    """When exchanges of all ranks with each other have to be done: other launches run meanwhile.

    Such an exchange is begun at its launch. Before the first launch that touches what it reads or brings, all that were
    begun by then are waited for; and before the next one, where that memory is not the run's own.

    Args:
        placed: the launches.
        apart: values that lie in other memory.

    Attributes:
        ends: of each exchange, by its number among the launches, the launch before which it is done; the number of
            launches where the run's end awaits it.
    """

    def __init__(self, placed: Sequence[Placed], apart: Container[object]) -> None:
        self.count = len(placed)
        self.operands = {
            k: [p.kernel.buffers[b].operand for b in p.kernel.payload]
            for k, p in enumerate(placed)
            if isinstance(p.kernel, CollectiveKernel) and p.kernel.begins
        }
        awaits = {self._first_touch(k, placed, apart) for k in self.operands}
        self.ends = {k: min(j for j in awaits if j > k) for k in self.operands}

    def _first_touch(self, k: int, placed: Sequence[Placed], apart: Container[object]) -> int:
        own = self.operands[k]
        if any(o in apart or (isinstance(o, Value) and o.const is not None) for o in own):
            return k + 1
        touch = (j for j in range(k + 1, self.count) if any(b.operand in own for b in placed[j].kernel.buffers))
        return next(touch, self.count)

    def mark(self, k: int, step: Launch) -> Launch:
        """Launch `k` with what it has to do with them."""
        meanwhile = any(begun <= k and (k + 1 < end or end == self.count) for begun, end in self.ends.items())
        return replace(step, awaits=k in self.ends.values(), begins=k in self.ends, meanwhile=meanwhile)


def _weight_key(o: Value | Packed) -> tuple[object, str]:
    return (o.source, o.how) if isinstance(o, Packed) else (o, "")


def place_states(graph: Graph) -> tuple[HostState, ...]:
    """Places for a graph's states, one behind the other."""
    found, end = [], 0
    for state, held, _ in graph.updates:
        dims, nbytes = held.type.static_shape, as_int(held.type.nbytes)
        assert dims is not None and nbytes is not None  # a weight's, or a number's
        parts = 1
        if state.whole is not None:
            dims, parts = tuple(as_int(d) or 0 for d in state.whole), graph.ranks
        found.append(HostState(state.name, held.dtype.name, dims, end, nbytes, trained=state.trained, parts=parts))
        end += -(-nbytes // ALIGN) * ALIGN
    return tuple(found)


def in_place(
    renewed: Mapping[Value, Value], placed: Sequence[Placed], faults: Container[object], exchanges: Exchanges
) -> set[Value]:
    """The new states that kernels may write where the old ones lie.

    Nothing may read an old state any more when its new one is written, but the very kernel that writes it, and that
    only where each element is read at the point that stores the same element, and where arguments may overlap. Nor may
    a run be refused afterwards.

    Args:
        renewed: each new state's value, with the old one.
        faults: what says that the run is refused.
        exchanges: those that end behind their launch may fail until then.
    """
    writers: dict[Operand, list[int]] = {}
    readers: dict[Operand, list[int]] = {}
    refusing = [-1]
    for k, p in enumerate(placed):
        for b in p.kernel.buffers:
            (writers if b.written else readers).setdefault(b.operand, []).append(k)
            if p.faults or p.collective or (b.written and b.operand in faults):
                refusing.append(max(k, exchanges.ends.get(k, 0) - 1))
    found = set[Value]()
    for new, old in renewed.items():
        at = writers.get(new, [])
        if len(at) != 1 or at[0] <= max(refusing):
            continue
        last = max(readers.get(old, [-1]))
        kernel = placed[at[0]].kernel
        pairs = [] if placed[at[0]].explicit_bindings else [*_elementwise_pairs(kernel, whole=True), appended(kernel)]
        if last < at[0] or (last == at[0] and (new, old) in pairs):
            found.add(new)
    return found


def appended(kernel: Kernel) -> tuple[Operand | None, Operand | None]:
    """The result and the operand that a kernel appends rows to, where they may be one buffer of equal sizes."""
    new, old = kernel.appends or (None, None)
    return (None, None) if new is None or old is None else (kernel.buffers[new].operand, kernel.buffers[old].operand)


def _elementwise_pairs(kernel: Kernel, whole: bool = False) -> Iterator[tuple[Operand, Operand]]:
    """(result, operand) where each element is read only where the result's same element is stored.

    Args:
        whole: give all pairs; otherwise those of maps, with each result and each operand once.
    """
    if whole or isinstance(kernel, MapKernel):
        for stores, elsewhere in kernel.finishes:
            yield from _pairs(kernel, stores, elsewhere, whole)


def _pairs(
    kernel: Kernel, stores: Sequence[Store], elsewhere: Container[int], whole: bool
) -> Iterator[tuple[Operand, Operand]]:
    """Those of some stores; buffers that are read elsewhere have none."""
    loads: dict[int, set[Expr]] = {}
    for e in walk(*(e for s in stores for e in (s.offset, s.value))):
        if e.op == "load" and isinstance(e.data, int) and e.data not in elsewhere:
            loads.setdefault(e.data, set()).add(e.args[0])
    places = {s.offset for s in stores}
    if len(places) != 1:
        return
    taken: set[int] = set()
    for s in stores:
        out = kernel.buffers[s.buffer]
        for k, b in enumerate(kernel.buffers):
            fits = not b.written and b.dtype.size == out.dtype.size and k not in taken and loads.get(k) == places
            fits = fits and b.start == out.start
            if fits and _nbytes_known(b.operand) is _nbytes_known(out.operand) is not None:
                yield out.operand, b.operand
                if not whole:
                    taken.add(k)
                    break


def _nbytes_known(o: Operand) -> Expr | None:
    return None if isinstance(o, Packed) else _nbytes(o)


def _whole(b: Part) -> Expr:
    """Bytes of the operand that an argument is of."""
    return const(b.operand.nbytes) if isinstance(b.operand, Packed) else _nbytes(b.operand)


def _spans(buffers: Sequence[Part]) -> tuple[Size | None, ...]:
    """Bytes of each argument; None where one is the same operand as another before it."""
    found: dict[tuple[Operand, int], Size] = {}
    return tuple(
        None if (b.operand, b.start) in found else found.setdefault((b.operand, b.start), _span(b)) for b in buffers
    )


def _span(b: Part) -> Expr:
    rest = _whole(b) - _start(b)
    return call("min", rest, b.length * b.dtype.size) if b.length else rest


def _start(b: Part) -> Expr:
    """Bytes of the operand that lie before an argument; not beyond its end when it turns out to be empty."""
    return call("min", b.start_bytes, _whole(b))


def _nbytes(o: Operand) -> Expr:
    assert not isinstance(o, Packed)
    return o.nbytes if isinstance(o, Temporary) else o.type.nbytes


def bind_symbols(graph: Graph, names: Iterable[str]) -> tuple[Symbol, ...]:
    """Where the inputs of a graph give each of these symbols: as a dimension, or as an element of their contents.

    Raises:
        UnsupportedError: when a dimension appears in no input by itself, or there are too many.
    """
    dims = {
        str(e.data): Symbol(i, d)
        for i, v in reversed([*enumerate(graph.inputs)])
        for d, e in reversed([*enumerate(v.shape)])
        if e.op == "dim"
    }
    numbers = {v: k for k, v in enumerate(graph.inputs)}
    contents = {
        name: Symbol(numbers[e.value], e.position, 0 if e.kind == "count" else -SYMBOL_MAX, SYMBOL_MAX, e.kind)
        for name, e in graph.sources.items()
        if e.kind != "dim" and e.value in numbers
    }
    found = {name: dims.get(name) or contents.get(name) for name in names}
    lost = [name for name, symbol in found.items() if symbol is None]
    if lost:
        problems = [f"dimension {name!r} of the inputs appears only in {_expressions(graph, name)}" for name in lost]
        remedy = "name each such dimension by one word instead, such as 'n', or pin the inputs' shapes with --shapes"
        raise UnsupportedError(problems, remedy)
    if len(found) > SYMBOLS_MAX:
        problem = f"the inputs have {len(found)} symbolic dimensions and elements that are sizes; at most {SYMBOLS_MAX}"
        raise UnsupportedError([problem], "pin the inputs' shapes with --shapes")
    return tuple(symbol for symbol in found.values() if symbol is not None)


def _expressions(graph: Graph, name: str) -> str:
    """Where a symbol stands in the inputs' shapes, for a message."""
    places = [(v, k) for v in graph.inputs for k, d in enumerate(v.shape) if name in dims_of(d)]
    shown = [f"{v.shape[k]!r}, dimension {k} of input {v.name!r}" for v, k in places[:3]]
    return "; ".join(shown) or "expressions"
