"""Views of weights in the order in which kernels read them."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from torshc.kernels.base import view_elements


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_view_of_a_transposed_array(order: tuple[int, ...]) -> None:
    """Every walk of two axes gives the elements that one of a contiguous copy gives, without a copy along rows."""
    array = np.arange(2 * 3 * 4).reshape(2, 3, 4).transpose(order)
    flat = array.reshape(-1)
    for step, other in np.ndindex(9, 9):
        for start in (0, 1, 4):
            shape = (3, 2)
            if start + 2 * step + other < flat.size:
                wanted = [[flat[start + i * step + j * other] for j in range(2)] for i in range(3)]
                assert view_elements(array, start, shape, (step, other)).tolist() == wanted
    rows = view_elements(array, 0, array.shape, (array.shape[1] * array.shape[2], array.shape[2], 1))
    assert np.shares_memory(rows, array)


def test_a_view_of_a_repeated_array() -> None:
    array = np.broadcast_to(np.arange(3.0), (1 << 40, 3))
    assert view_elements(array, 3, (2, 3), (3 << 30, 1)).tolist() == [[0, 1, 2]] * 2


def test_a_view_backwards() -> None:
    array = np.arange(6).reshape(2, 3).T
    assert view_elements(array, 4, (3,), (-2,)).tolist() == [2, 1, 0]
    assert view_elements(array, 0, (0, 2), (1, 9)).shape == (0, 2)
    assert view_elements(array, 5, (1, 1), (100, 7)).tolist() == [[5]]
    assert view_elements(np.ascontiguousarray(array), 1, (2,), (3,)).tolist() == [3, 2]
