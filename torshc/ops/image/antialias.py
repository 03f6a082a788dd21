"""Resize with antialias by scales known only at run time: an axis at a time, with as many taps as the scale needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...expr import F32, Expr, const, max_of
from ...graph import Node, TensorType
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from ..core.scalar import Scalar, element, maximum, where
from ..core.tensor import Tensor, apply_named, apply_op
from ..nn.conv import inside
from .taps import ResizeAxis, clamp, keys, source_coordinate

_STILL = ResizeAxis(const(0), const(0), const(0))


@dataclass(frozen=True)
class ResizeKernel:
    """What weighs the elements around a coordinate.

    Attributes:
        transform: ONNX's coordinate_transformation_mode.
        wide: whether it is Keys' cubic kernel, of radius 2; else it is linear.
        cubic: coefficient of the cubic kernel.
        exclude_outside: elements outside of the tensor weigh nothing.
    """

    transform: str = "half_pixel"
    wide: bool = False
    cubic: float = -0.75
    exclude_outside: bool = False


_LINEAR = ResizeKernel()


@operator("Blur", "torshc")
@dataclass(frozen=True)
class Blur(Op):
    """One dimension of x resampled by a kernel that is as wide as an element of the result: sums of weighted elements.

    These are divided by the sums of the weights alone, a number for each place along the dimension.

    Attributes:
        dimension: which one is resampled.
        how: its size and scale.
        kernel: what weighs them.
        sums: whether the result is the sums of the weights.
    """

    family: ClassVar[str] = "nest"
    dimension: int = 0
    how: ResizeAxis = _STILL
    kernel: ResizeKernel = _LINEAR
    sums: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, k = need(inputs[0], "the operand of Blur"), self.dimension
        if self.sums:
            return [TensorType(F32, (self.how.size,))]
        return [TensorType(x.dtype, (*x.shape[:k], self.how.size, *x.shape[k + 1 :]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        # The scale is up / wide where it shrinks and 1 elsewhere; radius / scale elements lie on either side.
        k, up, wide = self.dimension, self.how.up, max_of(self.how.up, self.how.down)
        extent, radius = node.operands[0].shape[k], 2 if self.kernel.wide else 1
        first = wide * -radius // up + 1

        def tap(i: Expr, n: Expr) -> tuple[Expr, Scalar]:
            over, under = source_coordinate(self.kernel.transform, self.how, i, extent)
            place = over // under + first + n
            part = element(over % under, F32) / element(under, F32)
            distance = abs(element(first + n, F32) - part) * element(up, F32) / element(wide, F32)
            weight = maximum(1 - distance, 0) if radius == 1 else keys(distance, self.kernel.cubic)
            if self.kernel.exclude_outside:
                weight = where(inside(place, extent), weight, 0)
            return clamp(place, extent), weight

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            place, weight = tap(at[0] if self.sums else at[k], inner[0])
            if self.sums:
                return weight
            value = read(0, (*at[:k], place, *at[k + 1 :]))
            return value * weight.cast(value.dtype)

        return LoopNest(body, (2 - first * 2,), "add")


def blurred(x: Tensor, axes: Sequence[ResizeAxis], kernel: ResizeKernel) -> Tensor:
    """Resize with antialias, an axis after the other; integers are rounded once, at the end."""
    out = x if x.dtype.is_float else x.cast(F32)
    for k, a in enumerate(axes):
        if a.plain:
            continue
        sums = apply_op(Blur(k, a, kernel, True), out).reshape(a.size, *(1,) * (x.rank - k - 1))
        out = apply_op(Blur(k, a, kernel), out) / sums.cast(out.dtype)
    return (out if x.dtype.is_float else apply_named("Round", out)).cast(x.dtype)
