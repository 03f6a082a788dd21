"""Operators of ONNX Runtime's own domain against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.support.compare import onnx_runtime
from tests.support.contrib import check, compiled, model_of
from tests.support.evaluate import run
from tests.support.nodes import numbers
from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model

F16, I64, I32 = np.float16, np.int64, np.int32


def test_scalar_functions() -> None:
    x = numbers(3, 8)
    check("Gelu", x)
    check("BiasGelu", x, numbers(8, seed=1))
    check("FastGelu", x, rtol=1e-4, atol=1e-5)  # ONNX Runtime's tanh has fewer digits
    check("FastGelu", x, numbers(8, seed=1), rtol=1e-4, atol=1e-5)
    check("QuickGelu", x, alpha=0.5)


def test_is_all_finite() -> None:
    """Against its text: ONNX Runtime has no kernel for processors."""
    for x, both, infinite, nan in ((1.0, 1, 1, 1), (np.inf, 0, 0, 1), (np.nan, 0, 1, 0)):
        array = np.array([[0, x]], np.float32)
        for wanted, flags in ((both, {}), (infinite, {"isinf_only": 1}), (nan, {"isnan_only": 1})):
            made = model_of("IsAllFinite", (array, np.zeros(3, np.float32)), **flags)
            assert (
                run(import_model(made.SerializeToString()), {"x0": array, "x1": np.zeros(3, np.float32)})[0] == wanted
            )


@pytest.mark.parametrize("opset", [9, 16, 20])
def test_normalisations_in_the_domain_of_onnx(opset: int) -> None:
    x, scale = numbers(2, 3, 8), numbers(8, seed=1)
    check("LayerNormalization", x, scale, numbers(8, seed=2), domain="", version=opset, epsilon=1e-3, stash_type=1)
    check("SimplifiedLayerNormalization", x, scale, domain="", version=opset, epsilon=1e-3, axis=-1, stash_type=1)
    check("SimplifiedLayerNormalization", x, numbers(3, 8), domain="", version=opset, axis=1)


@pytest.mark.parametrize("dtype", [np.float32, F16])
def test_normalisations_of_sums(dtype: Any) -> None:
    tolerance = {"rtol": 2e-5} if dtype is np.float32 else {"rtol": 2e-3, "atol": 4e-3}  # two roundings of 2^-11
    x, skip, scale, shift, bias = (numbers(*s, seed=k, dtype=dtype) for k, s in enumerate([(2, 3, 8)] * 2 + [(8,)] * 3))
    check("SkipLayerNormalization", x, skip, scale, shift, bias, epsilon=1e-5, **tolerance)
    check("SkipLayerNormalization", x, skip[0], scale, **tolerance)
    check("SkipSimplifiedLayerNormalization", x, skip, scale, bias, **tolerance)
    for op, operands in (
        ("SkipLayerNormalization", (scale, shift, bias)),
        ("SkipSimplifiedLayerNormalization", (scale, bias)),
    ):
        made = model_of(op, (x, skip, *operands), outputs=4)
        made.graph.node[0].output[1:3] = ["", ""]
        del made.graph.output[1:3]
        total = run(import_model(made.SerializeToString()), {f"x{k}": a for k, a in enumerate((x, skip, *operands))})[1]
        np.testing.assert_allclose(total, x + skip + bias, rtol=2e-3)


def test_embeddings() -> None:
    ids, segments = np.array([[3, 1, 0], [2, 2, 4]], I32), np.array([[0, 1, 1], [0, 0, 1]], I32)
    tables = numbers(5, 8), numbers(6, 8, seed=1), numbers(2, 8, seed=2)
    scales, mask = (numbers(8, seed=3), numbers(8, seed=4)), np.array([[1, 1, 0], [1, 1, 1]], I32)
    check("EmbedLayerNormalization", ids, segments, *tables, *scales, mask, outputs=2, epsilon=1e-5)
    check("EmbedLayerNormalization", ids, segments, *tables, *scales, outputs=2)
    check("EmbedLayerNormalization", ids, None, *tables[:2], None, *scales, None, ids[:, ::-1].copy(), outputs=3)


def test_softmax_of_sums() -> None:
    """Against NumPy: ONNX Runtime has it for devices only."""
    x = numbers(2, 3, 4, 5)
    for bias, inner in ((numbers(2, 1, 1, 5), 1), (numbers(1, 3, 4, 5), 0)):
        made = model_of("BiasSoftmax", (x, bias), axis=3, is_inner_broadcast=inner)
        e = np.exp(x + bias)
        got = run(import_model(made.SerializeToString()), {"x0": x, "x1": bias})[0]
        np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True), rtol=1e-5)


def test_products() -> None:
    a, b = numbers(2, 3, 4), numbers(2, 4, 5, seed=1)
    check("FusedMatMul", a, b, alpha=0.5)
    check("FusedMatMul", a.transpose(0, 2, 1).copy(), b.transpose(0, 2, 1).copy(), transA=1, transB=1)
    check("TransposeMatMul", a, b.transpose(0, 2, 1).copy(), transB=1)
    check("FusedMatMul", numbers(3, 2, 4), b, transBatchA=1)
    check("FusedMatMul", numbers(4, 2, 3), b, transBatchA=1, transA=1)
    for activation, alpha in (("Relu", 0.0), ("LeakyRelu", 0.25), ("Tanh", 0.0), ("Sigmoid", 0.0)):
        form: dict[str, Any] = {"activation": activation} | ({"activation_alpha": alpha} if alpha else {})
        check("FusedGemm", a[0], b[0], numbers(5), beta=0.5, **form)


def test_convolutions() -> None:
    x, w, bias = numbers(1, 4, 6, 7), numbers(6, 2, 3, 3, seed=1), numbers(6)
    form: dict[str, Any] = {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 1]}
    check("FusedConv", x, w, bias, activation="Relu", **form)
    check("FusedConv", x, w, None, activation="LeakyRelu", activation_params=[0.2], auto_pad="SAME_UPPER", group=2)
    check("FusedConv", x, w, bias, numbers(1, 6, 3, 7), activation="Clip", activation_params=[-0.5, 0.5], **form)
    check("FusedConv", x, w, activation="HardSigmoid", activation_params=[0.3, 0.4], **form)
    pads = np.array([1, 0, 1, 0], I64)
    check("ConvTransposeWithDynamicPads", x, numbers(4, 3, 3, 3), pads, fixed=(2,), strides=[2, 2])
    last = x.transpose(0, 2, 3, 1).copy()
    plain = run(import_model(model_of("Conv", (x, w), domain="", **form).SerializeToString()), {"x0": x, "x1": w})[0]
    for op, weights in (("NhwcFusedConv", w), ("NhwcConv", w.transpose(0, 2, 3, 1).copy())):
        made = model_of(op, (last, weights), **form)
        got = run(import_model(made.SerializeToString()), {"x0": last, "x1": weights})[0]
        np.testing.assert_allclose(got.transpose(0, 3, 1, 2), plain, rtol=1e-5, atol=1e-6)
    check("NhwcMaxPool", (last * 50).astype(np.int8), kernel_shape=[3, 2], strides=[2, 2])


@pytest.mark.parametrize("activation", [0, 1])
def test_groups_of_channels(activation: int) -> None:
    """Against ONNX's operator: ONNX Runtime has these for devices only."""
    x, scale, shift = numbers(2, 6, 3, 5), numbers(6, seed=1), numbers(6, seed=2)
    operands = x.transpose(0, 2, 3, 1).copy(), scale, shift
    made = model_of("GroupNorm", operands, groups=3, activation=activation, epsilon=1e-3)
    got = run(import_model(made.SerializeToString()), {f"x{k}": a for k, a in enumerate(operands)})[0]
    y = x.reshape(2, 3, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-3)
    y = y.reshape(x.shape) * scale[:, None, None] + shift[:, None, None]
    wanted = y / (1 + np.exp(-y)) if activation else y
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), wanted, rtol=1e-4, atol=1e-5)
    extra = numbers(2, 6, seed=5), numbers(6, seed=6)
    total = operands[0] + extra[0][:, None, None] + extra[1]
    made = model_of("SkipGroupNorm", (*operands, *extra), outputs=2, groups=3, activation=activation, epsilon=1e-3)
    feeds = {f"x{k}": a for k, a in enumerate((*operands, *extra))}
    np.testing.assert_allclose(run(import_model(made.SerializeToString()), feeds)[1], total, rtol=1e-5, atol=1e-6)


def test_the_rest() -> None:
    x = numbers(3, 4)
    check("Trilu", x, np.asarray(1, I64), fixed=(1,), upper=0)
    check("GatherND", x, np.array([[0, 1], [2, 3]], I64))
    check("ExpandDims", x, np.asarray(1, I32), fixed=(1,))
    check("Range", np.asarray(2, I32), np.asarray(9, I32), np.asarray(3, I32), fixed=(0, 1, 2))
    check("CDist", x, numbers(5, 4, seed=1), metric="euclidean", rtol=1e-4)
    check("CDist", x, numbers(5, 4, seed=1), metric="sqeuclidean", rtol=1e-4)
    grid = numbers(1, 3, 4, 2, low=-1.1, high=1.1)
    for mode in ("bilinear", "nearest", "bicubic"):
        padding = "zeros" if mode == "bicubic" else "border"
        check("GridSample", numbers(1, 2, 5, 6), grid, mode=mode, padding_mode=padding, rtol=1e-4, atol=1e-5)


def test_crops() -> None:
    x, which = numbers(2, 3, 6, 5), np.array([1, 0, 1], I32)
    boxes = np.array([[0.1, 0.2, 0.9, 0.7], [-0.3, 0.1, 0.5, 1.2], [0.8, 0.9, 0.2, 0.1]], np.float32)
    for size in ([3, 4], [1, 2]):
        form: dict[str, Any] = {"fixed": (3,), "rtol": 1e-4, "atol": 1e-5}
        check("CropAndResize", x, boxes, which, np.array(size, I32), extrapolation_value=7.0, **form)


def test_the_different_elements_compiled(tmp_path: Path) -> None:
    x = np.array([2, 1, 1, 3, 4, 3], np.float32)
    made = model_of("Unique", (x,), outputs=3)
    for got, wanted in zip(compiled(made, {"x0": x}, tmp_path), onnx_runtime(made, {"x0": x}), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_fourier_transforms() -> None:
    """Against NumPy: ONNX Runtime has these for devices only."""
    x = numbers(2, 8)
    made = model_of("Rfft", (x,), signal_ndim=1)
    got = run(import_model(made.SerializeToString()), {"x0": x})[0]
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], np.fft.rfft(x), rtol=1e-4, atol=1e-5)
    made = model_of("Irfft", (got,), signal_ndim=1)
    np.testing.assert_allclose(run(import_model(made.SerializeToString()), {"x0": got})[0], x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", ["BeamSearch", "GreedySearch", "NGramRepeatBlock", "MoE"])
def test_what_is_refused_names_itself_and_a_remedy(op: str) -> None:
    with pytest.raises(UnsupportedError, match=f"no operator {op} in domain com.microsoft.*; write the model with"):
        import_model(model_of(op, (numbers(2, 3),)).SerializeToString())


@pytest.mark.parametrize(
    ("op", "operands", "form", "words"),
    [
        ("BiasGelu", [(2, 3), (4,)], {}, "do not broadcast"),
        ("BiasGelu", [(2, 3)], {}, "needs input 1"),
        ("Gelu", [(2, 3)], {"alpha": 1.0}, "no attribute 'alpha'"),
        ("FusedConv", [(1, 2, 3, 3), (2, 2, 3, 3)], {"activation": "Zap"}, "'activation' is 'Zap'"),
        ("GridSample", [(1, 2, 3, 3), (1, 2, 2, 2)], {"mode": "bicubic", "padding_mode": "border"}, "mode 'bicubic'"),
        ("CDist", [(2, 3), (2, 3)], {"metric": "cosine"}, "'metric' is 'cosine'"),
        ("GroupNorm", [(1, 2, 3), (3,), (3,)], {"groups": 0}, "'groups' is 0"),
        ("EmbedLayerNormalization", [(2, 3)], {}, "needs input"),
        ("Range", [(2,), (2,)], {}, "Reshape|must be equal"),
    ],
)
def test_faults_name_the_node(op: str, operands: Any, form: Any, words: str) -> None:
    made = model_of(op, tuple(numbers(*s) for s in operands), **form)
    with pytest.raises((ModelError, UnsupportedError), match=words) as caught:
        import_model(made.SerializeToString())
    assert "it" in str(caught.value)


def test_a_function_of_the_model_comes_before_the_operator() -> None:
    made = model_of("Gelu", (numbers(2),))
    body = [helper.make_node("Neg", ["a"], ["b"])]
    made.functions.append(
        helper.make_function("com.microsoft", "Gelu", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    )
    np.testing.assert_array_equal(run(import_model(made.SerializeToString()), {"x0": numbers(2)})[0], -numbers(2))


@pytest.mark.parametrize(
    ("op", "types", "words"),
    [
        ("QuickGelu", [bool], "QuickGelu of bool"),
        ("BiasGelu", [np.float32, np.float16], "BiasGelu of f16 and f32"),
        ("FusedGemm", [np.float32], "needs input 1"),
        ("Trilu", [np.float32], "is not a matrix"),
        ("SimplifiedLayerNormalization", [np.float32], "needs input 1"),
    ],
)
def test_operands_of_wrong_types_and_ranks_are_refused(op: str, types: Any, words: str) -> None:
    domain = "" if op.startswith("Simplified") else "com.microsoft"
    made = model_of(op, tuple(numbers(4, dtype=t) for t in types), domain=domain)
    with pytest.raises(ModelError, match=words):
        import_model(made.SerializeToString())


def test_a_mask_of_words_that_is_no_matrix_is_refused() -> None:
    ids, tables = np.zeros((2, 3), I32), (numbers(5, 8), numbers(6, 8))
    made = model_of("EmbedLayerNormalization", (ids, None, *tables, None, numbers(8), numbers(8), ids[0]), outputs=2)
    with pytest.raises(ModelError, match="with a mask"):
        import_model(made.SerializeToString())
