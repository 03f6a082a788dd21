"""Other weights for an open model, from Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import torshc
from tests.support.seeded import seeded
from torshc.base.errors import RunError

RNG = seeded(5)
W, B = RNG.standard_normal((8, 16)).astype(np.float32), RNG.standard_normal(16).astype(np.float32)
X = RNG.standard_normal((2, 8)).astype(np.float32)


def dense() -> bytes:
    text = '<ir_version: 8, opset_import: ["" : 18]> d (float[2,8] x) => (float[2,16] y) { y = Gemm(x, w, b) }'
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in {"w": W, "b": B}.items())
    return bytes(made.SerializeToString())


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("weights") / "m.tsc"
    torshc.compile(dense(), place, named_weights=True)
    return place


def right(model: Any, w: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return bool(np.allclose(model(X)[0], X @ w + b, rtol=1e-5, atol=1e-5))  # sums of eight products of f32


def test_by_name(bundle: Path) -> None:
    with torshc.load(bundle) as model, model.context() as context:
        model.set_weights({"b": 2 * B})
        assert right(model, W, 2 * B) and right(context, W, 2 * B)
        context.set_weights({"w": np.asfortranarray(3 * W)})  # of any order in memory; the bias stays
        assert right(model, 3 * W, 2 * B) and right(context, 3 * W, 2 * B)
        model.set_weights({})
        model.set_weights(bundle / "weights.bin")
        assert right(model, W, B) and right(context, W, B)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w": W, "bias": B}, "no weight 'bias'"),
        ({"b": B, "w": W.T}, r"weight 'w' has shape \[16, 8\]; expected \[8, 16\]"),
        ({"b": B.astype(np.float64)}, "weight 'b' has type float64; expected float32"),
        ({"b": [[1], [1, 2]]}, "weight 'b' is not an array"),
        ({3: B}, "no weight 3"),
        (
            {"w": W.T, "bia": B, "b": B.astype(np.float64), "ww": W},
            r"(?s)4 weights do not fit:\n.*'w' has shape.* weight 'bia'.*'b' has type.* weight 'ww'; did you mean 'w'",
        ),
        ("/nowhere", "/nowhere: No such file"),
        ("weights\0.bin", "no file is named"),
        ([B], "weights are list"),
    ],
)
def test_what_is_refused_changes_nothing(bundle: Path, given: Any, message: str) -> None:
    with torshc.load(bundle) as model:
        with pytest.raises(RunError, match=message):
            model.set_weights(given)
        assert right(model, W, B)


def test_a_bundle_without_names(tmp_path: Path) -> None:
    torshc.compile(dense(), tmp_path / "m.tsc")
    model = torshc.load(tmp_path / "m.tsc")
    with pytest.raises(RunError, match="takes no weights by name") as refused:
        model.set_weights({"b": B})
    assert "--named-weights" in refused.value.remedy
    model.close()
    with pytest.raises(RunError, match="closed"):
        model.set_weights({"b": B})
