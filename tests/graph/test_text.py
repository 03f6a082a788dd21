"""Graphs as text: what a dump shows of constants."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.graph.text import graph_text

from ..support.pass_graphs import Model


@pytest.mark.parametrize(
    ("dtype", "array", "shown"),
    [
        ("string", ["a", 'b"'], '["a", "b\\""]'),
        ("string", "a", '"a"'),
        ("f16", [0.5, 1], "[0.5, 1.0]"),
        ("bool", [True, False], "[true, false]"),
        ("i64", 3, "3"),
    ],
)
def test_small_constants_are_written_out(dtype: str, array: object, shown: str) -> None:
    m = Model()
    value = m.graph.constant(np.asarray(array, np.object_)) if dtype == "string" else m.const(array, dtype)
    m.done(m("Identity", value))
    assert f"Identity({shown})" in graph_text(m.graph)
