"""Lowering of LSTM, GRU and RNN: one product for what all steps get from the input, then a kernel for the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..errors import InternalError, UnsupportedError
from ..expr import F32, Expr, acc, as_int, axis, call, const, load, walk
from ..expr.affine import contains
from ..graph import Node, Value
from ..ops.base import Index
from ..ops.recurrent import GRU, LSTM, Recurrent
from ..plan.group import Group
from ..plan.storage import Storage
from .axes import join_axes
from .base import Kernel, Operand, Packed, Store, Temporary
from .epilogue import lower_epilogue, topological
from .gemm import GemmKernel
from .heavy import Strided, add_buffer, copy_kernel, is_empty, plain, row_major, strided_operand, temporary
from .lower import lowering
from .machine import Machine
from .nest import Buffers, lower_nest, product
from .recurrent_cells import Phase, Weights, cell_phases
from .recurrent_pack import Columns, Packer
from .tiles import Tile, ceil_div, choose_blocks, choose_tile, split_k

ONE_ROW = 8  # vectors of a tile of one row: as many sums as hide the latency of a fused multiply-add


@dataclass(frozen=True)
class Step:
    """A phase with its places.

    Attributes:
        phase: what is computed.
        columns: how its gates lie.
        weights: buffer of its recurrent weights [D, panels, H, columns of a panel].
    """

    phase: Phase
    columns: Columns
    weights: int

    def reads(self, name: str) -> bool:
        """Whether the cell reads a register."""
        return self.phase.reads(name)


@dataclass(frozen=True)
class RecurrentBase(Kernel):
    """What kernels of recurrent networks on every target have in common: all steps of a direction.

    Attributes:
        direction, time, row, unit: axes of directions, positions in time, rows of the batch, hidden units.
        directions, hidden: D and H.
        backward: "never", "always" or "second": which direction runs from the end.
        batch_first: whether the rows of the input and of `gates` go by batch, then time.
        gates: buffer of what the gates get from the input, [T, N, D, columns] or [N, T, D, columns].
        lengths: steps of a row, or None for all.
        starts: states that are given at the start.
        each, last: stores of a step (of ``h``) and at the end (of ``h`` and ``c``).
        states: arrays of the state.
    """

    kind: ClassVar[str] = "recurrent"

    direction: Expr
    time: Expr
    row: Expr
    unit: Expr
    directions: int
    hidden: int
    backward: str
    batch_first: bool
    gates: int
    lengths: Expr | None
    starts: tuple[tuple[str, Expr], ...]
    each: tuple[Store, ...]
    last: tuple[Store, ...]
    states: tuple[str, ...]


@dataclass(frozen=True)
class RecurrentKernel(RecurrentBase):
    """All steps of a direction for some rows of the batch a task.

    Attributes:
        steps: phases of a step.
        tile: register tile.
        rows: rows of the batch a task.
    """

    template: ClassVar[str] = "recurrent.c.j2"

    steps: tuple[Step, ...]
    tile: Tile
    rows: int

    @property
    def wide(self) -> int:
        """Hidden units, rounded up to whole panels of every phase."""
        return max(s.columns.panels * s.columns.units for s in self.steps)

    @property
    def columns(self) -> int:
        """Columns of all phases of a direction."""
        return sum(s.columns.count for s in self.steps)

    @property
    def scratch(self) -> Expr:
        return const(4 * self.rows * self.wide * len(self.states))

    def used(self, *expressions: Expr) -> list[int]:
        """Buffers that expressions read."""
        return sorted({x.data for x in walk(*expressions) if x.op == "load" and isinstance(x.data, int)})

    def touched(self, stores: Sequence[Store]) -> list[int]:
        """Buffers that stores read or write."""
        read = self.used(*(e for s in stores for e in (s.value, s.offset)))
        return sorted({*read, *(s.buffer for s in stores)})


@lowering("recurrent")
def lower_recurrent(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a recurrent network.

    Raises:
        UnsupportedError: for elements that are not f32.
    """
    node, op = recurrent_node(group)
    if all(is_empty(v) for v in group.outputs):
        return []
    if needs_all_states(group, node):
        return apart(group, node, lambda g: lower_recurrent(g, storage, machine), lambda g: lower_nest(g, storage))
    return _Lowering(group, node, op, storage, machine).run()


def recurrent_node(group: Group) -> tuple[Node, Recurrent]:
    """The network of a group.

    Raises:
        UnsupportedError: for elements that are not f32.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, Recurrent)
    if node.output.dtype is not F32:
        raise UnsupportedError([f"{node.describe()} of {node.output.dtype.name}"], "cast its operands to float32")
    return node, node.op


def needs_all_states(group: Group, node: Node) -> bool:
    """Whether something in the group reads the state of every step together with the last one."""
    behind = {v: {k > 0} for k, v in enumerate(node.outputs)}
    for n in topological([*group.folded, *group.nodes]):
        if n is not node:
            found = set[bool]().union(*(behind.get(v, set()) for v in n.operands))
            behind |= dict.fromkeys(n.outputs, found)
    return any(len(b) > 1 for b in behind.values())


def apart(
    group: Group, node: Node, network: Callable[[Group], list[Kernel]], nest: Callable[[Group], list[Kernel]]
) -> list[Kernel]:
    """The network alone, its results in temporary memory, and then kernels for what reads them."""
    kernels = network(replace(group, nodes=[node], folded=[], outputs=list(node.outputs)))
    others = [n for n in group.nodes if n is not node]
    for out in group.outputs:
        if out not in node.outputs:
            kernels += nest(replace(group, kind="nest", nodes=others, anchor=None, outputs=[out]))
    hidden: dict[object, Operand] = {
        v: Temporary(f"result {k}", group.id, v.type.nbytes)
        for k, v in enumerate(node.outputs)
        if v not in group.outputs
    }

    return moved(kernels, hidden)


def moved(kernels: list[Kernel], places: Mapping[object, Operand]) -> list[Kernel]:
    """Kernels with some values of theirs elsewhere, such as in temporary memory."""
    out = []
    for kernel in kernels:
        buffers = (replace(b, operand=places.get(b.operand, b.operand)) for b in kernel.buffers)
        out.append(replace(kernel, buffers=tuple(buffers)))
    return out


class RecurrentLowering:
    """What lowerings of recurrent networks share: operands, axes, and what stands before and behind the steps.

    Args:
        group: the group.
        node, op: its network.
        storage: where values lie.
    """

    def __init__(self, group: Group, node: Node, op: Recurrent, storage: Mapping[Value, Storage]) -> None:
        self.group, self.node, self.op, self.storage = group, node, op, storage
        self.x, self.w, self.r = node.operands[:3]
        time, batch = self.x.shape[:2] if not op.layout else (self.x.shape[1], self.x.shape[0])
        self.direction, self.time = axis("d", op.directions), axis("t", time)
        self.row, self.unit = axis("n", batch), axis("unit", op.hidden_size)
        self.buffers = Buffers(storage)

    def operand(self, k: int) -> Value | None:
        return self.node.inputs[k] if k < len(self.node.inputs) else None

    @staticmethod
    def index(a: Expr) -> Expr:
        """An axis, or 0 for one of a single point."""
        return const(0) if as_int(a.args[0]) == 1 else a

    def base(self, gates: Temporary, phases: Sequence[Phase], tasks: Expr) -> RecurrentBase:
        """The kernel of the steps, as far as all targets agree."""
        op, buffers = self.op, self.buffers
        size = self.x.shape[0] * self.x.shape[1] * op.directions
        lengths = self.operand(4)
        each, last = self._stores()
        arrays = ("h", "next", *(r.name for p in phases for r in p.results if r.name != "next"))
        number = add_buffer(buffers, gates)
        length = None if lengths is None else buffers.resolve(load(lengths, (self.index(self.row),), lengths.dtype))
        starts = self._starts()
        return RecurrentBase(
            buffers=tuple(buffers.list),
            tasks=tasks,
            flops=size * (op.gates * op.hidden_size * (2 * op.hidden_size + 8)),
            nbytes=gates.nbytes + self.r.type.nbytes + self.node.output.type.nbytes,
            direction=self.direction,
            time=self.time,
            row=self.row,
            unit=self.unit,
            directions=op.directions,
            hidden=op.hidden_size,
            backward={"forward": "never", "reverse": "always", "bidirectional": "second"}[op.direction],
            batch_first=bool(op.layout),
            gates=number,
            lengths=length,
            starts=starts,
            each=each,
            last=last,
            states=tuple(dict.fromkeys(arrays)),
        )

    def _state_index(self) -> Index:
        d, n = self.index(self.direction), self.index(self.row)
        return (n, d, self.index(self.unit)) if self.op.layout else (d, n, self.index(self.unit))

    def _starts(self) -> tuple[tuple[str, Expr], ...]:
        given = [("h", self.operand(5)), ("c", self.operand(6) if self.op.states > 1 else None)]
        return tuple((s, self.buffers.resolve(load(v, self._state_index(), F32))) for s, v in given if v is not None)

    def _stores(self) -> tuple[tuple[Store, ...], tuple[Store, ...]]:
        """The stores of each step, and those at the end."""
        d, t, n = (self.index(a) for a in (self.direction, self.time, self.row))
        unit = self.index(self.unit)
        y, *states = self.node.outputs
        results: dict[Value, tuple[Expr, Index]] = {
            y: (acc("y", F32), (n, t, d, unit) if self.op.layout else (t, d, n, unit))
        }
        for v, name in zip(states, "hc", strict=False):
            results[v] = (acc(name, F32), self._state_index())
        each: list[Store] = []
        last: list[Store] = []
        for store in lower_epilogue(self.group, self.node, results, self.buffers):
            made = any(x.op == "acc" and x.data == "y" for x in walk(store.value))
            stepwise = made or any(contains(e, self.time) for e in (store.offset, store.value))
            (each if stepwise else last).append(store)
        return tuple(each), tuple(last)


class _Lowering(RecurrentLowering):
    def __init__(
        self, group: Group, node: Node, op: Recurrent, storage: Mapping[Value, Storage], machine: Machine
    ) -> None:
        super().__init__(group, node, op, storage)
        self.machine = machine
        self.shape = _shape(op, self.row.args[0], machine)
        self.packer = Packer(op.directions, group.id, storage)

    def run(self) -> list[Kernel]:
        phases = cell_phases(self.op, self.index(self.direction), self._cell_weights())
        inputs = self._inputs()
        kernel = self._steps(phases, self.shape.tile, self.shape.columns)
        return [*self.packer.kernels, *inputs, kernel]

    @property
    def _alone(self) -> int | None:
        """The gate whose recurrent bias is not added to the input's."""
        return 2 if isinstance(self.op, GRU) and self.op.linear_before_reset else None

    # -- what the gates get from the input ---------------------------------------------------------------------

    def _inputs(self) -> list[Kernel]:
        """gates[T * N, D * columns] = x w' + biases, rows as x has them."""
        columns = self.shape.columns
        count = self.op.directions * sum(c.count for c in columns)
        outer, size = self.x.shape[:2], self.x.shape[2]
        self.gates = Temporary("gates", self.group.id, outer[0] * outer[1] * (4 * count))
        if any(as_int(d) == 0 for d in outer):
            return []
        index = [self.index(axis(f"i{k}", d)) for k, d in enumerate(outer)]
        k, n = axis("k", size), axis("n", count)
        tile = choose_tile(self.machine, outer[0] * outer[1], n.args[0], size)
        weights = self.packer.input_weights(self.w, columns, tile)
        buffers, value = Buffers(self.storage), acc("acc", F32)
        element, before = self._x_element(index, k, buffers)
        panels = add_buffer(buffers, weights)
        if (bias := self.operand(3)) is not None:
            packed = self.packer.biases(bias, columns, self._alone)
            value = call("add", value, load(add_buffer(buffers, packed), (n,), F32))
        place = (index[0] * outer[1] + index[1]) * count + n
        target = add_buffer(buffers, self.gates, written=True)
        axes, (left, place) = join_axes([a for a in index if a.op == "axis"], [element.args[0], place])
        m = axes[-1] if axes else axis("m", 1)
        walked = strided_operand(load(element.data, (left,), F32), [m, k])
        if walked is None:
            raise InternalError(f"{self.x!r} has no strides in memory")
        batch, rows, wide = product([a.args[0] for a in axes[:-1]]), m.args[0], n.args[0]
        flops = batch * rows * wide * size * 2
        blocks = choose_blocks(self.machine, tile, rows, tile.panels(wide), flops, batch)
        kernel = GemmKernel(
            buffers=tuple(buffers.list),
            tasks=batch * blocks.m * blocks.n,
            flops=flops,
            nbytes=(batch * rows * (size + wide) + wide * size) * 4,
            stores=(Store(target, place, value),),
            batch=tuple(axes[:-1]),
            m=m,
            n=n,
            k=size,
            a=Strided(walked.buffer, walked.start, walked.steps[:1]),
            b=plain(panels, const(0)),
            tile=tile,
            blocks=blocks,
            k_blocks=split_k(rows, size),
        )
        return [*before, kernel]

    def _x_element(self, index: list[Expr], k: Expr, buffers: Buffers) -> tuple[Expr, list[Kernel]]:
        """The input at an index, k innermost: as it lies, or of a copy and the kernel that makes it."""
        element = load(self.x, (*index, self.index(k)), F32)
        walked = strided_operand(Buffers(self.storage).resolve(element), [k])
        if as_int(k.args[0]) == 1 or (walked is not None and as_int(walked.steps[0]) == 1):
            return buffers.resolve(element), []
        axes = [a for a in (*index, k) if a.op == "axis"]
        to = Temporary("input", self.group.id, self.x.type.nbytes)
        copy = copy_kernel(lambda own: own.resolve(element), axes, self.storage, to)
        return temporary(add_buffer(buffers, to), row_major(axes)), [copy]

    # -- steps -------------------------------------------------------------------------------------------------

    def _cell_weights(self) -> Weights:
        """Peepholes and the recurrent bias that stays apart, as loads of buffers that are added here."""
        op, peephole, bias = self.op, self.operand(7) if isinstance(self.op, LSTM) else None, None
        hidden, wide = op.hidden_size, self.shape.wide
        p = self.packer.units(peephole, 0, 3, hidden, wide) if peephole is not None else None
        given = self.operand(3)
        if given is not None and self._alone is not None:
            bias = self.packer.units(given, (op.gates + self._alone) * hidden, 1, hidden, wide)
        return Weights(self._vector(p, 3), self._vector(bias, 1))

    def _vector(self, operand: Packed | Temporary | None, parts: int) -> _Vector | None:
        if operand is None:
            return None
        number = add_buffer(self.buffers, operand)
        return _Vector(number, self.index(self.direction) * parts * self.shape.wide + self.unit, self.shape.wide)

    def _steps(self, phases: Sequence[Phase], tile: Tile, columns: Sequence[Columns]) -> RecurrentKernel:
        steps = tuple(
            Step(p, c, add_buffer(self.buffers, self.packer.state_weights(self.r, c)))
            for p, c in zip(phases, columns, strict=True)
        )
        rows = _rows(self.row.args[0], tile)
        tasks = ceil_div(self.row.args[0], rows) * self.op.directions
        return RecurrentKernel(**vars(self.base(self.gates, phases, tasks)), steps=steps, tile=tile, rows=rows)


@dataclass(frozen=True)
class _Vector:
    """Part k of a vector of weights at the unit."""

    buffer: int
    start: Expr
    wide: int

    def __call__(self, part: int) -> Expr:
        return load(self.buffer, (self.start + part * self.wide,), F32)


@dataclass(frozen=True)
class _Shape:
    """The register tile of a network, and how the gates of its phases lie.

    Attributes:
        tile: rows and vectors of a tile.
        columns: of each phase.
    """

    tile: Tile
    columns: tuple[Columns, ...]

    @property
    def wide(self) -> int:
        """Hidden units, rounded up to whole panels of every phase."""
        return max(c.panels * c.units for c in self.columns)


def _shape(op: Recurrent, batch: Expr, machine: Machine) -> _Shape:
    split = isinstance(op, GRU) and not op.linear_before_reset
    phases = ((0, 1), (2,)) if split else (tuple(range(op.gates)),)
    lead, lanes, rows = len(phases[0]), machine.lanes, as_int(batch)
    room = max(ONE_ROW, 3 * lead) if rows == 1 else max(lead, 2)
    vectors = lead * min(room // lead, -(-op.hidden_size // lanes))
    registers = 32 if lanes >= 16 else 16
    most = 1 if rows == 1 else min((registers - vectors - 1) // vectors, 8)
    columns: list[Columns] = []
    for gates in phases:
        start = sum(c.count for c in columns)
        columns.append(Columns(gates, vectors // len(gates) * lanes, op.hidden_size, start))
    return _Shape(Tile(min(most, rows or most), vectors, lanes), tuple(columns))


def _rows(batch: Expr, tile: Tile) -> int:
    """Rows of the batch a task: two tiles repay the reading of the weights, more would leave threads idle."""
    count = as_int(batch)
    return 2 * tile.rows if count is None else max(1, min(count, 2 * tile.rows))


__all__ = [
    "RecurrentBase", "RecurrentKernel", "RecurrentLowering", "Step", "apart", "lower_recurrent", "moved",
    "needs_all_states", "recurrent_node",
]  # fmt: skip
