"""Quantised operators of ONNX Runtime's own domain against ONNX Runtime.

Results of bytes may differ by 1 where ONNX Runtime goes by tables or rounds a product on the way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.support.compare import onnx_runtime
from tests.support.contrib import check, compiled, model_of, some_bytes
from tests.support.evaluate import run
from tests.support.models import Array, feeds_of
from tests.support.nodes import numbers
from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model

BYTES = [np.uint8, np.int8]
F32, U8, I8, I64 = np.float32, np.uint8, np.int8, np.int64


def scale(value: float) -> Array:
    return np.asarray(value, F32)


def quantum(op: str, *operands: Array | None, fixed: tuple[int, ...] = (), **form: Any) -> None:
    check(op, *operands, fixed=fixed, rtol=0, atol=1, **form)


@pytest.mark.parametrize("dtype", BYTES)
def test_functions_of_elements(dtype: Any) -> None:
    x, y = some_bytes(2, 3, 4, dtype=dtype), some_bytes(4, seed=1, dtype=dtype)
    zeros = [np.asarray(v, dtype) for v in (3, 100, 7)]
    for op in ("QLinearAdd", "QLinearMul"):
        quantum(op, x, scale(0.02), zeros[0], y, scale(0.03), zeros[1], scale(0.05), zeros[2])
    tail = scale(0.02), zeros[0], scale(1 / 256), zeros[2]
    quantum("QLinearSigmoid", x, *tail, fixed=(1, 2, 3, 4))
    quantum("QLinearLeakyRelu", x, *tail[:2], scale(0.03), zeros[1], fixed=(1, 2, 3, 4), alpha=0.2)
    for opset, axis in ((13, -1), (11, 1)):
        quantum("QLinearSoftmax", x, *tail, fixed=(1, 2, 3, 4), opset=opset, axis=axis)
    quantum("QLinearWhere", x > 3, x, *tail[:2], y, scale(0.04), zeros[1], scale(0.05), zeros[2])


@pytest.mark.parametrize("dtype", BYTES)
def test_windows_and_joins(dtype: Any) -> None:
    x, tail = (
        some_bytes(1, 3, 6, 5, dtype=dtype),
        (scale(0.02), np.asarray(9, dtype), scale(0.015), np.asarray(2, dtype)),
    )
    quantum("QLinearAveragePool", x, *tail, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    quantum("QLinearAveragePool", x, *tail, kernel_shape=[2, 2], ceil_mode=1, count_include_pad=1, channels_last=1)
    quantum("QLinearGlobalAveragePool", x, *tail)
    quantum("QLinearGlobalAveragePool", x, *tail, channels_last=1)
    other = some_bytes(1, 2, 6, 5, seed=4, dtype=dtype), scale(0.05), np.asarray(100, dtype)
    quantum("QLinearConcat", *tail[2:], x, *tail[:2], *other, axis=1, fixed=(0, 1, 3, 4, 6, 7))


@pytest.mark.parametrize("dtype", BYTES)
def test_means_and_products_of_elements(dtype: Any) -> None:
    """Against NumPy: ONNX Runtime has no kernels for processors."""
    x, y = some_bytes(2, 3, 4, dtype=dtype), some_bytes(4, seed=1, dtype=dtype)
    made = model_of("MulInteger", (x, np.asarray(3, dtype), y, None))
    got = run(import_model(made.SerializeToString()), {"x0": x, "x1": np.asarray(3, dtype), "x2": y})[0]
    np.testing.assert_array_equal(got, (x.astype(np.int32) - 3) * y)
    operands = x, scale(0.02), np.asarray(3, dtype), scale(0.01), np.asarray(5, dtype)
    made = model_of("QLinearReduceMean", operands, axes=[1], keepdims=0)
    got = run(import_model(made.SerializeToString()), {f"x{k}": a for k, a in enumerate(operands)})[0]
    wanted = np.clip(np.rint((x.astype(F32) - 3).mean(1) * 2) + 5, np.iinfo(dtype).min, np.iinfo(dtype).max)
    assert np.abs(got.astype(int) - wanted).max() <= 1


def test_quantize_linear_of_few_and_many_bits() -> None:
    x = numbers(3, 4, low=-300, high=300)
    for dtype in (np.uint8, np.int8, np.uint16, np.int16):
        zero = np.asarray(3, dtype)
        (q,) = check("QuantizeLinear", x, scale(0.1), zero)
        check("DequantizeLinear", q, scale(0.1), zero)
    scales = numbers(4, low=0.1, high=2.0)
    check("QuantizeLinear", x, scales, np.zeros(4, I8), axis=1)
    check("DequantizeLinear", some_bytes(3, 4), scales[:3], some_bytes(3, seed=2), axis=0)


@pytest.mark.parametrize("kinds", [(U8, I8), (U8, U8), (I8, I8)])
def test_products(kinds: tuple[Any, Any]) -> None:
    left, right = kinds
    a, b = some_bytes(2, 3, 8, dtype=left), some_bytes(8, 5, seed=1, dtype=right)
    zeros = np.asarray(7, left), some_bytes(5, seed=2, dtype=right)
    scales = scale(0.02), numbers(5, low=0.01, high=0.1)
    for fixed in ((), (1, 3, 5)):
        check("MatMulIntegerToFloat", a, b, *scales, *zeros, numbers(5), fixed=fixed, rtol=1e-4, atol=1e-4)
        check("MatMulIntegerToFloat", a, b, scales[0], scale(0.3), fixed=fixed, rtol=1e-4, atol=1e-4)
        check(
            "DynamicQuantizeMatMul",
            numbers(2, 3, 8),
            b,
            scales[1],
            zeros[1],
            numbers(5),
            fixed=fixed,
            rtol=1e-4,
            atol=1e-4,
        )
    flat, tall = a[0], np.ascontiguousarray(b.T)
    bias, out = np.arange(5, dtype=np.int32) * 300, (scale(0.5), np.asarray(9, left))
    for fixed in ((), (3, 5)):
        common = flat, scales[0], zeros[0]
        quantum("QGemm", *common, b, scale(0.1), np.asarray(1, right), bias, *out, fixed=fixed)
        quantum("QGemm", *common, tall, scales[1], zeros[1], bias, *out, fixed=fixed, transB=1, alpha=0.5)
        check("QGemm", *common, b, scale(0.1), np.asarray(1, right), fixed=fixed, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("shape", [(), (1,), (2, 1, 5)])
def test_scales_of_stacked_matrices(shape: tuple[int, ...], fixed: bool) -> None:
    """Of all, or of each column of each matrix."""
    a, b = some_bytes(2, 3, 8), some_bytes(2, 8, 5, dtype=I8, seed=3)
    scales, zeros = numbers(*shape, low=0.01, high=0.1), some_bytes(*shape, dtype=I8, seed=5)
    close = {"rtol": 1e-4, "atol": 1e-4}
    for left in (a, a[0]):
        given, places = (left, b, scale(0.02), scales, np.asarray(3, U8), zeros), (1, 3, 5) if fixed else ()
        check("MatMulIntegerToFloat", *given, fixed=places, **close)
    places = (1, 2, 3) if fixed else ()
    check("DynamicQuantizeMatMul", numbers(2, 3, 8), b, scales, zeros, fixed=places, **close)


def test_convolution_with_channels_last() -> None:
    x, w = some_bytes(1, 6, 5, 8), some_bytes(4, 8, 3, 3, dtype=I8, seed=1)
    rest = w, numbers(4, low=0.01, high=0.1), np.zeros(4, I8), scale(2.0), np.asarray(100, U8)
    for last in (0, 1):
        data = x if last else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        fixed = (1, 2, 3, 4, 5, 6, 7)
        quantum(
            "QLinearConv", data, scale(0.1), np.asarray(9, U8), *rest, fixed=fixed, channels_last=last, pads=[1] * 4
        )


def packed(values: Array, bits: int) -> Array:
    """Numbers as bytes, the lowest bits first, along the last dimension."""
    each = 8 // bits
    values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % each)])
    parts = values.reshape(*values.shape[:-1], -1, each)
    return np.asarray((parts << (np.arange(each) * bits)).sum(-1).astype(U8))


@pytest.mark.parametrize("zeros", ["", "packed", "numbers"])
@pytest.mark.parametrize("bits", [4, 8, 2])
@pytest.mark.parametrize(("k", "block"), [(64, 32), (80, 32), (48, 16)])
def test_matrices_of_few_bits(bits: int, k: int, block: int, zeros: str) -> None:
    n, blocks = 5, -(-k // block)
    rng = np.random.default_rng(k + bits)
    q = rng.integers(0, 1 << bits, (n, blocks, block)).astype(U8)
    z = rng.integers(0, 1 << bits, (n, blocks)).astype(U8)
    scales, x, bias = numbers(n, blocks, low=0.01, high=0.1), numbers(2, 3, k), numbers(n)
    given = {"": None, "packed": packed(z, bits), "numbers": z.astype(F32)}[zeros]
    operands = x, packed(q, bits), scales, given, None, bias
    made = model_of("MatMulNBits", operands, (1, 2, 3, 5), K=k, N=n, bits=bits, block_size=block)
    offset = z if zeros else np.full(z.shape, 1 << bits - 1)
    w = ((q.astype(F32) - offset[..., None].astype(F32)) * scales[..., None]).reshape(n, -1)[:, :k]
    feeds = feeds_of(operands, (1, 2, 3, 5))
    got = run(import_model(made.SerializeToString()), feeds)[0]
    np.testing.assert_allclose(got, x @ w.T + bias, rtol=1e-4, atol=1e-4)
    if bits == 4:
        np.testing.assert_allclose(got, onnx_runtime(made, feeds)[0], rtol=1e-4, atol=1e-4)


def test_rows_of_few_bits() -> None:
    rng = np.random.default_rng(1)
    q, scales = rng.integers(0, 16, (10, 32)).astype(U8), numbers(10, 2, low=0.01, high=0.1)
    z, indices = rng.integers(0, 16, (10, 2)).astype(U8), np.array([[0, 9, -1], [3, -10, 3]], I64)
    form: dict[str, Any] = {"block_size": 16, "gather_axis": 0, "quantize_axis": 1, "bits": 4}
    check("GatherBlockQuantized", packed(q, 4), indices, scales, packed(z, 4), fixed=(0, 2, 3), **form)
    check("GatherBlockQuantized", packed(q, 4), indices, scales, fixed=(0, 2), **form)
    wide = some_bytes(10, 32)
    check("GatherBlockQuantized", wide, indices, scales, some_bytes(10, 2), fixed=(0, 2, 3), **form | {"bits": 8})
    outside = np.array([10, -11, 1], I64)
    check("GatherBlockQuantized", wide, outside, scales, fixed=(0, 2), **form | {"bits": 8})


def test_rows_of_the_last_product() -> None:
    """Models whose embeddings are the weights of their last product reshape these before rows are taken."""
    rng = np.random.default_rng(4)
    packs, scales = rng.integers(0, 256, (10, 2, 16)).astype(U8), numbers(10, 2, low=0.01, high=0.1)
    ids = np.array([[3, -1, 9]], I64)
    made = model_of("GatherBlockQuantized", (packs.reshape(10, 32), ids, scales), (0, 2), block_size=32)
    tied = numpy_helper.from_array(packs, "tied")
    shape = numpy_helper.from_array(np.array([10, 32]), "shape")
    del made.graph.initializer[0]
    made.graph.initializer.extend([tied, shape])
    made.graph.node.insert(0, helper.make_node("Reshape", ["tied", "shape"], ["x0"]))
    got, wanted = run(import_model(made.SerializeToString()), {"x1": ids})[0], onnx_runtime(made, {"x1": ids})[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_compiled_products_and_rows_of_four_bits(tmp_path: Path) -> None:
    """Weights that are large enough to stay narrow, behind rows that are narrow too."""
    rng = np.random.default_rng(2)
    rows, table = rng.integers(0, 16, (10, 640)).astype(U8), numbers(10, 20, low=0.01, high=0.1)
    w, scales = rng.integers(0, 256, (704, 20, 16)).astype(U8), numbers(704, 20, low=0.01, high=0.1)
    ids = np.array([[3, -1, 9]], I64)
    made = model_of("GatherBlockQuantized", (packed(rows, 4), ids, table), (0, 2), block_size=32)
    made.graph.node[0].output[0] = "taken"
    nodes = model_of("MatMulNBits", (numbers(1), w, scales), (1, 2), K=640, N=704, block_size=32)
    made.graph.node.extend(nodes.graph.node)
    made.graph.node[1].name = "other"
    made.graph.node[1].input[:] = ["taken", "w", "s"]
    for tensor, name in zip(nodes.graph.initializer, "ws", strict=True):
        tensor.name = name
        made.graph.initializer.append(tensor)
    got, wanted = compiled(made, {"x1": ids}, tmp_path, 3)[0], onnx_runtime(made, {"x1": ids})[0]
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    assert (tmp_path / "m.tsc" / "weights.bin").stat().st_size < 704 * 640


@pytest.mark.parametrize(
    ("op", "operands", "form", "words"),
    [
        (
            "QLinearAdd",
            [numbers(2), scale(1), None, numbers(2), scale(1), None, scale(1)],
            {},
            "QLinearAdd.*f32 with a scale of f32",
        ),
        ("QLinearConcat", [scale(1), some_bytes(), some_bytes(2)], {"axis": 0}, "of 3 operands"),
        (
            "QGemm",
            [some_bytes(2, 3, 4), scale(1), some_bytes(), some_bytes(4, 5), scale(1), some_bytes()],
            {},
            "not matrices",
        ),
        (
            "MatMulNBits",
            [numbers(2, 32), some_bytes(4, 1, 16), numbers(4)],
            {"K": 32, "N": 5, "block_size": 32},
            "weights",
        ),
        ("MatMulNBits", [numbers(2, 32), some_bytes(4, 1, 16), numbers(4)], {"K": 32, "N": 4, "bits": 3}, "is 3"),
        ("GatherBlockQuantized", [numbers(4, 32), some_bytes(2), numbers(4, 1)], {}, "of f32"),
    ],
)
def test_faults_name_the_node(op: str, operands: Any, form: Any, words: str) -> None:
    fixed = tuple(range(1, len(operands))) if op == "MatMulNBits" else ()
    with pytest.raises((ModelError, UnsupportedError), match=words) as caught:
        import_model(model_of(op, tuple(operands), fixed, **form).SerializeToString())
    assert "'it'" in str(caught.value)
