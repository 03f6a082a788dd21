"""Small graphs for the tests of passes, written in a few words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from torshc.base.options import CompileOptions
from torshc.expr import DTYPES, as_expr, parse_dim
from torshc.graph import Builder, Graph, TensorType, Value
from torshc.graph.text import graph_text
from torshc.graph.verify import verify
from torshc.ops import REGISTRY, Op
from torshc.passes import PASSES
from torshc.passes.interpret import run_graph
from torshc.passes.manager import call_pass
from torshc.targets import find_target

OPTIONS = CompileOptions()
FEATURES = find_target("c").features


def op(name: str, domain: str = "", **fields: Any) -> Op:
    return REGISTRY[domain, name](**fields)


class Model:
    """A graph under construction: ``x = m.input(...)``, ``y = m("Add", x, 1.0)``, ``m.done(y)``."""

    def __init__(self) -> None:
        self.graph = Graph("test")
        self.builder = Builder(self.graph)

    def input(self, *shape: int | str, dtype: str = "f32", name: str = "") -> Value:
        dims = tuple(parse_dim(d) if isinstance(d, str) else as_expr(d) for d in shape)
        value = self.graph.new_value(TensorType(DTYPES[dtype], dims), name or f"x{len(self.graph.inputs)}")
        self.graph.inputs.append(value)
        return value

    def const(self, array: Any, dtype: str = "f32") -> Value:
        return self.graph.constant(np.asarray(array, dtype=DTYPES[dtype].numpy))

    def __call__(self, name: str, *inputs: Value | float | None, domain: str = "", **fields: Any) -> Value:
        return self.all(name, *inputs, domain=domain, **fields)[0]

    def all(self, name: str, *inputs: Value | float | None, domain: str = "", **fields: Any) -> list[Value]:
        like = next((v for v in inputs if isinstance(v, Value)), None)
        values = [v if isinstance(v, Value | None) else self.builder.constant(v, like) for v in inputs]
        return self.builder.add(op(name, domain, **fields), values)

    def done(self, *outputs: Value) -> Graph:
        self.graph.outputs = list(outputs)
        self.graph.output_names = [f"y{k}" for k in range(len(outputs))]
        return self.graph


def dims(*shape: int | str) -> tuple[Any, ...]:
    return tuple(parse_dim(d) if isinstance(d, str) else as_expr(d) for d in shape)


def text(graph: Graph) -> str:
    """The graph without the model's names, one line each."""
    return graph_text(graph, names=False)


def lines(expected: str) -> str:
    return "\n".join(line.strip() for line in expected.strip().splitlines()) + "\n"


def names(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def random_inputs(graph: Graph, seed: int = 0, positive: bool = False) -> dict[Value, np.ndarray[Any, Any]]:
    """Random contents for inputs of static shape."""
    rng = np.random.default_rng(seed)
    out: dict[Value, np.ndarray[Any, Any]] = {}
    for v in graph.inputs:
        shape: Sequence[int] = v.type.static_shape or ()
        if v.dtype.is_float:
            array = rng.standard_normal(shape)
            out[v] = (np.abs(array) + 0.1 if positive else array).astype(v.dtype.numpy)
        elif v.dtype.is_int:
            out[v] = rng.integers(0 if v.dtype.kind == "u" else -5, 6, shape).astype(v.dtype.numpy)
        else:
            out[v] = rng.integers(0, 2, shape).astype(np.bool_)
    return out


def run_one(name: str, graph: Graph, options: CompileOptions = OPTIONS, **parameters: Any) -> bool:
    """A pass, for the target and the architecture of the options; whether it changed the graph."""
    features = find_target(options.target).features_on(options.arch.split(","))
    return call_pass(name, graph, options, features, **parameters)


def run_pass(name: str, graph: Graph, times: int = 1, clean: bool = True) -> str:
    """The graph's text after a pass, having checked that it computes the same as before."""
    inputs = random_inputs(graph)
    static = all(v.type.static_shape is not None for v in graph.inputs)
    before = run_graph(graph, inputs) if static else []
    for _ in range(times):
        run_one(name, graph, OPTIONS)
    if clean:
        PASSES["dead_code"](graph, OPTIONS)
    verify(graph, name)
    after = run_graph(graph, inputs) if static else []
    for b, a in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    return text(graph)
