"""Places of maxima in steps: where they are found, and what they say of a Relu before the pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.pass_graphs import Model, dims, random_inputs
from torshc.expr import F32
from torshc.graph.verify import verify
from torshc.ops.math.pointwise import relu_slope
from torshc.passes.interpret import run_graph
from torshc.plan.partition import drop_unneeded
from torshc.training.maxima import mask_maxima

from .networks import Steps, convolutional, write_step

STEP = "weights: '*'\nloss: cross_entropy\noptimizer: {momentum: {learning_rate: 0.1}}\n"


def test_places_of_maxima_are_found_with_them(tmp_path: Path) -> None:
    """So the backward pass reads bytes, and neither what was pooled nor the maxima."""
    graph = Steps(convolutional(), write_step(tmp_path, STEP), {"x": (2, 1, 6, 6)}).graph
    drop_unneeded(graph)
    place = {n.op.name: k for k, n in enumerate(graph.nodes)}
    (tap,) = (n for n in graph.nodes if n.op.name == "PoolTap")
    assert place["MaxPool"] < place["PoolTap"] < place["PoolBack"]
    loss = next(k for k, n in enumerate(graph.nodes) if graph.outputs[0] in n.outputs)
    late = [v for n in graph.nodes[loss:] for v in n.operands]
    assert place["PoolTap"] < loss and tap.output in late and not {*tap.operands}.intersection(late)


@pytest.mark.parametrize("beside", [False, True])
def test_places_say_where_the_slope_of_a_relu_is_0(beside: bool) -> None:
    """The same bits without the Relu's result; with another reader, whose gradient is added, its slope stays.

    Windows overlap and reach over the margin. Some are 0 all, and a NaN is the maximum of those that have it.
    """
    m = Model()
    image, g = m.input(2, 3, 9, 9), m.input(2, 3, 5, 5)
    form: dict[str, Any] = {
        "kernel": (3, 3),
        "strides": (2, 2),
        "pads": dims(1, 1, 1, 1),
        "dilations": (1, 1),
        "ceil": False,
    }
    y = m("Relu", image)
    tap = m("PoolTap", y, m("MaxPool", y, **form), domain="torshc", **form)
    back = m("PoolBack", g, tap, domain="torshc", size=dims(9, 9), **form)
    whole = m("Add", back, m.input(2, 3, 9, 9)) if beside else back
    graph = m.done(m.builder.one(relu_slope(F32, F32), whole, y))
    fed = random_inputs(graph)
    fed[image][0, :, 3:6, 3:6] = np.nan
    fed[image][1, :, :6] -= 9
    (before,) = run_graph(graph, fed)
    mask_maxima(graph)
    drop_unneeded(graph)
    verify(graph, "mask_maxima")
    (after,) = run_graph(graph, fed)
    np.testing.assert_array_equal(before, after)
    assert (graph.nodes[-1].op.name == "Expression") == beside
    assert 0 < np.count_nonzero(after) < after.size and np.isfinite(after).all()
