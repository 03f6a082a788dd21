"""Convolutions, pools and normalisations, with their gradients, which torshc derives from what they are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...expr import F32, F64, I64, as_int, const, product
from ...gradient import gradients
from ...ops import Unsupported
from ...ops.core import functions as ops
from ...ops.core.tensor import Tensor, apply_all, apply_op, read_all, read_node
from ...ops.nn.norm import LayerNormalization
from ...ops.tensor.scatter import ScatterElements
from .call import Call, aten, expr

Pair = Sequence[int]


def _ints(given: Any, rank: int) -> list[int]:
    """One number for each spatial dimension, which may all be one."""
    values = [given] if isinstance(given, int) else [*given]
    found = values * rank if len(values) == 1 else values
    if not all(isinstance(v, int) for v in found):
        raise Unsupported("symbolic strides, pads or dilations")
    return found


def backward(call: Call, y: Tensor, g: Tensor, xs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of tensors from that of what was computed of them."""
    found = gradients(call.builder, y.value, [x.value for x in xs], g.value)
    return [Tensor(call.builder, v) for v in found]


def _convolution(
    x: Tensor, w: Tensor, b: Tensor | None, stride: Pair, padding: Pair, dilation: Pair, transposed: bool,
    output_padding: Pair, groups: int,
) -> Tensor:  # fmt: skip
    rank = x.rank - 2
    pads = tuple(_ints(padding, rank) * 2)
    window: dict[str, Any] = {
        "strides": tuple(_ints(stride, rank)),
        "pads": pads,
        "dilations": tuple(_ints(dilation, rank)),
    }
    if not transposed:
        return read_node("Conv", x, w, b, group=groups, **window)
    return read_node(
        "ConvTranspose", x, w, b, group=groups, output_padding=tuple(_ints(output_padding, rank)), **window
    )


@aten("convolution.default")
def convolution(
    call: Call, x: Tensor, w: Tensor, b: Tensor | None, stride: Pair, padding: Pair, dilation: Pair, transposed: bool,
    output_padding: Pair, groups: int,
) -> Tensor:  # fmt: skip
    return _convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups)


@aten("convolution_backward.default")
def convolution_gradients(
    call: Call, g: Tensor, x: Tensor, w: Tensor, bias_sizes: Any, stride: Pair, padding: Pair, dilation: Pair,
    transposed: bool, output_padding: Pair, groups: int, wanted: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    y = _convolution(x, w, None, stride, padding, dilation, transposed, output_padding, groups)
    chosen = [t for t, asked in zip((x, w), wanted, strict=False) if asked]
    found = iter(backward(call, y, g, chosen) if chosen else [])
    first, second = (next(found) if asked else None for asked in wanted[:2])
    return [first, second, g.sum((0, *range(2, g.rank)), keep=False) if wanted[2] else None]


@aten("max_pool2d_with_indices.default")
def max_pool(
    call: Call, x: Tensor, kernel: Pair, stride: Pair = (), padding: Pair = (0,), dilation: Pair = (1,),
    ceil_mode: bool = False,
) -> list[Tensor]:  # fmt: skip
    """ONNX counts places in the whole tensor, PyTorch in its plane."""
    window: dict[str, Any] = {
        "kernel_shape": tuple(_ints(kernel, 2)),
        "strides": tuple(_ints(stride or kernel, 2)),
        "pads": tuple(_ints(padding, 2) * 2),
        "dilations": tuple(_ints(dilation, 2)),
        "ceil_mode": int(ceil_mode),
    }
    images = x if x.rank == 4 else x.reshape(1, *x.shape)
    value, places = read_all("MaxPool", images, outputs=2, **window)
    plane = call.constant(x.shape[-1] * x.shape[-2], I64)
    planes = images.range(0, images.shape[0] * images.shape[1]).reshape(*images.shape[:2], 1, 1)
    made = [value, places - planes * plane]
    return [t.reshape(*wanted.shape) for t, wanted in zip(made, call.types, strict=True) if wanted is not None]


@aten("max_pool2d_with_indices_backward.default")
def max_pool_gradient(
    call: Call, g: Tensor, x: Tensor, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool,
    places: Tensor,
) -> Tensor:  # fmt: skip
    """Added where the maxima were."""
    rows, plane = product(x.shape[:-2]), x.shape[-1] * x.shape[-2]
    flat = call.constant(0.0).expand(rows, plane)
    windows = g.shape[-1] * g.shape[-2]
    made = apply_op(ScatterElements("add", 1), flat, places.reshape(rows, windows), g.reshape(rows, windows))
    return made.reshape(*x.shape)


def _average(
    x: Tensor, kernel: Pair, stride: Pair, padding: Pair, ceil_mode: bool, count_include_pad: bool, divisor: Any
) -> Tensor:
    rank = x.rank - 2
    if divisor is not None:
        raise Unsupported("divisor_override")
    return read_node(
        "AveragePool",
        x,
        kernel_shape=tuple(_ints(kernel, rank)),
        strides=tuple(_ints(stride or kernel, rank)),
        pads=tuple(_ints(padding, rank) * 2),
        ceil_mode=int(ceil_mode),
        count_include_pad=int(count_include_pad),
    )


@aten("avg_pool2d.default")
def average_pool(
    call: Call, x: Tensor, kernel: Pair, stride: Pair = (), padding: Pair = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: Any = None,
) -> Tensor:  # fmt: skip
    images = x if x.rank == len(_ints(kernel, 2)) + 2 else x.reshape(1, *x.shape)
    return _average(images, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override).reshape(
        *call.shape
    )


@aten("avg_pool2d_backward.default")
def average_pool_gradient(
    call: Call, g: Tensor, x: Tensor, kernel: Pair, stride: Pair, padding: Pair, ceil_mode: bool,
    count_include_pad: bool, divisor_override: Any,
) -> Tensor:  # fmt: skip
    y = _average(x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return backward(call, y, g, [x])[0]


@aten("_adaptive_avg_pool2d.default")
def adaptive_average_pool(call: Call, x: Tensor, size: Pair) -> Tensor:
    return _in_parts(x, size).mean((-3, -1), keep=False)


@aten("_adaptive_avg_pool2d_backward.default")
def adaptive_average_pool_gradient(call: Call, g: Tensor, x: Tensor) -> Tensor:
    parts = _in_parts(x, [as_int(d) or 0 for d in g.shape[-2:]])
    share = g / call.constant(parts.shape[-1] * parts.shape[-3])
    wide = share.reshape(*g.shape[:-2], g.shape[-2], 1, g.shape[-1], 1)
    return wide.expand(*parts.shape).reshape(*x.shape)


def _in_parts(x: Tensor, size: Pair) -> Tensor:
    """Both spatial dimensions in two: which part, and where in it."""
    high, wide = x.shape[-2:]
    if not all(isinstance(n, int) for n in size) or any(
        d % n is not const(0) for d, n in zip((high, wide), size, strict=True)
    ):
        raise Unsupported(f"adaptive pooling of {high!r} x {wide!r} to {list(size)}, in parts of several sizes")
    return x.reshape(*x.shape[:-2], size[0], high // size[0], size[1], wide // size[1])


def _resize_to(call: Call, x: Tensor, size: Sequence[Any], scales: Sequence[float | None], **how: Any) -> Tensor:
    """Resized by the sizes, which scales that are given must agree with: of a size that they round, another counts."""
    found = [as_int(expr(d)) or 0 for d in (*x.shape, *size)]
    have, want = found[: x.rank], found[x.rank :]
    if not all(found):
        raise Unsupported("resizing of symbolic sizes")
    for before, after, scale in zip(have[2:], want, scales, strict=True):
        if scale is not None and before * scale != after:
            raise Unsupported(f"resizing {before} to {after} by {scale}")
    return read_node("Resize", x, None, None, call.constant([*have[:2], *want], I64), **how)


_NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def _linear(align_corners: bool) -> dict[str, str]:
    where = "align_corners" if align_corners else "half_pixel"
    return {"mode": "linear", "coordinate_transformation_mode": where}


@aten("upsample_nearest2d.default")
def nearest(call: Call, x: Tensor, size: Sequence[Any], *scales: float | None) -> Tensor:
    return _resize_to(call, x, size, scales or (None, None), **_NEAREST)


@aten("upsample_bilinear2d.default")
def bilinear(call: Call, x: Tensor, size: Sequence[Any], align_corners: bool, *scales: float | None) -> Tensor:
    return _resize_to(call, x, size, scales or (None, None), **_linear(align_corners))


@aten("upsample_nearest2d_backward.default")
def nearest_gradient(call: Call, g: Tensor, size: Sequence[Any], shape: Sequence[Any], *scales: float | None) -> Tensor:
    x = call.full(0.0)
    return backward(call, _resize_to(call, x, size, scales or (None, None), **_NEAREST), g, [x])[0]


@aten("upsample_bilinear2d_backward.default")
def bilinear_gradient(
    call: Call, g: Tensor, size: Sequence[Any], shape: Sequence[Any], align_corners: bool, *scales: float | None
) -> Tensor:
    x = call.full(0.0)
    return backward(call, _resize_to(call, x, size, scales or (None, None), **_linear(align_corners)), g, [x])[0]


def _channels(v: Tensor, rank: int) -> Tensor:
    return v.reshape(v.shape[0], *(1,) * (rank - 2))


def _affine(x: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
    x = x if w is None else x * w
    return x if b is None else x + b


def _batch_norm(
    call: Call, x: Tensor, w: Tensor | None, b: Tensor | None, running: Sequence[Tensor] | None, training: bool,
    momentum: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    """The result, the mean and 1 / standard deviation used, and the running mean and variance moved.

    Running variances are of samples (count - 1), while what is divided by is of the population.
    """
    wide = x.cast(F64 if x.dtype is F64 else F32)
    axes = [k for k in range(x.rank) if k != 1]
    if training:
        mean = wide.mean(axes)
        centred = wide - mean
        variance = (centred * centred).mean(axes)
    else:
        assert running is not None
        mean, variance = (_channels(v.cast(wide.dtype), x.rank) for v in running)
        centred = wide - mean
    inverse = ops.reciprocal(ops.sqrt(variance + eps))
    scale, shift = (None if v is None else _channels(v.cast(wide.dtype), x.rank) for v in (w, b))
    y = _affine(centred * inverse, scale, shift).cast(x.dtype)
    count = x.shape[0]
    for d in x.shape[2:]:
        count = count * d
    flat = [v.reshape(x.shape[1]) for v in (mean, inverse, variance)]
    moved = [*(running or ())]
    if training and running is not None:
        sample = flat[2] * (call.constant(count, wide.dtype) / call.constant(count - 1, wide.dtype))
        moved = [
            old * (1.0 - momentum) + new.cast(old.dtype) * momentum
            for old, new in zip(running, (flat[0], sample), strict=True)
        ]
    return [y, *flat[:2], *moved]


@aten("_native_batch_norm_legit_functional.default")
def batch_norm_functional(
    call: Call, x: Tensor, w: Tensor | None, b: Tensor | None, mean: Tensor, variance: Tensor, training: bool,
    momentum: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    return _as_stated(call, _batch_norm(call, x, w, b, (mean, variance), training, momentum, eps))


@aten("native_batch_norm.default", "_native_batch_norm_legit.default")
def batch_norm(
    call: Call, x: Tensor, w: Tensor | None, b: Tensor | None, mean: Tensor | None, variance: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    running = None if mean is None or variance is None else (mean, variance)
    return _as_stated(call, _batch_norm(call, x, w, b, running, training, momentum, eps))


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_of_batch(
    call: Call, x: Tensor, w: Tensor | None, b: Tensor | None, training: bool, momentum: float, eps: float
) -> list[Tensor]:
    return _as_stated(call, _batch_norm(call, x, w, b, None, True, momentum, eps))


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm_inference(
    call: Call, x: Tensor, w: Tensor | None, b: Tensor | None, mean: Tensor, variance: Tensor, momentum: float,
    eps: float,
) -> list[Tensor]:  # fmt: skip
    return _as_stated(call, _batch_norm(call, x, w, b, (mean, variance), False, momentum, eps))


def _as_stated(call: Call, found: Sequence[Tensor]) -> list[Tensor]:
    """As many results as there are; what PyTorch leaves empty of the statistics is empty."""
    made = zip(call.types, found, strict=False)
    return [call.constant(0, t.dtype).expand(0) if t is not None and t.static_shape == (0,) else v for t, v in made]


@aten("native_layer_norm.default")
def layer_norm(
    call: Call, x: Tensor, shape: Sequence[Any], w: Tensor | None, b: Tensor | None, eps: float
) -> list[Tensor]:
    op = LayerNormalization(x.rank - len(shape), eps, 3)
    if w is not None:
        return apply_all(op, x, w, b)
    ones = call.constant(1.0).expand(*x.shape[x.rank - len(shape) :])
    return apply_all(op, x, ones, b)


@aten("native_group_norm.default")
def group_norm(
    call: Call, x: Tensor, w: Tensor | None, b: Tensor | None, n: Any, c: Any, rest: Any, groups: int, eps: float
) -> list[Tensor]:
    wide = x.cast(F64 if x.dtype is F64 else F32).reshape(x.shape[0], groups, product(x.shape[1:]) // groups)
    mean = wide.mean(2)
    centred = wide - mean
    inverse = ops.reciprocal(ops.sqrt((centred * centred).mean(2) + eps))
    scale, shift = (None if v is None else _channels(v.cast(wide.dtype), x.rank) for v in (w, b))
    y = _affine((centred * inverse).reshape(*x.shape), scale, shift).cast(x.dtype)
    return [y, *(v.reshape(x.shape[0], groups) for v in (mean, inverse))]
