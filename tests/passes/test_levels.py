"""What the optimisation levels do, and that -O2 changes no bit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from torshc.base.options import CompileOptions
from torshc.graph import Graph, Value
from torshc.passes import optimise, pipeline_of
from torshc.passes.interpret import run_graph
from torshc.pipeline.compiler import prepare

from ..support.pass_graphs import FEATURES, Model, names, random_inputs


def convolution() -> Graph:
    """A convolution, batch normalisation and x * sigmoid(x)."""
    m = Model()
    rng = np.random.default_rng(1)
    x = m.input(1, 3, 6, 7)
    y = m("Conv", x, m.const(rng.standard_normal((4, 3, 3, 3))), pads=(1, 1, 1, 1), strides=(1, 1), dilations=(1, 1))
    scale, shift, mean, var = (m.const(rng.random(4) + 0.5) for _ in range(4))
    y = m("BatchNormalization", y, scale, shift, mean, var)
    return m.done(m("Mul", y, m("Sigmoid", y)))


def attention() -> Graph:
    m = Model()
    q, k, v = (m.input(2, 5, 8) for _ in range(3))
    scores = m("Mul", m("MatMul", q, m("Transpose", k, perm=(0, 2, 1))), 0.3)
    return m.done(m("MatMul", m("Softmax", scores, axis=-1), v))


def gelu() -> Graph:
    """As exporters write it; what is cheap is read by two."""
    m = Model()
    x = m.input(5, 9)
    y = m("Mul", m("Mul", x, 0.5), m("Add", m("Erf", m("Div", x, 1.4142135)), 1.0))
    return m.done(y, m("ReduceSum", y, axes=(1,)))


def spelled_out() -> Graph:
    """Arithmetic that exact rules make shorter."""
    m = Model()
    x = m.input(5, 9)
    return m.done(m("Add", m("Pow", m("Neg", m("Neg", x)), 2.0), m("Div", m("Relu", m("Relu", x)), 4.0)))


MODELS = [convolution, attention, gelu, spelled_out]


def outputs(graph: Graph, inputs: dict[Value, np.ndarray]) -> list[np.ndarray]:
    return [np.asarray(a) for a in run_graph(graph, inputs)]


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("level", [0, 1, 2])
def test_up_to_o2_no_bit_changes(make: Callable[[], Graph], level: int) -> None:
    graph = make()
    inputs = random_inputs(graph)
    before = outputs(graph, inputs)
    optimise(graph, CompileOptions(opt_level=level), FEATURES)
    for a, b in zip(outputs(graph, inputs), before, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("make", [convolution, attention, gelu])
def test_o3_rounds_in_its_own_order_and_has_fewer_nodes(make: Callable[[], Graph]) -> None:
    exact, fast = make(), make()
    inputs = random_inputs(fast)
    before = outputs(fast, inputs)
    optimise(exact, CompileOptions(opt_level=2), FEATURES)
    optimise(fast, CompileOptions(opt_level=3), FEATURES)
    assert len(fast.nodes) < len(exact.nodes)
    for a, b in zip(outputs(fast, inputs), before, strict=True):
        # Sums of up to 27 products of numbers around 1.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_o2_has_what_is_exact() -> None:
    graph = spelled_out()
    optimise(graph, CompileOptions(opt_level=2), FEATURES)
    assert sorted(names(graph)) == ["Add", "Mul", "Mul", "Relu"]
    graph = spelled_out()
    optimise(graph, CompileOptions(opt_level=1), FEATURES)
    assert len(graph.nodes) == 7


def test_what_o2_leaves_out_can_be_switched_on() -> None:
    graph = attention()
    optimise(graph, CompileOptions(opt_level=2, passes={"recognise_attention": True}), FEATURES)
    assert "Attention" in names(graph)


def test_levels_fuse_further_and_further() -> None:
    assert [pipeline_of(CompileOptions(opt_level=k)).fusion for k in range(4)] == [
        "none",
        "conservative",
        "default",
        "default",
    ]

    def shared() -> Graph:
        m = Model()
        a = m("Exp", m("Abs", m.input(5, 9)))
        return m.done(m("Tanh", a), m("Neg", a))

    assert [len(prepare(shared(), CompileOptions(opt_level=k)).units) for k in range(4)] == [4, 3, 1, 1]
