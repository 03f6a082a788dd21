"""The gradients of operators, and theirs, against central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nodes import F64, I64
from torshc.entry.inprocess import load_model
from torshc.ops import REGISTRY
from torshc.passes.interpret import run_graph

from .differences import check, derived

Array = np.ndarray[Any, Any]


def near(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """Numbers in a range, none within 0.01 of a multiple of 0.5, where slopes jump."""
    rng = np.random.default_rng((seed, *shape))
    x = rng.uniform(low, high, shape)
    off = x - np.round(x * 2) / 2
    return np.asarray(np.where(abs(off) < 0.01, x + 0.02, x), F64)


def ints(*values: int) -> Array:
    return np.array(values, I64)


def scales(*values: float) -> Array:
    return np.array(values, np.float32)


Case = tuple[tuple[Array | None, ...], dict[str, Any]]


def case(*operands: Array | None, **attributes: Any) -> Case:
    return operands, attributes


X, Y = near(2, 3), near(2, 3, seed=1)
UNIT = near(2, 3, low=-0.9, high=0.9)
ABOVE = near(2, 3, low=0.2, high=2.2)
ROW, COLUMN, CUBE = near(3, seed=2), near(2, 1, seed=3), near(2, 3, 2)
HIGH = CUBE + 2.5
HEADS = near(1, 2, 3, 2), near(1, 1, 4, 2), near(1, 1, 4, 3)  # two of queries share one of keys

PLAIN = [
    "Abs", "Atan", "Asinh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "HardSwish", "Identity", "Mish", "Neg",
    "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Tan", "Tanh",
]  # fmt: skip
CASES: dict[str, list[Case]] = {
    **{op: [case(UNIT if op == "Tan" else X), case(near())] for op in PLAIN},
    **{op: [case(UNIT)] for op in ("Acos", "Asin", "Atanh")},
    **{op: [case(ABOVE)] for op in ("Log", "Reciprocal", "Sqrt")},
    "Acosh": [case(ABOVE + 1)],
    **{op: [case(X, Y), case(X, ROW), case(COLUMN, ROW), case(near(), X)] for op in ("Add", "Mul", "Sub")},
    "Div": [case(X, ABOVE), case(COLUMN, near(3, low=0.5, high=2.0)), case(near(), ABOVE)],
    "Mod": [case(X, ABOVE, fmod=1), case(ROW, ABOVE, fmod=1)],
    "Pow": [
        case(ABOVE, Y), case(X, np.array(2.0), fixed=[1]), case(X, np.array(3.0), fixed=[1]),
        case(ABOVE, np.array(0.5), fixed=[1]), case(ABOVE, ROW), case(ABOVE, ints(2)),
    ],
    **{op: [case(X), case(X, Y), case(X, ROW, COLUMN)] for op in ("Max", "Min", "Mean", "Sum")},
    "Where": [case(X > 0, X, Y), case(X > 0, COLUMN, ROW)],
    "Celu": [case(X, direct=True), case(X, alpha=2.0, direct=True)],
    "Elu": [case(X), case(X, alpha=2.0)],
    "Selu": [case(X), case(X, alpha=2.0, gamma=3.0)],
    "Gelu": [case(X), case(X, approximate="tanh")],
    "HardSigmoid": [case(X * 3), case(X, alpha=0.3, beta=0.4)],
    "LeakyRelu": [case(X), case(X, alpha=0.3)],
    "ThresholdedRelu": [case(X), case(X, alpha=0.25)],
    "PRelu": [case(X, Y), case(X, ROW)],
    "Shrink": [case(X), case(X, bias=0.2, lambd=0.3)],
    "Swish": [case(X, opset=24), case(X, alpha=1.5, opset=24)],
    "Clip": [case(X, np.array(-0.7), np.array(0.8), fixed=[1, 2]), case(X, np.array(-0.7), np.array(0.8)), case(X)],
    "Cast": [case(X, to=11)],
    "CastLike": [case(X, np.array(1.0), fixed=[1])],
    **{
        op: [
            case(HIGH), case(HIGH, ints(1), fixed=[1], keepdims=0), case(HIGH, ints(-1, 0), fixed=[1]),
            case(HIGH, ints(), fixed=[1], noop_with_empty_axes=1),
        ]
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                   "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp")
    },
    "MatMul": [
        case(X, near(3, 4)), case(ROW, near(3, 4)), case(X, ROW), case(ROW, ROW + 1), case(CUBE, near(2, 4)),
        case(near(2, 1, 2, 3), near(3, 3, 2)), case(X, near(2, 3, 2)),
    ],
    "Gemm": [
        case(X, near(3, 4), near(4)), case(near(3, 2), near(4, 3), near(2, 1), transA=1, transB=1, alpha=0.5, beta=2.0),
        case(X, near(3, 4)),
    ],
    "Reshape": [case(CUBE, ints(3, -1), fixed=[1])],
    "Flatten": [case(CUBE), case(CUBE, axis=2)],
    "Squeeze": [case(near(2, 1, 3), ints(1), fixed=[1])],
    "Unsqueeze": [case(X, ints(0, 3), fixed=[1])],
    "Transpose": [case(CUBE), case(CUBE, perm=[1, 2, 0])],
    "Expand": [case(COLUMN, ints(2, 2, 3), fixed=[1]), case(near(), ints(3), fixed=[1])],
    "Tile": [case(X, ints(2, 3), fixed=[1])],
    "Concat": [case(X, near(2, 1), near(2, 2), axis=1), case(X, X + 1, axis=-2)],
    "Split": [case(X, ints(2, 1), fixed=[1], axis=1, outputs=2)],
    "Slice": [
        case(near(5, 4), ints(1, 0), ints(4, 3), fixed=[1, 2]),
        case(near(7, 4), ints(6, 3), ints(0, -5), ints(0, 1), ints(-2, -1), fixed=[1, 2, 3, 4]),
        case(near(7), ints(1), ints(7), ints(0), ints(3), fixed=[1, 2, 3, 4]),
    ],
    "Pad": [
        case(X, ints(1, 0, 2, 1), fixed=[1]), case(X, ints(1, -1, 0, 2), near(), fixed=[1]),
        case(near(4, 3), ints(5, 1, 2, 0), fixed=[1], mode="edge"),
        case(near(4, 3), ints(3, 2, 1, 0), fixed=[1], mode="reflect"),
        case(near(4, 5), ints(-1, 3, 2, -2), fixed=[1], mode="reflect"),
        case(near(4, 3), ints(4, -1, 1, 3), fixed=[1], mode="wrap"),
    ],
    "Trilu": [case(CUBE), case(near(3, 3), ints(1).reshape(()), fixed=[1], upper=0)],
    "DepthToSpace": [case(near(1, 8, 2, 1), blocksize=2)],
    "SpaceToDepth": [case(near(1, 1, 2, 4), blocksize=2)],
    "CumSum": [
        case(CUBE, ints(1).reshape(()), fixed=[1]), case(CUBE, ints(0).reshape(()), fixed=[1], exclusive=1, reverse=1),
    ],
    "ReverseSequence": [case(CUBE, ints(1, 3), batch_axis=0, time_axis=1)],
    "OneHot": [case(ints(1, 0, 2), ints(3), near(2), fixed=[1])],
    "Gather": [
        case(CUBE, ints(2, 0, -1, 2), axis=1), case(X, ints(1, 1).reshape(2, 1)), case(X, ints(1).reshape(()), axis=-1),
    ],
    "GatherElements": [case(X, ints(1, 0, -1, 1).reshape(2, 2), axis=1), case(X, ints(1, 1, 0).reshape(1, 3))],
    "GatherND": [
        case(CUBE, ints(0, 1, -1, 2, 0, 1).reshape(3, 2)), case(CUBE, ints(2, 2).reshape(2, 1), batch_dims=1),
    ],
    "ScatterElements": [
        case(X, ints(1, 0, 1, 1).reshape(2, 2), near(2, 2), axis=1),
        *(
            case(X, ints(1, 0, -2, 1).reshape(2, 2), near(2, 2), axis=1, reduction=how)
            for how in ("add", "mul", "max", "min")
        ),
    ],
    "Scatter": [case(X, ints(1, 0, 2, 1).reshape(2, 2), near(2, 2), axis=1, opset=10)],
    "ScatterND": [
        case(CUBE, ints(1, 0, 1).reshape(3, 1), near(3, 3, 2)),
        *(
            case(CUBE, ints(1, 2, -2, 0, 1, 2).reshape(3, 2), near(3, 2), reduction=how)
            for how in ("add", "mul", "max", "min")
        ),
    ],
    "TopK": [case(X, ints(2), fixed=[1], outputs=2), case(CUBE, ints(1), fixed=[1], outputs=2, axis=1, largest=0)],
    "Einsum": [
        case(X, near(3, 4), equation="ij,jk->ki"), case(X, Y, equation="ij,ij->"), case(X, equation="ij->j"),
        case(CUBE, near(4, 1, 2), near(2), equation="...i,k...i,j->k...j"),
    ],
    "Conv": [
        case(near(2, 2, 5), near(3, 2, 3), near(3)), case(near(1, 2, 4, 5), near(3, 2, 2, 3), pads=[1, 0, 0, 2]),
        case(near(1, 2, 6, 5), near(2, 2, 2, 2), strides=[2, 3], dilations=[2, 1]),
        case(near(2, 4, 4), near(6, 2, 2), near(6), group=2, strides=[2]),
        case(near(1, 1, 3, 2, 3), near(1, 1, 2, 2, 2), auto_pad="SAME_UPPER"),
    ],
    "ConvTranspose": [
        case(near(2, 2, 3), near(2, 3, 3), near(3)),
        case(near(1, 2, 2, 3), near(2, 1, 2, 2), pads=[1, 0, 0, 1], strides=[2, 2], output_padding=[1, 0]),
        case(near(1, 4, 3), near(4, 2, 2), near(4), group=2, dilations=[2]),
    ],
    "MaxPool": [
        case(near(1, 2, 5), kernel_shape=[2]),
        case(near(1, 1, 4, 5), kernel_shape=[2, 3], strides=[2, 1], pads=[1, 1, 0, 1], ceil_mode=1),
        case(near(1, 1, 6), kernel_shape=[2], dilations=[2], outputs=2),
    ],
    "AveragePool": [
        case(near(2, 2, 5), kernel_shape=[2]),
        case(near(1, 1, 4, 5), kernel_shape=[2, 3], strides=[2, 2], pads=[1, 1, 0, 1], ceil_mode=1),
        case(near(1, 1, 4, 5), kernel_shape=[2, 3], strides=[3, 2], pads=[1, 1, 0, 1], count_include_pad=1),
        case(near(1, 1, 6), kernel_shape=[3], strides=[2], ceil_mode=1, count_include_pad=1),
    ],
    "LpPool": [case(near(1, 2, 5), kernel_shape=[2]), case(near(1, 1, 4), kernel_shape=[3], p=3, pads=[1, 1])],
    "GlobalAveragePool": [case(near(2, 2, 3))],
    "GlobalMaxPool": [case(near(2, 2, 3))],
    "GlobalLpPool": [case(near(2, 2, 3)), case(near(2, 2, 3), p=3)],
    "Softmax": [case(X), case(CUBE, axis=1), case(CUBE, opset=11)],
    "LogSoftmax": [case(X), case(CUBE, axis=1)],
    "Hardmax": [case(X)],
    "LayerNormalization": [case(CUBE, near(2), near(2)), case(CUBE, near(3, 2), axis=1)],
    "RMSNormalization": [case(CUBE, near(2), opset=23)],
    "BatchNormalization": [
        case(CUBE, near(3), near(3), near(3), near(3, low=0.5), opset=15),
        case(CUBE, near(3), near(3), near(3), near(3, low=0.5), opset=15, training_mode=1),
    ],
    "InstanceNormalization": [case(CUBE, near(3), near(3))],
    "GroupNormalization": [case(near(2, 4, 3), near(4), near(4), num_groups=2, opset=21)],
    "LpNormalization": [case(X), case(X, p=1, axis=0)],
    "MeanVarianceNormalization": [case(near(2, 2, 2, 2))],
    "Dropout": [case(X)],
    "NegativeLogLikelihoodLoss": [
        case(X, ints(2, 0)), case(CUBE, ints(2, 0, 1, 1).reshape(2, 2), near(3), reduction="sum"),
    ],
    "SoftmaxCrossEntropyLoss": [case(X, ints(2, 0)), case(X, ints(2, 0), near(3, low=0.5), reduction="none")],
    "Attention": [
        case(*HEADS, opset=23, is_causal=1, softcap=2.0), case(*HEADS, near(3, 4), opset=23, scale=0.7),
        case(*HEADS, np.array([[True, False, True, True]] * 3), opset=23),
        case(near(1, 3, 4), near(1, 2, 2), near(1, 2, 2, seed=1), opset=23, q_num_heads=2, kv_num_heads=1),
        case(*HEADS, None, near(1, 1, 2, 2), near(1, 1, 2, 3), opset=23, outputs=3, second=False),
        case(*HEADS, None, None, None, ints(3), opset=24),
        case(*HEADS, opset=23, qk_matmul_output_mode=3, outputs=4, second=False),
    ],
    "RotaryEmbedding": [
        case(near(1, 2, 2, 4), near(5, 2), near(5, 2, seed=1), ints(1, 3).reshape(1, 2), opset=23, narrow=True),
        case(near(1, 2, 4), near(1, 2, 1), near(1, 2, 1, seed=1), opset=23, num_heads=2, interleaved=1, narrow=True),
    ],
    "DequantizeLinear": [case(np.arange(6, dtype=np.int8).reshape(2, 3), near(), opset=21, narrow=True)],
    "CenterCropPad": [case(X, ints(3, 2), fixed=[1])],
    "SwiGLU": [case(X, Y, opset=27)],
    "LinearAttention": [
        case(near(1, 2, 4), near(1, 2, 4, seed=1), near(1, 2, 4, seed=2), opset=27, q_num_heads=2, kv_num_heads=2,
             update_rule="linear", outputs=2, narrow=True),
    ],
    "CausalConvWithState": [case(near(1, 2, 4), near(2, 1, 3), opset=27, outputs=2, narrow=True)],
    "AffineGrid": [case(near(1, 2, 3), ints(1, 1, 3, 2), fixed=[1], align_corners=k) for k in (0, 1)],
    "Col2Im": [
        case(near(1, 4, 4), ints(3, 3), ints(2, 2), fixed=[1, 2]),
        case(near(1, 2, 6), ints(6), ints(2), fixed=[1, 2], pads=[1, 0], strides=[1], dilations=[1]),
    ],
    "CumProd": [
        case(CUBE, ints(1).reshape(()), fixed=[1], opset=26),
        case(CUBE, ints(0).reshape(()), fixed=[1], exclusive=1, reverse=1, opset=26),
    ],
    "DFT": [
        case(near(1, 5, 1)), case(near(1, 4, 2), inverse=1), case(near(1, 5, 1), onesided=1),
        case(near(1, 3, 2, 2), ints(4).reshape(()), ints(2).reshape(()), fixed=[1, 2]),
    ],
    "STFT": [
        case(near(1, 8, 1), ints(2).reshape(()), near(4), fixed=[1]),
        case(near(1, 8, 2), ints(3).reshape(()), None, ints(5).reshape(()), fixed=[1, 3], onesided=0),
    ],
    "Det": [case(near(2, 2, 2)), case(near(3, 3))],
    "LRN": [case(near(1, 4, 2), size=3), case(near(1, 3, 2), size=3, alpha=0.3, beta=0.6, bias=1.5)],
    "TensorScatter": [
        case(near(1, 4, 2), near(1, 2, 2), ints(1), opset=24),
        case(near(2, 3, 2), near(2, 2, 2), ints(1, 2), mode="circular", opset=24),
    ],
    "Resize": [
        *(case(near(1, 3, 4), None, scales(1, 1.7, 0.6), fixed=[2], mode=m) for m in ("nearest", "linear", "cubic")),
        *(
            case(near(5), None, None, ints(8), fixed=[3], mode="linear", coordinate_transformation_mode=m)
            for m in ("align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric")
        ),
        case(near(6), None, scales(0.4), fixed=[2], mode="linear", antialias=1),
        case(near(6), None, scales(0.4), fixed=[2], mode="cubic", antialias=1, exclude_outside=1, cubic_coeff_a=-0.5),
        case(near(4), np.array([0.25, 1.5]), None, ints(5), fixed=[1, 3], mode="linear", extrapolation_value=3.0,
             coordinate_transformation_mode="tf_crop_and_resize"),
    ],
    "Upsample": [
        case(near(1, 1, 2, 3), scales(1, 1, 2, 2), fixed=[1], opset=9, mode=m) for m in ("nearest", "linear")
    ],
    "GridSample": [
        case(near(1, 2, 3, 2), near(1, 1, 2, 2, low=-0.9, high=0.9)),
        *(
            case(near(1, 1, 3, 2), near(1, 1, 2, 2, low=-1.3, high=1.3), mode=m, padding_mode=p, align_corners=a,
                 second=False)
            for m, p, a in (("linear", "border", 1), ("cubic", "reflection", 0), ("nearest", "zeros", 0))
        ),
    ],
    "DeformConv": [
        case(near(1, 2, 3, 3), near(2, 2, 2, 2), near(1, 8, 2, 2, low=-0.4, high=0.4), near(2),
             near(1, 4, 2, 2, low=0.1), second=False),
    ],
    "RoiAlign": [
        case(near(1, 1, 4, 4), np.array([[0.3, 0.4, 2.6, 3.1]]), ints(0), output_height=2, output_width=1,
             sampling_ratio=2, mode=m, second=False)
        for m in ("avg", "max")
    ],
    "MaxUnpool": [case(near(1, 1, 2), ints(3, 1).reshape(1, 1, 2), kernel_shape=[2], strides=[2])],
}  # fmt: skip

NONE = {
    "results are integers, truth values or texts": """
        And ArgMax ArgMin BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor ConvInteger Equal Greater GreaterOrEqual
        IsInf IsNaN Less LessOrEqual MatMulInteger NonMaxSuppression NonZero Not OptionalHasElement Or QLinearConv
        QLinearMatMul QuantizeLinear RegexFullMatch SequenceLength Shape Size StringConcat StringNormalizer StringSplit
        Xor""",
    "operands are integers or texts, or there are none": """
        BlackmanWindow Constant ConstantFill ConstantOfShape EyeLike GivenTensorFill HammingWindow
        HannWindow MelWeightMatrix Range TfIdfVectorizer""",
    "numbers are drawn": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "made of others when a model is read, of f32 alone, so that no differences are taken": """
        Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh
        SimplifiedLayerNormalization""",
    "the host computes them": """
        Compress ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase
        SequenceInsert SplitToSequence Unique""",
    "bits are read as numbers of another type": "BitCast",
}


ELSEWHERE = "GRU LSTM RNN"  # in tests/ops/nn/test_recurrent_parts.py


def test_every_operator_has_cases_or_a_reason() -> None:
    reasons = [name for names in (*NONE.values(), ELSEWHERE) for name in names.split()]
    by_functions = {
        "CausalConvWithState", "CenterCropPad", "LinearAttention", "NegativeLogLikelihoodLoss",
        "SoftmaxCrossEntropyLoss", "SwiGLU",
    }  # fmt: skip
    assert sorted([*CASES, *reasons]) == sorted({name for domain, name in REGISTRY if not domain} | by_functions)


COMPILED = {
    "Pow": 4, "Max": 2, "ReduceMax": 1, "MatMul": 5, "Slice": 1, "Gather": 0, "ScatterND": 0, "Conv": 3,
    "ConvTranspose": 1, "MaxPool": 1, "AveragePool": 2, "LayerNormalization": 0, "LogSoftmax": 1,
}  # fmt: skip


@pytest.mark.parametrize("op", COMPILED)
def test_compiled_gradients_are_those_of_the_interpreter(op: str) -> None:
    """In f64, by LLVM."""
    operands, options = CASES[op][COMPILED[op]]
    graph, feeds = derived(op, *operands, **options)
    wanted = run_graph(graph, feeds)[: len(graph.results)]
    compiled = load_model(graph)(*feeds.values())
    for got, w in zip(compiled, wanted, strict=True):
        np.testing.assert_allclose(got, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("op", "number"), [(op, k) for op, cases in CASES.items() for k in range(len(cases))])
def test_gradients_are_what_differences_show(op: str, number: int) -> None:
    operands, options = CASES[op][number]
    check(op, *operands, **options)
