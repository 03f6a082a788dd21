"""Random numbers on devices are those of the processor, through the emulators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulation.emulated import emulated_tools
from tests.support.compare import compiled
from tests.support.models import model, node


@pytest.mark.parametrize("target", ["cuda", "metal"])
def test_same_numbers(target: str, tmp_path: Path) -> None:
    nodes = [
        node("RandomUniformLike", "x", "u", seed=3.0, low=-1.0, high=2.0),
        node("RandomNormalLike", "x", "n", seed=4.0),
        node("Mul", "u n", "p"),
    ]
    made = model(nodes, {"x": (7, 33)}, ["u", "n", "p"])
    feeds = {"x": np.zeros((7, 33), np.float32)}
    for name in ("c", target):
        (tmp_path / name).mkdir()
    wanted = compiled(made, feeds, tmp_path / "c")
    with emulated_tools():
        got = compiled(made, feeds, tmp_path / target, target=target)
    np.testing.assert_allclose(got["u"], wanted["u"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(got["n"], wanted["n"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["p"], wanted["p"], rtol=1e-5, atol=1e-5)
