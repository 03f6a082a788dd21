"""Random inputs by what a model uses them for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from torshc.runtime import TensorSpec
from torshc.workbench.draws import Bounds, draw


def drawn(use: Bounds, *shape: int, dtype: str = "i64", seed: int = 0) -> npt.NDArray[np.generic]:
    return draw(TensorSpec("x", dtype, shape), shape, np.random.default_rng(seed), use)


@pytest.mark.parametrize("seed", range(20))
def test_lengths_are_from_1_to_the_whole_dimension(seed: int) -> None:
    found = drawn(Bounds("length", 1, 9), 6, seed=seed)
    assert found.min() >= 1 and found.max() == 9


def test_indices_are_spread_and_none_comes_twice_where_there_are_enough() -> None:
    assert sorted(drawn(Bounds("index", 0, 11), 3, 4).reshape(-1)) == [*range(12)]
    many = drawn(Bounds("index", 0, 4), 200)
    assert set(many) == {0, 1, 2, 3, 4}
    assert drawn(Bounds("index", 0, 50_000), 2, 8).max() > 10_000


def test_positions_increase_and_stay_in_range() -> None:
    for seed in range(20):
        found = drawn(Bounds("position", 0, 31), 2, 8, seed=seed)
        assert (np.diff(found) == 1).all() and found.min() >= 0 and found.max() <= 31
    assert [*drawn(Bounds("position", 0, None), 4)] == [0, 1, 2, 3]
    assert drawn(Bounds("position", 0, 3), 8).max() <= 3


@pytest.mark.parametrize("dtype", ["bool", "i64", "i32", "u8"])
def test_masks_keep_something_in_each_row_and_hide_something(dtype: str) -> None:
    kept, hidden = drawn(Bounds(), 5, 7, dtype=dtype), drawn(Bounds("hide", 0, 1), 5, 7, dtype=dtype)
    for found, one in ((kept, 1), (hidden, 0)):
        assert (found[:, 0] == one).all() and (found[:, -1] == 1 - one).all()
    assert drawn(Bounds(), 3, 1, dtype=dtype).all() and not drawn(Bounds("hide", 0, 1), 3, 1, dtype=dtype).any()


def test_numbers_and_ratios() -> None:
    assert {int(drawn(Bounds("number", 1, 3), 1, seed=seed)[0]) for seed in range(30)} == {1, 2, 3}
    ratios = drawn(Bounds("ratio", 0, 1), 100, dtype="f32")
    assert ratios.dtype == np.float32 and ratios.min() >= 0 and ratios.max() < 1


def test_positive_floats() -> None:
    assert drawn(Bounds("positive", 0, None), 100, dtype="f32").min() >= 0


def test_dimensions_without_elements() -> None:
    for kind in ("index", "length", "position", "keep", "hide", "number"):
        assert drawn(Bounds(kind, 0, -1), 2, 0).shape == (2, 0)


def test_types_of_few_bits_are_not_overrun() -> None:
    assert drawn(Bounds("index", 0, 50_000), 1000, dtype="u8").max() <= 255


def test_scalars_are_arrays() -> None:
    for kind in ("index", "length", "position", "keep", "hide", "number", "ratio", "positive"):
        for dtype in ("i64", "f32", "bool", "f16"):
            assert isinstance(drawn(Bounds(kind, 1, 3), dtype=dtype), np.ndarray), (kind, dtype)
