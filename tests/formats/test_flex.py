"""FlexAttention with graphs for its scores and probabilities, against ONNX's reference evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.compare import compiled, evaluated, reference
from tests.support.evaluate import Array
from tests.support.models import model, node
from torshc.base.errors import ModelError
from torshc.formats import import_model


def mod(name: str, nodes: list[onnx.NodeProto], code: int, **constants: Array) -> onnx.GraphProto:
    """A graph from "x" to "out"."""
    dims = ["B", "H", "L", "S"]
    return helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", code, dims)],
        [helper.make_tensor_value_info("out", code, dims)],
        [numpy_helper.from_array(a, n) for n, a in constants.items()],
    )


def model_of(shapes: list[tuple[int, ...]], code: int = TensorProto.FLOAT, **attributes: Any) -> onnx.ModelProto:
    it = node("FlexAttention", "q k v", "y", domain="ai.onnx.preview", **attributes)
    return model([it], {n: (code, s) for n, s in zip("qkv", shapes, strict=True)}, "y", opset=24)


def graphs(code: int, dtype: Any) -> dict[str, onnx.GraphProto]:
    keep = np.tril(np.ones((5, 6), np.bool_))
    masked = [helper.make_node("Where", ["keep", "x", "low"], ["out"])]
    halved = [helper.make_node("Mul", ["x", "half"], ["out"])]
    return {
        "score_mod": mod("masked", masked, code, keep=keep, low=np.asarray(-np.inf, dtype)),
        "prob_mod": mod("halved", halved, code, half=np.asarray(0.5, dtype)),
    }


SHAPES: list[tuple[int, ...]] = [(2, 4, 5, 8), (2, 2, 6, 8), (2, 2, 6, 3)]


@pytest.mark.parametrize("code", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
@pytest.mark.parametrize("names", ["", "score_mod", "prob_mod", "score_mod prob_mod"])
def test_graphs(code: int, names: str) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(code)
    wide = (TensorProto.FLOAT, np.float32) if code == TensorProto.FLOAT16 else (code, dtype)
    found = graphs(*wide)
    made = model_of(SHAPES, code, **{n: found[n] for n in names.split()})
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(s).astype(dtype) for n, s in zip("qkv", SHAPES, strict=True)}
    (wanted,), (got,) = reference(made, feeds), evaluated(made, feeds)
    assert got.dtype == dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-2 if code == TensorProto.FLOAT16 else 1e-5, atol=1e-5)


def test_a_mask_is_attention(tmp_path: Path) -> None:
    """What the graphs make of it is fused like attention that is spelt out."""
    masked = graphs(TensorProto.FLOAT, np.float32)["score_mod"]
    made = model_of(SHAPES, score_mod=masked)
    rng = np.random.default_rng(0)
    feeds = {n: rng.standard_normal(s).astype(np.float32) for n, s in zip("qkv", SHAPES, strict=True)}
    (got,) = compiled(made, feeds, tmp_path, jobs=1).values()
    np.testing.assert_allclose(got, reference(made, feeds)[0], rtol=1e-4, atol=1e-5)


def test_faults() -> None:
    shorter = [helper.make_node("ReduceMax", ["x"], ["out"], keepdims=1)]
    bad = model_of(SHAPES, score_mod=mod("shorter", shorter, TensorProto.FLOAT))
    with pytest.raises(ModelError, match="score_mod of FlexAttention makes"):
        import_model(bad.SerializeToString())
    with pytest.raises(ModelError, match="4 heads with 3"):
        import_model(model_of([(2, 4, 5, 8), (2, 3, 6, 8), (2, 3, 6, 3)]).SerializeToString())
