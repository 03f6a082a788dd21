"""Random graphs whose operands meet in dimensions of different names: each 1 in turn, as ONNX Runtime has it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from torshc.base.errors import ModelError, RunError

from .broadcast_graphs import Graph

COUNT = 24
onnxruntime = pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_broadcasts(seed: int, tmp_path: Path) -> None:
    """What ONNX Runtime answers, torshc answers in one of its forms; what it refuses, torshc refuses."""
    graph = Graph(seed)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(graph.model.SerializeToString(), options, ["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        pytest.skip("no sizes fit this graph")

    def answer(feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
        try:
            found: list[np.ndarray] = session.run(None, feeds)
        except Exception:  # ONNX Runtime's own, of several kinds
            return None
        return found

    runs = [(sizes, feeds := graph.feeds(sizes), answer(feeds)) for sizes in graph.bindings()]
    onnx.save(graph.model, tmp_path / "m.onnx")
    try:
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", threads=1, opt_level=3 * (seed % 2))
    except ModelError:
        assert not any(want for _, _, want in runs)
        return
    with torshc.load(tmp_path / "m.tsc", threads=1) as model:
        for sizes, feeds, want in runs:
            if want is None:
                with pytest.raises(RunError):
                    model.run(feeds)
                continue
            for a, b in zip(model.run(feeds).values(), want, strict=True):
                assert a.shape == b.shape, sizes
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4, err_msg=str(sizes))
