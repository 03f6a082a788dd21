"""Scatters, TopK, sampling, quantised operators and transforms against ONNX's reference evaluator, in odd forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from torshc.errors import ModelError, UnsupportedError
from torshc.formats import import_model

from ..support import contrib
from ..support.evaluate import Array, run
from .test_operators import F32, F64, I64, check, model_of, numbers


def refused(op: str, *operands: Array | None, fixed: tuple[int, ...] = (), match: str, **attributes: Any) -> None:
    """A node that must not be imported."""
    order = ["" if a is None else f"x{k}" for k, a in enumerate(operands)]
    given = {f"x{k}": a for k, a in enumerate(operands) if a is not None and k not in fixed}
    known = {f"x{k}": a for k, a in enumerate(operands) if a is not None and k in fixed}
    model = model_of(op, given, known, order, 20, attributes.pop("outputs", 1), **attributes)
    with pytest.raises((UnsupportedError, ModelError), match=match):
        import_model(model.SerializeToString())


def given(op: str, *operands: Array, outputs: int = 1, opset: int = 20, **attributes: Any) -> list[Array]:
    """The results of a node by our own definition alone."""
    feeds = {f"x{k}": a for k, a in enumerate(operands)}
    model = model_of(op, feeds, {}, list(feeds), opset, outputs, **attributes)
    return run(import_model(model.SerializeToString()), feeds)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", [F32, F64, np.int32, np.uint8])
def test_scatters(reduction: str, dtype: Any) -> None:
    data, updates = numbers(4, 5, dtype=dtype, low=1, high=9), numbers(2, 3, dtype=dtype, low=1, high=9)
    repeats = reduction != "none"
    rows = np.array([[0, -1, 2], [0 if repeats else 3, 1, -2]], dtype=I64)
    check("ScatterElements", data, rows, updates, axis=0, reduction=reduction)
    check("ScatterElements", data, rows, updates, axis=-1, reduction=reduction)
    places = np.array([[[0, 1], [3, -1]], [[2, 2], [0 if repeats else 1, 1]]], dtype=I64)
    check("ScatterND", data, places, numbers(2, 2, dtype=dtype, low=1, high=9), reduction=reduction)
    check("ScatterND", data, places[..., :1][:, 0], numbers(2, 5, dtype=dtype, low=1, high=9), reduction=reduction)


def test_scatters_without_a_reduction_keep_the_last_update_and_drop_places_that_do_not_exist() -> None:
    zeros = np.zeros(3, F32)
    (out,) = given("ScatterElements", zeros, np.array([1, 1, 7], I64), np.array([1, 2, 3], F32))
    np.testing.assert_array_equal(out, [0, 2, 0])
    (out,) = given("ScatterND", zeros, np.array([[1], [1], [-9]], I64), np.array([1, 2, 3], F32))
    np.testing.assert_array_equal(out, [0, 2, 0])


def test_scatters_of_other_types() -> None:
    flags = np.array([True, False, True])
    check("ScatterElements", flags, np.array([1], I64), np.array([True]))
    refused("ScatterElements", flags, np.array([1], I64), flags[:1], reduction="max", match="booleans")
    many = np.zeros(1 << 17, I64)
    refused("ScatterND", np.zeros(4, F32), many[:, None], many.astype(F32), match="looks through 131072 updates")


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [F32, np.int32, np.uint8])
def test_topk(largest: int, dtype: Any) -> None:
    x = numbers(3, 7, 2, dtype=dtype, low=0, high=4)
    for axis, k in ((1, 3), (-1, 2), (0, 0), (1, 7)):
        got = given_topk(x, k, axis, largest)
        order = np.argsort(-x.astype(F64) if largest else x.astype(F64), axis=axis, kind="stable")
        places = np.take(order, np.arange(k), axis=axis)
        np.testing.assert_array_equal(got[1], places)
        np.testing.assert_array_equal(got[0], np.take_along_axis(x, places, axis))


def given_topk(x: Array, k: int, axis: int, largest: int) -> list[Array]:
    model = model_of(
        "TopK", {"x": x}, {"k": np.array([k], I64)}, ["x", "k"], 20, 2, axis=axis, largest=largest, sorted=0
    )
    return run(import_model(model.SerializeToString()), {"x": x})


def test_topk_takes_nan_for_the_largest() -> None:
    x = np.array([1, np.nan, np.inf, np.nan, -np.inf], F32)
    np.testing.assert_array_equal(given_topk(x, 4, 0, 1)[1], [1, 3, 2, 0])
    np.testing.assert_array_equal(given_topk(x, 5, 0, 0)[1], [4, 0, 2, 1, 3])
    refused("TopK", x, np.array([6], I64), fixed=(1,), outputs=2, match="6 largest of 5")


def test_places_of_maxima() -> None:
    x = numbers(2, 3, 7, 6)
    x[0, 0, 2:4, 1:3] = 5  # equal maxima
    for columns in (0, 1):
        for strides in ([1, 1], [2, 3]):
            model = {"kernel_shape": [3, 2], "strides": strides, "storage_order": columns}
            pooled, places = given("MaxPool", x, outputs=2, pads=[1, 0, 1, 1], **model)
            order = x.transpose(0, 1, 3, 2) if columns else x
            np.testing.assert_array_equal(order.reshape(-1)[places], pooled)


def test_unpooling_takes_the_places_back() -> None:
    x = np.arange(64, dtype=F32).reshape(1, 1, 8, 8) + 1
    pooled, places = given("MaxPool", x, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    (out,) = check("MaxUnpool", pooled, places, kernel_shape=[2, 2], strides=[2, 2])
    np.testing.assert_array_equal(out, np.where((x % 2 == 0) & ((x - 1) // 8 % 2 == 1), x, 0))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample_far_outside(mode: str, corners: int, padding: str) -> None:
    grid = numbers(2, 3, 4, 2, low=-4, high=4)
    check("GridSample", numbers(2, 2, 4, 5), grid, mode=mode, padding_mode=padding, align_corners=corners)


def test_grid_sample_at_no_number() -> None:
    grid = np.array([np.nan, np.inf, -np.inf, 1e30], F32).reshape(1, 2, 1, 2)
    for mode in ("nearest", "linear", "cubic"):
        (out,) = given("GridSample", numbers(1, 1, 4, 5), grid, mode=mode, padding_mode="border")
        assert out.shape == (1, 1, 2, 1)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str) -> None:
    x, batches = numbers(2, 3, 8, 9), np.array([1, 0, 1], I64)
    rois = np.array([[0, 0, 7, 6], [-3, -2, 4, 20], [5, 5, 5.2, 5.1]], F32)
    for transform in ("half_pixel", "output_half_pixel"):
        check(
            "RoiAlign", x, rois, batches, mode=mode, output_height=3, output_width=2, sampling_ratio=2,
            spatial_scale=0.7, coordinate_transformation_mode=transform,
        )  # fmt: skip
    refused("RoiAlign", x, rois, batches, match="sampling_ratio = 0")


def test_deform_conv() -> None:
    x, w = numbers(1, 4, 6, 5), numbers(6, 2, 3, 2, seed=1)
    offset, mask = numbers(1, 24, 3, 2, seed=2), numbers(1, 12, 3, 2, seed=3)
    common = {"group": 2, "offset_group": 2, "strides": [2, 3], "pads": [1, 1, 0, 1]}
    check("DeformConv", x, w, offset, numbers(6, seed=4), mask, **common)
    check("DeformConv", x, w, offset, None, mask, **common)
    check("DeformConv", x, w, offset, **common)


def test_col2im() -> None:
    x = numbers(2, 18, 16)
    sizes = np.array([7, 9], I64), np.array([2, 3], I64)
    check("Col2Im", x, *sizes, fixed=(1, 2), strides=[2, 3], pads=[1, 1, 0, 2], dilations=[1, 1])


SCALES = [F32(0.05), np.array([0.05, 0.1, 0.02], F32)]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantise_and_back(dtype: Any) -> None:
    x = numbers(2, 3, 4, low=-9, high=9)
    for scale in SCALES:
        zero = np.full(np.shape(scale), 3, dtype)
        (q,) = check("QuantizeLinear", x, np.asarray(scale), zero, opset=21, axis=1)
        check("DequantizeLinear", q, np.asarray(scale), zero, opset=21, axis=1)
    blocks = np.abs(numbers(2, 2, 4)) + F32(0.1)
    check("QuantizeLinear", x, blocks, np.zeros((2, 2, 4), dtype), opset=21, axis=1, block_size=2)


def test_quantise_special_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, 0.5, 1.5, 2.5, -0.5], F32)
    (out,) = given("QuantizeLinear", x, np.asarray(1, F32), np.asarray(0, np.int8), opset=21)
    np.testing.assert_array_equal(out, [0, 127, -128, 127, 0, 2, 2, 0])


def whole(dtype: Any, *shape: int, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


@pytest.mark.parametrize("left", [np.int8, np.uint8])
@pytest.mark.parametrize("right", [np.int8, np.uint8])
def test_integer_products(left: Any, right: Any) -> None:
    a, w = whole(left, 3, 70, seed=1), whole(right, 70, 5, seed=2)
    check("MatMulInteger", a, w, np.asarray(5, left), whole(right, 5, seed=3))
    zeros = whole(left, 3, seed=4)  # of the rows, which the reference cannot read
    (out,) = given("MatMulInteger", a, w, zeros)
    np.testing.assert_array_equal(out, (a.astype(np.int32) - zeros[:, None]) @ w.astype(np.int32))
    (out,) = given("ConvInteger", whole(left, 1, 4, 5, 6), whole(right, 6, 2, 3, 2), group=2, pads=[1, 0, 1, 1])
    x = np.pad(whole(left, 1, 4, 5, 6).astype(I64), ((0, 0), (0, 0), (1, 1), (0, 1)))
    k = whole(right, 6, 2, 3, 2).astype(I64)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3))
    wanted = np.einsum("ngchwij,gocij->ngohw", windows.reshape(1, 2, 2, 5, 6, 3, 2), k.reshape(2, 3, 2, 3, 2))
    np.testing.assert_array_equal(out, wanted.reshape(1, 6, 5, 6))


@pytest.mark.parametrize("length", [None, 5, 12])
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft(inverse: int, onesided: int, length: int | None) -> None:
    x = numbers(2, 7, 3, 2 if inverse else 1)
    operands = (None if length is None else np.asarray(length, I64), np.asarray(1, I64))
    check("DFT", x, *operands, fixed=(1, 2), inverse=inverse, onesided=onesided)


def test_stft_refuses_what_contradicts() -> None:
    x, step = numbers(1, 32, 1), np.asarray(4, I64)
    check("STFT", x, step, numbers(8), fixed=(1,), onesided=0)
    refused("STFT", numbers(32), step, numbers(8), fixed=(1,), match="STFT of f32.32. in steps")
    refused("STFT", x, step, numbers(8), np.asarray(9, I64), fixed=(1, 3), match="window of 8")


@pytest.mark.parametrize("shape", [(2, 32), (1, 8), (3, 11)])
def test_stft_of_signals_without_a_dimension_of_parts(shape: tuple[int, ...]) -> None:
    """As some exporters write them; their last dimension may look like one of parts."""
    x, others = numbers(*shape), (np.asarray(4, I64), numbers(2), np.asarray(2, I64))
    for signal in (x, x[:, :2]):
        (wanted,) = given("STFT", signal[..., None], *others)
        (got,) = given("STFT", signal, *others)
        np.testing.assert_array_equal(got, wanted)
    made = contrib.model_of("STFT", (x, *others), (1, 3), domain="")
    (wanted,) = contrib.expected(made, {"x0": x, "x2": others[1]})
    (got,) = run(import_model(made.SerializeToString()), {"x0": x, "x2": others[1]})
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size", [0, 1, 2, 4])
def test_determinants(size: int) -> None:
    """Larger ones are found by elimination."""
    x = numbers(3, size, size)
    (out,) = given("Det", x)
    np.testing.assert_allclose(out, np.linalg.det(x), rtol=1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [0.3, 0.5, 0.75, 1.5])
def test_resize_with_antialias(mode: str, scale: float) -> None:
    scales = np.array([1, 1, scale, 1], F32)
    for exclude in (0, 1):
        check(
            "Resize", numbers(1, 2, 9, 4), None, scales, fixed=(1, 2), mode=mode, antialias=1, exclude_outside=exclude
        )
    refused("Resize", numbers(400, 400), None, np.array([0.01, 0.01], F32), fixed=(2,), mode=mode, antialias=1,
            match="antialias")  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize_of_a_crop(mode: str) -> None:
    roi, sizes = np.array([0, 0.15, -0.2, 1, 0.7, 1.3], F32), np.array([2, 5, 1], I64)
    check(
        "Resize", numbers(2, 6, 7), roi, None, sizes, fixed=(1, 3), mode=mode, extrapolation_value=3.0,
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip


def test_casts_of_bits() -> None:
    def bits(x: Array, to: int) -> Array:
        model = model_of("BitCast", {"x": x}, {}, ["x"], 26, 1, to=to)
        return run(import_model(model.SerializeToString()), {"x": x})[0]

    for x, to in ((whole(np.int8, 300), np.uint8), (whole(np.uint16, 300), np.int16), (whole(np.uint32, 9), np.int32)):
        np.testing.assert_array_equal(bits(x, helper.np_dtype_to_tensor_dtype(np.dtype(to))), x.view(to))
    np.testing.assert_array_equal(bits(numbers(3), TensorProto.INT32), numbers(3).view(np.int32))


def test_batch_normalization_in_training() -> None:
    x = numbers(4, 3, 5)
    vectors = [np.abs(numbers(3, seed=k)) for k in range(4)]
    check("BatchNormalization", x, *vectors, outputs=3, training_mode=1, momentum=0.7)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
def test_counts_of_grams(mode: str) -> None:
    x = np.array([[1, 2, 1, 1, 3, 2], [2, 2, 2, 1, 2, 9]], np.int32)
    common: dict[str, Any] = {
        "pool_int64s": [1, 2, 1, 1, 2, 2, 9, 2], "ngram_counts": [0, 2], "min_gram_length": 1, "max_gram_length": 2,
        "max_skip_count": 2, "mode": mode, "weights": [0.5, 1.5, 2.0, 3.0, 4.0],
    }  # fmt: skip
    check("TfIdfVectorizer", x, ngram_indexes=[0, 1, 2, 3, 4], **common)
    check("TfIdfVectorizer", x[0], ngram_indexes=[0, 1, 2, 3, 4], **common)
    if mode != "TF":
        refused("TfIdfVectorizer", x, match="another order", ngram_indexes=[4, 3, 2, 1, 0], **common)


def test_what_a_known_condition_chooses() -> None:
    x, condition = numbers(3, 4), np.array([False, True, True])
    check("Compress", x, condition, fixed=(1,), axis=1)
    check("Compress", x, condition, fixed=(1,))
    check("NonZero", np.array([[0, 2], [3, 0]], I64), fixed=(0,))
    check("NonZero", np.array(3, I64), fixed=(0,))
    refused("Compress", x, np.ones(5, bool), fixed=(1,), axis=1, match="holds at 4")


def test_caches_are_written_in_a_circle() -> None:
    cache, update = numbers(2, 5, 3), numbers(2, 2, 3, seed=1)
    (out,) = given("TensorScatter", cache, update, np.array([4, 1], I64), opset=24, mode="circular")
    wanted = cache.copy()
    wanted[0, [4, 0]], wanted[1, [1, 2]] = update[0], update[1]
    np.testing.assert_array_equal(out, wanted)


def test_empty_tensors() -> None:
    refused("GridSample", np.zeros((1, 1, 0, 3), F32), numbers(1, 2, 2, 2), match="no elements")
    data = numbers(2, 3)
    check("ScatterElements", data, np.zeros((0, 3), I64), np.zeros((0, 3), F32))
    check("ScatterND", data, np.zeros((0, 1), I64), np.zeros((0, 3), F32))


def test_reference_is_what_the_models_say() -> None:
    """The helper compares results and not only shapes."""
    x = numbers(3)
    model = model_of("Neg", {"x": x}, {}, ["x"], 20)
    np.testing.assert_array_equal(ReferenceEvaluator(model).run(None, {"x": x})[0], -x)
    assert isinstance(model, onnx.ModelProto) and numpy_helper.from_array(x).dims == [3]
