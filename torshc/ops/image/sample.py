"""Operators that read a tensor between its elements, where another tensor says: GridSample, RoiAlign, DeformConv; and
Col2Im, which sums what a window once spread out.

Decided here where ONNX leaves it open: coordinates are limited to `FAR` either way before they become integers, and a
NaN becomes 0; a batch that does not exist is clamped into the range; a bin of RoiAlign has at most 4,096 points a side.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, I32, I64, DType, Expr, as_int, const, eq, product
from ...graph import Node, Shape, TensorType, Value
from ..core.axes import at_run, constraints_of, require
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, filled, need, operator, same_dim
from ..core.bounds import demand_in_range
from ..core.composite import Formula
from ..core.functions import ceil, concat
from ..core.functions import clip as clip_tensor
from ..core.functions import max as larger
from ..core.functions import where as choose
from ..core.pointwise import compute
from ..core.reach import guarded
from ..core.scalar import Scalar, clip, element, equal, floor, maximum, trunc, where
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_op, operand
from ..nn.conv import Ints, Window, bias_of, grouped, inside, kernel_of, operands, slide, spatial_of, window
from ..tensor.index import wrap
from ..tensor.view import linear
from .taps import clamp, cubic_weights

FAR = 1 << 30
MOST_POINTS = 4096.0  # along a side of a bin, whatever its region
_KEYS = -0.75  # coefficient of the cubic kernel
Fetch = Callable[[Index], Scalar]


def _split(x: Scalar) -> tuple[Expr, Scalar]:
    """A coordinate's floor, and the rest."""
    x = clip(x, -FAR, FAR)
    low = floor(x)
    place = clip(low.cast(I32), -FAR, FAR)  # so that 32 bits surely hold the next places too, of a NaN as well
    return place.index(), x - low


def _blend(axes: list[tuple[list[Expr], list[Scalar]]], fetch: Fetch, kind: DType) -> Scalar:
    """Sum over all combinations of places, a list an axis, of what is fetched there times the places' weights."""
    total: Scalar | None = None
    for choice in itertools.product(*(list(zip(places, weights, strict=True)) for places, weights in axes)):
        value = fetch(tuple(place for place, _ in choice)).cast(kind)
        for _, weight in choice:
            value = value * weight.cast(kind)
        total = value if total is None else total + value
    assert total is not None
    return total


def _bilinear(position: tuple[Scalar, ...], fetch: Fetch, kind: DType) -> Scalar:
    axes = []
    for x in position:
        low, part = _split(x)
        axes.append(([low, low + 1], [1 - part, part]))
    return _blend(axes, fetch, kind)


@operator()
@dataclass(frozen=True)
class AffineGrid(Op):
    """Places for GridSample: theta[N, r, r + 1] times (the place of each element of an image, from -1 to 1; 1).

    Shape of the result: [N, D1, ..., Dr, r], of which the last dimension counts from Dr back to D1.

    Attributes:
        sizes: D1, ..., Dr; an axis of one element lies at -1 when corners are aligned, where ONNX divides 0 by 0.
        align_corners: -1 and 1 are the centres of the outermost elements, not their outer edges.
    """

    family: ClassVar[str] = "nest"
    sizes: Shape = ()
    align_corners: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        theta, rank = need(inputs[0], "the matrices of AffineGrid"), len(self.sizes)
        if rank not in (2, 3) or theta.type.rank != 3 or not theta.dtype.is_float:
            raise ModelError(f"AffineGrid of {theta.type!r} for an image of {rank} dimensions; there are 2 or 3")
        for d, wanted in zip(theta.shape[1:], (rank, rank + 1), strict=True):
            same_dim(d, const(wanted), constraints, f"AffineGrid of {theta.type!r} for an image of {rank} dimensions")
        return [TensorType(theta.dtype, (theta.shape[0], *self.sizes, const(rank)))]

    def nest(self, node: Node, output: int) -> LoopNest:
        kind, rank = compute(node.operands[0].dtype), len(self.sizes)

        def body(at: Index, _: Index, read: Read) -> Scalar:
            total = read(0, (at[0], at[-1], const(rank))).cast(kind)
            for k, (i, size) in enumerate(zip(at[1:-1], self.sizes, strict=True)):
                factor = read(0, (at[0], at[-1], const(rank - 1 - k))).cast(kind)
                total = total + factor * self._place(element(i, kind), element(size, kind))
            return total

        return LoopNest(body)

    def _place(self, i: Scalar, size: Scalar) -> Scalar:
        if self.align_corners:
            return i * (2 / maximum(size - 1, 1)) - 1
        apart = 2 / size
        return i * apart + (apart / 2 - 1)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        theta, dims = source.required(0), source.dims(1, "the size of AffineGrid") or ()
        op = cls(dims[2:], int(source.attribute("align_corners", 0)))
        source.fields(cls)
        if theta.type.rank and dims:
            same_dim(dims[0], theta.shape[0], constraints_of(source), "the batch of AffineGrid")
        return source.emit(op, [theta])


@operator()
@dataclass(frozen=True)
class GridSample(Op):
    """x[N, C, D1, ..., Dr] read at grid[N, O1, ..., Or, r], whose last dimension counts from Dr back to D1, as
    coordinates from -1 to 1. Shape of the result: [N, C, O1, ..., Or].

    Attributes:
        mode: "nearest" (halves to even), "linear" or "cubic" (Keys, -0.75).
        padding_mode: what lies outside: "zeros", "border" (the edge) or "reflection" at it.
        align_corners: -1 and 1 are the centres of the outermost elements, not their outer edges.
    """

    family: ClassVar[str] = "nest"
    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, grid = need(inputs[0], "input 0 of GridSample"), need(inputs[1], "the grid of GridSample")
        rank = x.type.rank - 2
        if rank < 1 or grid.type.rank != rank + 2 or as_int(grid.shape[-1]) not in (rank, None):
            raise ModelError(
                f"GridSample of {x.type!r} at {grid.type!r}"
                "; a grid for n spatial dimensions has to be [N, .., n], of the rank of the images"
            )
        if not x.dtype.is_float or not grid.dtype.is_float:
            raise Unsupported(f"GridSample of {x.dtype!r} at {grid.dtype!r}")
        batch = same_dim(x.shape[0], grid.shape[0], constraints, "the batch of GridSample")
        return [TensorType(x.dtype, (batch, x.shape[1], *grid.shape[1:-1]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x, kind = node.operands[0], compute(node.operands[0].dtype)
        sizes = x.shape[2:]

        def body(at: Index, _: Index, read: Read) -> Scalar:
            def fetch(places: Index) -> Scalar:
                within, index = const(True), []
                for place, size in zip(places, sizes, strict=True):
                    if self.padding_mode == "zeros":
                        within = within & inside(place, size)
                    if self.padding_mode == "reflection":
                        place = self._reflect(element(place, F32), size).index()
                    index.append(clamp(place, size))  # a select does not keep a gather from being made
                return where(within, guarded(read, 0, (*at[:2], *index), sizes), 0)

            axes = []
            for k, size in enumerate(sizes):
                coordinate = read(1, (at[0], *at[2:], const(len(sizes) - 1 - k)))
                axes.append(self._taps(coordinate, size))
            return _blend(axes, fetch, kind)

        return LoopNest(body)

    def _taps(self, normal: Scalar, size: Expr) -> tuple[list[Expr], list[Scalar]]:
        """Places along an axis, which may lie outside, and their weights."""
        extent = element(size, normal.dtype)
        x = (normal + 1) / 2 * (extent - 1) if self.align_corners else ((normal + 1) * extent - 1) / 2
        if self.mode == "nearest":
            x = round(x)
        low, high = self._border(size, x.dtype)
        outside = (x < low) | (x > high)
        if self.padding_mode == "border":
            x = where(outside, clip(x, 0, extent - 1), x)
        elif self.padding_mode == "reflection":
            x = self._reflect(x, size)
        place, part = _split(x)
        one = element(1, x.dtype)
        if self.mode == "nearest":
            return [place], [one]
        if self.mode == "linear":
            return [place, place + 1], [one - part, part]
        return [place + k for k in (-1, 0, 1, 2)], cubic_weights(part, _KEYS)

    def _border(self, size: Expr, kind: DType) -> tuple[Scalar, Scalar]:
        """The coordinates where the tensor begins and ends."""
        margin = 0.0 if self.align_corners else 0.5
        return element(-margin, kind), element(size, kind) - (1 - margin)

    def _reflect(self, x: Scalar, size: Expr) -> Scalar:
        """x folded back at both borders as often as it takes; a border of no extent takes all."""
        low, high = self._border(size, x.dtype)
        span = high - low
        away = maximum(low - x, x - high)
        turns = trunc(away / span)
        rest = away - turns * span
        is_even = equal(turns - floor(turns / 2) * 2, 0)
        folded = where(equal(is_even, x < low), low + rest, high - rest)
        return where(away > 0, where(span > 0, folded, low), x)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        mode, padding = str(source.attribute("mode", "linear")), str(source.attribute("padding_mode", "zeros"))
        mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
        corners = int(source.attribute("align_corners", 0))
        source.fields(cls)
        if mode == "cubic" and source.required(0).type.rank > 5:
            raise Unsupported("cubic GridSample over more than 3 dimensions")
        filled(source.inputs, "GridSample")
        return source.emit(cls(mode, padding, corners), [source.required(0), source.required(1)])


@operator()
@dataclass(frozen=True)
class RoiAlign(Op):
    """Regions of x[N, C, H, W] averaged into a grid of bins: [R, C, height, width].

    Operands: x, rois[R, 4] as x1, y1, x2, y2, and the batch that each belongs to; where the number of points follows
    from the regions, counts[R, 2], of rows and columns of points in a bin. Each bin takes that many points, or sampling
    x sampling, read bilinearly; a point more than 1 outside of x counts as 0. In mode "max" it is, as ONNX has it, the
    greatest of all four weighted neighbours of all points. A bin without points is 0.

    Attributes:
        most: the most rows and columns of points that a region has, where their number follows from the regions.
    """

    family: ClassVar[str] = "nest"
    height: int = 1
    width: int = 1
    sampling: int = 1
    scale: float = 1.0
    half_pixel: bool = True
    mode: str = "avg"
    most: Shape = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, rois, batches = (need(v, "an input of RoiAlign") for v in inputs[:3])
        if x.type.rank != 4 or rois.type.rank != 2 or as_int(rois.shape[1]) != 4 or batches.type.rank != 1:
            raise ModelError(
                f"RoiAlign of {x.type!r} in {rois.type!r} with batches {batches.type!r}"
                "; images have to be [N, C, H, W], regions [R, 4], and batches [R]"
            )
        if rois.dtype is not x.dtype or not batches.dtype.is_int:
            raise ModelError(
                f"RoiAlign of {x.dtype!r} in {rois.dtype!r} with batches of {batches.dtype!r}"
                "; regions have to be of the type of the images, and batches integers"
            )
        count = same_dim(rois.shape[0], batches.shape[0], constraints, "the regions of RoiAlign")
        return [TensorType(x.dtype, (count, x.shape[1], const(self.height), const(self.width)))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x = node.operands[0].shape

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            batch = wrap(read(2, at[:1]).index(), x[0])
            counts = self._counts(at, read)
            first, last = ([read(1, (at[0], const(k))) for k in ks] for ks in ((1, 0), (3, 2)))
            rows = self._point(first[0], last[0], at[2], inner[0], self.height, counts[0])
            columns = self._point(first[1], last[1], at[3], inner[1], self.width, counts[1])
            (ys, wy, ok_y), (xs, wx, ok_x) = _taps(rows, x[2]), _taps(columns, x[3])
            terms = []
            for (y, v), (c, u) in itertools.product(zip(ys, wy, strict=True), zip(xs, wx, strict=True)):
                terms.append(v * u * guarded(read, 0, (batch, at[1], y, c), x[2:]))
            total = terms[0]
            for term in terms[1:]:
                total = maximum(total, term) if self.mode == "max" else total + term
            total = where(ok_y & ok_x, total, 0)
            if not self.most:
                return total
            is_point = (element(inner[0], F32) < counts[0]) & (element(inner[1], F32) < counts[1])
            return where(is_point, total, -math.inf if self.mode == "max" else 0)

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            if not self.most:
                return total if self.mode == "max" else total * (1.0 / self.sampling**2)
            rows, columns = self._counts(at, read)
            mean = total if self.mode == "max" else total / (rows * columns).cast(total.dtype)
            return where((rows > 0) & (columns > 0), mean, 0)

        points = self.most or (const(self.sampling),) * 2
        return LoopNest(body, points, "max" if self.mode == "max" else "add", finish)

    def _counts(self, at: Index, read: Read) -> list[Scalar]:
        """Rows and columns of points in a bin of a region."""
        if not self.most:
            return [element(self.sampling, F32)] * 2
        return [read(3, (at[0], const(k))) for k in range(2)]

    def _point(self, first: Scalar, last: Scalar, which: Expr, point: Expr, bins: int, count: Scalar) -> Scalar:
        """Coordinate of a sampling point in a bin."""
        offset = 0.5 if self.half_pixel else 0.0
        start = first * self.scale - offset
        extent = last * self.scale - offset - start
        if not self.half_pixel:
            extent = maximum(extent, 1)
        middle = (element(point, extent.dtype) + 0.5) / (count.cast(extent.dtype) if self.most else self.sampling)
        return start + extent / bins * (element(which, extent.dtype) + middle)

    def count_points(self, rois: Tensor) -> Tensor:
        """Rows and columns of points in a bin, as many as it has pixels: counts[R, 2], up to `MOST_POINTS`."""
        first, last = (rois.part(1, k, k + 2).cast(F32) * self.scale for k in (0, 2))
        extent = last - first if self.half_pixel else larger(last - first, 1.0)
        bins = np.array([self.width, self.height], np.float32)
        counts = clip_tensor(ceil(extent / extent.constant(bins)), high=MOST_POINTS)
        counts = choose(counts > 0.0, counts, 0.0)  # none of no number
        return concat(counts.part(1, 1, 2), counts.part(1, 0, 1), axis=1)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        names = {"output_half_pixel": False, "half_pixel": True}
        old = "output_half_pixel" if source.opset < 16 else "half_pixel"
        transform = str(source.attribute("coordinate_transformation_mode", old))
        height, width = int(source.attribute("output_height", 1)), int(source.attribute("output_width", 1))
        sampling, scale = int(source.attribute("sampling_ratio", 0)), float(source.attribute("spatial_scale", 1.0))
        mode = str(source.attribute("mode", "avg"))
        source.fields(cls)
        filled(source.inputs, "RoiAlign")
        op = cls(height, width, sampling, scale, names[transform], mode)
        operands = [source.required(k) for k in range(3)]
        if sampling < 1:
            counts = op.count_points(operand(source, 1))
            most = larger(counts.max((0,), keep=False), 1.0).cast(I64).elements()
            assert most is not None
            op, operands = replace(op, most=most), [*operands, counts.value]
        found = source.emit(op, operands)
        demand_in_range(source, source.required(2), source.required(0).shape[0])
        return found


def _taps(x: Scalar, size: Expr) -> tuple[list[Expr], list[Scalar], Scalar]:
    """Two places around a coordinate with their weights, and whether it is less than 1 outside."""
    ok = (x >= -1) & (x <= element(size, x.dtype))
    low, part = _split(maximum(x, 0))
    part = where(low >= size - 1, 0, part)
    return [clamp(low, size), clamp(low + 1, size)], [1 - part, part], ok


@operator()
@dataclass(frozen=True)
class DeformConv(Formula):
    """Convolution of x[N, C, H, W] with w[M, C/group, kernel] whose taps are moved by offsets and weighed by a mask.

    Operands: x, w, offsets[N, offset groups * kernel * 2, spatial] (rows first), then a bias[M] and a mask[N, offset
    groups * kernel, spatial] where the node has them. Moved taps are read bilinearly, as 0 outside of x.
    """

    strides: Ints = ()
    pads: Shape = ()
    dilations: Ints = ()
    group: int = 1
    offset_group: int = 1
    has_bias: bool = False
    has_mask: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, w = operands(inputs, "DeformConv")
        if x.type.rank != 4:
            raise Unsupported(f"DeformConv of {x.type!r} with weights {w.type!r}")
        same_dim(x.shape[1], w.shape[1] * self.group, constraints, f"channels of DeformConv of {x.type!r}")
        what = f"DeformConv of {x.type!r} in {self.group} groups, {self.offset_group} of offsets"
        grouped(w.shape[0], self.group, constraints, what)
        grouped(x.shape[1], self.offset_group, constraints, what)
        spatial = slide(x.shape[2:], spatial_of(w), Window(self.strides, self.pads, self.dilations))
        taps = w.shape[2] * w.shape[3] * self.offset_group
        rest = list(inputs[3:])
        bias_of((x, w, rest.pop(0) if self.has_bias else None), w.shape[0], constraints, "DeformConv")
        for v, depth in ((inputs[2], taps * 2), (rest.pop(0) if self.has_mask else None, taps)):
            if v is None:
                continue
            if v.type.rank != 4 or v.dtype is not x.dtype:
                raise ModelError(
                    f"DeformConv of {x.type!r} with {v.type!r}"
                    "; offsets and masks need 4 dimensions and the type of the images"
                )
            for have, want in zip(v.shape, (x.shape[0], depth, *spatial), strict=True):
                same_dim(have, want, constraints, f"DeformConv of {x.type!r} with {v.type!r}")
        return [TensorType(x.dtype, (x.shape[0], w.shape[0], *spatial))]

    def formula(self, x: Tensor, w: Tensor, offsets: Tensor, *rest: Tensor) -> Tensor:
        taps = DeformedTaps(w.shape[2:], self.strides, self.pads, self.dilations, self.offset_group)
        columns = apply_op(taps, x, offsets, *rest[self.has_bias :])
        batch, spatial = x.shape[:1], columns.shape[4:]
        depth, places = product(w.shape[1:]), product(spatial)
        groups = (const(self.group),) if self.group > 1 else ()
        kernels = w.cast(columns.dtype).reshape(*groups, w.shape[0] // self.group, depth)
        sums = kernels @ columns.reshape(*batch, *groups, depth, places)
        sums = sums.reshape(*batch, w.shape[0], *spatial)
        if self.has_bias:
            sums = sums + rest[0].cast(sums.dtype).reshape(w.shape[0], 1, 1)
        return sums.cast(x.dtype)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, w = operands(source.inputs, "DeformConv")
        slid = window(source, x.shape[2:], kernel_of(source, w))
        group, offsets = int(source.attribute("group", 1)), int(source.attribute("offset_group", 1))
        source.fields(cls)
        filled(source.inputs, "DeformConv")
        bias, mask = source.input(3), source.input(4)
        op = cls(slid.strides, slid.pads, slid.dilations, group, offsets, bias is not None, mask is not None)
        return source.emit(op, [x, w, source.required(2), *(v for v in (bias, mask) if v is not None)])


@operator("DeformedTaps", "torshc")
@dataclass(frozen=True)
class DeformedTaps(Op):
    """What the taps of a DeformConv read: x[N, C, H, W] as [N, C, kernel, spatial], in the type that sums have.

    Operands: x, the offsets, and the mask where there is one.
    """

    family: ClassVar[str] = "nest"
    kernel: Shape = ()
    strides: Ints = ()
    pads: Shape = ()
    dilations: Ints = ()
    offset_group: int = 1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, offsets = (need(v, f"input {k} of DeformedTaps") for k, v in enumerate(inputs[:2]))
        return [TensorType(compute(x.dtype), (*x.shape[:2], *self.kernel, *offsets.shape[2:]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x, has_mask = node.operands[0], len(node.operands) > 2
        kind, per_offset = compute(x.dtype), x.shape[1] // self.offset_group

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            image, channel, taps, place = at[0], at[1], at[2:4], at[4:]
            tap = (channel // per_offset * self.kernel[0] + taps[0]) * self.kernel[1] + taps[1]
            position = []
            for k in range(2):
                plain = place[k] * self.strides[k] - self.pads[k] + taps[k] * self.dilations[k]
                position.append(element(plain, kind) + read(1, (image, tap * 2 + k, *place)).cast(kind))

            def fetch(places: Index) -> Scalar:
                ok = inside(places[0], x.shape[2]) & inside(places[1], x.shape[3])
                near = (clamp(p, d) for p, d in zip(places, x.shape[2:], strict=True))
                return where(ok, guarded(read, 0, (image, channel, *near), x.shape[2:]), 0)

            value = _bilinear(tuple(position), fetch, kind)
            return value * read(2, (image, tap, *place)).cast(kind) if has_mask else value

        return LoopNest(body)


@operator()
@dataclass(frozen=True)
class Col2Im(Op):
    """Images[N, C, image] from columns[N, C * block, windows], overlapping windows summed; the inverse of unfolding.

    Attributes:
        image: spatial shape of the result.
        block: shape of a window.
        strides, dilations, pads: how the window slid.
    """

    family: ClassVar[str] = "nest"
    image: Shape = ()
    block: Shape = ()
    strides: Ints = ()
    dilations: Ints = ()
    pads: Shape = ()

    @property
    def counts(self) -> Shape:
        """Number of windows along each dimension."""
        return slide(self.image, self.block, Window(self.strides, self.pads, self.dilations))

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, taps = need(inputs[0], "input 0 of Col2Im"), product(self.block)
        if x.type.rank != 3:
            raise ModelError(f"Col2Im of {x.type!r}, where [N, C, blocks] is needed")
        same_dim(x.shape[2], product(self.counts), constraints, f"the windows of Col2Im of {x.type!r}")
        fits = f"Col2Im of {x.type!r} with a window of {taps!r} elements"
        if as_int(x.shape[1]) is not None or at_run(taps):
            require(constraints, eq(x.shape[1] % taps, 0), fits)
        for count in self.counts if at_run(*self.counts) else ():
            require(constraints, count >= 0, fits)
        return [TensorType(x.dtype, (x.shape[0], x.shape[1] // taps, *self.image))]

    def nest(self, node: Node, output: int) -> LoopNest:
        taps, counts = self.block, self.counts

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            ok, which = const(True), []
            for i, k in enumerate(inner):
                reach = at[2 + i] + self.pads[i] - k * self.dilations[i]
                number = reach // self.strides[i]
                ok = ok & eq(reach % self.strides[i], 0)
                ok = ok & inside(number, counts[i])
                which.append(number)
            row = at[1] * product(taps) + linear(inner, taps)
            return where(ok, read(0, (at[0], row, linear(tuple(which), counts))), 0)

        return LoopNest(body, taps, "add")

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        image, block = source.dims(1, "the shape of Col2Im"), source.dims(2, "the block of Col2Im")
        if image is None or block is None or len(image) != len(block):
            raise ModelError("Col2Im needs a shape of the image and one of the block, of the same rank")
        known = [as_int(k) for k in block]
        slid = window(source, image, tuple(1 if k is None else k for k in known))
        source.fields(cls)
        for k in block:
            require(constraints_of(source), k >= 1, "Col2Im with a block below 1")
        return source.emit(cls(image, block, slid.strides, slid.dilations, slid.pads), [source.required(0)])
