"""LSTM, GRU and RNN on processors: one product for what all steps get from the input, then a kernel for the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import InternalError
from ...expr import F32, Expr, acc, as_int, axis, ceil_div, const, load, product, walk
from ...graph import Node, Value
from ...kernels.axes import join_axes
from ...kernels.base import Kernel, Packed, Store, Temporary
from ...kernels.heavy import Strided, add_buffer, copy_kernel, is_empty, plain, row_major, strided_operand, temporary
from ...kernels.machine import Machine
from ...kernels.nest import Buffers, lower_nest
from ...kernels.recurrent import RecurrentBase, RecurrentLowering, apart, needs_all_states, recurrent_node
from ...kernels.recurrent_cells import Phase, Weights, cell_phases
from ...ops.nn.recurrent import GRU, LSTM, Recurrent
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget
from .gemm import GemmKernel
from .recurrent_pack import Columns, Packer
from .tiles import Tile, choose_blocks, choose_tile, split_k


@dataclass(frozen=True)
class RecurrentStep:
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
class RecurrentKernel(RecurrentBase):
    """All steps of a direction for some rows of the batch a task.

    Attributes:
        steps: phases of a step.
        tile: register tile.
        rows: rows of the batch a task.
    """

    template: ClassVar[str] = "recurrent.c.j2"

    steps: tuple[RecurrentStep, ...]
    tile: Tile
    rows: int

    @property
    def wide(self) -> int:
        """Hidden units, rounded up to whole panels of every phase."""
        return max(s.columns.panels * s.columns.units for s in self.steps)

    @property
    def row_cases(self) -> tuple[int, ...]:
        """Numbers of rows that tiles may have."""
        batch = as_int(self.row.args[0])
        if not batch:
            return tuple(range(self.tile.rows, 0, -1))
        tasks = -(-batch // self.rows)
        of_tasks = (batch // tasks, -(-batch // tasks))
        return tuple(sorted({rows for count in of_tasks for rows in self.tile.row_cases(const(count))}, reverse=True))

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


@CpuTarget.lowers("recurrent")
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
            value = value + load(add_buffer(buffers, packed), (n,), F32)
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
            k_blocks=split_k(self.machine, rows, size),
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
            RecurrentStep(p, c, add_buffer(self.buffers, self.packer.state_weights(self.r, c)))
            for p, c in zip(phases, columns, strict=True)
        )
        rows = _rows(self.row.args[0], tile)
        tasks = ceil_div(self.row.args[0], rows) * self.op.directions
        return RecurrentKernel.of(self.base(self.gates, phases, tasks), steps=steps, tile=tile, rows=rows)


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
    registers = 32 if lanes >= 16 else 16
    limit = max(registers // 2, 3 * lead) if rows == 1 else max(lead, 2)
    vectors = lead * _panel_vectors(-(-op.hidden_size // lanes), limit // lead)
    most = 1 if rows == 1 else min((registers - vectors - 1) // vectors, 8)
    columns: list[Columns] = []
    for gates in phases:
        start = sum(c.count for c in columns)
        columns.append(Columns(gates, vectors // len(gates) * lanes, op.hidden_size, start))
    return _Shape(Tile(min(most, rows or most), vectors, lanes), tuple(columns))


def _panel_vectors(count: int, most: int) -> int:
    """Vectors of units a panel, `most` or at least half of it, with which panels hold the fewest beyond `count`.

    Weights that lie beside each other without such gaps may fit into L2 where they would not with them.

    >>> _panel_vectors(16, 4), _panel_vectors(16, 3), _panel_vectors(5, 4), _panel_vectors(1, 4)
    (4, 2, 3, 1)
    """
    most = min(most, count)
    return min(range(most, (most - 1) // 2, -1), key=lambda u: -(-count // u) * u)


def _rows(batch: Expr, tile: Tile) -> int:
    """Rows of the batch a task: two tiles repay the reading of the weights, more would leave threads idle."""
    count = as_int(batch)
    return 2 * tile.rows if count is None else max(1, min(count, 2 * tile.rows))
