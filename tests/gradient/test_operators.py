"""The gradients of operators, and theirs, against central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.nodes import F64, I64

from .differences import check

Array = np.ndarray[Any, Any]


def near(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """Numbers in a range, none within 0.01 of a multiple of 0.5, where slopes jump."""
    rng = np.random.default_rng((seed, *shape))
    x = rng.uniform(low, high, shape)
    off = x - np.round(x * 2) / 2
    return np.asarray(np.where(abs(off) < 0.01, x + 0.02, x), F64)


def ints(*values: int) -> Array:
    return np.array(values, I64)


Case = tuple[tuple[Array | None, ...], dict[str, Any]]


def case(*operands: Array | None, **attributes: Any) -> Case:
    return operands, attributes


X, Y = near(2, 3), near(2, 3, seed=1)
UNIT = near(2, 3, low=-0.9, high=0.9)
ABOVE = near(2, 3, low=0.2, high=2.2)
ROW, COLUMN, CUBE = near(3, seed=2), near(2, 1, seed=3), near(2, 3, 2)
HIGH = CUBE + 2.5

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
    ],
}  # fmt: skip


@pytest.mark.parametrize(("op", "number"), [(op, k) for op, cases in CASES.items() for k in range(len(cases))])
def test_gradients_are_what_differences_show(op: str, number: int) -> None:
    operands, options = CASES[op][number]
    check(op, *operands, **options)
