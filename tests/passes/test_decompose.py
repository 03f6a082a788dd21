"""Composite operators are taken apart."""

from __future__ import annotations

import numpy as np

from ..support.pass_graphs import Model, run_pass


def test_decompose_takes_apart_what_a_decomposition_makes() -> None:
    m = Model()
    x = m.input(1, 6, 4)
    vector = m.const(np.arange(6) + 1)
    graph = m.done(m("InstanceNormalization", x, vector, vector))
    run_pass("decompose", graph)
    assert not [n for n in graph.nodes if n.op.family == "composite"]
