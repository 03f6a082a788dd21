"""What is constant is computed, within a budget."""

from __future__ import annotations

import numpy as np

from torshc.passes import PASSES

from ..support.pass_graphs import OPTIONS, Model, dims, names


def test_fold_constants_leaves_large_broadcasts_alone() -> None:
    m = Model()
    graph = m.done(
        m("Expand", m.const([[1.0]]), shape=dims(1024, 1024)), m("Transpose", m.const(np.ones((600, 600))), perm=(1, 0))
    )
    PASSES["fold_constants"](graph, OPTIONS)
    assert names(graph) == ["Expand"]


def test_fold_constants_has_a_budget() -> None:
    m = Model()
    x = m.const(np.ones((1, 1)))
    graph = m.done(m("Expand", x, shape=dims(1 << 21, 1 << 21)))
    assert not PASSES["fold_constants"](graph, OPTIONS)
