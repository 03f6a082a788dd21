"""Indices that are computed from data, on devices: against onnx's reference evaluator, through the emulators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.emulation.emulated import emulated_tools
from tests.support.compare import compiled, reference
from tests.support.models import model, node
from tests.support.seeded import seeded

Array = np.ndarray[Any, Any]
RNG = seeded(0)


def floats(*shape: int) -> Array:
    return RNG.uniform(-0.9, 0.9, shape).astype(np.float32)


CASES: dict[str, tuple[list[onnx.NodeProto], dict[str, Array], str]] = {
    "sampling": ([node("GridSample", "x g", "y")], {"x": floats(1, 2, 5, 6), "g": floats(1, 3, 4, 2)}, "y"),
    "scatter": (
        [node("ScatterElements", "x i u", "y", axis=1)],
        {"x": floats(3, 5), "i": np.array([[0, 3], [1, 4], [2, 0]]), "u": floats(3, 2)},
        "y",
    ),
    "joined": (
        [node("Concat", "a b", "x", axis=0), node("Gather", "x i", "g"), node("Neg", "g", "y")],
        {"a": floats(2), "b": floats(7), "i": np.array([8, 0, -9, 1, 2])},
        "y",
    ),
    "largest": (
        [node("ArgMax", "x", "m", axis=1, keepdims=1), node("GatherElements", "x m", "y", axis=1)],
        {"x": floats(3, 8)},
        "y",
    ),
    **{
        f"regions, {points}": (
            [node("RoiAlign", "x r b", "y", output_height=2, output_width=2, sampling_ratio=points)],
            {"x": floats(1, 1, 6, 6), "r": np.array([[0.5, 0.7, 4.2, 4.9]], np.float32), "b": np.array([0])},
            "y",
        )
        for points in (0, 2)
    },
}


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    with emulated_tools():
        yield


@pytest.mark.parametrize("target", ["cuda", "metal"])
@pytest.mark.parametrize("name", CASES)
def test_against_the_reference(name: str, target: str, tmp_path: Path) -> None:
    nodes, feeds, output = CASES[name]
    made = model(nodes, feeds, output)
    (wanted,) = reference(made, feeds)
    got = compiled(made, feeds, tmp_path, target=target)[output]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
