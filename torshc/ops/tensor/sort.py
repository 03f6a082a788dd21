"""The largest or smallest elements along an axis.

Processors and CUDA have kernels of their own (``targets/cpu/topk.py``, ``targets/gpu/topk.py`` and ``sort.py``). By
counting, an element's rank is how many come before it: that takes work in proportion to the square of the axis's
length, and is for what is evaluated when compiling, and for other devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import I64, Expr, as_int, const
from ...graph import Builder, Node, TensorType, Value
from ..core.axes import both, require
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, axis_of, need, operator
from ..core.gradient import Backward, gradient_of, zeros
from ..core.scalar import Scalar, element, equal, isnan, where
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_named


@operator("Rank", "torshc")
@dataclass(frozen=True)
class Rank(Op):
    """How many elements along an axis come before each: larger ones (or smaller ones), and equal ones to its left.

    NaN counts as larger than any number, and all NaNs as equal.
    """

    family: ClassVar[str] = "nest"
    axis: int = 0
    largest: bool = True

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(I64, need(inputs[0], "the operand of Rank").shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        size = node.operands[0].shape[self.axis]

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            here, there = read(0, at), read(0, (*at[: self.axis], inner[0], *at[self.axis + 1 :]))
            big, small = (there, here) if self.largest else (here, there)
            above, below = _above(big, small), _above(small, big)
            left = element(inner[0] < at[self.axis])
            return where(above | ~below & left, element(1), 0)

        return LoopNest(body, (size,), "add")


def _above(a: Scalar, b: Scalar) -> Scalar:
    """Whether a > b, with NaN above all numbers."""
    if not a.dtype.is_float:
        return a > b
    return (a > b) | isnan(a) & ~isnan(b)


_ONE = const(1)
COUNTED = 1 << 22  # comparisons that are made when compiling
PLACES = 1 << 32  # the kernel keeps a place in 32 bits


@operator("PlaceOfRank", "torshc")
@dataclass(frozen=True)
class PlaceOfRank(Op):
    """The place along an axis of the element of rank 0, 1, ... up to `count`."""

    family: ClassVar[str] = "nest"
    axis: int = 0
    count: Expr = _ONE

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        ranks = need(inputs[0], "the ranks of PlaceOfRank")
        return [TensorType(I64, (*ranks.shape[: self.axis], self.count, *ranks.shape[self.axis + 1 :]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        size = node.operands[0].shape[self.axis]

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            rank = read(0, (*at[: self.axis], inner[0], *at[self.axis + 1 :]))
            return where(equal(rank, element(at[self.axis])), element(inner[0]), -1)

        return LoopNest(body, (size,), "max")


@operator()
@dataclass(frozen=True)
class TopK(Op):
    """The k largest (or smallest) elements along an axis, in order, and their places.

    Decided here: they are in order even where `sorted` is 0; of equal elements the first comes first; NaN is larger
    than any number.
    """

    family: ClassVar[str] = "topk"
    axis: int = -1
    k: Expr = _ONE
    largest: int = 1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of TopK")
        axis = axis_of(self.axis, x.type.rank)
        fits = both(self.k >= 0, self.k <= x.shape[axis])
        require(constraints, fits, f"TopK of the {self.k!r} largest of {x.shape[axis]!r}")
        require(constraints, x.shape[axis] < PLACES, f"TopK along {x.shape[axis]!r} elements")
        shape = (*x.shape[:axis], self.k, *x.shape[axis + 1 :])
        return [TensorType(x.dtype, shape), TensorType(I64, shape)]

    def ranked(self, b: Builder, x: Value) -> list[Value]:
        """Sort by counting: how many elements come before each, the place of each rank, and the element there."""
        axis = axis_of(self.axis, x.type.rank)
        places = b.one(PlaceOfRank(axis, self.k), b.one(Rank(axis, bool(self.largest)), x))
        return [apply_named("GatherElements", Tensor(b, x), Tensor(b, places), axis=axis).value, places]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value] | None:
        x = need(inputs[0], "input 0 of TopK")
        steps = as_int(x.type.size * x.shape[self.axis])
        return None if steps is None or steps > COUNTED else self.ranked(b, x)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, given = source.required(0), source.attribute("k")
        counts = (const(int(given)),) if given is not None else source.dims(1, "the k of TopK")
        axis = axis_of(int(source.attribute("axis", -1)), x.type.rank)
        largest = int(source.attribute("largest", 1))
        source.attribute("sorted")
        source.fields(cls)
        if counts is None or len(counts) != 1:
            raise ModelError("the k of TopK is not a single number")
        return source.emit(cls(axis, counts[0], largest), [x])[: max(source.outputs, 1)]


@gradient_of(TopK)
def _top_k_gradient(op: TopK, at: Backward) -> Tensor:
    """Each element that was taken gets the gradient of its place in the result; each is taken once."""
    x = at.operand(0)
    return apply_named("ScatterElements", zeros(x), at.outputs[1], at.gradient, axis=axis_of(op.axis, x.rank))
