"""The gradients of operators beyond ONNX's own domain, and theirs, against central differences."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.models import MICROSOFT, ML
from tests.support.nodes import F64
from torshc.ops import REGISTRY

from .differences import check
from .test_operators import CUBE, ROW, Case, X, Y, case, ints, near

TRAINING = "ai.onnx.preview.training"
I32, U8 = np.int32, np.uint8
RATE, TIME = np.asarray(near(low=0.1), F64), ints(2).reshape(())
HEADS = near(1, 2, 4), near(1, 3, 4), near(1, 3, 4)
IMAGE, LAST = near(1, 2, 2, 4), near(4)


def i32(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, I32)


CASES: dict[str, dict[str, list[Case]]] = {
    MICROSOFT: {
        "Attention": [
            case(near(1, 3, 4), near(4, 12), near(12), num_heads=2),
            case(near(1, 3, 4), near(4, 12), near(12), i32(2), num_heads=2),
            case(near(1, 3, 4), near(4, 12), near(12), None, None, near(1, 2, 3, 3), num_heads=2, unidirectional=1),
        ],
        "BiasAdd": [case(near(1, 2, 4), LAST, near(1, 2, 4))],
        "BiasGelu": [case(X, ROW)],
        "BiasSoftmax": [case(near(2, 3, 4), near(2, 1, 4), axis=2, is_inner_broadcast=0)],
        "BiasSplitGelu": [case(near(1, 2, 4), LAST)],
        "CDist": [case(X, near(4, 3)), case(X, near(4, 3), metric="sqeuclidean")],
        "ConvTransposeWithDynamicPads": [
            case(near(1, 1, 2, 2), near(1, 1, 2, 2, seed=1), ints(0, 1, 0, 0), fixed=[2]),
        ],
        "CropAndResize": [
            case(near(1, 1, 3, 4), np.array([[0.1, 0.2, 0.8, 0.9]]), i32(0), i32(2, 2), fixed=[3], mode="bilinear"),
        ],
        "DecoderMaskedMultiHeadAttention": [case(near(1, 1, 4), near(1, 1, 4), near(1, 1, 4, seed=1), num_heads=2)],
        "DequantizeLinear": [case(np.arange(4, dtype=U8), near(), np.array(1, U8), fixed=[2], narrow=True)],
        "EmbedLayerNormalization": [
            case(i32(1, 0).reshape(1, 2), i32(0, 1).reshape(1, 2), near(3, 4), near(2, 4), near(2, 4, seed=1), LAST,
                 LAST + 1),
        ],
        "ExpandDims": [case(X, i32(1).reshape(()), fixed=[1])],
        "FastGelu": [case(X), case(X, ROW)],
        "FusedConv": [case(near(1, 2, 4), near(2, 2, 2), near(2), activation="Tanh")],
        "FusedGemm": [case(X, near(3, 4), LAST, activation="LeakyRelu", activation_alpha=0.1)],
        "FusedMatMul": [case(near(2, 3, 2), near(2, 4, 3), transA=1, transB=1, alpha=0.5)],
        "FusedMatMulActivation": [case(X, near(3, 4), activation="Relu")],
        "GatherBlockQuantized": [
            case(np.arange(8, dtype=U8).reshape(1, 8), ints(0), near(1, 1), block_size=16, fixed=[0], narrow=True),
        ],
        "GatherND": [case(CUBE, ints(0, 1, -1, 2).reshape(2, 2))],
        "Gelu": [case(X)],
        "GridSample": [case(near(1, 1, 3, 2), near(1, 1, 2, 2, low=-0.9, high=0.9))],
        "GroupNorm": [case(IMAGE, LAST, LAST + 1, groups=2, activation=1, channels_last=1)],
        "GroupQueryAttention": [
            case(near(1, 2, 8), near(1, 2, 4), near(1, 2, 4, seed=1), None, None, i32(1), i32(2).reshape(()),
                 num_heads=2, kv_num_heads=1, fixed=[5, 6], outputs=3, narrow=True),
        ],
        "Irfft": [case(near(1, 3, 2), signal_ndim=1, onesided=1, normalized=0)],
        "MatMulIntegerToFloat": [
            case(np.arange(6, dtype=U8).reshape(2, 3), np.arange(12, dtype=U8).reshape(3, 4), near(low=0.1, high=0.2),
                 near(low=0.1, high=0.2, seed=1), narrow=True),
        ],
        "MatMulNBits": [
            case(near(2, 16), np.arange(16, dtype=U8).reshape(2, 1, 8), near(2, 1), K=16, N=2, bits=4, block_size=16,
                 fixed=[1, 2]),
        ],
        "MultiHeadAttention": [case(*HEADS, num_heads=2), case(*HEADS, near(12), num_heads=2)],
        "NhwcConv": [case(near(1, 3, 3, 2), near(2, 2, 2, 2))],
        "NhwcFusedConv": [case(near(1, 3, 3, 2), near(2, 2, 2, 2), activation="Relu")],
        "NhwcMaxPool": [case(near(1, 3, 3, 2), kernel_shape=[2, 2])],
        "QuickGelu": [case(X), case(X, alpha=0.5)],
        "Rfft": [case(near(1, 4), signal_ndim=1, onesided=1, normalized=0)],
        "RotaryEmbedding": [case(near(1, 2, 4), ints(1), near(5, 2), near(5, 2, seed=1), num_heads=1)],
        "SkipGroupNorm": [case(IMAGE, LAST, LAST + 1, IMAGE * 2, groups=2, activation=0, channels_last=1)],
        "SkipLayerNormalization": [case(near(1, 2, 4), near(1, 2, 4, seed=1), LAST, LAST + 1, LAST + 2)],
        "SkipSimplifiedLayerNormalization": [case(near(1, 2, 4), near(1, 2, 4, seed=1), LAST)],
        "TransposeMatMul": [case(near(3, 2), near(3, 4), transA=1)],
        "Trilu": [case(near(3, 3))],
    },
    ML: {
        "ArrayFeatureExtractor": [case(X, ints(2, 0))],
        "Binarizer": [case(X, threshold=0.1)],
        "FeatureVectorizer": [case(X, Y, inputdimensions=[3, 3], narrow=True)],
        "Imputer": [case(X, imputed_value_floats=[0.0, 0.0, 0.0], replaced_value_float=float("nan"))],
        "LinearClassifier": [
            case(X, coefficients=[0.3, 0.2, 0.1, -0.3, 0.4, 0.5], intercepts=[0.1, 0.2], classlabels_ints=[0, 1],
                 post_transform=how, outputs=2, narrow=True)
            for how in ("NONE", "SOFTMAX", "LOGISTIC")
        ],
        "LinearRegressor": [case(X, coefficients=[0.3, 0.2, 0.1], intercepts=[0.1], targets=1, narrow=True)],
        "Normalizer": [case(X, norm=norm, narrow=True) for norm in ("L1", "L2", "MAX")],
        "SVMClassifier": [
            case(X, coefficients=[0.3, -0.2], kernel_params=[0.5, 0.1, 3.0], kernel_type="POLY", rho=[0.1],
                 support_vectors=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], vectors_per_class=[1, 1], classlabels_ints=[0, 1],
                 outputs=2, narrow=True),
        ],
        "SVMRegressor": [
            case(X, coefficients=[0.3, -0.2], kernel_params=[0.5, 0.1, 3.0], kernel_type="RBF", n_supports=2, rho=[0.1],
                 support_vectors=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6], narrow=True),
        ],
        "Scaler": [case(X, offset=[0.3, 0.2, 0.1], scale=[1.0, 2.0, 3.0], narrow=True)],
    },
    TRAINING: {
        "Adagrad": [case(RATE, TIME, X, Y, X * X + 0.5, decay_factor=0.1, norm_coefficient=0.2, outputs=2)],
        "Adam": [
            case(RATE, TIME, X, Y, X + 1, Y * Y + 0.5, norm_coefficient=0.2, norm_coefficient_post=0.1, outputs=3),
        ],
        "Momentum": [
            case(RATE, TIME, X, Y, X + 1, alpha=0.9, beta=0.8, mode=mode, norm_coefficient=0.1, outputs=2)
            for mode in ("standard", "nesterov")
        ],
    },
}  # fmt: skip

NONE = {
    "results are integers, truth values or texts": {
        MICROSOFT: """IsAllFinite MulInteger QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearConv
            QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearReduceMean QLinearSigmoid QLinearSoftmax
            QLinearWhere QuantizeLinear Tokenizer""",
    },
    "operands are integers or texts, or there are none": {
        MICROSOFT: "Range", ML: "CategoryMapper LabelEncoder OneHotEncoder",
    },
    "operands are rounded to integers": {MICROSOFT: "DynamicQuantizeLSTM DynamicQuantizeMatMul QAttention"},
    "results are constant between thresholds": {ML: "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor"},
    "the host computes them": {MICROSOFT: "Unique", ML: "ZipMap"},
}  # fmt: skip
ELSEWHERE = {MICROSOFT: "Inverse"}  # in tests/ops/math/test_elimination.py


@pytest.mark.parametrize("domain", CASES)
def test_every_operator_has_cases_or_a_reason(domain: str) -> None:
    reasons = [name for by_domain in NONE.values() for name in by_domain.get(domain, "").split()]
    reasons += ELSEWHERE.get(domain, "").split()
    assert sorted([*CASES[domain], *reasons]) == sorted(name for d, name in REGISTRY if d == domain)


@pytest.mark.parametrize(
    ("domain", "op", "number"),
    [(domain, op, k) for domain, ops in CASES.items() for op, cases in ops.items() for k in range(len(cases))],
)
def test_gradients_are_what_differences_show(domain: str, op: str, number: int) -> None:
    operands, options = CASES[domain][op][number]
    check(op, *operands, domain=domain, whole=False, **options)
