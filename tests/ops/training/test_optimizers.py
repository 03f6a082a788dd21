"""Steps of optimisers against ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.support.evaluate import Array, run
from tests.support.nodes import F32, F64, numbers
from torshc.base.errors import ModelError
from torshc.formats import import_model

DOMAIN = "ai.onnx.preview.training"


def model_of(op: str, feeds: dict[str, Array], outputs: int, **attributes: Any) -> onnx.ModelProto:
    names = [f"y{k}" for k in range(outputs)]
    it = helper.make_node(op, list(feeds), names, domain=DOMAIN, **attributes)
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    graph = helper.make_graph([it], "step", inputs, [helper.make_empty_tensor_value_info(n) for n in names])
    opsets = [helper.make_opsetid(DOMAIN, 1), helper.make_opsetid("", 20)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def check(op: str, groups: int, shapes: list[tuple[int, ...]], count: int, dtype: Any, **attributes: Any) -> None:
    feeds: dict[str, Array] = {"R": np.asarray(0.1, dtype), "T": np.asarray(count, np.int64)}
    for g in range(groups):
        for k, shape in enumerate(shapes):
            low = 0.1 if g == groups - 1 else -1.0
            feeds[f"v{g}_{k}"] = numbers(*shape, dtype=dtype, low=low, high=1.0, seed=10 * g + k)
    model = model_of(op, feeds, (groups - 1) * len(shapes), **attributes)
    wanted = ReferenceEvaluator(model).run(None, feeds)
    got = run(import_model(model.SerializeToString()), feeds)
    for a, b in zip(got, wanted, strict=True):
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
    feeds = {n: np.zeros((), F32) for n in ("R", "X", "G")}
    feeds = {"R": feeds["R"], "T": np.zeros((), np.int64), "X": feeds["X"], "G": feeds["G"]}
    with pytest.raises(ModelError, match="2 tensors in 3 groups"):
        import_model(model_of("Adagrad", feeds, 1).SerializeToString())
    feeds["H"] = feeds["V"] = feeds["X"]
    with pytest.raises(ModelError, match="alpha"):
        import_model(model_of("Adam", feeds, 1, alpha=1.0).SerializeToString())
