"""What operators do with rows of padding: how they compute some rows alone, and whether a result depends on the others.

A mask of two dimensions, [batch, seq], says by a 0 which rows of values [batch, seq, ...] are padding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from ..expr import Expr, const
from ..graph import Builder, Graph, Node, Shape, Value
from ..ops import Op
from ..ops.core.base import axis_of
from ..ops.core.pointwise import Pointwise
from ..ops.math.linalg import MatMul
from ..ops.math.reduce import Reduce
from ..ops.nn.attention import Attention
from ..ops.nn.norm import LayerNormalization, RMSNormalization, SoftmaxBase
from ..ops.tensor.index import Gather
from ..ops.tensor.parts import Slice, Split
from ..ops.tensor.view import Concat, Expand, Reshape, Transpose
from .interpret import CannotEvaluate, run_node

HIDDEN = -1e30  # a score that is lowered by as much has a weight of 0 beside any other
ROWS, SPREAD, WHOLE = "rows", "spread", "whole"  # of an operand: its rows; its rows once it has some; all of it
Places = tuple[int, int]  # the dimensions of a value that are those of the mask


@dataclass(frozen=True)
class Twin:
    """The operator that makes some rows of a node's results of the same rows of its operands.

    Attributes:
        op: of the number of rows.
        wants: ROWS, SPREAD or WHOLE for each operand.
    """

    op: Callable[[Expr], Op]
    wants: tuple[str, ...]

    @property
    def is_product(self) -> bool:
        """Whether it multiplies rows by a matrix."""
        return isinstance(self.op(const(1)), MatMul)


def is_rowed(v: Value, mask: Value) -> bool:
    """Whether the first two dimensions of a value are those of the mask."""
    return v.type.rank >= 2 and all(d is m for d, m in zip(v.shape[:2], mask.shape, strict=True))


def twin_of(node: Node, mask: Value) -> Twin | None:
    """How a node whose results have rows computes some of them alone; None where it cannot."""
    first = node.inputs[0] if node.inputs else None
    if first is None or None in node.inputs or not all(is_rowed(v, mask) for v in node.outputs):
        return None
    op, out, rowed = node.op, node.output.shape, is_rowed(first, mask)
    rest = (WHOLE,) * (len(node.inputs) - 1)
    if isinstance(op, Pointwise):
        return Twin(lambda _: op, tuple(_want(v, node.output, mask) for v in node.operands))
    if isinstance(op, Gather):
        chosen = axis_of(op.axis, first.type.rank) == 0 and is_rowed(node.operands[1], mask)
        return Twin(lambda _: replace(op, axis=0), (WHOLE, ROWS)) if chosen else None
    if isinstance(op, Concat):
        axis = axis_of(op.axis, len(out))
        whole = axis < 2 or not all(is_rowed(v, mask) for v in node.operands)
        return None if whole else Twin(lambda _: replace(op, axis=axis - 1), (ROWS,) * len(node.inputs))
    if not rowed:
        return None
    make = _op_of_rows(node, op, out)
    return Twin(make, (ROWS, *rest)) if make is not None else None


def _op_of_rows(node: Node, op: Op, out: Shape) -> Callable[[Expr], Op] | None:
    """The same operator over rows of its first operand."""
    x, *others = node.operands
    rank = x.type.rank
    match op:
        case MatMul():
            return (lambda _: op) if rank > 2 and others[0].type.rank == 2 else None
        case LayerNormalization() | RMSNormalization():
            axis = axis_of(op.axis, rank)
            inside = axis >= 2 and len(node.outputs) == 1 and all(v.type.rank <= rank - 2 for v in others)
            return (lambda _: replace(op, axis=axis - 1)) if inside else None
        case SoftmaxBase():
            axis = axis_of(op.axis, rank)
            return (lambda _: replace(op, axis=axis - 1)) if axis >= 2 else None
        case Reduce():
            inside = bool(op.axes) and min(op.axes) >= 2
            return (lambda _: replace(op, axes=tuple(a - 1 for a in op.axes))) if inside else None
        case Split():
            axis = axis_of(op.axis, rank)
            return (lambda _: replace(op, axis=axis - 1)) if axis >= 2 else None
        case Reshape():
            return lambda rows: Reshape((rows, *out[2:]))
        case Expand():
            return (lambda rows: Expand((rows, *out[2:]))) if rank == len(out) else None
        case Transpose():
            return (lambda _: Transpose((0, *(p - 1 for p in op.perm[2:])))) if op.perm[:2] == (0, 1) else None
        case Slice():
            whole = all(s is const(0) for s in op.starts[:2]) and op.steps[:2] == (1, 1)
            parts = ((const(0), *op.starts[2:]), op.steps[1:])
            return (lambda rows: Slice(parts[0], (rows, *out[2:]), parts[1])) if whole else None
    return None


def _want(v: Value, out: Value, mask: Value) -> str:
    """What an elementwise operator needs of an operand that broadcasts to its result."""
    if v.type.rank <= out.type.rank - 2:
        return WHOLE
    return ROWS if v.type.rank == out.type.rank and is_rowed(v, mask) else SPREAD


class Padding:
    """What is known of values where the mask is 0, and who depends on what they are there.

    Args:
        packed: nodes that compute other rows alone, and how.
        hidden: a score that is lowered by as much has a weight of 0.
        stated: whether rows of padding, in results and wherever one row is picked, are said to mean nothing.
    """

    def __init__(
        self, graph: Graph, mask: Value, packed: Mapping[Node, Twin], hidden: float = HIDDEN, stated: bool = False
    ) -> None:
        self.graph, self.mask, self.packed, self.hidden, self.stated = graph, mask, packed, hidden, stated
        self.users = graph.users()
        self.results = set(graph.outputs)
        self.read = cache(self._read)
        self.value = cache(self._value)

    def why(self, v: Value) -> str:
        """Why rows of padding of a value may not be the number :meth:`fill` in place of what they are; or nothing."""
        return "" if self.value(v, (0, 1)) is not None else self.read(v, (0, 1))

    def fill(self, v: Value) -> float:
        """What rows of padding of a value are where it is whole: what they are known to be, or 0."""
        return self.value(v, (0, 1)) or 0

    def _read(self, v: Value, at: Places) -> str:
        """Who depends on the elements of padding, whose dimensions stand at some places; empty for nobody."""
        if v in self.results and not (self.stated and at == (0, 1)):
            name = next(n for o, n in zip(self.graph.outputs, self.graph.output_names, strict=True) if o is v)
            return f"rows of padding are in output {name!r}" if name else "a run is refused for what they hold"
        for node in self.users.get(v, ()):
            for k, operand in enumerate(node.inputs):
                if operand is v and (why := self._used(node, k, v, at)):
                    return why
        return ""

    def _used(self, node: Node, k: int, v: Value, at: Places) -> str:
        """Why a node's results depend on the elements of padding of v, its input k; empty where they do not."""
        op = node.op
        if node in self.packed and at == (0, 1) and self.packed[node].wants[k] == ROWS:
            return ""
        if isinstance(op, Attention):
            return self._attended(node, k, v, at)
        moved: Places | None = None
        if isinstance(op, Transpose):
            moved = op.perm.index(at[0]), op.perm.index(at[1])
        elif isinstance(op, Reshape):
            moved = _moved(v.shape, node.output.shape, at)
        elif isinstance(op, Pointwise | Expand):
            moved = _shifted(at, node.output.type.rank - v.type.rank)
            if isinstance(op, Pointwise) and self._hides(node, k, v.type.rank, at):
                return ""
        elif isinstance(op, Slice | Split | Concat) and _goes_along(node, v, at):
            moved = at
        elif self.stated and isinstance(op, Gather | Slice) and k == 0:
            return ""
        if moved is None:
            return f"{node.describe()} reads rows of padding"
        return next(filter(None, (self.read(out, moved) for out in node.outputs)), "")

    def _hides(self, node: Node, k: int, rank: int, at: Places) -> bool:
        """Whether an elementwise node gives the same there whatever finite number its operand k, of a rank, is."""
        known = [self.value(v, _shifted(at, v.type.rank - rank)) for v in node.operands]
        if node.op.name == "Mul":
            return known[1 - k] == 0
        return node.op.name == "Where" and k > 0 and known[0] is not None and bool(known[0]) == (k == 2)

    def _attended(self, node: Node, k: int, x: Value, at: Places) -> str:
        """Keys and values of padding have weights of 0, but in a sentence of padding alone, whose rows all are such."""
        out = node.output
        what = f"{node.describe()} attends to rows of padding"
        if k > 2 or at[1] != x.type.rank - 2 or at[0] > at[1]:
            return what
        if k > 0:
            mask = node.inputs[3] if len(node.inputs) > 3 else None
            if mask is None:
                return what
            there = mask.type.rank - x.type.rank + at[0], mask.type.rank - 1
            low, high = self.value(mask, there), self.value(mask, there, 1)
            if low is None or not low <= self.hidden:
                return what
            if not self.stated and (high is None or not high > self.hidden):
                return f"{node.describe()} may hide all rows of a sentence"
        return self.read(out, _shifted(at, out.type.rank - x.type.rank))

    def _value(self, v: Value, at: Places, seen: int = 0) -> float | None:
        """The number that a value is wherever the mask is 0 (or 1: `seen`), if that is one number.

        Args:
            at: where the mask's dimensions stand.
        """
        if v is self.mask:
            return seen if at == (0, 1) else None
        if v.const is not None:
            same = v.const.size and not v.const.dtype.hasobject and (v.const == v.const.flat[0]).all()
            return v.const.flat[0].item() if same else None
        node = v.producer
        if node is None or min(at) < 0 or (v.shape[at[0]], v.shape[at[1]]) != self.mask.shape:
            return None
        op = node.op
        if isinstance(op, Transpose):
            return self.value(node.operands[0], (op.perm[at[0]], op.perm[at[1]]), seen)
        if isinstance(op, Reshape | Expand):
            x = node.operands[0]
            before = (
                _moved(v.shape, x.shape, at) if isinstance(op, Reshape) else _shifted(at, x.type.rank - v.type.rank)
            )
            return None if before is None else self.value(x, before, seen)
        return self._computed(node, at, seen) if isinstance(op, Pointwise) else None

    def _computed(self, node: Node, at: Places, seen: int) -> float | None:
        """What an elementwise node makes of numbers; a 0 or a choice needs not all of them."""
        rank = node.output.type.rank
        known = [self.value(v, _shifted(at, v.type.rank - rank), seen) for v in node.operands]
        kind = node.op.name
        if (kind in ("Mul", "And") and 0 in known) or (kind == "Or" and True in known):
            return float(kind == "Or")
        if kind == "Where" and known[0] is not None:
            return known[1 if known[0] else 2]
        return None if None in known or None in node.inputs else _run(node, known)


def _run(node: Node, numbers: Sequence[float | None]) -> float | None:
    """The result of an elementwise node of these numbers."""
    graph = Graph()
    arrays = [np.asarray(x, v.dtype.numpy) for x, v in zip(numbers, node.operands, strict=True)]
    inputs = [graph.constant_like(v, x) for v, x in zip(node.operands, arrays, strict=True)]
    Builder(graph).add(node.op, inputs)
    try:
        found = run_node(graph.nodes[-1], arrays)[0]
    except CannotEvaluate:
        return None
    return float(found.reshape(-1)[0])


def _goes_along(node: Node, v: Value, at: Places) -> bool:
    """Whether a node that takes parts, or joins them, leaves some dimensions whole."""
    op = node.op
    if isinstance(op, Slice):
        whole = (op.starts[a] is const(0) and op.steps[a] == 1 and op.sizes[a] is v.shape[a] for a in at)
        return all(whole)
    assert isinstance(op, Split | Concat)
    return axis_of(op.axis, v.type.rank) not in at


def _shifted(at: Places, by: int) -> Places:
    return at[0] + by, at[1] + by


def _moved(shape: Shape, to: Shape, at: Places) -> Places | None:
    """Where two dimensions stand in another shape of the same elements; None where they are no dimensions of it."""
    found = [
        next((j for j, d in enumerate(to) if d is shape[p] and _size(to[:j]) is _size(shape[:p])), None) for p in at
    ]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _size(dims: Shape) -> Expr:
    total = const(1)
    for d in dims:
        total = total * d
    return total
