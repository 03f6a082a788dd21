"""Whole path on products, with the operands as exporters write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.seeded import seeded

from ..support.compare import check
from ..support.models import model, node

RNG = seeded(0)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("attributes", [{"transB": 1}, {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, {}])
def test_gemm(attributes: dict[str, float], level: int, tmp_path: Path) -> None:
    x = random(33, 7) if attributes.get("transA") else random(7, 33)
    w = random(50, 33) if attributes.get("transB") else random(33, 50)
    made = model([node("Gemm", "x w b", "y", **attributes)], {"x": list(x.shape)}, ["y"], {"w": w, "b": random(50)})
    check(made, {"x": x}, tmp_path, opt_level=level)


@pytest.mark.parametrize("level", [0, 3])
def test_a_batch_of_products_with_views_around_them(level: int, tmp_path: Path) -> None:
    made = model(
        [
            node("Transpose", "x", "a", perm=[0, 2, 1, 3]),
            node("Transpose", "z", "b", perm=[0, 2, 3, 1]),
            node("MatMul", "a b", "c"),
            node("Mul", "c half", "y"),
        ],
        {"x": ["n", 5, 2, 12], "z": ["n", 9, 2, 12]},
        ["y"],
        {"half": np.float32(0.5)},
    )
    check(made, {"x": random(3, 5, 2, 12), "z": random(3, 9, 2, 12)}, tmp_path, opt_level=level)


def test_convolutions_that_end_in_a_concatenation(tmp_path: Path) -> None:
    made = model(
        [
            node("Conv", "x w", "a", pads=[1, 1, 1, 1]),
            node("Relu", "a", "r"),
            node("Concat", "r x", "c", axis=1),
            node("Conv", "c v", "d"),
            node("Concat", "c d", "e", axis=1),
            node("GlobalAveragePool", "e", "y"),
        ],
        {"x": [1, 5, 7, 9]},
        ["y", "e"],
        {"w": random(6, 5, 3, 3), "v": random(10, 11, 1, 1)},
    )
    check(made, {"x": random(1, 5, 7, 9)}, tmp_path)
