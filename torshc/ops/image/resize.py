"""Resampling: Resize and Upsample, and the shuffles between channels and space."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import F32, Expr, as_int, const, eq, select
from ...graph import Node, Shape, TensorType, Value
from ..core.axes import at_run, constraints_of, either, require
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, axis_of, need, operator
from ..core.composite import composite
from ..core.pointwise import compute
from ..core.scalar import Scalar, element, maximum, where
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor
from ..nn.conv import inside
from .antialias import ResizeKernel, blurred
from .scales import common_ratio, corners, crop_of, fractions
from .taps import ResizeAxis, clamp, cubic_weights, keys, nearest, source_coordinate


@dataclass(frozen=True)
class Crop:
    """The coordinate (i * over + first) / under of a dimension of which a region is resampled."""

    over: int | Expr
    first: int | Expr
    under: int | Expr


@operator()
@dataclass(frozen=True)
class Resize(Op):
    """Resampling of any dimensions, by the nearest element, linearly or by cubic convolution.

    Attributes:
        axes: how each dimension is resampled.
        mode: "nearest", "linear" or "cubic".
        transform: from an output coordinate to one of the input; ONNX's coordinate_transformation_mode.
        rounding: how a coordinate is rounded to the nearest; ONNX's nearest_mode, or "ceil_if_smaller".
        cubic: coefficient of the cubic kernel.
        exclude_outside: taps outside of the tensor weigh nothing (otherwise they read its edge).
        antialias: where the result is smaller, the kernel is as wide as an element of it.
        crops: the region of every dimension, when regions are cropped.
        extrapolation: what stands where a coordinate of a crop lies outside of the tensor.
    """

    family: ClassVar[str] = "nest"
    axes: tuple[ResizeAxis, ...] = ()
    mode: str = "nearest"
    transform: str = "half_pixel"
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    crops: tuple[Crop, ...] = ()
    extrapolation: float = 0.0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(need(inputs[0], "input 0 of Resize").dtype, tuple(a.size for a in self.axes))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x = node.operands[0]
        kind = compute(x.dtype)

        def body(at: Index, _: Index, read: Read) -> Scalar:
            taps = [self._taps(k, i, d) for k, (i, d) in enumerate(zip(at, x.shape, strict=True))]
            is_weighted = any(w is not None for axis_taps in taps for _, w in axis_taps)

            def along(place: Index) -> Scalar:
                """The sum over the dimensions that have no place yet, an inner one for each place of an outer one."""
                if len(place) == len(taps):
                    value = read(0, place)
                    return value.cast(F32) if is_weighted and not kind.is_float else value
                terms = []
                for p, w in taps[len(place)]:
                    value = along((*place, p))
                    terms.append(value if w is None else value * w.cast(value.dtype))
                return functools.reduce(lambda a, b: a + b, terms)

            total = along(())
            found = const(True)
            for crop, i, d in zip(self.crops, at, x.shape, strict=False):
                over = i * crop.over + crop.first
                found = found & ((over >= 0) & (over <= (d - 1) * crop.under))
            value = where(found, total, self.extrapolation)
            return (round(value) if is_weighted and not kind.is_float else value).cast(kind)

        return LoopNest(body)

    def _taps(self, k: int, i: Expr, size: Expr) -> list[tuple[Expr, Scalar | None]]:
        """Places in the input that an output coordinate of dimension k reads, with their weights (None for 1)."""
        a = self.axes[k]
        if self.crops:
            over, under = i * self.crops[k].over + self.crops[k].first, const(1) * self.crops[k].under
        elif a.plain:
            return [(i, None)]
        else:
            over, under = source_coordinate(self.transform, a, i, size)
        if self.mode == "nearest":
            if self.rounding == "ceil_if_smaller":
                place = select(a.up < a.down, nearest("ceil", over, under), nearest("floor", over, under))
            else:
                place = nearest(self.rounding, over, under)
            return [(clamp(place, size), None)]
        base = over // under
        part = element(over % under, F32) / element(under, F32)
        if self.antialias:
            first, weights = self._wide(a, part)
        elif self.mode == "linear":
            first, weights = 0, [1 - part, part]
        else:
            first, weights = -1, cubic_weights(part, self.cubic)
        places = [base + (first + n) for n in range(len(weights))]
        if self.exclude_outside:
            weights = [where(inside(p, size), w, 0) for p, w in zip(places, weights, strict=True)]
            weights = _normal(weights)
        return [(clamp(p, size), w) for p, w in zip(places, weights, strict=True)]

    def _wide(self, a: ResizeAxis, part: Scalar) -> tuple[int, list[Scalar]]:
        """First place, counted from the coordinate's floor, and weights of a kernel stretched by 1 / scale."""
        scale, first, last = reach(a, 1 if self.mode == "linear" else 2)
        away = [abs(n - part) * scale for n in range(first, last)]
        if self.mode == "linear":
            return first, _normal([maximum(1 - d, 0) for d in away])
        return first, _normal([keys(d, self.cubic) for d in away])

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        mode = str(source.attribute("mode", "nearest"))
        old = source.opset < 11 or source.op_type == "Upsample"
        transform = str(source.attribute("coordinate_transformation_mode", "asymmetric" if old else "half_pixel"))
        # Opset 10 does not say how; its case test_resize_downsample_nearest shows it.
        rounding = str(source.attribute("nearest_mode", "ceil_if_smaller" if old else "round_prefer_floor"))
        cubic = float(source.attribute("cubic_coeff_a", -0.75))
        exclude = bool(source.attribute("exclude_outside", 0))
        outside, antialias = float(source.attribute("extrapolation_value", 0.0)), bool(source.attribute("antialias", 0))
        axes = _axes(source, x, old)
        crops = _crops(source, x, axes) if transform == "tf_crop_and_resize" else ()
        source.fields(cls)
        antialias = antialias and mode != "nearest"
        if antialias and not crops and at_run(*(e for a in axes for e in (a.up, a.down))):
            return [
                blurred(Tensor(source.builder, x), axes, ResizeKernel(transform, mode == "cubic", cubic, exclude)).value
            ]
        if antialias:
            taps = [last - first for _, first, last in (reach(a, 1 + (mode == "cubic")) for a in axes if not a.plain)]
            if math.prod(taps) > _TAPS:
                raise Unsupported(f"Resize with antialias that reads {math.prod(taps)} elements for each")
        return source.emit(cls(axes, mode, transform, rounding, cubic, exclude, antialias, crops, outside), [x])


@operator()
@dataclass(frozen=True)
class Upsample(Op):
    """ONNX Upsample, which became Resize; it becomes one at import."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return Resize.read(source)


def _normal(weights: list[Scalar]) -> list[Scalar]:
    """The weights divided by their sum."""
    total = weights[0]
    for w in weights[1:]:
        total = total + w
    return [w / total for w in weights]


_TAPS = 256  # elements that one of the result is made of, each written out in the kernel


def reach(a: ResizeAxis, radius: int) -> tuple[float, int, int]:
    """Scale of a kernel of some radius on a dimension that shrinks, and the places that it covers around a floor.

    Raises:
        Unsupported: when the scale is symbolic.
    """
    up, down = as_int(a.up), as_int(a.down)
    if up is None or down is None or up < 1:
        raise Unsupported("Resize with antialias by a symbolic scale")
    scale = min(Fraction(up, down), Fraction(1))
    first = math.floor(-radius / scale) + 1
    return float(scale), first, 2 - first


def _crops(source: SourceNode, x: Value, axes: tuple[ResizeAxis, ...]) -> tuple[Crop, ...]:
    """Coordinates first * (size - 1) + i * (last - first) * (size - 1) / (out - 1) of each dimension's region."""
    named, given = source.attribute("axes"), source.required(1)
    which = [axis_of(int(a), x.type.rank) for a in named] if named is not None else list(range(x.type.rank))
    roi = given.const
    if roi is None or at_run(*(a.size for a in axes)):
        return _crops_at_run(source, given, which, x, axes)
    if roi.size != 2 * len(which) or not all(map(math.isfinite, roi.reshape(-1))):
        raise ModelError(f"Resize of {x.type!r} needs a region of {2 * len(which)} numbers")
    edges = [(Fraction(0), Fraction(1))] * x.type.rank
    for k, axis in enumerate(which):
        first, last = (Fraction(float(roi.reshape(-1)[k + n])) for n in (0, len(which)))
        edges[axis] = first, last
    crops = []
    for (first, last), a, d in zip(edges, axes, x.shape, strict=True):
        size, out = as_int(d), as_int(a.size)
        if first == 0 and last == 1 and a.plain:
            crops.append(Crop(1, 0, 1))
            continue
        if size is None or out is None:
            raise Unsupported("Resize that crops a symbolic dimension")
        start, step = first * (size - 1), (last - first) * (size - 1) / max(out - 1, 1)
        if out == 1:
            start, step = start + step / 2, Fraction(0)
        under = math.lcm(start.denominator, step.denominator)
        if under > 1 << 40 or abs(start * under) > 1 << 60 or abs(step * under) * out > 1 << 60:
            raise Unsupported(f"Resize that crops from {float(first)} to {float(last)}")
        crops.append(Crop(int(step * under), int(start * under), under))
    return tuple(crops)


def _crops_at_run(
    source: SourceNode, roi: Value, which: list[int], x: Value, axes: tuple[ResizeAxis, ...]
) -> tuple[Crop, ...]:
    edges = corners(source, Tensor(source.builder, roi))
    if len(edges) != 2 * len(which):
        raise ModelError(f"Resize of {x.type!r} needs a region of {2 * len(which)} numbers")
    crops = [Crop(1, 0, 1)] * x.type.rank
    for k, axis in enumerate(which):
        first, last = edges[k], edges[k + len(which)]
        crops[axis] = Crop(*crop_of(source, first, last, x.shape[axis], axes[axis].size))
    return tuple(crops)


def _axes(source: SourceNode, x: Value, old: bool) -> tuple[ResizeAxis, ...]:
    """Sizes and scales from the attribute or the operands, whichever the opset has."""
    given = source.attribute("scales")
    scales_at, sizes_at = (1, 9) if old else (2, 3)
    operand = source.input(scales_at)
    scales = given if given is not None else operand.const if operand is not None else None
    sizes = source.dims(sizes_at, "the sizes of Resize")
    axes = source.attribute("axes")
    which = [axis_of(int(a), x.type.rank) for a in axes] if axes is not None else list(range(x.type.rank))
    out = [ResizeAxis(d, const(1), const(1)) for d in x.shape]
    if not sizes and scales is None and operand is not None and as_int(operand.type.size) == len(which):
        for axis, (up, down) in zip(which, fractions(source, Tensor(source.builder, operand)), strict=True):
            out[axis] = ResizeAxis(x.shape[axis] * up // down, up, down)
        return _readable(source, x, tuple(out))
    values = sizes if sizes else scales
    if values is None or len(values) != len(which) or (operand is not None and operand.type.rank != 1):
        raise ModelError(f"{source.op_type} of {x.type!r} needs a scale or a size for {len(which)} dimensions")
    policy = str(source.attribute("keep_aspect_ratio_policy", "stretch"))
    if sizes:
        return _axes_from_sizes(source, x, which, sizes, policy, out)
    for axis, scale in zip(which, values, strict=True):
        if not 0 < float(scale) < math.inf:
            raise ModelError(f"{source.op_type} with a scale of {scale}, which has to be finite and above 0")
        exact = Fraction(float(scale))
        up, down = const(exact.numerator), const(exact.denominator)
        out[axis] = ResizeAxis(x.shape[axis] * up // down, up, down)
    return tuple(out)


def _readable(source: SourceNode, x: Value, axes: tuple[ResizeAxis, ...]) -> tuple[ResizeAxis, ...]:
    """The axes, where a run checks that there is something to read for what it must make."""
    for a, d in zip(axes, x.shape, strict=True):
        if at_run(a.size):
            require(constraints_of(source), either(d > 0, eq(a.size, 0)), f"Resize of {x.type!r}")
    return axes


def _axes_from_sizes(
    source: SourceNode, x: Value, which: list[int], sizes: Shape, policy: str, out: list[ResizeAxis]
) -> tuple[ResizeAxis, ...]:
    if policy == "stretch":
        for axis, size in zip(which, sizes, strict=True):
            out[axis] = ResizeAxis(size, size, x.shape[axis])
        return _readable(source, x, tuple(out))
    if at_run(*sizes):
        up, down = common_ratio(policy, sizes, tuple(x.shape[a] for a in which))
        for axis in which:
            out[axis] = ResizeAxis((x.shape[axis] * up * 2 + down) // (down * 2), up, down)
        return _readable(source, x, tuple(out))
    have, wanted = [as_int(x.shape[a]) for a in which], [as_int(s) for s in sizes]
    if None in have or None in wanted:
        raise Unsupported(f"Resize that keeps the aspect ratio ({policy}) of symbolic dimensions")
    ratios = [Fraction(w or 0, h or 1) for w, h in zip(wanted, have, strict=True)]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    if ratio <= 0:
        raise ModelError(f"Resize to {wanted}, where sizes have to be above 0")
    for axis, h in zip(which, have, strict=True):
        rounded = (ratio * (h or 0) + Fraction(1, 2)).__floor__()
        out[axis] = ResizeAxis(const(rounded), const(ratio.numerator), const(ratio.denominator))
    return tuple(out)


def _image(x: Tensor, what: str) -> tuple[Expr, Expr, Expr, Expr]:
    if x.rank != 4:
        raise ModelError(f"{what} of {x.type!r}, whose rank is not 4")
    return x.shape[0], x.shape[1], x.shape[2], x.shape[3]


def _whole(e: Expr, by: int, what: str) -> Expr:
    value = as_int(e)
    if value is not None and value % by:
        raise ModelError(f"{what}: {value} is not a multiple of {by}")
    return e // by


@composite("DepthToSpace", floats=False)
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of channels become blocks of pixels."""
    b, (n, c, h, w) = blocksize, _image(x, "DepthToSpace")
    rest = _whole(c, b * b, "channels of DepthToSpace")
    if mode == "DCR":
        blocks = x.reshape(n, b, b, rest, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        blocks = x.reshape(n, rest, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(n, rest, h * b, w * b)


@composite("SpaceToDepth", floats=False)
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of pixels become blocks of channels."""
    b, (n, c, h, w) = blocksize, _image(x, "SpaceToDepth")
    rows, columns = _whole(h, b, "SpaceToDepth"), _whole(w, b, "SpaceToDepth")
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return x.reshape(n, c, rows, b, columns, b).transpose(*order).reshape(n, c * (b * b), rows, columns)
