"""Products and convolutions as ONNX models with a constant second factor."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .case import NUMPY, Case, Feed, Tensors, model

# Rows, columns, terms.
PRODUCTS = [
    (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (1024, 1024, 1024), (512, 512, 512),
    (4096, 3072, 768), (4096, 768, 3072), (128, 768, 768), (128, 3072, 768), (64, 4096, 4096), (16, 4096, 4096),
]  # fmt: skip
# With a bias and GELU behind.
TAILED = [(2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192), (4096, 3072, 768)]
# Images, channels, height and width, filters, their height and width; ResNet-50's layers.
CONVOLUTIONS = [
    (32, 64, 56, 64, 3), (32, 128, 28, 128, 3), (32, 256, 14, 256, 3), (32, 512, 7, 512, 3), (32, 256, 56, 64, 1),
    (32, 64, 56, 256, 1), (32, 1024, 14, 256, 1), (32, 256, 14, 1024, 1), (1, 64, 56, 64, 3), (1, 256, 14, 256, 3),
    (1, 512, 7, 512, 3), (1, 2048, 7, 512, 1),
]  # fmt: skip
_SHARES = {"f16": (0.9, 1.0), "f32": (1.6, 0.95), "tf32": (0.9, 1.0)}  # of cuBLAS from 2048 on, and below


def product_cases(most: int | None, precision: str) -> list[Case]:
    """All products, and those with a bias and GELU; with ``most`` at sizes for a processor."""
    plain = [product(_cut(s, most), precision) for s in PRODUCTS]
    return plain + [product(_cut(s, most), precision, tail=True) for s in TAILED]


def convolution_cases(most: int | None, precision: str) -> list[Case]:
    """All convolutions; with ``most`` at sizes for a processor."""
    return [convolution((*_cut(s[:4], most), s[4]), precision) for s in CONVOLUTIONS]


def _cut(size: Sequence[int], most: int | None) -> Any:
    return tuple(size) if most is None else tuple(min(d, most) for d in size)


def product(size: tuple[int, int, int], precision: str, tail: bool = False) -> Case:
    """x[m, k] times a constant [k, n], and with a tail a bias and GELU by erf: PyTorch has a kernel for each."""
    m, n, k = size
    dtype = "f16" if precision == "f16" else "f32"
    large, small = _SHARES[precision]
    peers = {"eager": _tailed, "fused": _fused} if tail else {"eager": _matmul}
    return Case(
        f"{m}x{n}x{k}{', bias, GELU' * tail}",
        partial(_product, size, dtype, tail),
        {"x": Feed((m, k), dtype)},
        peers,
        _tailed if tail else _matmul,
        1.0 if tail else large if min(m, n) >= 2048 else small,
        2 * m * n * k,
        precision=_option(precision),
        constants=True,
    )


def _product(size: tuple[int, int, int], dtype: str, tail: bool) -> onnx.ModelProto:
    m, n, k = size
    rng = np.random.default_rng(1)
    arrays = {"w": rng.standard_normal((k, n), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z" if tail else "y"])]
    if tail:
        arrays |= {"w": arrays["w"] / np.float32(k**0.5), "b": rng.standard_normal(n, np.float32)}
        nodes += [helper.make_node("Add", ["z", "b"], ["t"]), helper.make_node("Gelu", ["t"], ["y"])]
    constants = [numpy_helper.from_array(a.astype(NUMPY[dtype]), name) for name, a in arrays.items()]
    return model(nodes, {"x": Feed((m, k), dtype)}, {"y": Feed((m, n), dtype)}, constants, 20)


def convolution(size: tuple[int, int, int, int, int], precision: str) -> Case:
    """A convolution of stride 1 that keeps height and width; images have their channels innermost."""
    b, c, side, filters, kernel = size
    dtype = "f16" if precision == "f16" else "f32"
    return Case(
        f"{b}x{c}x{side} to {filters}, {kernel}x{kernel}",
        partial(_convolution, size, dtype),
        {"x": Feed((b, side, side, c), dtype)},
        {"eager": _conv},
        _conv,
        0.9,
        2 * b * side**2 * c * filters * kernel**2,
        precision=_option(precision),
        constants=True,
    )


def _convolution(size: tuple[int, int, int, int, int], dtype: str) -> onnx.ModelProto:
    b, c, side, filters, kernel = size
    weight = np.random.default_rng(1).standard_normal((filters, c, kernel, kernel), np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["planes"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["planes", "w"], ["z"], pads=[kernel // 2] * 4),
        helper.make_node("Transpose", ["z"], ["y"], perm=[0, 2, 3, 1]),
    ]
    constant = numpy_helper.from_array((weight / np.sqrt(c * kernel**2)).astype(NUMPY[dtype]), "w")
    x, y = Feed((b, side, side, c), dtype), Feed((b, side, side, filters), dtype)
    return model(nodes, {"x": x}, {"y": y}, [constant], 20)


def _option(precision: str) -> str:
    return "tf32" if precision == "tf32" else "f32"


def _matmul(torch: Any, tensors: Tensors) -> Sequence[Any]:
    return [tensors["x"] @ tensors["w"]]


def _tailed(torch: Any, tensors: Tensors) -> Sequence[Any]:
    return [torch.nn.functional.gelu(torch.addmm(tensors["b"], tensors["x"], tensors["w"]))]


def _fused(torch: Any, tensors: Tensors) -> Sequence[Any]:
    """cuBLAS's own epilogue, which has GELU by tanh alone."""
    return [torch._addmm_activation(tensors["b"], tensors["x"], tensors["w"], use_gelu=True)]


def _conv(torch: Any, tensors: Tensors) -> Sequence[Any]:
    x, w = tensors["x"], tensors["w"]
    last = w.contiguous(memory_format=torch.channels_last)
    return [torch.conv2d(x.permute(0, 3, 1, 2), last, None, 1, w.shape[-1] // 2).permute(0, 2, 3, 1)]
