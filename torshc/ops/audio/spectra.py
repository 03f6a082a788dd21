"""Transforms and audio front ends of run-time dependent lengths, steps or axes; see also :mod:`.signal`.

The sines and cosines, which are constants where the length is known, are computed where they are used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import F32, F64, I64, DType, Expr, as_int, cast, const, eq, max_of, min_of, select
from ...graph import Node, TensorType
from ..core.axes import AxisNumber, both, pick, put, require
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from ..core.pointwise import compute
from ..core.scalar import Scalar, element, equal, expm1, floor, log, maximum, sin, where
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_op, operand

_NONE = const(0)


def sine(quarters: Expr, whole: Expr, kind: DType) -> Scalar:
    """sin(pi / 2 * quarters / whole), exact where it is 0 or 1: integers fold the angle into 0..pi/2."""
    angle = quarters % (whole * 4)
    is_below = angle >= whole * 2
    angle = select(is_below, angle - whole * 2, angle)
    angle = min_of(angle, whole * 2 - angle)
    value = sin(element(angle, kind) * (math.pi / 2) / element(whole, kind))
    return where(is_below, -value, value)


@operator("Fourier", "torshc")
@dataclass(frozen=True)
class Fourier(Op):
    """The transform of x[..., n, ..., parts] along an axis, of any length, as a sum for each result.

    X[k] = sum over t of x[t] exp(-2 pi i t k / length); the inverse has the other sign and divides by the length.
    What one-sided ones are is told by :func:`torshc.ops.audio.signal.fourier`.

    Attributes:
        axis: transformed dimension, not the last one.
        length: length of the transform; elements past it are left out, those missing count as 0.
    """

    family: ClassVar[str] = "nest"
    axis: AxisNumber = 0
    length: Expr = _NONE
    inverse: bool = False
    onesided: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of DFT")
        require(constraints, self.length >= 1, f"a transform of length {self.length!r}")
        half = self.onesided and not self.inverse
        bins = self.length // 2 + 1 if half else self.length
        kept = const(1 if self.inverse and self.onesided else 2)
        return [TensorType(x.dtype, (*put(self.axis, x.shape[:-1], bins), kept))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x = node.operands[0]
        kind, parts = compute(x.dtype), as_int(x.shape[-1])
        real = self.inverse and self.onesided
        taken = self.length // 2 + 1 if real else self.length
        rows = max_of(min_of(pick(self.axis, x.shape[:-1]), taken), 0)

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            t = inner[0]
            quarters = (t * pick(self.axis, at[:-1]) % self.length) * 4
            across, up = (sine(quarters + start, self.length, kind) for start in (self.length, 0))
            place = put(self.axis, at[:-1], t)
            first = read(0, (*place, const(0)))
            second = read(0, (*place, const(1))) if parts == 2 else element(0, kind)
            up = up if self.inverse else -up
            value = first * across - second * up
            if real:
                single = eq(t, 0) | eq(t * 2, self.length)
                return where(single, first * across, value * 2)
            other = first * up + second * across
            return where(eq(at[-1], 0), value, other)

        def mean(total: Scalar, at: Index, read: Read) -> Scalar:
            return total / element(self.length, total.dtype)

        return LoopNest(body, (rows,), "add", mean if self.inverse else None)


@operator("Frames", "torshc")
@dataclass(frozen=True)
class Frames(Op):
    """Overlapping frames of signal[B, L, parts]: [B, (L - length) // step + 1, length, parts]."""

    family: ClassVar[str] = "nest"
    step: Expr = _NONE
    length: Expr = _NONE

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "the signal of STFT")
        fits = both(self.step >= 1, self.length >= 1, self.length <= x.shape[1])
        require(constraints, fits, f"STFT of {x.type!r} in frames of {self.length!r}, {self.step!r} apart")
        count = (x.shape[1] - self.length) // self.step + 1
        return [TensorType(x.dtype, (x.shape[0], count, self.length, x.shape[2]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        return LoopNest(lambda at, _, read: read(0, (at[0], at[1] * self.step + at[2], at[3])))


def weighed_frames(x: Tensor, step: Expr, length: Expr, window: Tensor | None) -> Tensor:
    """The frames of a signal, each multiplied by the window, which is as long."""
    frames = apply_op(Frames(step, length), x)
    return frames if window is None else frames * window.reshape(length, 1)


@operator("CosineWindow", "torshc")
@dataclass(frozen=True)
class WindowOfSize(Op):
    """a - b cos(t) + c cos(2 t), with t from 0 to 2 pi in `size` elements."""

    family: ClassVar[str] = "nest"
    terms: tuple[float, float, float] = (1.0, 0.0, 0.0)
    size: Expr = _NONE
    periodic: bool = True
    dtype: DType = F32

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        require(constraints, self.size >= 0, f"a window of {self.size!r} elements")
        return [TensorType(self.dtype, (self.size,))]

    def nest(self, node: Node, output: int) -> LoopNest:
        kind, (a, b, c) = compute(self.dtype), self.terms
        kind = kind if kind.is_float else F32
        steps = self.size if self.periodic else self.size - 1
        span = max_of(steps, 1)

        def body(at: Index, _: Index, read: Read) -> Scalar:
            once, twice = (sine(at[0] * n + span, span, kind) for n in (4, 8))
            value = a - once * b
            value = value + twice * c if c else value
            if not self.periodic:  # of one element it is 0 / 0
                value = where(eq(steps, 0), math.nan, value)
            return value.cast(compute(self.dtype))

        return LoopNest(body)


@operator("MelFilters", "torshc")
@dataclass(frozen=True)
class MelFilters(Op):
    """ONNX MelWeightMatrix of numbers known only at run time; operands are the lowest and the highest frequency.

    Frequencies below 0, above rate / 2 or not in order, which ONNX does not allow, give filters without meaning.

    Attributes:
        filters, length, rate: number of filters, length of the transform, samples a second.
    """

    family: ClassVar[str] = "nest"
    filters: Expr = _NONE
    length: Expr = _NONE
    rate: Expr = _NONE
    dtype: DType = F32

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        fits = both(*(e >= 1 for e in (self.filters, self.length, self.rate)))
        require(constraints, fits, "MelWeightMatrix without filters, length or rate")
        return [TensorType(self.dtype, (self.length // 2 + 1, self.filters))]

    def nest(self, node: Node, output: int) -> LoopNest:
        def mels(frequency: Scalar) -> Scalar:
            return log(frequency.cast(F64) / 700 + 1) * (2595 / math.log(10))

        def body(at: Index, _: Index, read: Read) -> Scalar:
            low, high = mels(read(0, ())), mels(read(1, ()))
            pace = (high - low) / element(self.filters + 2, F64)

            def edge(k: int) -> Scalar:
                mel = low + element(at[1] + k, F64) * pace
                hertz = expm1(mel * (math.log(10) / 2595)) * 700
                return floor(element(self.length + 1, F64) * hertz / element(self.rate, F64))

            place, (left, centre, right) = element(at[0], F64), (edge(k) for k in range(3))
            rising = where(equal(centre, left), 1, (place - left) / maximum(centre - left, 1))
            falling = (right - place) / maximum(right - centre, 1)
            up = where((place >= left) & (place <= centre), rising, 0)
            return where((place >= centre) & (place < right), falling, up).cast(compute(self.dtype))

        return LoopNest(body)


def mel_filters(source: SourceNode, dtype: DType) -> Tensor:
    """MelWeightMatrix of a node with operands known only at run time."""
    numbers = [source.dims(k, f"operand {k} of MelWeightMatrix") for k in range(3)]
    ends = [operand(source, k) for k in (3, 4)]
    if any(n is None or len(n) != 1 for n in numbers) or any(as_int(v.type.size) != 1 for v in ends):
        raise ModelError("MelWeightMatrix needs five scalars")
    filters, length, rate = (cast(n[0], I64) for n in numbers if n is not None)
    return apply_op(MelFilters(filters, length, rate, dtype), *(v.reshape() for v in ends))


def transform_at_run(x: Tensor, axis: AxisNumber, length: Expr, inverse: bool, onesided: bool) -> Tensor:
    """A transform along an axis of which not all is known; the last dimension holds real and imaginary parts."""
    require(x.builder.graph.constraints, pick(axis, x.shape[:-1]) >= 1, f"a transform of {x.type!r}")
    return apply_op(Fourier(axis, length, inverse, onesided), x)
