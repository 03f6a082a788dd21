"""Random graphs give the reference's answer however they are fused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import torshc

from ..support.random_graphs import random_graph
from ..support.slow import some
from .test_zoo import OPTIONS, guarded_run

SEEDS = some(range(8), 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    made, feeds = random_graph(seed)
    with np.errstate(all="ignore"):
        wanted = [np.asarray(w) for w in ReferenceEvaluator(made).run(None, feeds)]
    onnx.save(made, tmp_path / "m.onnx")
    for how, options in OPTIONS.items():
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", **options)
        with torshc.load(tmp_path / "m.tsc", threads=1) as model:
            got = guarded_run(model, feeds)
        for (name, a), b in zip(got.items(), wanted, strict=True):
            assert a.shape == b.shape
            largest = float(np.abs(b[np.isfinite(b)]).max(initial=1e-3))
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * largest, err_msg=f"{name}, {how}")
