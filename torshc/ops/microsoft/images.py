"""Images of ONNX Runtime's own domain, read between their elements."""

from __future__ import annotations

import numpy as np

from ...base.errors import ModelError
from ..core.bounds import demand_in_range
from ..core.composite import composite
from ..core.functions import concat, gather, where
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, read_node
from .base import DOMAIN


@composite("GridSample", DOMAIN)
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "bilinear", padding_mode: str = "zeros"
) -> Tensor:
    """ONNX's of opset 16."""
    if (mode, padding_mode) == ("bicubic", "border"):  # of which ONNX's has another idea
        raise Unsupported("GridSample with mode 'bicubic' and padding_mode 'border'")
    return read_node("GridSample", x, grid, opset=16, align_corners=align_corners, mode=mode, padding_mode=padding_mode)


@composite("CropAndResize", DOMAIN)
def crop_and_resize(
    source: SourceNode, x: Tensor, boxes: Tensor, batch: Tensor, crop_size: Tensor, *,
    extrapolation_value: float = 0.0, mode: str = "bilinear",
) -> Tensor:  # fmt: skip
    """Boxes of images x[N, C, H, W], resized to one size with corners aligned: [boxes, C, height, width].

    Operands: x, boxes[R, 4] as y1, x1, y2, x2 from 0 to 1, the image of each, and height and width, known when the
    model is read. What lies outside of the image counts as the extrapolation value.
    """
    size = source.ints(3, "the size of crops")
    if mode != "bilinear":  # "nearest" takes halves away from 0, GridSample to even
        raise Unsupported(f"CropAndResize with mode {mode!r}")
    if x.rank != 4 or boxes.rank != 2 or size is None or len(size) != 2 or min(size) < 1:
        raise ModelError(
            f"CropAndResize of {x.type!r} by {boxes.type!r} to {size}"
            "; images need 4 dimensions, boxes have to be [R, 4], and a size two numbers above 0"
        )
    rows, height, width = boxes.shape[0], *size

    def places(k: int, length: int) -> Tensor:
        """Where each element of a crop lies along dimension k, from 0 to 1."""
        first, last = (boxes.part(1, n, n + 1).reshape(rows, 1, 1, 1) for n in (k, k + 2))
        steps = np.arange(length) / (length - 1) if length > 1 else np.full(1, 0.5)
        shape = (1, 1, length, 1) if k else (1, length, 1, 1)
        return first + (last - first) * x.constant(steps.astype(x.dtype.numpy).reshape(shape))

    y, across = places(0, height), places(1, width)
    inside = (y >= 0.0) & (y <= 1.0) & ((across >= 0.0) & (across <= 1.0))
    grid = [(at * 2.0 - 1.0).expand(rows, height, width, 1) for at in (across, y)]
    demand_in_range(source, batch.value, x.shape[0])
    images = gather(x, batch)
    crops = read_node("GridSample", images, concat(*grid, axis=3), opset=16, padding_mode="border", align_corners=1)
    return where(inside.reshape(rows, 1, height, width), crops, extrapolation_value)
