"""Images of ONNX Runtime's own domain, read between their elements."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import ModelError
from ...expr import as_int, const
from ...graph import Value
from ..core.base import operator
from ..core.bounds import demand_in_range
from ..core.compose import apply
from ..core.source import SourceNode, Unsupported
from ..tensor.view import Concat, Reshape
from .base import DOMAIN, Contrib, node, part


@operator("GridSample", DOMAIN)
@dataclass(frozen=True)
class GridSample(Contrib):
    """ONNX's of opset 16."""

    align_corners: int = 0
    mode: str = "bilinear"
    padding_mode: str = "zeros"

    def make(self, source: SourceNode) -> list[Value]:
        if (self.mode, self.padding_mode) == ("bicubic", "border"):  # of which ONNX's has another idea
            raise Unsupported("GridSample with mode 'bicubic' and padding_mode 'border'")
        return [node(source, "GridSample", *source.inputs, opset=16, **self.attributes())]


@operator("CropAndResize", DOMAIN)
@dataclass(frozen=True)
class CropAndResize(Contrib):
    """Boxes of images x[N, C, H, W], resized to one size with corners aligned: [boxes, C, height, width].

    Operands: x, boxes[R, 4] as y1, x1, y2, x2 from 0 to 1, the image of each, and height and width, known when the
    model is read. What lies outside of the image counts as the extrapolation value.
    """

    extrapolation_value: float = 0.0
    mode: str = "bilinear"

    def make(self, source: SourceNode) -> list[Value]:
        b, x, boxes, size = source.builder, source.required(0), source.required(1), source.ints(3, "the size of crops")
        if self.mode != "bilinear":  # "nearest" takes halves away from 0, GridSample to even
            raise Unsupported(f"CropAndResize with mode {self.mode!r}")
        if x.type.rank != 4 or boxes.type.rank != 2 or size is None or len(size) != 2 or min(size) < 1:
            raise ModelError(f"CropAndResize of {x.type!r} by {boxes.type!r} to {size}")
        rows, count, inside = boxes.shape[0], const(1), None
        grid: list[Value] = []
        for k, length in enumerate(size):
            shape = (rows, count, const(length), count) if k else (rows, const(length), count, count)
            first, last = (b.one(Reshape((rows, *(count,) * 3)), part(b, boxes, 1, n, n + 1)) for n in (k, k + 2))
            steps = np.arange(length) / (length - 1) if length > 1 else np.full(1, 0.5)
            along = b.constant(steps.astype(x.dtype.numpy).reshape([1, *(as_int(d) or 1 for d in shape[1:])]))
            at = apply(b, "Add", first, apply(b, "Mul", apply(b, "Sub", last, first), along))
            seen = apply(b, "And", apply(b, "GreaterOrEqual", at, 0.0), apply(b, "LessOrEqual", at, 1.0))
            inside = seen if inside is None else apply(b, "And", inside, seen)
            place = apply(b, "Sub", apply(b, "Mul", at, 2.0), 1.0)
            grid.insert(0, apply(b, "Expand", place, shape=(rows, *map(const, size), count)))
        demand_in_range(source, source.required(2), x.shape[0])
        images = apply(b, "Gather", x, source.required(2))
        flow = b.one(Concat(3), *grid)
        y = node(source, "GridSample", images, flow, opset=16, padding_mode="border", align_corners=1)
        assert inside is not None
        shown = b.one(Reshape((rows, count, *map(const, size))), inside)
        return [apply(b, "Where", shown, y, b.constant(self.extrapolation_value, y))]
