"""Rotary positions whole and in parts, against onnx's evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import torshc
from tests.support.compare import reference
from tests.support.evaluate import run
from tests.support.models import model, node
from tests.support.pass_graphs import run_one
from tests.support.seeded import seeded
from torshc.formats import import_model

RNG = seeded(4)


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
    made = model([node("RotaryEmbedding", " ".join(feeds), "y", **attributes)], feeds, opset=23)
    (wanted,) = reference(made, feeds)
    for parts in (False, True):
        graph = import_model(made.SerializeToString())
        assert "Rotated" in [n.op.name for n in graph.nodes]
        if parts:
            run_one("decompose", graph)
            assert "Rotated" not in [n.op.name for n in graph.nodes]
        got, *_ = run(graph, feeds)
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)  # two products and a sum of f32


def test_positions_of_another_batch_are_refused() -> None:
    """As many as there are rows, so that no number of elements tells them apart."""
    tables = {n: RNG.standard_normal((11, 4)).astype(np.float32) for n in ("cos", "sin")}
    inputs: dict[str, Any] = {"x": ["b", "s", 24], "at": ("int64", ["p", "q"])}
    made = model([node("RotaryEmbedding", "x cos sin at", "y", num_heads=3)], inputs, "y", tables, opset=23)
    x = RNG.standard_normal((4, 5, 24)).astype(np.float32)
    with torshc.compile(made) as loaded:
        assert loaded.run({"x": x, "at": np.zeros((4, 5), np.int64)})["y"].shape == x.shape
        with pytest.raises(torshc.TorshcError, match="do not fit together"):
            loaded.run({"x": x, "at": np.zeros((2, 10), np.int64)})
