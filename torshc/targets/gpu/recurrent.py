"""Recurrent networks for devices of blocks of threads: a product for all steps, then a kernel for the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ...expr import F32, I64, Expr, as_int, axis, ceil_div, const, load
from ...expr.index import poly_of
from ...graph import Builder, Graph, Node, Value
from ...kernels.base import Buffer, Kernel, NoKernel, Store, Temporary
from ...kernels.heavy import Strided, is_empty, strided_operand
from ...kernels.machine import Machine
from ...kernels.nest import MapKernel
from ...kernels.recurrent import (
    RecurrentBase,
    RecurrentLowering,
    apart,
    moved,
    needs_all_states,
    recurrent_node,
)
from ...kernels.recurrent_cells import Phase, Weights, cell_phases
from ...ops.core.compose import apply
from ...ops.math.linalg import MatMul
from ...ops.nn.recurrent import LSTM, Recurrent
from ...ops.tensor.parts import Split
from ...ops.tensor.view import Reshape, Transpose
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .contraction import lower_contraction
from .grid import SHARED, WARP, to_grid
from .nests import lower_grid

THREADS = 512
ROWS = 4  # rows of the batch that a weight is read for
PACK = 4  # weights that a thread reads at once
TOGETHER_ROWS = 8  # rows of the batch that blocks pass on to each other
KEPT = 96  # weights that a thread may keep
ARRAYS = 4  # arrays of the state in shared memory, at most


@dataclass(frozen=True)
class GridRecurrent(RecurrentBase):
    """All steps of a direction for some rows of the batch, by one block, or by several that share the hidden units.

    Each warp computes hidden units, one after the other: its threads share the sums over the state, and then thread r
    computes the cell of row r.

    Attributes:
        phases: what is computed in a step.
        weights: recurrent weights [G * H, H], stepping along rows and columns.
        biases: for each gate what is added to its sum over the state.
        threads: threads of a block.
        lanes: threads of a warp; 1 where each thread computes hidden units.
        rows: rows of the batch a block.
        packed: whether weights are read four at a time.
        blocks: blocks that share the hidden units of a direction; several are `kept`.
        kept: hidden units of a warp whose weights stay in registers, or 0.
        ring: buffer through which several blocks pass on their states, 64 bits each, or None.
        in_memory: whether the states of all blocks lie behind what the gates get from the input.
    """

    template: ClassVar[str] = "recurrent.j2"
    lanes: ClassVar[int] = WARP

    phases: tuple[Phase, ...]
    weights: Strided
    biases: tuple[Expr, ...]
    threads: int
    rows: int = 1
    packed: bool = False
    blocks: int = 1
    kept: int = 0
    ring: int | None = None
    in_memory: bool = False

    @property
    def operands(self) -> list[str]:
        """Arrays of the state that weights multiply, besides ``h``."""
        return [p.operand for p in self.phases if p.operand != "h"]

    @property
    def own(self) -> list[str]:
        """Arrays of the state that are read only where their unit is computed."""
        return [s for s in self.states if s not in ("h", "next", *self.operands)]

    @property
    def cooperative(self) -> bool:
        return self.ring is not None

    @property
    def wide(self) -> int:
        """Floats of a row of the state."""
        return -(-self.hidden // (WARP * PACK)) * WARP * PACK if self.packed else self.hidden

    @property
    def units(self) -> int:
        """Hidden units a block."""
        return self.threads // WARP * self.kept if self.kept else self.hidden

    @property
    def row_bytes(self) -> int:
        """Shared memory of a row."""
        return 4 * ((2 + len(self.operands)) * self.wide + len(self.own) * self.units)

    @property
    def shared(self) -> int:
        return self.rows * self.row_bytes


class StepsLowering(RecurrentLowering):
    """What lowerings for devices of blocks of threads share.

    Args:
        group: the group.
        node, op: its network.
        storage: where values lie.
        products: lowers the product of the input and its weights.
    """

    def __init__(
        self,
        group: Group,
        node: Node,
        op: Recurrent,
        storage: Mapping[Value, Storage],
        products: Callable[[Group], list[Kernel]],
    ) -> None:
        super().__init__(group, node, op, storage)
        self.products = products

    def phases(self) -> tuple[Phase, ...]:
        """What is computed in a step."""
        return cell_phases(self.op, self.index(self.direction), Weights(self._peephole()))

    # -- what the gates get from the input ---------------------------------------------------------------------

    def inputs(self, whole: bool = False) -> list[Kernel]:
        """gates[.., D * G * H] = x w' + bias, as the graph would say it: rows as x has them.

        Args:
            whole: with what is added to the products of the state, too.
        """
        op, b = self.op, Builder(Graph())
        count = op.directions * op.gates * op.hidden_size
        flat = b.one(Reshape((const(count), self.w.shape[2])), self.w)
        made = b.one(MatMul(), self.x, b.one(Transpose((1, 0)), flat))
        nodes = [b.graph.nodes[-1]]
        if (bias := self.operand(3)) is not None:
            half = const(op.gates * op.hidden_size)
            for part in b.add(Split(1, (half, half)), [bias])[: 2 if whole else 1]:
                made = apply(b, "Add", made, b.one(Reshape((const(count),)), part))
                nodes.append(b.graph.nodes[-1])
        self.gates = Temporary("gates", self.group.id, made.type.nbytes)
        views = [n for n in b.graph.nodes if n not in nodes]
        group = Group(self.group.id, "gemm", nodes, nodes[0], views, [made])
        return moved(self.products(group), {made: self.gates})

    # -- weights -----------------------------------------------------------------------------------------------

    def recurrent_weights(self) -> Strided:
        row, k = axis("gate_unit", self.r.shape[1]), axis("k", self.r.shape[2])
        element = self.buffers.resolve(load(self.r, (self.index(self.direction), row, k), F32))
        found = strided_operand(element, (row, k))
        assert found is not None  # values in memory have strides
        return found

    def part(self, source: Value, part: int) -> Expr:
        place = self.index(self.unit) + part * self.op.hidden_size
        return self.buffers.resolve(load(source, (self.index(self.direction), place), F32))

    def biases(self) -> tuple[Expr, ...]:
        """What each gate's sum over the state starts with."""
        bias, gates = self.operand(3), self.op.gates
        return () if bias is None else tuple(self.part(bias, gates + g) for g in range(gates))

    def _peephole(self) -> _Peephole | None:
        source = self.operand(7) if isinstance(self.op, LSTM) else None
        return None if source is None else _Peephole(self, source)


@dataclass(frozen=True)
class _Peephole:
    """Part k of LSTM's peepholes at the unit."""

    lowering: StepsLowering
    source: Value

    def __call__(self, part: int) -> Expr:
        return self.lowering.part(self.source, part)


@GridTarget.lowers("recurrent")
def lower_grid_recurrent(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a recurrent network, whose blocks wait for each other where a device runs enough of them at once.

    Raises:
        NoKernel: for a state too large for shared memory.
        UnsupportedError: for elements that are not f32.
    """
    node, op = recurrent_node(group)
    if all(is_empty(v) for v in group.outputs):
        return []
    if needs_all_states(group, node):
        return apart(
            group,
            node,
            lambda g: lower_grid_recurrent(g, storage, machine),
            lambda g: lower_grid(g, storage, machine.device),
        )
    return _Lowering(group, node, op, storage, machine).run()


class _Lowering(StepsLowering):
    def __init__(
        self,
        group: Group,
        node: Node,
        op: Recurrent,
        storage: Mapping[Value, Storage],
        machine: Machine,
    ) -> None:
        super().__init__(group, node, op, storage, lambda g: lower_contraction(g, storage, machine))
        self.machine, self.together = machine, machine.device.together

    def run(self) -> list[Kernel]:
        op, batch = self.op, self.row.args[0]
        inputs = self.inputs()
        phases = self.phases()
        weights, biases = self.recurrent_weights(), self.biases()
        count = as_int(batch)
        kept = self._count_kept_units(count)
        rows = (count or 1) if kept else min(ROWS, max(count or ROWS, 1))
        packed = not kept and op.hidden_size >= WARP * PACK and _whole(weights, op.hidden_size)
        threads = min(THREADS, op.hidden_size * WARP)
        blocks = -(-op.hidden_size // (kept * threads // WARP)) if kept else 1
        before: list[Kernel] = []
        ring = None
        if blocks > 1:
            ring = len(self.buffers.list)
            memory = Temporary("ring", self.group.id, const(2 * 8 * op.directions * rows * op.hidden_size))
            self.buffers.list.append(Buffer(memory, I64, written=True))
            before.append(_clear_kernel(memory))  # in every run, as the counts of exchanges start again
        kernel = GridRecurrent.of(
            self.base(self.gates, phases, const(op.directions)),
            phases=phases,
            weights=weights,
            biases=biases,
            rows=rows,
            threads=threads,
            packed=packed,
            blocks=blocks,
            kept=kept,
            ring=ring,
        )
        return [*inputs, *before, self._fit_rows(kernel)]

    def _fit_rows(self, kernel: GridRecurrent) -> GridRecurrent:
        """The kernel with as many rows as fit in shared memory, and a block for each part of the work."""
        rows = min(kernel.rows, SHARED // kernel.row_bytes)
        if rows < (kernel.rows if kernel.kept else 1):
            raise NoKernel(f"a state of {self.op.hidden_size} hidden units is too large for shared memory")
        parts = const(kernel.blocks) if kernel.kept else ceil_div(self.row.args[0], rows)
        return replace(kernel, rows=rows, tasks=kernel.tasks * parts)

    def _count_kept_units(self, batch: int | None) -> int:
        """Hidden units whose weights a warp keeps, where blocks share a direction; 0 where one computes it alone."""
        op = self.op
        if not self.together or not batch or batch > TOGETHER_ROWS:
            return 0
        each = op.gates * -(-op.hidden_size // WARP)
        warps = min(THREADS // WARP, op.hidden_size)
        for units in range(1, KEPT // each + 1):
            if op.directions * -(-op.hidden_size // (units * warps)) <= self.together:
                return units if batch * op.hidden_size * ARRAYS * 4 <= SHARED else 0
        return 0


def _whole(weights: Strided, hidden: int) -> bool:
    """Whether rows of weights are whole packets, at multiples of four."""
    aligned = all(c % PACK == 0 for e in (weights.start, weights.steps[0]) for c in poly_of(e).values())
    return hidden % PACK == 0 and as_int(weights.steps[1]) == 1 and aligned


def _clear_kernel(memory: Temporary) -> Kernel:
    """The kernel that fills memory with zeros."""
    size = as_int(memory.nbytes)
    assert size is not None
    place = axis("i0", size // 8)
    return to_grid(
        MapKernel(
            buffers=(Buffer(memory, I64, written=True),),
            tasks=const(1),
            flops=const(0),
            nbytes=memory.nbytes,
            axes=(place,),
            stores=(Store(0, place, const(0, I64)),),
            rows=1,
            chunk=size,
        )
    )
