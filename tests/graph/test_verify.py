"""The verifier and the text form."""

from __future__ import annotations

import pytest

from torshc.base.errors import InternalError
from torshc.expr import F32, const
from torshc.graph import Builder, Graph, TensorType, Value
from torshc.graph.text import graph_text, node_text
from torshc.graph.verify import verify
from torshc.ops import REGISTRY


def model() -> tuple[Graph, Value, Value, Value]:
    graph = Graph("g")
    x = graph.new_value(TensorType(F32, (const(2), const(3))), 'the "input"')
    graph.inputs.append(x)
    b = Builder(graph)
    y = b.one(REGISTRY["", "Exp"](), x)
    z = b.one(REGISTRY["", "Add"](), y, b.constant(1.5, y))
    graph.outputs, graph.output_names = [z], ["out\nput"]
    return graph, x, y, z


def test_a_good_graph_passes() -> None:
    verify(model()[0])


def test_text_escapes_names_and_writes_small_constants() -> None:
    assert graph_text(model()[0]) == (
        'in   %0 f32[2, 3] "the \\"input\\""\n'
        "%1 = Exp(%0) : f32[2, 3]\n"
        "%2 = Add(%1, 1.5) : f32[2, 3]\n"
        'out  %2 "out\\nput"\n'
    )


def test_text_by_id_names_the_same_values_as_messages() -> None:
    graph, *_ = model()
    assert node_text(graph.nodes[0]).startswith("%1 = Exp(%0)")


def test_an_operand_read_before_it_is_made() -> None:
    graph, *_ = model()
    graph.nodes.reverse()
    with pytest.raises(InternalError, match=r"my pass: node 1 .*%1 is not made before") as e:
        verify(graph, "my pass")
    assert "-> %3 = Add(%1, 1.5)" in str(e.value)


def test_a_wrong_type() -> None:
    graph, _, y, _ = model()
    y.type = TensorType(F32, (const(2), const(4)))
    with pytest.raises(InternalError, match="must be"):
        verify(graph)


def test_a_node_that_stands_twice() -> None:
    graph, *_ = model()
    graph.nodes.append(graph.nodes[0])
    with pytest.raises(InternalError, match="twice"):
        verify(graph)


def test_an_output_that_nothing_makes() -> None:
    graph, *_ = model()
    graph.nodes.pop()
    with pytest.raises(InternalError, match="not made by any node"):
        verify(graph)


def test_a_layout_that_is_no_permutation() -> None:
    graph, _, y, _ = model()
    y.layout = (0, 0)
    with pytest.raises(InternalError, match="not a permutation"):
        verify(graph)


def test_a_result_with_another_producer() -> None:
    graph, _, y, _ = model()
    y.producer = graph.nodes[1]
    with pytest.raises(InternalError, match="another producer"):
        verify(graph)
