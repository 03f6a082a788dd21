"""What lowerings of LSTM, GRU and RNN share: operands, axes, and what comes before and after the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ..base.errors import UnsupportedError
from ..expr import F32, Expr, acc, as_int, axis, const, load, walk
from ..expr.affine import contains
from ..graph import Node, Value
from ..ops.core.base import Index
from ..ops.nn.recurrent import Recurrent
from ..plan.group import Group
from ..plan.storage import Storage
from .base import Kernel, Operand, Store, Temporary
from .epilogue import lower_epilogue, topological
from .heavy import add_buffer
from .nest import Buffers
from .recurrent_cells import Phase


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
    """What lowerings of recurrent networks share: operands, axes, and what comes before and after the steps.

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
        starts = self.starts(buffers)
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

    def starts(self, buffers: Buffers) -> tuple[tuple[str, Expr], ...]:
        """The states that are given at the start, as loads of a kernel's buffers."""
        given = [("h", self.operand(5)), ("c", self.operand(6) if self.op.states > 1 else None)]
        return tuple((s, buffers.resolve(load(v, self._state_index(), F32))) for s, v in given if v is not None)

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
