"""Changing graphs: in one place only, and not at all once they are planned."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from torshc.base.errors import InternalError
from torshc.expr import const
from torshc.graph import Graph, Mark, Rewriter, RuleName, copy_part, learn, relayout, rewire
from torshc.passes import PASSES
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan

from ..support.pass_graphs import OPTIONS, Model, names, run_one

PACKAGE = Path(__file__).resolve().parents[2] / "torshc"
CHANGES = {"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"}
FIELDS = {"inputs", "outputs", "nodes", "op", "layout", "producer", "marks", "data", "const", "type"}
LISTS = {"nodes", "inputs", "outputs", "output_names", "demands"}


def model() -> Graph:
    m = Model()
    x = m.input(2, 3)
    return m.done(m("Neg", m("Exp", m("Abs", x))))


def test_nodes_are_replaced_inserted_and_removed() -> None:
    graph = model()
    rewriter = Rewriter(graph, "test")
    for node in rewriter:
        if node.op.name == "Exp":
            rewriter.replace(
                node.output, rewriter.builder().one(node.op, rewriter.builder().one(node.op, *node.operands))
            )
        else:
            rewriter.keep(node)
    rewriter.finish()
    assert names(graph) == ["Abs", "Exp", "Exp", "Neg"]
    assert graph.nodes[3].operands == graph.nodes[2].outputs
    rewriter = Rewriter(graph, "test")
    rewriter.keep(*graph.nodes)
    rewriter.finish(gone={graph.nodes[0]})
    assert names(graph) == ["Exp", "Exp", "Neg"]


def test_an_output_is_replaced_and_its_readers_stay() -> None:
    graph = model()
    (old,) = graph.outputs
    rewriter = Rewriter(graph, "test")
    rewriter.keep(*graph.nodes)
    rewriter.set_output(0, rewriter.builder().one(graph.nodes[0].op, old))
    rewriter.finish()
    assert graph.outputs == [graph.nodes[3].output] and graph.nodes[3].operands == (old,)


def test_a_replacement_of_another_type_is_a_fault() -> None:
    graph = model()
    with pytest.raises(InternalError, match="test replaces"):
        Rewriter(graph, "test").replace(graph.outputs[0], graph.constant(np.zeros(5)))


def test_what_takes_a_nodes_place_bears_its_marks() -> None:
    m = Model()
    graph = m.done(m("Softmax", m.input(2, 3), axis=1))
    mark = Mark(RuleName("mine"), 1)
    graph.nodes[0].marks = (mark,)
    assert run_one("decompose", graph, OPTIONS)
    assert len(graph.nodes) == 5 and all(n.marks == (mark,) for n in graph.nodes)


def test_a_planned_graph_does_not_change() -> None:
    graph = model()
    make_plan(finalise(graph, Policy.of()))
    with pytest.raises(InternalError, match="already planned"):
        PASSES["dead_code"](graph, OPTIONS)
    with pytest.raises(InternalError, match="already planned"):
        graph.nodes.append(graph.nodes[0])
    with pytest.raises(InternalError, match="already planned"):
        graph.outputs[0] = graph.inputs[0]
    with pytest.raises(InternalError, match="already planned"):
        graph.constraints += []
    with pytest.raises(InternalError, match="already planned"):
        graph.constraints.append((const(2), const(3)))
    with pytest.raises(InternalError, match="already planned"):
        graph.demand(graph.outputs[0], "index")
    with pytest.raises(InternalError, match="already planned"):
        graph.new_dimension(graph.outputs[0], 0)
    with pytest.raises(InternalError, match="nodes of a graph"):
        graph.nodes = []
    with pytest.raises(InternalError, match=r"inputs of .* already planned"):
        rewire(graph.nodes[1], (graph.inputs[0],))
    with pytest.raises(InternalError, match=r"layout of %.* already planned"):
        relayout(graph.nodes[0].output, (1, 0))
    with pytest.raises(InternalError, match=r"data of %.* already planned"):
        learn(graph.inputs[0], None)


def test_a_part_is_a_graph_of_its_own() -> None:
    graph = model()
    first, middle, last = graph.nodes
    middle.mark(Mark(RuleName("mine"), 1))
    graph.demand(middle.output, "index")
    graph.declare_outputs(graph.outputs, ["y"])
    before = [(n, n.inputs, n.outputs) for n in graph.nodes], list(graph.outputs)
    part, read = copy_part(graph, [middle, last], [last.output])
    assert read == [first.output] and names(part) == ["Exp", "Neg"] and part.nodes[0].operands == tuple(part.inputs)
    assert [n.id for n in part.nodes] == [middle.id, last.id] and part.nodes[0].marks == middle.marks
    assert part.outputs == [n.output for n in reversed(part.nodes)] and part.demands == ["index"]
    assert all(v.producer in part.nodes for v in part.outputs) and not set(part.values()) & set(graph.values())
    assert ([(n, n.inputs, n.outputs) for n in graph.nodes], list(graph.outputs)) == before
    assert all(v.producer is n for n in graph.nodes for v in n.outputs)


def test_what_is_not_bound_yet_is_unknown_in_a_part() -> None:
    m = Model()
    graph = m.done(m("Add", m("Shape", m.input(2, 3)), m.const([1, 1], "i64")))
    shape, total = graph.nodes
    assert shape.output.data is not None
    for unknown in (set(), {shape.output}):
        part, _ = copy_part(graph, [total], [total.output], unknown)
        assert (part.inputs[0].data is None) == bool(unknown)


# Sources of a model have fields of the same names, and no graph yet.
SOURCES = ("formats/json_format.py", "formats/model.py", "formats/onnx_format.py", "formats/draft.py")


def test_only_the_graph_package_changes_graphs() -> None:
    free = ("torshc/graph/*.py", "torshc/runtime/*.py", *(f"torshc/{source}" for source in SOURCES))
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if not any(map(path.match, free))]
    assert len(files) > 400
    wrong = [line for path in files for line in changes(path)]
    assert not wrong, "use torshc.graph.Rewriter, rewire or relayout"


def changes(path: Path) -> Iterator[str]:
    """Lines of a file that change a graph."""
    for node in ast.walk(ast.parse(path.read_text())):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
        )
        for target in targets:
            inner = target.value if isinstance(target, ast.Subscript) else target
            if isinstance(inner, ast.Attribute) and inner.attr in FIELDS and not is_other(inner.value):
                yield f"{path}:{node.lineno}: {ast.unparse(target)}"
        call = node.func if isinstance(node, ast.Call) else None
        if isinstance(call, ast.Attribute) and call.attr in CHANGES and is_list(call.value):
            yield f"{path}:{call.lineno}: {ast.unparse(call)}"


def is_other(node: ast.expr) -> bool:
    """Whether something is neither graph nor node: what is being made, the source of a node, a script, or a group."""
    return isinstance(node, ast.Name) and node.id in ("self", "source", "script", "group")


def is_list(node: ast.expr) -> bool:
    """Whether something is a list of a graph."""
    return isinstance(node, ast.Attribute) and node.attr in LISTS and ast.unparse(node.value).endswith("graph")
