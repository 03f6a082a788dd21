"""What tensors hold, where it shows little."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from torshc.workbench.content import Content, content_of

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("tensors", "note", "blank"),
    [
        ([np.array([1.0, 2.0])], "", False),
        ([np.array(3)], "", False),
        ([np.zeros((2, 0))], "it has no elements", True),
        ([], "it has no elements", True),
        ([np.array(NAN)], "every element is NaN", True),
        ([np.full(3, NAN, ml_dtypes.bfloat16)], "every element is NaN", True),
        ([np.array([NAN, INF])], "no element is a finite number", True),
        ([np.array([NAN, 1.0, 2.0])], "1 of 3 elements are NaN", False),
        ([np.full((2, 3), 0.5, np.float16)], "every element is 0.5", False),
        ([np.array([True, True])], "every element is 1", False),
        ([np.array(["a", "a"], object)], "every element is 'a'", False),
        ([np.array(["a", "b"], object)], "", False),
        ([np.array([7]), np.array([7.0])], "every element is 7", False),
        ([np.array([7]), np.array([NAN])], "1 of 2 elements are NaN", False),
    ],
)
def test_content(tensors: list[npt.NDArray[np.generic]], note: str, blank: bool) -> None:
    assert content_of(tensors) == Content(note, blank)
