"""What is proved of rows of padding: that no result depends on them, or why it may."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.padded import encoder
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare


def why(stated: bool = False, **form: Any) -> str:
    """Why rows of padding cannot be left out; empty where they can."""
    asked: dict[str, Any] = {"drop_padding": "mask"} if stated else {"specialize": ("mask=padded",)}
    done = prepare(encoder(**form).SerializeToString(), CompileOptions(loose="none", **asked))
    (only,) = done.variants
    assert (only.form is None) == bool(only.why)
    return only.why


@pytest.mark.parametrize("tail", ["mean", "chosen", "parts"])
def test_what_the_mask_hides_depends_on_no_padding(tail: str) -> None:
    assert why(tail=tail) == ""


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"tail": "rows"}, "rows of padding are in output 'y'"),
        ({"tail": "first"}, "(Gather, 'y') reads rows of padding"),
        ({"tail": "largest"}, "(ReduceMax, 'y') reads rows of padding"),
        ({"masked": False}, "attends to rows of padding"),
        ({"low": -1e4}, "attends to rows of padding"),
        ({"low": 1e4}, "attends to rows of padding"),
        ({"hide": "Mul"}, "attends to rows of padding"),
    ],
)
def test_what_depends_on_padding_is_named(form: dict[str, Any], reason: str) -> None:
    assert reason in why(**form)


@pytest.mark.parametrize("form", [{"tail": "rows"}, {"tail": "first"}, {"low": -1e4}])
def test_a_person_may_say_that_padding_means_nothing(form: dict[str, Any]) -> None:
    """Then it may be in results, and a score is hidden by as much as models are trained with."""
    assert why(stated=True, **form) == ""


@pytest.mark.parametrize("form", [{"tail": "largest"}, {"masked": False}, {"hide": "Mul"}])
def test_but_not_that_other_rows_may_change(form: dict[str, Any]) -> None:
    assert "rows of padding" in why(stated=True, **form)
