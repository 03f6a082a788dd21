"""Planning only reads: whatever changes a graph behind its passes is done, and seen, before."""

from __future__ import annotations

import pytest

from torshc.graph import Graph
from torshc.graph.text import graph_text
from torshc.ops.math.pointwise import Separator
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan

from ..support.pass_graphs import Model


def softmax_apart() -> Graph:
    """A Softmax behind a separator; an input is an output too."""
    m = Model()
    x = m.input(3, 5)
    kept = m.builder.one(Separator("softmax apart"), m("Exp", x))
    return m.done(m("Softmax", kept, axis=1), x)


def test_outputs_settle_and_separators_become_pairs() -> None:
    final = finalise(softmax_apart(), Policy.of())
    names = {n.op.name for n in final.graph.nodes}
    assert "Separator" not in names
    assert all(v.producer is not None for v in final.graph.outputs)
    pairs = {(node.op.name, rule.name) for node, others in final.apart.items() for rule in others.values()}
    assert ("Exp", "softmax apart") in pairs


@pytest.mark.parametrize("strategy", ["none", "default"])
def test_planning_only_reads(strategy: str) -> None:
    final = finalise(softmax_apart(), Policy.of(strategy))
    before = graph_text(final.graph)
    make_plan(final)
    assert graph_text(final.graph) == before
