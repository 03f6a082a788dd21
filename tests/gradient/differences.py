"""Gradients against central differences, in f64: what a nest computes is run with NumPy by its own definition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.support.evaluate import run_control
from tests.support.models import node_model
from tests.support.nodes import F32, F64
from torshc.expr import const, from_numpy
from torshc.formats import import_model
from torshc.gradient import gradients
from torshc.graph import Builder, Graph, Node, TensorType, Value
from torshc.ops import REGISTRY
from torshc.ops.control.flow import bodies
from torshc.passes.interpret import run_graph, run_node

Array = np.ndarray[Any, Any]
STEP = 1e-5
# A difference is off by STEP ** 2 of the third derivative and by roundings of 1e-16 / STEP; values here are near 1.
CLOSE = {"rtol": 2e-6, "atol": 2e-8}
# What is computed in f32: roundings of a few 1e-7 by this step are 1e-4, and so is its square by the third derivative.
NARROW_STEP, NARROW_CLOSE = 1e-2, {"rtol": 1e-3, "atol": 1e-3}


def evaluate(node: Node, arrays: Sequence[Array | None]) -> list[Array]:
    """The results of a node, with branches and loops."""
    if bodies(node):
        return run_control(node, arrays, lambda body, known: run_graph(body, known, evaluate)[: len(body.results)])
    return run_node(node, arrays)


def seed(count: int) -> Array:
    """Numbers that differ, for what gradients are weighted with."""
    return np.cos(np.arange(count) * 1.7 + 0.3)


def built(op: str, operands: Sequence[Array | None], domain: str, attributes: dict[str, Any]) -> Graph:
    """The same of an operator whose models are of f32 only; attributes are the fields of its class."""
    graph = Graph()
    for k, a in enumerate(operands):
        if a is not None:
            dtype = from_numpy(a.dtype)
            assert dtype is not None
            graph.inputs.append(graph.new_value(TensorType(dtype, tuple(map(const, a.shape))), f"x{k}"))
    found = Builder(graph).add(REGISTRY[domain, op](**attributes), graph.inputs)
    graph.declare_outputs(found, ["y"])
    return graph


def graph_of(
    op: str,
    operands: Sequence[Array | None],
    fixed: Sequence[int] = (),
    opset: int = 20,
    outputs: int = 1,
    domain: str = "",
    direct: bool = False,
    **attributes: Any,
) -> tuple[Graph, dict[Value, Any]]:
    """A graph of one operator, and what its inputs are.

    Args:
        fixed: places of operands that are constants.
        direct: whether the operator is built, as ONNX has it for f32 only.
    """
    if direct:
        graph = built(op, operands, domain, attributes)
    else:
        made = node_model(op, operands, fixed, outputs, domain=domain, version=opset, **attributes)
        graph = import_model(made.SerializeToString())
    return graph, {v: operands[int(v.name[1:])] for v in graph.inputs}


def check(
    op: str, *operands: Array | None, second: bool = True, whole: bool = True, narrow: bool = False, **options: Any
) -> None:
    """Compare the gradients of an operator's first result of floats, and theirs, with central differences.

    Args:
        second: whether gradients of gradients are compared.
        whole: whether first gradients are compared for each element.
        narrow: whether the operator computes in f32, whatever its operands are.
        options: as of :func:`graph_of`.
    """
    kind = F32 if narrow else F64
    graph, feeds = graph_of(
        op, [a.astype(kind) if a is not None and a.dtype == F64 else a for a in operands], **options
    )
    check_graph(graph, next(v for v in graph.results if v.dtype.is_float), feeds, second and not narrow, whole)


def check_graph(graph: Graph, y: Value, feeds: dict[Value, Any], second: bool, whole: bool = True) -> None:
    """The same of a value of a graph, which is changed.

    Args:
        whole: whether first gradients are compared for each element.
    """
    xs = [v for v in graph.inputs if v.dtype.is_float]
    first = _weighted(Builder(graph), y, xs)
    _compare(graph, [y], xs, first, feeds, whole=whole)
    if not second:
        return
    for x, g in zip(xs, first, strict=True):
        _compare(graph, [g], xs, _weighted(Builder(graph), g, xs), feeds, f"gradient of {x.name}", whole=False)


def derived(op: str, *operands: Array | None, second: bool = True, **options: Any) -> tuple[Graph, dict[Value, Any]]:
    """A graph whose outputs are the first gradients that :func:`check` compares, and what its inputs are."""
    graph, feeds = graph_of(op, operands, **options)
    found = _weighted(Builder(graph), graph.results[0], [v for v in graph.inputs if v.dtype.is_float])
    checks = graph.outputs[len(graph.results) :]  # of indices
    graph.outputs, graph.output_names = [*found, *checks], [f"d{k}" for k in range(len(found))] + [""] * len(checks)
    return graph, feeds


def _weighted(builder: Builder, y: Value, xs: Sequence[Value]) -> list[Value]:
    """Gradients of the sum of y by weights that `seed` gives."""
    shape = y.type.static_shape
    assert shape is not None
    return gradients(builder, y, xs, builder.constant(seed(int(np.prod(shape))).reshape(shape).astype(y.dtype.numpy)))


def _compare(
    graph: Graph,
    ys: Sequence[Value],
    xs: Sequence[Value],
    found: Sequence[Value],
    feeds: dict[Value, Any],
    what: str = "",
    whole: bool = True,
) -> None:
    """Compare for each element of the operands, or, not `whole`, for a change of all of an operand's elements."""
    graph.outputs = [*ys, *found]
    got = run_graph(graph, feeds, evaluate)[1:]
    graph.outputs = list(ys)

    def total(x: Value, moved: Array) -> float:
        (y,) = run_graph(graph, {**feeds, x: moved}, evaluate)
        return float((y.reshape(-1).astype(F64) * seed(y.size)).sum())

    for x, g in zip(xs, got, strict=True):
        a = feeds[x]
        assert a.dtype in (F32, F64) and g.shape == a.shape
        step, close = (STEP, CLOSE) if a.dtype == F64 else (NARROW_STEP, NARROW_CLOSE)
        steps = np.eye(a.size) if whole else np.sin(np.arange(a.size) * 2.3 + 0.9).reshape(1, a.size)
        wanted: list[float] = [
            (total(x, a + s) - total(x, a - s)) / (2 * step)
            for s in (step * steps).astype(a.dtype).reshape(-1, *a.shape)
        ]
        np.testing.assert_allclose(steps @ g.reshape(-1), wanted, **close, err_msg=f"{what} with respect to {x.name}")
