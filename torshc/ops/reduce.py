"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from ..expr import Expr, call, cast, const
from ..graph import Builder, Node, TensorType, Value
from .base import Constraints, Index, Inputs, Nest, Op, Read, axis_of, need, operator
from .pointwise import compute
from .source import SourceNode

Scalar = Callable[[Expr], Expr]


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

    def term(self, x: Expr) -> Expr:
        """What is accumulated for an element."""
        return x

    def last(self, total: Expr, count: Expr) -> Expr:
        """The result from the accumulated value and the number of elements."""
        return total

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        kept = [const(1) if d in self.axes else s for d, s in enumerate(x.shape) if self.keepdims or d not in self.axes]
        return [TensorType(x.dtype, tuple(kept))]

    def nest(self, node: Node, output: int) -> Nest:
        shape = node.operands[0].shape
        extents = tuple(shape[d] for d in self.axes)
        count = const(1)
        for e in extents:
            count = count * e

        def body(at: Index, inner: Index, read: Read) -> Expr:
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
            return Nest(lambda at, _, read: self.last(self.term(read(0, at)), count))
        return Nest(body, extents, self.combine, lambda total, at, read: self.last(total, count))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        axes = source.axes()
        keepdims = bool(source.attribute("keepdims", 1))
        noop = source.attribute("noop_with_empty_axes", 0)
        rank = x.type.rank
        chosen = tuple(sorted({axis_of(a, rank) for a in axes})) if axes else () if noop else tuple(range(rank))
        source.fields(cls)
        return source.emit(cls(axes=chosen, keepdims=keepdims), [x])


def reduction(
    name: str, combine: str, term: Scalar | None = None, last: Callable[[Expr, Expr], Expr] | None = None
) -> None:
    """Declare a reduction."""
    members: dict[str, object] = {"combine": combine, "__doc__": f"ONNX {name}."}
    if term is not None:
        members["term"] = lambda self, x: term(x)
    if last is not None:
        members["last"] = lambda self, total, count: last(total, count)
    operator(name)(dataclass(frozen=True)(type(name, (Reduce,), members)))


def _mean(total: Expr, count: Expr) -> Expr:
    return call("div", total, cast(count, compute(total.dtype)))


reduction("ReduceSum", "add")
reduction("ReduceMean", "add", last=_mean)
reduction("ReduceMax", "max")
reduction("ReduceMin", "min")
reduction("ReduceProd", "mul")
reduction("ReduceL1", "add", lambda x: call("abs", x))
reduction("ReduceL2", "add", lambda x: call("mul", x, x), lambda t, _: call("sqrt", t))
reduction("ReduceSumSquare", "add", lambda x: call("mul", x, x))
reduction("ReduceLogSum", "add", last=lambda t, _: call("log", t))


@operator()
@dataclass(frozen=True)
class ReduceLogSumExp(Reduce):
    """log(sum(exp(x))) as m + log(sum(exp(x - m))) with m the maximum, so that it does not overflow."""

    family: ClassVar[str] = "composite"

    def nest(self, node: Node, output: int) -> Nest:
        return None  # type: ignore[return-value]  # composite: computed through decompose

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        from .base import REGISTRY

        x = need(inputs[0], "input 0 of ReduceLogSumExp")
        reduce_max, reduce_sum = REGISTRY["", "ReduceMax"], REGISTRY["", "ReduceSum"]
        m = b.one(reduce_max(axes=self.axes, keepdims=True), x)  # type: ignore[call-arg]
        e = b.one(REGISTRY["", "Exp"](), b.one(REGISTRY["", "Sub"](), x, m))
        total = b.one(REGISTRY["", "Log"](), b.one(reduce_sum(axes=self.axes, keepdims=True), e))  # type: ignore[call-arg]
        out = b.one(REGISTRY["", "Add"](), total, m)
        return [out] if self.keepdims else [b.one(reduce_sum(axes=self.axes, keepdims=False), out)]  # type: ignore[call-arg]


@operator()
@dataclass(frozen=True)
class GlobalAveragePool(Op):
    """Mean over all spatial dimensions, kept with size 1."""

    family: ClassVar[str] = "composite"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        return [TensorType(x.dtype, x.shape[:2] + (const(1),) * (x.type.rank - 2))]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        from .base import REGISTRY

        x = need(inputs[0], f"input 0 of {self.name}")
        kind = "ReduceMean" if self.name == "GlobalAveragePool" else "ReduceMax"
        return b.add(REGISTRY["", kind](axes=tuple(range(2, x.type.rank)), keepdims=True), [x])  # type: ignore[call-arg]


@operator()
@dataclass(frozen=True)
class GlobalMaxPool(GlobalAveragePool):
    """Maximum over all spatial dimensions, kept with size 1."""
