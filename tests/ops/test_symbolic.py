"""Operators over symbolic dimensions: one model, several sizes, against ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.support.evaluate import Array, run
from tests.support.models import feeds_of, node_model
from tests.support.nodes import F32, I64, numbers
from tests.support.seeded import seeded
from torshc.formats import import_model


def symbolic(op: str, operands: list[Array], opset: int = 21, **attributes: Any) -> onnx.ModelProto:
    """A model of one node, each dimension of whose inputs is a symbol of its own."""
    model = node_model(op, operands, version=opset, **attributes)
    for v in model.graph.input:
        for k, d in enumerate(v.type.tensor_type.shape.dim):
            d.dim_param = f"{v.name}_{k}"
    return model


def agrees(op: str, *sets: list[Array], **attributes: Any) -> None:
    """The same result as the reference for every set of operands, from one graph."""
    model = symbolic(op, sets[0], **attributes)
    graph, reference = import_model(model.SerializeToString()), ReferenceEvaluator(model)
    for operands in sets:
        feeds = feeds_of(operands)
        for got, want in zip(run(graph, feeds), reference.run(None, feeds), strict=True):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_weights_of_convolutions() -> None:
    small = [numbers(1, 2, 5, 5), numbers(4, 1, 3, 2), numbers(4)]
    large = [numbers(2, 4, 6, 4), numbers(2, 2, 2, 4), numbers(2)]
    agrees("Conv", small, large, group=2, pads=[1, 0, 1, 0])
    agrees("ConvTranspose", [numbers(1, 2, 3, 3), numbers(2, 2, 3, 2)], [numbers(1, 4, 2, 4), numbers(4, 1, 1, 1)])


def test_groups_that_do_not_divide_the_channels() -> None:
    graph = import_model(symbolic("Conv", [numbers(1, 2, 5), numbers(4, 1, 3)], group=2).SerializeToString())
    with pytest.raises(ValueError, match="is not"):
        run(graph, {"x0": numbers(1, 2, 5), "x1": numbers(3, 1, 3)})


def test_scatters() -> None:
    one = [numbers(4, 3), np.array([[0, -1, 2], [2, 0, 1]], I64), numbers(2, 3)]
    two = [numbers(2, 5), np.array([[1, 0]], I64), numbers(1, 2)]
    agrees("ScatterElements", one, two, axis=0)
    agrees("ScatterElements", one, two, axis=0, reduction="add")


@pytest.mark.parametrize("noop", [0, 1])
def test_an_unknown_number_of_axes(noop: int) -> None:
    x = numbers(2, 3, 4)
    sets = [[x, np.array(a, I64)] for a in ([1], [0, -1], [2, 1, 0], [])]
    agrees("ReduceMean", *sets, noop_with_empty_axes=noop)
    graph = import_model(symbolic("ReduceMean", sets[0]).SerializeToString())
    for wrong in ([3], [1, 1], [1, -2]):
        with pytest.raises(ValueError, match="is not"):
            run(graph, {"x0": x, "x1": np.array(wrong, I64)})


def test_the_rank_that_a_model_states() -> None:
    x = numbers(2, 6)
    model = symbolic("Reshape", [x, np.array([3, 4], I64)])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("out0", onnx.TensorProto.FLOAT, ["a", "b"]))
    graph = import_model(model.SerializeToString())
    for shape in ((3, 4), (-1, 2), (0, 6)):
        (got,) = run(graph, {"x0": x, "x1": np.array(shape, I64)})
        np.testing.assert_array_equal(got, x.reshape([2 if d == 0 else d for d in shape]))
    with pytest.raises(ValueError, match="is not"):
        run(graph, {"x0": x, "x1": np.array([2, 3, 2], I64)})


def test_blocks_of_scales() -> None:
    def operands(rows: int, columns: int, blocks: int) -> list[Array]:
        return [RNG.integers(-9, 9, (rows, columns)).astype(np.int8), np.abs(numbers(rows, blocks)).astype(F32)]

    agrees("DequantizeLinear", operands(2, 6, 3), operands(3, 4, 2), axis=1, block_size=2)


RNG = seeded(3)


def test_sizes_that_meet_are_equal_unless_they_are_loose() -> None:
    """The graph names the dimensions that may be 1; imported as such, their sizes broadcast."""
    inputs = [helper.make_tensor_value_info(n, 1, d) for n, d in (("x", ["a", 3]), ("z", ["b", "c"]))]
    node = helper.make_node("Add", ["x", "z"], ["y"])
    made = helper.make_model(helper.make_graph([node], "m", inputs, [onnx.ValueInfoProto(name="y")]))
    data = made.SerializeToString()
    fast = import_model(data)
    assert fast.meetings == {"a", "b", "c"} and str(fast.outputs[0].type) == "f32[a, 3]"
    assert str(fast.constraints) == "[(a, b)]" and str(fast.inputs[1].type) == "f32[b, 3]"  # c is 3, or no run succeeds
    loose = import_model(data, loose=fast.meetings)
    assert not loose.meetings and str(loose.outputs[0].type) == "f32[select(a == 1, b, a), 3]"
    assert str(loose.constraints) == "[(select(a == 1, b, a), select(b == 1, a, b)), (3, select(c == 1, 3, c))]"


def test_a_size_meets_a_part_of_a_table_without_a_loose_form() -> None:
    """Positions of a sequence, as exporters cut them from a table: where there is one, the sequence has one word."""
    nodes = [
        helper.make_node("Shape", ["x"], ["size"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "size", "zero"], ["part"]),
        helper.make_node("Add", ["x", "part"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", 1, ["batch", "seq", 3])]
    weights = [numpy_helper.from_array(numbers(5, 3), "table"), numpy_helper.from_array(np.zeros(1, np.int64), "zero")]
    graph = helper.make_graph(nodes, "m", inputs, [onnx.ValueInfoProto(name="y")], weights)
    found = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString())
    assert not found.meetings and str(found.constraints) == "[(seq, min(5, seq))]"
