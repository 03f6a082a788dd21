"""Recurrent networks: the parts that are differentiated are what the kernels compute, and their gradients are true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.gradient.differences import check_graph, evaluate, graph_of
from torshc.base.budget import spending
from torshc.entry.inprocess import load_model
from torshc.graph import Builder, Graph, Value
from torshc.ops.control.flow import bodies
from torshc.ops.core.gradient import PARTS
from torshc.ops.core.tensor import Tensor
from torshc.passes.interpret import run_graph

Array = np.ndarray[Any, Any]
STEPS, BATCH, INPUTS, HIDDEN = 3, 2, 2, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
EXTRA = {
    "LSTM": ["HardSigmoid", "ScaledTanh", "Affine"],
    "GRU": ["Elu", "Softsign"],
    "RNN": ["LeakyRelu"],
}
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "reverse": {"direction": "reverse"},
    "all": {"direction": "bidirectional", "bias": 1, "lengths": 1, "states": 1, "layout": 1, "clip": 0.6},
    "activations": {"bias": 1, "given": 1, "clip": 0.5},
    "peephole": {"peephole": 1, "states": 1, "bias": 1},
    "forget": {"input_forget": 1, "bias": 1},
    "before": {"linear_before_reset": 1, "bias": 1},
    "reverse lengths": {"direction": "reverse", "lengths": 1, "states": 1},
}
ONLY = {"peephole": "LSTM", "forget": "LSTM", "before": "GRU"}
NODES = [(op, how) for op in GATES for how in CASES if ONLY.get(how, op) == op]


def network(op: str, how: str, kind: type[np.floating[Any]]) -> tuple[Graph, dict[Value, Any]]:
    """A model of one network, and what its inputs are."""
    case = dict(CASES[how])
    rng = np.random.default_rng(5)
    layout, ways = case.get("layout", 0), 1 + (case.get("direction") == "bidirectional")
    rows = GATES[op] * HIDDEN

    def drawn(*shape: int) -> Array:
        return rng.normal(size=shape, scale=0.7).astype(kind)

    has = {k: case.pop(k, 0) for k in ("bias", "lengths", "states", "peephole", "given")}
    state = (BATCH, ways, HIDDEN) if layout else (ways, BATCH, HIDDEN)
    operands: list[Array | None] = [
        drawn(*((BATCH, STEPS) if layout else (STEPS, BATCH)), INPUTS), drawn(ways, rows, INPUTS),
        drawn(ways, rows, HIDDEN), drawn(ways, 2 * rows) if has["bias"] else None,
        np.array([2, 3], np.int32) if has["lengths"] else None, drawn(*state) if has["states"] else None,
    ]  # fmt: skip
    if op == "LSTM":
        operands += [drawn(*state) if has["states"] else None, drawn(ways, 3 * HIDDEN) if has["peephole"] else None]
    if has["given"]:
        case["activations"] = EXTRA[op]
    while operands[-1] is None:
        operands.pop()
    return graph_of(op, operands, opset=22, outputs=3 if op == "LSTM" else 2, hidden_size=HIDDEN, **case)


def parts(graph: Graph) -> list[Value]:
    """The results of the network, made of other operators, instead of it."""
    (node,) = (n for n in graph.nodes if n.op.family == "recurrent")
    graph.nodes.remove(node)
    builder = Builder(graph)
    made = PARTS[type(node.op)](node.op, *(None if v is None else Tensor(builder, v) for v in node.inputs))
    return [t.value for t in ([made] if isinstance(made, Tensor) else made)]


@pytest.mark.parametrize(("op", "how"), NODES)
def test_parts_are_what_kernels_compute(op: str, how: str) -> None:
    graph, feeds = network(op, how, np.float32)
    wanted = load_model(graph)(*feeds.values())
    for unrolled in (STEPS, 1):  # written out, and as a loop
        graph, feeds = network(op, how, np.float32)
        with spending({"unrolled": unrolled}):
            graph.outputs = parts(graph)
        assert any(bodies(n) for n in graph.nodes) == (unrolled == 1)
        for got, w in zip(run_graph(graph, feeds, evaluate), wanted, strict=True):
            # Sums of few terms near 1, and functions that differ by a rounding.
            np.testing.assert_allclose(got, w, rtol=0, atol=2e-6)


@pytest.mark.parametrize(("op", "how"), NODES)
def test_gradients_are_what_differences_show(op: str, how: str) -> None:
    """Of a sum over all results."""
    graph, feeds = network(op, how, np.float64)
    made = [Tensor(Builder(graph), v) for v in parts(graph)]
    weights = [np.cos(np.arange(v.value.type.rank) * 1.7) for v in made]
    total = made[0].sum(range(made[0].rank), keep=False)
    for t, w in zip(made[1:], weights, strict=False):
        total = total + t.sum(range(t.rank), keep=False) * float(w[0] + 1.3)
    check_graph(graph, total.value, feeds, second=how == "plain", whole=False)
