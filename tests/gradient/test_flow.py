"""Gradients through branches and loops, and theirs, against central differences; in a library of C too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import torshc
from tests.support.evaluate import run
from tests.support.models import model, node, value
from tests.support.seeded import seeded
from torshc.base.errors import UnsupportedError
from torshc.formats import import_model
from torshc.gradient import gradients
from torshc.graph import Builder, Graph

from .differences import CLOSE, STEP

Array = np.ndarray[Any, Any]
COUNT, TRUTH = (np.int64, []), (np.bool_, [])
THREE, TWO = (np.float64, [3]), (np.float64, [2])


def body(nodes: list[onnx.NodeProto], inputs: dict[str, Any], outputs: str) -> onnx.GraphProto:
    given = [value(name, like) for name, like in inputs.items()]
    return helper.make_graph(nodes, "body", given, [onnx.ValueInfoProto(name=n) for n in outputs.split()])


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, Any]) -> bytes:
    return bytes(model(nodes, inputs, "y").SerializeToString())


def branch() -> bytes:
    """One side reads x and w, the other x alone."""
    then = body([node("Mul", "x w", "a"), node("Sin", "a", "r")], {}, "r")
    other = body([node("Mul", "x x", "q")], {}, "q")
    made = node("If", "c", "s", then_branch=then, else_branch=other)
    return model_of([made, node("Exp", "s", "y")], {"c": TRUTH, "x": THREE, "w": THREE})


def loop(stop: bool) -> bytes:
    """s = sin(s w), s times the state before stacked; with `stop` until its sum is small, of an unknown number."""
    nodes = [node("Mul", "s w", "a"), node("Sin", "a", "s2"), node("Mul", "s2 s", "o")]
    nodes += [node("ReduceSum", "s2", "t", keepdims=0), node("Greater", "t low", "go2")] if stop else []
    nodes += [] if stop else [node("Identity", "go", "go2")]
    inside = body(nodes, {"i": COUNT, "go": TRUTH, "s": THREE}, "go2 s2 o")
    made = node("Loop", f"{'_' if stop else 'n'} c x", "z k", body=inside)
    given = {"n": COUNT, "c": TRUTH, "x": THREE, "w": THREE, "low": (np.float64, [])}
    return model_of([made, node("ReduceSum", "z", "u", keepdims=0), node("Mul", "k u", "y")], given)


def scan(**attributes: Any) -> bytes:
    """A recurrent network; the sequence is long as a symbol says."""
    nodes = [node("MatMul", "h r", "m"), node("Add", "m x1", "a"), node("Tanh", "a", "h2"), node("Mul", "h2 x1", "o")]
    inside = body(nodes, {"h": TWO, "x1": TWO}, "h2 o")
    made = node("Scan", "h0 x", "last each", body=inside, num_scan_inputs=1, **attributes)
    given = {"h0": TWO, "x": (np.float64, ["t", 2]), "r": (np.float64, [2, 2])}
    return model_of([made, node("ReduceSum", "last", "u", keepdims=0), node("Mul", "each u", "y")], given)


def nested() -> bytes:
    """In each round of a loop a branch by the round's number, in which a loop runs as often."""
    inner = body(
        [node("Mul", "v s", "v2"), node("Identity", "g", "go2")], {"j": COUNT, "g": TRUTH, "v": THREE}, "go2 v2"
    )
    then = body([node("Loop", "i _ w", "r", body=inner)], {}, "r")
    other = body([node("Cos", "s", "r3")], {}, "r3")
    nodes = [
        node("Mod", "i two", "odd"), node("Cast", "odd", "is", to=9),
        node("If", "is", "p", then_branch=then, else_branch=other), node("Add", "p s", "s2"),
        node("Identity", "go", "go2"),
    ]  # fmt: skip
    outer = body(nodes, {"i": COUNT, "go": TRUTH, "s": THREE}, "go2 s2")
    two = node("Constant", "", "two", value_int=2)
    return model_of([two, node("Loop", "n _ x", "y", body=outer)], {"n": COUNT, "x": THREE, "w": THREE})


RNG = seeded(0)
X, W, TRUE = np.array([0.3, 0.4, 0.7]), np.array([0.5, 0.09, 0.22]), np.array(True)
H, XS, R = RNG.normal(size=2), RNG.normal(size=(3, 2)), RNG.normal(size=(2, 2))
CASES: dict[str, tuple[bytes, list[Array]]] = {
    "branch": (branch(), [TRUE, X, W]),
    "other branch": (branch(), [~TRUE, X, W]),
    "loop": (loop(False), [np.array(3), TRUE, X, W, np.array(0.0)]),
    "no rounds": (loop(False), [np.array(0), TRUE, X, W, np.array(0.0)]),
    "loop that stops": (loop(True), [np.array(9), TRUE, X, W, np.array(0.05)]),
    "scan": (scan(), [H, XS, R]),
    "scan backward": (scan(scan_input_directions=[1], scan_output_directions=[1], scan_output_axes=[1]), [H, XS, R]),
    "nested": (nested(), [np.array(4), X, W]),
}


def derived(of: bytes, order: int) -> tuple[Graph, int]:
    """A model's sum, or with `order` its gradients or those of the sums of these, as outputs; and how many they are."""
    graph = import_model(of)
    xs = [v for v in graph.inputs if v.dtype.is_float]
    found = [graph.results[0]]
    for _ in range(order):
        found = [g for y in found for g in gradients(Builder(graph), y, xs)]
    checks = graph.outputs[len(graph.results) :]
    graph.outputs, graph.output_names = [*found, *checks], [f"d{k}" for k in range(len(found))] + [""] * len(checks)
    return graph, len(found)


def results(graph: Graph, feeds: list[Array]) -> list[Array]:
    return run(graph, dict(zip([v.name for v in graph.inputs], feeds, strict=True)))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_what_differences_show(name: str) -> None:
    """Of first and of second order; the latter for a change of all elements of an operand at once."""
    of, feeds = CASES[name]
    floats = [k for k, a in enumerate(feeds) if a.dtype == np.float64]
    for order in (1, 2) if name != "nested" else (1,):  # that its loops have sizes of their own is refused
        below, _ = derived(of, order - 1)
        got = iter(results(derived(of, order)[0], feeds))
        sums = [(j, k) for j in range(len(floats) ** (order - 1)) for k in floats]
        for j, k in sums:
            size = feeds[k].size
            steps = np.eye(size) if order == 1 else np.sin(np.arange(size) * 2.3 + 0.9).reshape(1, size)
            wanted = []
            for step in STEP * steps:
                step = step.reshape(feeds[k].shape)
                ends = (results(below, [*feeds[:k], feeds[k] + s, *feeds[k + 1 :]])[j].sum() for s in (step, -step))
                wanted.append(float(np.subtract(*ends)) / (2 * STEP))
            np.testing.assert_allclose(steps @ next(got).reshape(-1), wanted, **CLOSE, err_msg=f"{order}: {j}, {k}")


def test_gradients_through_loops_in_a_library_of_c(tmp_path: Path) -> None:
    """A loop and a branch in it, in f64."""
    of, feeds = CASES["nested"]
    graph, count = derived(of, 1)
    torshc.compile(graph, tmp_path / "nested.tsc", target="c")
    with torshc.load(tmp_path / "nested.tsc") as compiled:
        for rounds in (0, 1, 4):
            given = [np.array(rounds), *feeds[1:]]
            got = compiled.run(dict(zip(["n", "x", "w"], given, strict=True)))
            for k, w in enumerate(results(derived(of, 1)[0], given)):
                np.testing.assert_allclose(got[f"d{k}"], w, rtol=1e-12, atol=1e-12)
    assert count == 2


def test_states_that_grow_are_refused() -> None:
    nodes = [node("Concat", "s s", "s2", axis=0), node("Identity", "go", "go2")]
    inside = body(nodes, {"i": COUNT, "go": TRUTH, "s": (np.float64, ["m"])}, "go2 s2")
    made = node("Loop", "n _ x", "y", body=inside, name="grow")
    graph = import_model(model_of([made], {"n": COUNT, "x": THREE}))
    with pytest.raises(UnsupportedError) as found:
        gradients(Builder(graph), graph.results[0], [graph.inputs[1]])
    assert "'grow'): Loop has no gradient: " in found.value.problems[0]
    assert "sizes that depend on the round or on data" in found.value.problems[0]
