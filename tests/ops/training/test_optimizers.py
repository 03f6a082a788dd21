"""Steps of optimisers against ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.compare import evaluated, reference
from tests.support.evaluate import Array
from tests.support.models import feeds_of, node_model
from tests.support.nodes import F32, F64, numbers, refused

DOMAIN = "ai.onnx.preview.training"


def check(op: str, groups: int, shapes: list[tuple[int, ...]], count: int, dtype: Any, **attributes: Any) -> None:
    operands: list[Array] = [np.asarray(0.1, dtype), np.asarray(count, np.int64)]
    for g in range(groups):
        for k, shape in enumerate(shapes):
            low = 0.1 if g == groups - 1 else -1.0
            operands.append(numbers(*shape, dtype=dtype, low=low, high=1.0, seed=10 * g + k))
    model = node_model(op, operands, (), (groups - 1) * len(shapes), domain=DOMAIN, **attributes)
    got = evaluated(model, feeds_of(operands))
    for a, b in zip(got, reference(model, feeds_of(operands)), strict=True):  # which are of f32 always
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=op)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_steps(count: int, dtype: Any) -> None:
    shapes: list[tuple[int, ...]] = [(3, 4), (5,)]
    check("Adagrad", 3, shapes, count, dtype, decay_factor=0.1, epsilon=1e-5, norm_coefficient=0.01)
    check("Adagrad", 3, [(2,)], count, dtype, decay_factor=0.0, epsilon=0.0, norm_coefficient=0.0)
    check("Adam", 4, shapes, count, dtype, alpha=0.95, beta=0.999, epsilon=1e-7, norm_coefficient=0.01)
    check(
        "Adam", 4, [(2,)], count, dtype, alpha=0.0, beta=0.5, epsilon=0.0, norm_coefficient=0.0,
        norm_coefficient_post=0.1,
    )  # fmt: skip
    check("Adagrad", 3, [(2,)], count, dtype)
    check("Adam", 4, [(2,)], count, dtype)
    for mode in ("standard", "nesterov"):
        check("Momentum", 3, shapes, count, dtype, mode=mode, alpha=0.9, beta=0.5, norm_coefficient=0.01)
        check("Momentum", 3, [()], count, dtype, mode=mode, alpha=0.9, beta=1.0, norm_coefficient=0.0)


def test_faults() -> None:
    zero = np.zeros((), F32)
    operands = [zero, np.zeros((), np.int64), zero, zero]
    refused("Adagrad", *operands, domain=DOMAIN, match="2 tensors in 3 groups")
    refused("Adam", *operands, zero, zero, domain=DOMAIN, alpha=1.0, match="alpha")
