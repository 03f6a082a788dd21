"""Resampling: Resize and Upsample, and the shuffles between channels and space."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from ..errors import ModelError
from ..expr import F32, Expr, as_int, call, cast, const, select
from ..graph import Node, Shape, TensorType, Value
from .base import Constraints, Index, Inputs, Nest, Op, Read, axis_of, need, operator
from .conv import inside
from .pointwise import compute
from .source import SourceNode, Unsupported
from .view import Reshape, Transpose

_TRANSFORMS = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
               "tf_half_pixel_for_nn")  # fmt: skip
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Axis:
    """How one dimension is resampled; all in integers, so that a coordinate is exact.

    Attributes:
        size: extent of the output.
        up, down: the scale is up / down.
    """

    size: Expr
    up: Expr
    down: Expr

    @property
    def plain(self) -> bool:
        """Whether the dimension is left as it is."""
        return self.up is self.down


@operator()
@dataclass(frozen=True)
class Resize(Op):
    """Resampling of any dimensions, by the nearest element, linearly or by cubic convolution.

    Attributes:
        axes: of every dimension.
        mode: "nearest", "linear" or "cubic".
        transform: from an output coordinate to one of the input; ONNX's coordinate_transformation_mode.
        rounding: of the nearest coordinate; ONNX's nearest_mode.
        cubic: coefficient of the cubic kernel.
        exclude_outside: taps outside of the tensor weigh nothing (otherwise they read its edge).
    """

    family: ClassVar[str] = "nest"
    axes: tuple[Axis, ...] = ()
    mode: str = "nearest"
    transform: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(need(inputs[0], "input 0 of Resize").dtype, tuple(a.size for a in self.axes))]

    def nest(self, node: Node, output: int) -> Nest:
        x = node.operands[0]
        kind = compute(x.dtype)

        def body(at: Index, _: Index, read: Read) -> Expr:
            taps = [self._taps(a, i, d) for a, i, d in zip(self.axes, at, x.shape, strict=True)]
            total: Expr | None = None
            for choice in itertools.product(*taps):
                value = read(0, tuple(place for place, _ in choice))
                weights = [w for _, w in choice if w is not None]
                if weights and not kind.is_float:
                    value = cast(value, F32)
                for w in weights:
                    value = call("mul", value, cast(w, value.dtype))
                total = value if total is None else call("add", total, value)
            assert total is not None
            return cast(total, kind)

        return Nest(body)

    def _taps(self, a: Axis, i: Expr, size: Expr) -> list[tuple[Expr, Expr | None]]:
        """Places in the input that an output coordinate reads, with their weights (None for 1)."""
        if a.plain:
            return [(i, None)]
        over, under = source_coordinate(self.transform, a, i, size)
        if self.mode == "nearest":
            return [(_clamp(nearest(self.rounding, over, under), size), None)]
        base = call("floordiv", over, under)
        part = call("div", cast(call("mod", over, under), F32), cast(under, F32))
        if self.mode == "linear":
            first, weights = 0, [call("sub", 1.0, part), part]
        else:
            first, weights = -1, _cubic(part, self.cubic)
        places = [base + (first + k) for k in range(len(weights))]
        if self.exclude_outside:
            weights = [select(inside(p, size), w, const(0.0, F32)) for p, w in zip(places, weights, strict=True)]
            total = weights[0]
            for w in weights[1:]:
                total = call("add", total, w)
            weights = [call("div", w, total) for w in weights]
        return [(_clamp(p, size), w) for p, w in zip(places, weights, strict=True)]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        mode = str(source.attribute("mode", "nearest"))
        old = source.opset < 11 or source.op_type == "Upsample"
        transform = str(source.attribute("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"))
        rounding = str(source.attribute("nearest_mode", "floor" if old else "round_prefer_floor"))
        cubic = float(source.attribute("cubic_coeff_a", -0.75))
        exclude = bool(source.attribute("exclude_outside", 0))
        source.attribute("extrapolation_value")
        if source.attribute("antialias", 0):
            raise Unsupported("Resize with antialias")
        if transform not in _TRANSFORMS or mode not in ("nearest", "linear", "cubic") or rounding not in _ROUNDINGS:
            raise Unsupported(f"{source.op_type} with {mode}, {transform}, {rounding}")
        axes = _axes(source, x, old)
        source.fields(cls)
        return source.emit(cls(axes, mode, transform, rounding, cubic, exclude), [x])


@operator()
@dataclass(frozen=True)
class Upsample(Op):
    """ONNX Upsample, which became Resize; it becomes one at import."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return Resize.read(source)


def source_coordinate(transform: str, a: Axis, i: Expr, size: Expr) -> tuple[Expr, Expr]:
    """The coordinate in the input, as numerator and denominator, of output coordinate i."""
    if transform == "asymmetric":
        return i * a.down, a.up
    if transform == "tf_half_pixel_for_nn":
        return (i * 2 + 1) * a.down, a.up * 2
    if transform == "align_corners":
        under = size * a.up - a.down
        return (const(0), const(1)) if as_int(under) == 0 else (i * (size - 1) * a.down, under)
    middle = (i * 2 + 1) * a.down - a.up
    if transform == "half_pixel_symmetric":
        middle = middle + size * a.up - a.size * a.down
    if transform == "pytorch_half_pixel":
        middle = select(call("gt", a.size, 1), middle, const(0))
    return middle, a.up * 2


def nearest(rounding: str, over: Expr, under: Expr) -> Expr:
    """The integer that stands for over / under."""
    if rounding == "floor":
        return call("floordiv", over, under)
    if rounding == "ceil":
        return -call("floordiv", -over, under)
    if rounding == "round_prefer_floor":
        return -call("floordiv", under - over * 2, under * 2)
    return call("floordiv", over * 2 + under, under * 2)


def _clamp(place: Expr, size: Expr) -> Expr:
    return call("max", call("min", place, size - 1), 0)


def _cubic(t: Expr, a: float) -> list[Expr]:
    """Weights of the four taps around a point at t between the middle two; Keys' cubic convolution."""

    def near(d: Expr) -> Expr:
        return call("add", call("mul", call("mul", call("sub", call("mul", d, a + 2), a + 3), d), d), 1.0)

    def far(d: Expr) -> Expr:
        inner = call("add", call("mul", call("sub", call("mul", d, a), 5 * a), d), 8 * a)
        return call("sub", call("mul", inner, d), 4 * a)

    rest = call("sub", 1.0, t)
    return [far(call("add", t, 1.0)), near(t), near(rest), far(call("add", rest, 1.0))]


def _axes(source: SourceNode, x: Value, old: bool) -> tuple[Axis, ...]:
    """Sizes and scales from the attribute or the operands, whichever the opset has."""
    given = source.attribute("scales")
    scales_at, sizes_at = (1, 9) if old else (2, 3)
    scales = given if given is not None else source.array(scales_at, f"the scales of {source.op_type}")
    sizes = source.dims(sizes_at, "the sizes of Resize")
    axes = source.attribute("axes")
    which = [axis_of(int(a), x.type.rank) for a in axes] if axes is not None else list(range(x.type.rank))
    out = [Axis(d, const(1), const(1)) for d in x.shape]
    values = sizes if sizes else scales
    if values is None or len(values) != len(which):
        raise ModelError(f"{source.op_type} of {x.type!r} needs a scale or a size for {len(which)} dimensions")
    policy = str(source.attribute("keep_aspect_ratio_policy", "stretch"))
    if sizes:
        return _sized(source, x, which, sizes, policy, out)
    for axis, scale in zip(which, values, strict=True):
        if not 0 < float(scale) < math.inf:
            raise ModelError(f"{source.op_type} with a scale of {scale}")
        exact = Fraction(float(scale))
        up, down = const(exact.numerator), const(exact.denominator)
        out[axis] = Axis(call("floordiv", x.shape[axis] * up, down), up, down)
    return tuple(out)


def _sized(
    source: SourceNode, x: Value, which: list[int], sizes: Shape, policy: str, out: list[Axis]
) -> tuple[Axis, ...]:
    if policy == "stretch":
        for axis, size in zip(which, sizes, strict=True):
            out[axis] = Axis(size, size, x.shape[axis])
        return tuple(out)
    have, wanted = [as_int(x.shape[a]) for a in which], [as_int(s) for s in sizes]
    if None in have or None in wanted:
        raise Unsupported(f"Resize that keeps the aspect ratio ({policy}) of symbolic dimensions")
    ratios = [Fraction(w or 0, h or 1) for w, h in zip(wanted, have, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    if ratio <= 0:
        raise ModelError(f"Resize to {wanted}")
    for axis, h in zip(which, have, strict=True):
        rounded = (ratio * (h or 0) + Fraction(1, 2)).__floor__()
        out[axis] = Axis(const(rounded), const(ratio.numerator), const(ratio.denominator))
    return tuple(out)


def _blocks(source: SourceNode) -> tuple[Value, int, tuple[Expr, Expr, Expr, Expr]]:
    x, b = source.required(0), int(source.attribute("blocksize", 0))
    if x.type.rank != 4 or b < 1:
        raise ModelError(f"{source.op_type} of {x.type!r} with blocks of {b}")
    return x, b, (x.shape[0], x.shape[1], x.shape[2], x.shape[3])


def _shuffle(source: SourceNode, x: Value, split: Shape, perm: tuple[int, ...], joined: Shape) -> list[Value]:
    parts = source.emit(Reshape(split), [x])
    return source.emit(Reshape(joined), source.emit(Transpose(perm), parts))


def _whole(e: Expr, by: int, what: str) -> Expr:
    value = as_int(e)
    if value is not None and value % by:
        raise ModelError(f"{what}: {value} is no multiple of {by}")
    return call("floordiv", e, by)


@operator()
@dataclass(frozen=True)
class DepthToSpace(Op):
    """Blocks of channels become blocks of pixels: a Reshape, a Transpose and a Reshape at import."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, b, (n, c, h, w) = _blocks(source)
        mode, side = str(source.attribute("mode", "DCR")), const(b)
        rest = _whole(c, b * b, "channels of DepthToSpace")
        if mode not in ("DCR", "CRD"):
            raise ModelError(f"DepthToSpace has no mode {mode!r}")
        split = (n, side, side, rest, h, w) if mode == "DCR" else (n, rest, side, side, h, w)
        perm = (0, 3, 4, 1, 5, 2) if mode == "DCR" else (0, 1, 4, 2, 5, 3)
        return _shuffle(source, x, split, perm, (n, rest, h * b, w * b))


@operator()
@dataclass(frozen=True)
class SpaceToDepth(Op):
    """Blocks of pixels become blocks of channels: a Reshape, a Transpose and a Reshape at import."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, b, (n, c, h, w) = _blocks(source)
        rows, columns, side = _whole(h, b, "SpaceToDepth"), _whole(w, b, "SpaceToDepth"), const(b)
        mode = str(source.attribute("mode", "DCR"))
        if mode not in ("DCR", "CRD"):
            raise ModelError(f"SpaceToDepth has no mode {mode!r}")
        perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return _shuffle(source, x, (n, c, rows, side, columns, side), perm, (n, c * (b * b), rows, columns))
