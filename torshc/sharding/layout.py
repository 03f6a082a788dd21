"""Which part of a tensor each rank has, and how operators pass that on.

A rule says what an operator needs of its operands, and which part of its results a rank then has:

* what works on elements, and what moves them, keeps a split axis where it can follow it;
* a product of which the columns of one factor are split has split columns;
* a product over a split axis has, on each rank, a summand of the whole result: an AllReduce follows.

An operator without a rule, and one whose rule does not hold for an axis, gets whole operands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..expr import Expr, as_int, const
from ..graph import Node, Shape, Value
from ..ops import REGISTRY, Op, Tensor
from ..ops.core.functions import where
from ..ops.core.tensor import apply_op
from ..ops.math.linalg import Gemm, MatMul
from ..ops.math.reduce import Reduce
from ..ops.nn.conv import Conv
from ..ops.nn.norm import BatchNormalization, InstanceNormalization, SoftmaxBase
from ..ops.nn.pool import Pool
from ..ops.tensor.index import Gather
from ..ops.tensor.parts import Slice, Split
from ..ops.tensor.view import Concat, Expand, Reshape, Transpose


@dataclass(frozen=True)
class Axis:
    """A tensor that is split along an axis.

    Attributes:
        axis: which, from 0.
        sections: lengths of the stretches of it that are split each, as queries, keys and values of one product are:
            of N ranks each has an N-th of every section, in order.
    """

    axis: int
    sections: tuple[int, ...]

    @property
    def size(self) -> int:
        """The length of the whole axis."""
        return sum(self.sections)

    def at(self, axis: int) -> Axis:
        """The same along another axis."""
        return replace(self, axis=axis)


Layout = Axis | None  # None: every rank has all of it


@dataclass(frozen=True)
class Way:
    """How ranks compute a node.

    Attributes:
        wants: the layout of each operand.
        op: the operator for a rank's part.
        gives: the layout of each result.
        summed: whether the results of all ranks have to be added up.
        added: what is added to that sum once, and times how much.
        make: makes the result of a rank of its number and operands, where no single operator does.
    """

    wants: tuple[Layout, ...]
    op: Op
    gives: tuple[Layout, ...]
    summed: bool = False
    added: tuple[Value, float] | None = None
    make: Callable[[int, Sequence[Tensor]], Tensor] | None = None

    def drops(self, v: Value) -> bool:
        """Whether the operator does not read an operand of the node."""
        return self.added is not None and v is self.added[0]


Rule = Callable[[Node, Sequence[Layout], int], Way | None]
_RULES: dict[type[Op], Rule] = {}


def _rule(*kinds: type[Op]) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(kinds, rule))
        return rule

    return register


def way_of(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    """How ranks compute a node of which operands are split; None where they need these whole."""
    kinds = type(node.op).__mro__
    rule = next((_RULES[k] for k in kinds if k in _RULES), _elements if node.op.family == "pointwise" else None)
    return rule(node, layouts, ranks) if rule is not None else None


def _first(layouts: Sequence[Layout]) -> tuple[int, Axis] | None:
    return next(((k, x) for k, x in enumerate(layouts) if x is not None), None)


def _broadcast(node: Node, layouts: Sequence[Layout], rank: int) -> tuple[list[Layout], Axis] | None:
    """Layouts of operands that broadcast to a result of this rank, by the first that is split; and the result's."""
    found = next(
        (x.at(x.axis + rank - v.type.rank) for v, x in zip(node.inputs, layouts, strict=True) if v and x), None
    )
    if found is None:
        return None
    wants: list[Layout] = []
    for v in node.inputs:
        own = found.axis - (rank - v.type.rank) if v is not None else -1
        narrow = v is None or own < 0 or as_int(v.shape[own]) == 1
        if not narrow and v is not None and as_int(v.shape[own]) != found.size:
            return None
        wants.append(None if narrow else found.at(own))
    return wants, found


def _elements(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    found = _broadcast(node, layouts, node.output.type.rank)
    return None if found is None else Way(tuple(found[0]), node.op, (found[1],))


@_rule(Transpose)
def _transpose(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    (x,) = layouts
    assert isinstance(node.op, Transpose) and x is not None
    return Way((x,), node.op, (x.at(node.op.perm.index(x.axis)),))


def _with(shape: Sequence[Expr], axis: int, size: int) -> Shape:
    return tuple(const(size) if k == axis else d for k, d in enumerate(shape))


def _product(shape: Sequence[Expr]) -> Expr:
    total = const(1)
    for d in shape:
        total = total * d
    return total


@_rule(Reshape)
def _reshape(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    """The split axis is the outermost of what it becomes, or becomes the outermost part of one."""
    x = layouts[0]
    assert isinstance(node.op, Reshape) and x is not None
    shape, before = node.output.shape, _product(node.operands[0].shape[: x.axis])
    for b, d in enumerate(shape):
        size = as_int(d)
        if size == 1 or _product(shape[:b]) is not before:
            continue
        if size is None or (size != x.size and (len(x.sections) > 1 or size % ranks)):
            return None
        if size % x.size and x.size % size:
            return None
        gives = x.at(b) if size == x.size else Axis(b, (size,))
        return Way((x, *layouts[1:]), replace(node.op, shape=_with(node.op.shape, b, size // ranks)), (gives,))
    return None


@_rule(Slice)
def _slice(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    x = layouts[0]
    assert isinstance(node.op, Slice) and x is not None
    op = node.op
    if as_int(op.starts[x.axis]) != 0 or as_int(op.sizes[x.axis]) != x.size or op.steps[x.axis] != 1:
        return None
    return Way(tuple(layouts), replace(op, sizes=_with(op.sizes, x.axis, x.size // ranks)), (x,))


@_rule(Expand)
def _expand(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    x = layouts[0]
    assert isinstance(node.op, Expand) and x is not None
    gives = x.at(x.axis + node.output.type.rank - node.operands[0].type.rank)
    asked = gives.axis - (node.output.type.rank - len(node.op.shape))
    shape = node.op.shape
    if asked >= 0 and as_int(shape[asked]) != 1:
        shape = _with(shape, asked, x.size // ranks)
    return Way(tuple(layouts), replace(node.op, shape=shape), (gives,))


@_rule(Concat)
def _concat(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    found = _first(layouts)
    assert isinstance(node.op, Concat) and found is not None
    x = found[1]
    if node.op.axis % node.output.type.rank == x.axis:
        return None
    return Way((x,) * len(layouts), node.op, (x,))


@_rule(Split)
def _split(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    """Along another axis, or into the sections."""
    x = layouts[0]
    assert isinstance(node.op, Split) and x is not None
    if node.op.axis % node.operands[0].type.rank != x.axis:
        return Way(tuple(layouts), node.op, (x,) * len(node.outputs))
    sizes = tuple(as_int(s) for s in node.op.sizes)
    if sizes != x.sections:
        return None
    op = replace(node.op, sizes=tuple(const(s // ranks) for s in x.sections))
    return Way(tuple(layouts), op, tuple(Axis(x.axis, (s,)) for s in x.sections))


@_rule(SoftmaxBase)
def _softmax(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    x = layouts[0]
    assert isinstance(node.op, SoftmaxBase) and x is not None
    if node.op.axis % node.output.type.rank == x.axis:
        return None
    return Way((x,), node.op, (x,))


@_rule(Reduce)
def _reduce(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    x = layouts[0]
    assert isinstance(node.op, Reduce) and x is not None
    if x.axis in node.op.axes:
        return None
    gone = 0 if node.op.keepdims else sum(a < x.axis for a in node.op.axes)
    return Way(tuple(layouts), node.op, (x.at(x.axis - gone),))


@_rule(REGISTRY["", "LayerNormalization"], REGISTRY["", "RMSNormalization"])
def _norm(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    x, rank = layouts[0], node.operands[0].type.rank
    if x is None or x.axis >= getattr(node.op, "axis", -1) % rank or any(layouts[1:]) or len(node.outputs) > 1:
        return None
    return Way(tuple(layouts), node.op, (x,))


@_rule(
    Conv,
    Pool,
    BatchNormalization,
    InstanceNormalization,
    REGISTRY["", "GlobalAveragePool"],
    REGISTRY["", "GlobalMaxPool"],
)
def _examples(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    """Each example of a batch by itself."""
    x = layouts[0]
    if x is None or x.axis or any(layouts[1:]):
        return None
    return Way(tuple(layouts), node.op, (x,) * len(node.outputs))


@_rule(Gather)
def _gather(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    """Of split rows, each rank has its part of every row that is taken; of rows that ranks share, one rank has it."""
    data, indices = layouts
    assert isinstance(node.op, Gather)
    axis, rank = node.op.axis % node.operands[0].type.rank, node.operands[1].type.rank
    if data is None and indices is not None:
        return Way((None, indices), node.op, (indices.at(axis + indices.axis),))
    if data is None or indices is not None:
        return None
    if data.axis == axis:
        if axis or len(data.sections) > 1:
            return None
        make = partial(_take_shared, node.op, data.size, data.size // ranks)
        return Way((data, None), node.op, (None,), summed=True, make=make)
    return Way((data, None), node.op, (data.at(data.axis + (rank - 1 if data.axis > axis else 0)),))


def _take_shared(op: Gather, size: int, own: int, rank: int, operands: Sequence[Tensor]) -> Tensor:
    """The rows that this rank has, and zeros in place of others, as the sum over all ranks wants them."""
    table, indices = operands
    at = where(indices < 0, indices + size, indices) - rank * own
    here = (at >= 0) & (at < own)
    rows = apply_op(op, table, where(here, at, 0))
    return where(here.reshape(*here.shape, *[1] * (table.rank - 1)), rows, 0)


@_rule(MatMul)
def _matmul(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    a, b = node.operands
    if min(a.type.rank, b.type.rank) < 2:
        return None
    rank = node.output.type.rank
    left, right = layouts
    rows, inner, columns = a.type.rank - 2, (a.type.rank - 1, b.type.rank - 2), b.type.rank - 1
    over = (left is not None and left.axis == inner[0]) or (right is not None and right.axis == inner[1])
    if over:
        x = left if left is not None and left.axis == inner[0] else right
        assert x is not None
        return Way((x.at(inner[0]), x.at(inner[1])), node.op, (None,), summed=True)
    if right is not None and right.axis == columns and (left is None or b.const is not None):
        return Way((None, right), node.op, (right.at(rank - 1),))
    if left is not None and left.axis == rows:
        return Way((left, None), node.op, (left.at(rank - 2),))
    if (left is None or left.axis < rows) and (right is None or right.axis < columns - 1):
        found = _broadcast(node, layouts, rank)
        return None if found is None else Way(tuple(found[0]), node.op, (found[1],))
    return None


@_rule(Gemm)
def _gemm(node: Node, layouts: Sequence[Layout], ranks: int) -> Way | None:
    op = node.op
    assert isinstance(op, Gemm)
    left, right, *_ = layouts
    inner = 1 - op.trans_a, op.trans_b
    c = node.inputs[2] if len(node.inputs) > 2 and op.beta else None
    for x, axis in ((left, inner[0]), (right, inner[1])):
        if x is not None and x.axis == axis:
            added = None if c is None else (c, op.beta)
            return Way((x.at(inner[0]), x.at(inner[1])), replace(op, beta=1.0), (None,), summed=True, added=added)
    if right is not None and node.operands[1].const is not None:
        left = None  # a weight stays split, and rows are made whole
    x = left or right
    if x is None or (left and right):
        return None
    out = 0 if left else 1
    wants = (left, right)
    if c is None:
        return Way(wants, replace(op, beta=1.0), (x.at(out),))
    own = out - (2 - c.type.rank)
    narrow = own < 0 or as_int(c.shape[own]) == 1
    return Way((*wants, None if narrow else x.at(own)), op, (x.at(out),))
