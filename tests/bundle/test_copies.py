"""Elements that go from one array to another, as nests of loops."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.bundle.copies import LOOPS, MOST, apply_copy, find_copies


def panels(rows: int, columns: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """A matrix in panels of some columns, the last one padded: the elements in order, and the place of each."""
    padded = -(-columns // width) * width
    source = np.full((rows, padded), -1)
    source[:, :columns] = np.arange(rows * columns).reshape(rows, columns)
    packed = source.reshape(rows, -1, width).swapaxes(0, 1).reshape(-1)
    places = np.flatnonzero(packed >= 0)
    return packed[places], places


@pytest.mark.parametrize(
    ("rows", "columns", "width", "count"), [(7, 48, 16, 1), (7, 53, 16, 2), (1, 5, 16, 1), (9, 1, 4, 1)]
)
def test_panels(rows: int, columns: int, width: int, count: int) -> None:
    source, place = panels(rows, columns, width)
    found = find_copies(source, place)
    assert len(found) == count
    given, to = np.random.default_rng(0).random(rows * columns), np.zeros(place.max() + 1)
    for copy in found:
        apply_copy(copy, given, to)
    np.testing.assert_array_equal(to[place], given[source])
    assert np.count_nonzero(to) == source.size


def test_gates_between_each_other() -> None:
    """Four gates in an order of their own: regular in the order of the elements alone."""
    source = np.arange(4 * 64 * 32).reshape(4, 4, 16, 32)[[0, 2, 3, 1]].transpose(1, 3, 0, 2).reshape(-1)
    assert len(find_copies(source, np.arange(source.size))) <= 4


def test_what_has_no_order_is_given_up() -> None:
    source = np.random.default_rng(1).permutation(9_000)
    assert len(find_copies(source, np.arange(source.size))) > MOST


def test_no_nest_is_deeper_than_the_library_takes() -> None:
    source = np.arange(2**12).reshape([2] * 12).transpose(*range(11, -1, -1)).reshape(-1)
    found = find_copies(source, np.arange(source.size))
    assert max(len(copy.loops) for copy in found) == LOOPS
    to = np.zeros_like(source)
    for copy in found:
        apply_copy(copy, np.arange(source.size), to)
    np.testing.assert_array_equal(to, source)
