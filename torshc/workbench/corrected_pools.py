"""Pools of onnx's reference evaluator, put right: see :mod:`.corrected`.

Its own have wrong margins where a last window is partly covered or windows are dilated, count places from the wrong
element, and know no GlobalLpPool.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Windows:
    """The windows of a pool, [N, C, the result's spatial dimensions, elements of a window].

    Attributes:
        places: of each element, in the whole tensor.
        inside: which are in the tensor.
        counted: which are in it or in its margin, without what a last window has beyond that.
    """

    places: Array
    inside: Array
    counted: Array

    def of(self, x: Array, outside: Any) -> Array:
        return np.where(self.inside, x.reshape(-1)[self.places], np.asarray(outside, x.dtype))


class _Pool(OpRun):
    def windows(self, shape: tuple[int, ...], given: dict[str, Any]) -> _Windows:
        kernel = given["kernel_shape"]
        rank = len(kernel)
        strides, dilations = (given.get(name) or [1] * rank for name in ("strides", "dilations"))
        pads, auto = given.get("pads") or [0] * (2 * rank), given.get("auto_pad") or "NOTSET"
        spatial, whole = [], (*shape[:2], *[1] * 2 * rank)
        for k in range(rank):
            size, extent = shape[2 + k], (kernel[k] - 1) * dilations[k] + 1
            before, behind = pads[k], pads[rank + k]
            if auto != "NOTSET":
                needed = (-(-size // strides[k]) - 1) * strides[k] + extent - size if auto != "VALID" else 0
                few, many = max(needed, 0) // 2, max(needed, 0) - max(needed, 0) // 2
                before, behind = (many, few) if auto == "SAME_LOWER" else (few, many)
            steps = (size + before + behind - extent) / strides[k]
            count = 1 + (math.ceil(steps) if given.get("ceil_mode") else math.floor(steps))
            if (count - 1) * strides[k] >= size + before:
                count -= 1  # a last window begins in the tensor or in the margin before it
            at = np.arange(count)[:, None] * strides[k] - before + np.arange(kernel[k]) * dilations[k]
            spatial.append((at, (at >= 0) & (at < size), at < size + behind))
        places = np.arange(math.prod(shape[:2])).reshape(whole)
        inside = counted = np.ones(whole, bool)
        for k, (at, is_inside, is_counted) in enumerate(spatial):
            axes = [1] * (2 + 2 * rank)
            axes[2 + k], axes[2 + rank + k] = at.shape
            places = places * shape[2 + k] + at.clip(0, max(shape[2 + k] - 1, 0)).reshape(axes)
            inside, counted = inside & is_inside.reshape(axes), counted & is_counted.reshape(axes)
        flat = (*places.shape[: 2 + rank], math.prod(kernel))
        return _Windows(*(np.broadcast_to(a, places.shape).reshape(flat) for a in (places, inside, counted)))


class AveragePool(_Pool):
    """Its own takes no windows with holes and a margin by `auto_pad`, and in opset 1 counts the margin."""

    def _run(self, x: Array, count_include_pad: int = 0, **given: Any) -> tuple[Array]:
        found = self.windows(x.shape, given)
        counts = (found.counted if count_include_pad else found.inside).sum(axis=-1)
        return ((found.of(x, 0).sum(axis=-1) / counts).astype(x.dtype),)


class LpPool(_Pool):
    """Its own has other windows than ONNX at the end where `ceil_mode` is set."""

    def _run(self, x: Array, p: int, **given: Any) -> tuple[Array]:
        return (_norm(self.windows(x.shape, given).of(x, 0), p, -1, keepdims=False),)


class MaxPool(_Pool):
    """Its own has other results where `auto_pad` is SAME_LOWER, other places, and fails for some integers."""

    def _run(self, x: Array, storage_order: int = 0, **given: Any) -> tuple[Array, ...]:
        found = self.windows(x.shape, given)
        values = found.of(x, -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min)
        if len(self.onnx_node.output) < 2:
            return (values.max(axis=-1),)
        first = values.argmax(axis=-1)[..., None]
        places = np.take_along_axis(found.places, first, -1)[..., 0]
        if storage_order:
            index = np.unravel_index(places, x.shape)
            places = np.ravel_multi_index((*index[:2], *index[:1:-1]), (*x.shape[:2], *x.shape[:1:-1]))
        return np.take_along_axis(values, first, -1)[..., 0], places.astype(np.int64)


class GlobalAveragePool(OpRun):
    """Its own fails for no images."""

    def _run(self, x: Array) -> tuple[Array]:
        return (x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),)


class GlobalLpPool(OpRun):
    """There is none of its own."""

    def _run(self, x: Array, p: float) -> tuple[Array]:
        return (_norm(x, p, tuple(range(2, x.ndim)), keepdims=True),)


def _norm(x: Array, p: float, axis: int | tuple[int, ...], keepdims: bool) -> Array:
    result: Array = ((np.abs(x) ** p).sum(axis=axis, keepdims=keepdims) ** (1 / p)).astype(x.dtype)
    return result
