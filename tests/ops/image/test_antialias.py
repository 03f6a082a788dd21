"""Resize with antialias against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.nodes import F32, check, numbers, refused


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scale", [0.3, 0.5, 0.75, 1.5])
def test_resize_with_antialias(mode: str, scale: float) -> None:
    scales = np.array([1, 1, scale, 1], F32)
    for exclude in (0, 1):
        check(
            "Resize", numbers(1, 2, 9, 4), None, scales, fixed=(1, 2), mode=mode, antialias=1, exclude_outside=exclude
        )
    refused("Resize", numbers(400, 400), None, np.array([0.01, 0.01], F32), fixed=(2,), mode=mode, antialias=1,
            match="antialias")  # fmt: skip
