"""Bring nodes to one form, and remove those that do nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..base.options import CompileOptions
from ..expr import F8E8M0, F16, as_int, const, is_nonnegative
from ..graph import Graph, Node, Patch, TensorType, Value
from ..ops import REGISTRY
from ..ops.core.base import broadcast
from ..ops.core.bounds import OutOfRange
from ..ops.core.pointwise import Pointwise
from ..ops.image.resize import Resize
from ..ops.math.linalg import MatMul
from ..ops.math.pointwise import Cast
from ..ops.math.reduce import Reduce
from ..ops.tensor.index import Gather, GatherND
from ..ops.tensor.parts import Pad, Slice, Split
from ..ops.tensor.random import Dropout
from ..ops.tensor.view import Concat, Expand, Reshape, Transpose, expansion, too_wide
from .manager import graph_pass
from .match import COMMUTATIVE
from .walk import Site, walk


@graph_pass("canonicalise")
def canonicalise(graph: Graph, options: CompileOptions) -> bool:
    """Remove nodes that change nothing, merge views, put constants on the right.

    Before::

        %1 = Identity(%0)
        %2 = Add(1.0, %1)
        %3 = Transpose[perm=(1, 0)](%2)
        %4 = Transpose[perm=(1, 0)](%3)

    After::

        %2 = Add(%0, 1.0)
    """
    return walk(graph, _rule, "canonicalise")


def _rule(site: Site) -> Patch | None:
    if not site.node.operands:
        return None
    for kind, rule in _RULES:
        if isinstance(site.node.op, kind) and (patch := rule(site)) is not None:
            return patch
    return None


def _maker(value: Value | None, kind: type) -> Node | None:
    """The node that makes a value, if its operator is of this kind."""
    node = value.producer if value is not None else None
    return node if node is not None and isinstance(node.op, kind) else None


def _drop_no_op(site: Site) -> Patch | None:
    """A view, cast or copy whose result is its operand."""
    x, y = site.node.operands[0], site.node.output
    if x.type != y.type or x.layout != y.layout or len(site.node.outputs) > 1:
        return None
    op = site.node.op
    idle = (
        isinstance(op, Reshape | Expand | Cast | Dropout)
        or op.name == "Identity"
        or (isinstance(op, Transpose) and op.perm == tuple(range(len(op.perm))))
        or (isinstance(op, Slice) and all(as_int(s) == 0 for s in op.starts) and set(op.steps) <= {1})
        or (isinstance(op, Concat | Split) and len(site.node.operands) == 1)
        or (isinstance(op, Resize) and not op.crops and all(a.plain for a in op.axes))
        or (isinstance(op, Pad) and all(as_int(p) == 0 for p in (*op.before, *op.after)))
        or (op.name in ("Sum", "Max", "Min", "Mean") and len(site.node.operands) == 1)
    )
    return site.replace(x) if idle else None


def _dropout(site: Site) -> Patch | None:
    mask_unread = all(not site.uses.get(v) for v in site.node.outputs[1:])
    return Patch([], {site.node.output: site.node.operands[0]}) if mask_unread else None


def _reshape(site: Site) -> Patch | None:
    """Reshape(Reshape(x)) is one Reshape; one that only splits a dimension goes before a Transpose."""
    node = site.node
    x = node.operands[0]
    if (inner := _maker(x, Reshape)) is not None:
        source = inner.operands[0]
        return site.replace(source if source.type == node.output.type else site.builder.one(node.op, source))
    transpose = _maker(x, Transpose)
    if transpose is None or not site.alone(x):
        return None
    return _lift_reshape(site, transpose)


def _lift_reshape(site: Site, transpose: Node) -> Patch | None:
    """Reshape(Transpose(x)) that splits one dimension as Transpose(Reshape(x)): of exports of k transposed, and of an
    image whose places were one dimension."""
    assert isinstance(transpose.op, Transpose)
    perm, whole, out = transpose.op.perm, transpose.output.shape, site.node.output.shape
    more, last = len(out) - len(whole), len(whole) - 1
    split = next((k for k, (d, part) in enumerate(zip(whole, out, strict=False)) if d is not part), last)
    if more < 1 or whole[split + 1 :] != out[split + 1 + more :]:
        return None
    places = [range(k + more * (k > split), k + more * (k >= split) + 1) for k in range(last + 1)]
    order = [k for d in range(len(perm)) for k in places[perm.index(d)]]
    parts = site.builder.one(Reshape(tuple(out[k] for k in order)), transpose.operands[0])
    return site.replace(site.builder.one(Transpose(tuple(map(order.index, range(len(out))))), parts))


def _product(site: Site) -> Patch | None:
    """MatMul(Reshape(x, [M, K]), w) as a Reshape of MatMul(x, w), where the Reshape only joins rows."""
    a, w = site.node.operands
    flat = _maker(a, Reshape)
    if flat is None or w.type.rank != 2 or a.type.rank != 2:
        return None
    x = flat.operands[0]
    if x.type.rank < 2 or x.shape[-1] is not a.shape[-1]:
        return None
    return site.replace(site.builder.one(Reshape(site.node.output.shape), site.builder.one(site.node.op, x, w)))


def _lower_reshape(site: Site) -> Patch | None:
    """A pointwise operator of a Reshape that only joins or splits rows, and of vectors along them, goes before it."""
    flat = next((n for v in site.node.operands if (n := _maker(v, Reshape)) is not None), None)
    if flat is None or not site.alone(flat.output) or len(site.node.outputs) > 1:
        return None
    x, y = flat.operands[0], flat.output
    if not x.shape or not y.shape or x.shape[-1] is not y.shape[-1] or y.shape != site.node.output.shape:
        return None
    if any(v is not y and (v.const is None or v.const.ndim > 1) for v in site.node.operands):
        return None
    if not _from_product(x):
        return None
    moved = site.builder.add(site.node.op, [x if v is y else v for v in site.node.operands])[0]
    return site.replace(site.builder.one(Reshape(y.shape), moved))


def _from_product(x: Value) -> bool:
    """Whether pointwise work stands between x and a matrix product; only there is a Reshape in the way."""
    node = x.producer
    while node is not None and isinstance(node.op, Pointwise):
        node = node.operands[0].producer
    return node is not None and node.op.name == "MatMul"


def _lower_views(site: Site) -> Patch | None:
    """A pointwise operator of views of what a convolution makes, and of numbers, goes before them, into its kernel."""
    x, *others = sorted(site.node.operands, key=lambda v: v.const is not None)
    views, source = list[Node](), x
    while (view := _maker(source, Reshape) or _maker(source, Transpose)) is not None and site.alone(source):
        views.append(view)
        source = view.operands[0]
    if not views or source.producer is None or source.producer.op.family not in ("conv", "conv_transpose"):
        return None
    if len(site.node.outputs) > 1 or x.shape != site.node.output.shape:
        return None
    if any(v.const is None or v.const.size != 1 or v.type.rank > source.type.rank for v in others):
        return None
    moved = site.builder.add(site.node.op, [source if v is x else v for v in site.node.inputs])[0]
    for view in reversed(views):
        moved = site.builder.one(view.op, moved)
    return site.replace(moved)


def _transpose(site: Site) -> Patch | None:
    """Transpose(Transpose(x)) is one Transpose; one that moves only dimensions of 1 is a Reshape."""
    op, x = site.node.op, site.node.operands[0]
    assert isinstance(op, Transpose)
    if (inner := _maker(x, Transpose)) is not None:
        assert isinstance(inner.op, Transpose)
        perm, source = tuple(inner.op.perm[p] for p in op.perm), inner.operands[0]
        idle = perm == tuple(range(len(perm)))
        return site.replace(source if idle else site.builder.one(Transpose(perm), source))
    wide = [p for p in op.perm if as_int(x.shape[p]) != 1]
    if wide == sorted(wide):
        return site.replace(site.builder.one(Reshape(site.node.output.shape), x))
    return None


def _slice(site: Site) -> Patch | None:
    """Slice(Slice(x)) with steps of 1 is one Slice."""
    op, inner = site.node.op, _maker(site.node.operands[0], Slice)
    if inner is None:
        return None
    assert isinstance(op, Slice) and isinstance(inner.op, Slice)
    if set(op.steps) | set(inner.op.steps) != {1}:
        return None
    starts = tuple(a + b for a, b in zip(op.starts, inner.op.starts, strict=True))
    return site.replace(site.builder.one(Slice(starts, op.sizes, op.steps), inner.operands[0]))


def _cast(site: Site) -> Patch | None:
    """Cast(Cast(x)) is one Cast when the middle type holds every value of x."""
    op, inner = site.node.op, _maker(site.node.operands[0], Cast)
    if inner is None:
        return None
    first, middle = inner.operands[0].dtype, inner.output.dtype
    wider = (first.kind == middle.kind and first.size < middle.size) or (first.kind == "b" and middle.kind != "b")
    wider &= middle is not F8E8M0 and (first is not F8E8M0 or middle is not F16)  # no zero; 2^-127 to 2^127
    return site.replace(site.builder.one(op, inner.operands[0])) if wider else None


def _concat(site: Site) -> Patch | None:
    """Concat without empty operands, and with the operands of an inner Concat that has no other reader."""
    op = site.node.op
    assert isinstance(op, Concat)
    rank = site.node.output.type.rank
    parts: list[Value] = []
    for v in site.node.operands:
        inner = _maker(v, Concat)
        same = inner is not None and isinstance(inner.op, Concat) and inner.op.axis % rank == op.axis % rank
        if inner is not None and same and site.alone(v):
            parts.extend(inner.operands)
        elif as_int(v.shape[op.axis]) != 0:
            parts.append(v)
    if not parts or parts == list(site.node.operands) or (len(parts) > len(site.node.operands) and too_wide(parts)):
        return None
    # A dimension of the result may have been known from an operand that is left out.
    return site.replace(_reshape_like(site, site.builder.one(op, *parts) if len(parts) > 1 else parts[0]))


def _reshape_like(site: Site, x: Value) -> Value:
    """A value with the elements of the node's result, and with its dimensions."""
    return x if x.type == site.node.output.type else site.builder.one(Reshape(site.node.output.shape), x)


def _sum(site: Site) -> Patch | None:
    """Sum of two is Add."""
    if site.node.op.name != "Sum" or len(site.node.inputs) != 2:
        return None
    return site.replace(site.builder.one(REGISTRY["", "Add"](), *site.node.inputs))


def _subtract(site: Site) -> Patch | None:
    """x - c is x + (-c), exactly, for floats."""
    if site.node.op.name != "Sub" or not site.node.output.dtype.is_float:
        return None
    x, c = site.node.operands
    if c.const is None or x.const is not None:
        return None
    negated = site.graph.constant(np.negative(c.const))
    return site.replace(site.builder.one(REGISTRY["", "Add"](), x, negated))


def _order(site: Site) -> Patch | None:
    """Constants to the right."""
    node = site.node
    if node.op.name not in COMMUTATIVE or len(node.operands) != 2:
        return None
    a, b = node.operands
    if a.const is None or b.const is not None:
        return None
    return site.replace(site.builder.one(node.op, b, a))


def _unexpand(site: Site) -> Patch | None:
    """A pointwise operator broadcasts by itself: it reads what an Expand reads."""
    if not any(_maker(v, Expand) for v in site.node.operands):
        return None
    inputs = list(site.node.operands)
    for k, v in enumerate(inputs):
        expand = _maker(v, Expand)
        if expand is None:
            continue
        trial = [*inputs[:k], expand.operands[0], *inputs[k + 1 :]]
        found: list[object] = []
        shape = broadcast([t.shape for t in trial], found)  # type: ignore[arg-type]  # only its length is looked at
        if TensorType(site.node.output.dtype, shape) == site.node.output.type and not found:
            inputs = trial
    if inputs == list(site.node.operands):
        return None
    return site.replace(site.builder.add(site.node.op, inputs)[0])


def _expand(site: Site) -> Patch | None:
    """Expand(Expand(x)) is one Expand."""
    inner = _maker(site.node.operands[0], Expand)
    return None if inner is None else site.replace(site.builder.one(Expand(site.node.output.shape), inner.operands[0]))


def _repeated(site: Site) -> Patch | None:
    """What only chooses, or orders, elements of one that an Expand repeats is that element repeated."""
    expand, out = _maker(site.node.operands[0], Expand), site.node.output
    if expand is None or as_int(expand.operands[0].type.size) != 1:
        return None
    one = site.builder.one(Reshape((const(1),) * out.type.rank), expand.operands[0])
    return site.replace(one if one.type == out.type else site.builder.one(Expand(out.shape), one))


def _in_range(site: Site) -> Patch | None:
    """A repeated index that is in range: none is out of it."""
    op, expand = site.node.op, _maker(site.node.operands[0], Expand)
    one = expand.operands[0].const if expand is not None else None
    if one is None or one.size != 1:
        return None
    assert isinstance(op, OutOfRange)
    index = const(int(one.reshape(-1)[0]))
    if not all(is_nonnegative(e) for s in op.sizes for e in ((s if op.negative else const(0)) + index, s - 1 - index)):
        return None
    return site.replace(site.graph.constant(np.zeros((), np.bool_)))


def _lower_expand(site: Site) -> Patch | None:
    """A pointwise operator of an Expand, and of numbers, computes before it, where there is less to compute."""
    expand = next((n for v in site.node.operands if (n := _maker(v, Expand)) is not None), None)
    if expand is None or len(site.node.outputs) > 1 or not site.alone(expand.output):
        return None
    y, x = expand.output, expand.operands[0]
    others = [v for v in site.node.operands if v is not y]
    if y.shape != site.node.output.shape or any(v.const is None or v.const.size != 1 for v in others):
        return None
    if any(v.type.rank > x.type.rank for v in others):
        return None
    small = site.builder.add(site.node.op, [x if v is y else v for v in site.node.operands])[0]
    return site.replace(site.builder.one(Expand(y.shape), small))


def _gather(site: Site) -> Patch | None:
    """A Gather at indices that an Expand repeats is an Expand of the Gather."""
    data, indices = site.node.operands
    expand = _maker(indices, Expand)
    if expand is None:
        return None
    b, rank = site.builder, indices.type.rank
    source = expand.operands[0]
    if source.type.rank < rank:
        source = b.one(Reshape((*(const(1),) * (rank - source.type.rank), *source.shape)), source)
    return site.replace(b.one(Expand(site.node.output.shape), b.one(site.node.op, data, source)))


def _slice_gather(site: Site) -> Patch | None:
    """A Gather at constant indices that step evenly, and are surely in range, is a view: a Slice, reshaped."""
    op, (data, indices) = site.node.op, site.node.operands
    assert isinstance(op, Gather)
    if indices.const is None or not indices.const.size or data.dtype.is_object:
        return None
    axis, numbers = op.axis % data.type.rank, indices.const.reshape(-1)
    step = int(numbers[1]) - int(numbers[0]) if numbers.size > 1 else 1
    if step == 0 or (np.diff(numbers.astype(np.int64)) != step).any():
        return None
    extent, whole = data.shape[axis], 0 if numbers.max() >= 0 else data.shape[axis]
    first, last = (whole + const(int(n)) for n in (numbers[0], numbers[-1]))
    if not all(is_nonnegative(e) for end in (first, last) for e in (end, extent - 1 - end)):
        return None
    starts, sizes, steps = [const(0)] * data.type.rank, list(data.shape), [1] * data.type.rank
    starts[axis], sizes[axis], steps[axis] = first, const(numbers.size), step
    part = site.builder.one(Slice(tuple(starts), tuple(sizes), tuple(steps)), data)
    return site.replace(_reshape_like(site, part))


def _reduce(site: Site) -> Patch | None:
    """A reduction over dimensions of 1 moves nothing; without keepdims it is a Reshape."""
    op, x = site.node.op, site.node.operands[0]
    assert isinstance(op, Reduce)
    if op.name not in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"):
        return None
    if any(as_int(x.shape[a]) != 1 for a in op.axes):
        return None
    return site.replace(_reshape_like(site, x))


def _where(site: Site) -> Patch | None:
    """Where with a condition that is true, or false, everywhere."""
    if site.node.op.name != "Where":
        return None
    condition, a, b = site.node.operands
    if condition.const is None or condition.const.size == 0:
        return None
    chosen = a if condition.const.all() else b if not condition.const.any() else None
    if chosen is None:
        return None
    if chosen.type == site.node.output.type:
        return site.replace(chosen)
    return site.replace(site.builder.one(expansion(chosen.shape, site.node.output.shape), chosen))


_RULES: list[tuple[type | tuple[type, ...], Callable[[Site], Patch | None]]] = [
    (object, _drop_no_op),
    (Dropout, _dropout),
    (Reshape, _reshape),
    (MatMul, _product),
    (Transpose, _transpose),
    (Slice, _slice),
    (Cast, _cast),
    (Concat, _concat),
    (Expand, _expand),
    ((Reshape, Transpose, Slice, Gather, GatherND), _repeated),
    (OutOfRange, _in_range),
    (Gather, _gather),
    (Gather, _slice_gather),
    (Reduce, _reduce),
    (Pointwise, _sum),
    (Pointwise, _subtract),
    (Pointwise, _order),
    (Pointwise, _unexpand),
    (Pointwise, _where),
    (Pointwise, _lower_reshape),
    (Pointwise, _lower_views),
    (Pointwise, _lower_expand),
]
