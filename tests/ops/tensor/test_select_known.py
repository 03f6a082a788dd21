"""What a condition chooses that is known at compile time."""

from __future__ import annotations

import numpy as np

from tests.support.nodes import I64, check, numbers, refused


def test_what_a_known_condition_chooses() -> None:
    x, condition = numbers(3, 4), np.array([False, True, True])
    check("Compress", x, condition, fixed=(1,), axis=1)
    check("Compress", x, condition, fixed=(1,))
    check("NonZero", np.array([[0, 2], [3, 0]], I64), fixed=(0,))
    check("NonZero", np.array(3, I64), fixed=(0,))
    refused("Compress", x, np.ones(5, bool), fixed=(1,), axis=1, match="holds at 4")
