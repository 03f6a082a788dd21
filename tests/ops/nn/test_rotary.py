"""Rotary positions whole and in parts, against onnx's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tests.support.evaluate import run
from tests.support.pass_graphs import run_one
from torshc.formats import import_model

RNG = np.random.default_rng(4)


def model_of(feeds: dict[str, Any], **attributes: int) -> Any:
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    node = helper.make_node("RotaryEmbedding", list(feeds), ["y"], **attributes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, feeds["x"].shape)
    return helper.make_model(helper.make_graph([node], "g", values, [y]), opset_imports=[helper.make_opsetid("", 23)])


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("size", [0, 4])
@pytest.mark.parametrize("form", ["heads", "flat", "angles"])
def test_forms(form: str, size: int, interleaved: int) -> None:
    half = (size or 8) // 2
    attributes = {"interleaved": interleaved, "rotary_embedding_dim": size}
    table = (2, 3, half) if form == "angles" else (11, half)
    x = RNG.standard_normal((2, 3, 24) if form == "flat" else (2, 3, 3, 8)).astype(np.float32)
    feeds = {"x": x, **{n: RNG.standard_normal(table).astype(np.float32) for n in ("cos", "sin")}}
    if form != "angles":
        feeds["at"] = RNG.integers(0, 11, (2, 3))
    if form == "flat" or size:  # a size of less than a head needs their number
        attributes["num_heads"] = 3
    model = model_of(feeds, **attributes)
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    for parts in (False, True):
        graph = import_model(model.SerializeToString())
        assert "Rotated" in [n.op.name for n in graph.nodes]
        if parts:
            run_one("decompose", graph)
            assert "Rotated" not in [n.op.name for n in graph.nodes]
        got, *_ = run(graph, feeds)
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)  # two products and a sum of f32
