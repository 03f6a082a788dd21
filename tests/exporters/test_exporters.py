"""Models as exporters write them, each compiled once with symbolic dimensions and right at three sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import torshc

from .models import MODELS


@pytest.mark.parametrize("name", MODELS)
def test_exported(name: str, tmp_path: Path) -> None:
    make, sizes = MODELS[name]
    made = make()
    onnx.save(made, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        for k, feeds_of in enumerate(sizes):
            feeds = feeds_of(np.random.default_rng(k))
            for got, want in zip(compiled.run(feeds).values(), session.run(None, feeds), strict=True):
                assert got.shape == want.shape and got.dtype == want.dtype
                # Sums in f32 in another order: some units in the last place of the largest term, a few layers deep.
                np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-5 * max(1, abs(want).max(initial=0)))
