"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from ...expr import F32, I64, Expr, const, eq, product, select
from ...graph import Builder, Node, Shape, TensorType, Value
from ..core.axes import axes_operand, constraints_of, known_axes, marks, without
from ..core.base import REGISTRY, Constraints, Index, Inputs, LoopNest, Op, Read, axis_of, need, operator
from ..core.composite import Formula
from ..core.functions import ceil, equal, exp, floor, is_inf, log, sign, sqrt, where
from ..core.gradient import Backward, as_shape, gradient_of, spread
from ..core.pointwise import compute
from ..core.scalar import Scalar, element, maximum
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_named, apply_op
from ..tensor.view import Reshape, Stretch
from .expression import Expression, argument
from .pointwise import through_float


@dataclass(frozen=True)
class Reduce(Op):
    """Base of the reductions.

    Attributes:
        axes: reduced axes, non-negative and sorted.
        keepdims: keep them with size 1.
    """

    family: ClassVar[str] = "reduce"
    combine: ClassVar[str] = "add"

    axes: tuple[int, ...] = ()
    keepdims: bool = True

    def term(self, x: Scalar) -> Scalar:
        """What is accumulated for an element."""
        return x

    def last(self, total: Scalar, count: Expr) -> Scalar:
        """The result from the accumulated value and the number of elements."""
        return total

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        kept = [const(1) if d in self.axes else s for d, s in enumerate(x.shape) if self.keepdims or d not in self.axes]
        return [TensorType(x.dtype, tuple(kept))]

    def nest(self, node: Node, output: int) -> LoopNest:
        shape = node.operands[0].shape
        extents = tuple(shape[d] for d in self.axes)
        count = const(1)
        for e in extents:
            count = count * e

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            outer, reduced, index = iter(at), iter(inner), []
            for d in range(len(shape)):
                if d in self.axes:
                    index.append(next(reduced))
                    if self.keepdims:
                        next(outer)
                else:
                    index.append(next(outer))
            return self.term(read(0, tuple(index)))

        if not extents:  # each element is a sum of one
            return LoopNest(lambda at, _, read: self.last(self.term(read(0, at)), count))
        return LoopNest(body, extents, self.combine, lambda total, at, read: self.last(total, count))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        keepdims = bool(source.attribute("keepdims", 1))
        noop = source.attribute("noop_with_empty_axes", 0)
        rank, operand = x.type.rank, source.input(1)
        if operand is not None and operand.type.rank == 1 and operand.type.static_shape is None and keepdims:
            source.fields(cls)
            return [cls.over(source.builder, x, _mark_axes(source.builder, operand, rank, bool(noop)))]
        given = axes_operand(source)
        axes = known_axes(given or ())
        source.fields(cls)
        if axes is None:
            return [_at_run(source, cls, x, given or (), keepdims)]
        chosen = tuple(sorted({axis_of(a, rank) for a in axes})) if axes else () if noop else tuple(range(rank))
        return source.emit(cls(axes=chosen, keepdims=keepdims), [x])

    @classmethod
    def over(cls, b: Builder, x: Value, marked: Shape) -> Value:
        """The reduction over the dimensions that are marked at run time, kept with size 1."""
        return b.one(ReduceMarked(cls.name, marked), x)


def _at_run(source: SourceNode, kind: type[Reduce], x: Value, axes: Shape, keepdims: bool) -> Value:
    """A reduction over run-time axes; their number is known, and so is the result's rank."""
    b, rank = source.builder, x.type.rank
    marked = marks(axes, rank, constraints_of(source))
    out = kind.over(b, x, marked)
    return out if keepdims else b.one(Reshape(without(x.shape, marked, rank - len(axes))), out)


def _mark_axes(b: Builder, axes: Value, rank: int, noop: bool) -> Shape:
    """For each dimension, whether it is among the axes. Their number is run-time dependent too: 0 means all or none.

    A run refuses axes that are out of range or appear twice, as not each of them then marks one dimension more.
    """
    count = axes.shape[0]
    column = Tensor(b, axes).cast(I64).reshape(count, 1)
    here, back = (column.constant(np.arange(rank, dtype=np.int64) - away) for away in (0, rank))
    hit = equal(column, here) | equal(column, back)
    hits = hit.cast(I64).sum(0, keep=False).elements()
    assert hits is not None  # as many as there are dimensions
    once = tuple(eq(h, 1) for h in hits)
    total = const(0)
    for m in once:
        total = total + select(m, const(1), const(0))
    b.graph.constraints.append((total, count))
    empty = const(False) if noop else eq(count, 0)
    return tuple(empty | m for m in once)


@operator("ReduceMarked", "torshc")
@dataclass(frozen=True)
class ReduceMarked(Op):
    """A reduction over dimensions chosen at run time, which are kept with size 1.

    Each dimension has a loop outside and one inside, of which one takes a single step: the index is their sum.

    Attributes:
        kind: ONNX's name of the reduction.
        marked: for each dimension, whether it is reduced.
    """

    family: ClassVar[str] = "nest"
    kind: str = ""
    marked: Shape = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.kind}")
        kept = (select(m, const(1), d) for m, d in zip(self.marked, x.shape, strict=True))
        return [TensorType(x.dtype, tuple(kept))]

    def nest(self, node: Node, output: int) -> LoopNest:
        kind = REGISTRY["", self.kind]()
        assert isinstance(kind, Reduce)
        shape = node.operands[0].shape
        extents = tuple(select(m, d, const(1)) for m, d in zip(self.marked, shape, strict=True))
        count = const(1)
        for e in extents:
            count = count * e

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            return kind.term(read(0, tuple(i + r for i, r in zip(at, inner, strict=True))))

        return LoopNest(body, extents, kind.combine, lambda total, at, read: kind.last(total, count))


def reduction(
    name: str,
    combine: str,
    term: Callable[[Scalar], Scalar] | None = None,
    last: Callable[[Scalar, Expr], Scalar] | None = None,
) -> None:
    """Declare a reduction."""
    members: dict[str, object] = {"combine": combine, "__doc__": f"ONNX {name}."}
    if term is not None:
        members["term"] = lambda self, x: term(x)
    if last is not None:
        members["last"] = lambda self, total, count: last(total, count)
    operator(name)(dataclass(frozen=True)(type(name, (Reduce,), members)))


def _mean(total: Scalar, count: Expr) -> Scalar:
    return total / element(count, compute(total.dtype))


def _root(total: Scalar, count: Expr) -> Scalar:
    """The square root; of an integer the largest whole number that is not above it.

    ONNX's definition rounds the integer to f32 first, its evaluator and ONNX Runtime to f64, so that theirs may be one
    more just below a square. A step of Newton's method in integers that starts from f32 is the whole root or one more.
    """
    if total.dtype.is_float:
        return sqrt(total)
    n = maximum(total, 0)  # squares may have wrapped
    near = maximum(sqrt(n.cast(F32)).cast(n.dtype), 1)
    root = maximum((near + n / near) / 2, 1)
    return root - (root > n / root).cast(n.dtype)


reduction("ReduceSum", "add")
reduction("ReduceMean", "add", last=_mean)
reduction("ReduceMax", "max")
reduction("ReduceMin", "min")
reduction("ReduceProd", "mul")
reduction("ReduceL1", "add", abs)
reduction("ReduceL2", "add", lambda x: x * x, _root)
reduction("ReduceSumSquare", "add", lambda x: x * x)
reduction("ReduceLogSum", "add", last=lambda t, _: through_float(log, t))


@operator()
@dataclass(frozen=True)
class ReduceLogSumExp(Formula, Reduce):
    """log(sum(exp(x))) as m + log(sum(exp(x - m))) with m the maximum, so that it does not overflow.

    Where the maximum is infinite m is 0: the result is that infinity. Of integers the result loses its fraction, and m
    stays an integer, which f32 may not hold.
    """

    def nest(self, node: Node, output: int) -> LoopNest:
        return None  # type: ignore[return-value]  # composite: computed through decompose

    @classmethod
    def over(cls, b: Builder, x: Value, marked: Shape) -> Value:
        most, total = (partial(apply_op, ReduceMarked(kind, marked)) for kind in ("ReduceMax", "ReduceSum"))
        given = Tensor(b, x)
        return _log_sum_exp(given, most(given), partial(apply_op, Stretch(x.shape)), total).value

    def formula(self, given: Tensor) -> Tensor:
        out = _log_sum_exp(given, given.max(self.axes), lambda t: t, lambda t: t.sum(self.axes))
        return out if self.keepdims else out.sum(self.axes, keep=False)


def _log_sum_exp(x: Tensor, m: Tensor, wide: Callable[[Tensor], Tensor], total: Callable[[Tensor], Tensor]) -> Tensor:
    """m + log(sum(exp(x - m))) for the maximum m, which `wide` gives the shape of x."""
    if x.dtype.is_float:
        m = where(is_inf(m), 0, m)
        return log(total(exp(x - wide(m)))) + m
    below = wide(m) - x  # wraps to less than 0 where it is so large that its exp(-below) is 0
    rest = log(total(where(below < 0, 0.0, exp(-below.cast(F32)))))
    whole = where(m.cast(F32) + rest < 0, ceil(rest), floor(rest))  # towards 0, as a Cast
    return m + whole.cast(m.dtype)


@operator()
@dataclass(frozen=True)
class GlobalAveragePool(Formula):
    """Mean over all spatial dimensions, kept with size 1."""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        return [TensorType(x.dtype, x.shape[:2] + (const(1),) * (x.type.rank - 2))]

    def formula(self, x: Tensor) -> Tensor:
        return x.mean(range(2, x.rank))


@operator()
@dataclass(frozen=True)
class GlobalMaxPool(GlobalAveragePool):
    """Maximum over all spatial dimensions, kept with size 1."""

    def formula(self, x: Tensor) -> Tensor:
        return x.max(range(2, x.rank))


@dataclass(frozen=True)
class _Reduced:
    """A reduction whose gradient is asked for, over known axes or marked ones.

    Attributes:
        x: what is reduced.
        y, g: the result and its gradient, both broadcast to the shape of x.
        count: elements of x that one of the result is made of.
        again: another reduction over the same axes, its result broadcast as well.
    """

    x: Tensor
    y: Tensor
    g: Tensor
    count: Expr
    again: Callable[[str, Tensor], Tensor]


def _mean_gradient(r: _Reduced) -> Tensor:
    dtype = compute(r.x.dtype)
    share = Scalar(argument(0, dtype)) / element(r.count, dtype)
    return apply_op(Expression(share.expr, r.x.dtype), r.g)


def _extreme_gradient(r: _Reduced) -> Tensor:
    """Shared evenly among equal elements, as of torch.amax."""
    hits = equal(r.x, r.y).cast(r.x.dtype)
    return r.g * hits / r.again("ReduceSum", hits)


def _prod_gradient(r: _Reduced) -> Tensor:
    """The product of the others: y / x, or of what is not 0 where x alone is; of two zeros each hides the other."""
    zero = equal(r.x, 0.0)
    count = r.again("ReduceSum", zero.cast(r.x.dtype))
    rest = r.again("ReduceProd", where(zero, 1.0, r.x))
    alone = where(equal(count, 1.0), rest, 0.0)
    return r.g * where(zero, alone, where(equal(count, 0.0), rest / where(zero, 1.0, r.x), 0.0))


def _l2_gradient(r: _Reduced) -> Tensor:
    """0 where all are 0."""
    return r.g * where(equal(r.y, 0.0), 0.0, r.x / where(equal(r.y, 0.0), 1.0, r.y))


def _log_sum_exp_gradient(r: _Reduced) -> Tensor:
    """The softmax; 0 where the sum is infinite or 0."""
    return where(is_inf(r.y), 0.0, r.g * exp(r.x - r.y))


_GRADIENTS: dict[str, Callable[[_Reduced], Tensor]] = {
    "ReduceSum": lambda r: r.g,
    "ReduceMean": _mean_gradient,
    "ReduceMax": _extreme_gradient,
    "ReduceMin": _extreme_gradient,
    "ReduceProd": _prod_gradient,
    "ReduceL1": lambda r: r.g * sign(r.x),
    "ReduceL2": _l2_gradient,
    "ReduceSumSquare": lambda r: r.g * (r.x * 2.0),
    "ReduceLogSum": lambda r: r.g / r.again("ReduceSum", r.x),
    "ReduceLogSumExp": _log_sum_exp_gradient,
}


@gradient_of(*_GRADIENTS)
def _reduce_gradient(op: Reduce, at: Backward) -> Tensor:
    x, kept = at.operand(0), tuple(const(1) if k in op.axes else d for k, d in enumerate(at.operand(0).shape))

    def again(kind: str, t: Tensor) -> Tensor:
        return spread(apply_named(kind, t, axes=op.axes, keepdims=True), x.shape)

    y, g = (spread(as_shape(t, kept), x.shape) for t in (at.outputs[0], at.gradient))
    return _GRADIENTS[op.name](_Reduced(x, y, g, product(x.shape[k] for k in op.axes), again))


@gradient_of(ReduceMarked)
def _reduce_marked_gradient(op: ReduceMarked, at: Backward) -> Tensor:
    x = at.operand(0)

    def again(kind: str, t: Tensor) -> Tensor:
        return spread(apply_op(ReduceMarked(kind, op.marked), t), x.shape)

    y, g = (spread(t, x.shape) for t in (at.outputs[0], at.gradient))
    count = product(select(m, d, const(1)) for m, d in zip(op.marked, x.shape, strict=True))
    return _GRADIENTS[op.kind](_Reduced(x, y, g, count, again))
