"""What is not as ONNX wants it, and yet has one meaning only: taken, or passed over with a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto, helper, numpy_helper

import torshc
from tests.support.evaluate import Array, run
from torshc.base.errors import ModelError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.formats import import_model
from torshc.graph import Graph
from torshc.pipeline.compiler import check

F, INT = TensorProto.FLOAT, TensorProto.INT64
F32, I64 = np.float32, np.int64
info = helper.make_tensor_value_info
X = np.random.default_rng(2).standard_normal((2, 3)).astype(F32)


def node(op: str, inputs: str, output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(",") if inputs else [], [output], name=f"the_{op}", **attributes)


def model(*nodes: NodeProto, x: Any = None, weights: list[TensorProto] | None = None, **more: Any) -> ModelProto:
    """A model of one input x and one output y."""
    inputs = [info("x", F, [2, 3]) if x is None else x]
    graph = helper.make_graph(
        nodes, "tolerant", inputs, [helper.make_empty_tensor_value_info("y")], weights or [], **more
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def graph_of(m: ModelProto) -> Graph:
    return import_model(m.SerializeToString())


def answer(m: ModelProto) -> Array:
    return run(graph_of(m), {"x": X})[0]


def test_an_output_that_is_listed_twice_is_given_once() -> None:
    """As PyTorch lists a tensor that a module returns at two places."""
    m = model(node("Neg", "x"))
    m.graph.output.append(m.graph.output[0])
    graph = graph_of(m)
    assert graph.warnings == ["two outputs are named 'y': it is given once, at the first place"]
    assert graph.output_names == ["y"]
    np.testing.assert_array_equal(run(graph, {"x": X})[0], -X)
    m.graph.output[1].type.tensor_type.elem_type = INT
    with pytest.raises(ModelError, match="output 'y' is declared as i64"):
        graph_of(m)


# Attributes that ONNX does not know


def test_an_unknown_attribute_is_a_warning() -> None:
    m = model(node("Relu", "x", "a", legacy=1, notes="none"), node("LeakyRelu", "a", alpa=0.5))
    graph = graph_of(m)
    assert graph.warnings == [
        "node 'the_Relu' (Relu): Relu of opset 14 has no attribute 'legacy', which is ignored",
        "node 'the_Relu' (Relu): Relu of opset 14 has no attribute 'notes', which is ignored",
        "node 'the_LeakyRelu' (LeakyRelu): LeakyRelu of opset 16 has no attribute 'alpa', which is ignored; "
        "did you mean 'alpha'?",
    ]
    np.testing.assert_array_equal(run(graph, {"x": X})[0], np.maximum(X, 0))


def test_attributes_of_later_opsets_have_their_meaning() -> None:
    """Tools write them into older models: the version that knows most of a node's attributes is meant."""

    def older(made: NodeProto, *weights: TensorProto) -> Graph:
        m = model(made, weights=list(weights))
        m.opset_import[0].version = 11
        return graph_of(m)

    scatter = node("ScatterElements", "x,i,u", axis=1, reduction="add", legacy=1)
    graph = older(scatter, tensor(np.zeros((2, 2), I64), "i"), tensor(np.ones((2, 2), F32), "u"))
    assert len(graph.warnings) == 1 and "of opset 16 has no attribute 'legacy', which is ignored" in graph.warnings[0]
    np.testing.assert_array_equal(run(graph, {"x": X})[0], X + np.array([2, 0, 0], F32))
    # Opset 13 knows as many of these, one of them another; opset 11 is said.
    graph = older(node("ReduceSum", "x", axes=[1], noop_with_empty_axes=1))
    assert "of opset 11 has no attribute 'noop_with_empty_axes', which is ignored" in graph.warnings[0]
    np.testing.assert_allclose(run(graph, {"x": X})[0], X.sum(1, keepdims=True), rtol=1e-6)


def test_a_warning_in_a_body_stands_there_once(tmp_path: Path) -> None:
    """However often the body is imported: here once for each of three rounds."""
    body = helper.make_graph(
        [node("Neg", "v", "w", odd=1), node("Identity", "go", "again")], "body",
        [info("n", INT, []), info("go", TensorProto.BOOL, []), info("v", F, [2, 3])],
        [info("again", TensorProto.BOOL, []), info("w", F, [2, 3])],
    )  # fmt: skip
    rounds = numpy_helper.from_array(np.asarray(3), "rounds")
    m = model(node("Loop", "rounds,,x", body=body), weights=[rounds])
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    done = torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", threads=1)
    (warning,) = done.warnings
    assert warning.startswith("the_Loop/0/node 'the_Neg' (Neg): ") and "'odd', which is ignored" in warning


def test_warnings_stand_beside_what_is_unsupported(tmp_path: Path) -> None:
    m = model(node("Relu", "x", "a", legacy=1), node("Sofmax", "a"))
    with pytest.raises(UnsupportedError) as e:
        graph_of(m)
    assert len(e.value.problems) == 1 and "'legacy'" in e.value.warnings[0]
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    found = check(tmp_path / "m.onnx", CompileOptions())
    assert len(found.problems) == 1 and "'legacy'" in found.warnings[0]
    m.graph.node.pop()
    m.graph.node[0].output[0] = "y"
    (tmp_path / "m.onnx").write_bytes(m.SerializeToString())
    found = check(tmp_path / "m.onnx", CompileOptions())
    assert not found.problems and "'legacy'" in found.warnings[0]


# Inputs without a rank


def test_a_rank_that_only_the_user_gives() -> None:
    m = model(node("Relu", "x"), x=info("x", F, None))
    with pytest.raises(UnsupportedError) as e:
        graph_of(m)
    wanted = "input 'x': the model does not state its rank; give its shape, such as --shapes x:1x3x224x224"
    assert e.value.problems == (wanted,)
    graph = import_model(m.SerializeToString(), {"x": (2, None)})
    assert graph.inputs[0].type.rank == 2
    np.testing.assert_array_equal(run(graph, {"x": X})[0], np.maximum(X, 0))
    m.graph.input[0].type.Clear()
    with pytest.raises(UnsupportedError, match="'x': the model does not state its element type"):
        import_model(m.SerializeToString(), {"x": (2, 3)})


# Sparse tensors


def sparse(values: Array, places: Any, dims: list[int], name: str = "w") -> SparseTensorProto:
    tensors = numpy_helper.from_array(values, name), numpy_helper.from_array(np.asarray(places, I64), "")
    return helper.make_sparse_tensor(*tensors, dims)


VALUES = np.array([5, -7], F32)
DENSE = np.array([[0, 5, 0], [0, 0, -7]], F32)


@pytest.mark.parametrize("places", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_initializers_and_constants(places: Any) -> None:
    m = model(node("Add", "x,w"), sparse_initializer=[sparse(VALUES, places, [2, 3])])
    np.testing.assert_array_equal(answer(m), X + DENSE)
    m = model(node("Constant", "", "w", sparse_value=sparse(VALUES, places, [2, 3])), node("Add", "x,w"))
    np.testing.assert_array_equal(answer(m), X + DENSE)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.float64])
def test_sparse_tensors_of_other_types(dtype: Any) -> None:
    m = model(node("Cast", "w", "c", to=F), node("Add", "x,c"))
    m.graph.sparse_initializer.append(sparse(VALUES.astype(dtype), [1, 5], [2, 3]))
    np.testing.assert_array_equal(answer(m), X + DENSE)


def test_sparse_tensors_without_elements_or_dimensions() -> None:
    none = np.zeros(0, F32)
    for places in (np.zeros(0), np.zeros((0, 2))):
        m = model(node("Add", "x,w"), sparse_initializer=[sparse(none, places, [2, 3])])
        np.testing.assert_array_equal(answer(m), X)
    m = model(node("Add", "x,w"), sparse_initializer=[sparse(VALUES[:1], [0], [])])
    np.testing.assert_array_equal(answer(m), X + 5)


@pytest.mark.parametrize(
    ("places", "dims", "words"),
    [
        ([1, 6], [2, 3], r"initializer 'w': a sparse tensor of shape \[2, 3\] with an index out of range"),
        ([1, -1], [2, 3], "out of range"),
        ([[0, 1], [2, 0]], [2, 3], "out of range"),
        ([[0, 1], [1, -1]], [2, 3], "out of range"),
        ([1, 2, 3], [2, 3], r"rank 2 with values \[2\] and indices \[3\]"),
        ([[0, 1], [0, 1]], [2, 3, 4], "rank 3"),
        ([1, 2], [-2, 3], "negative dimension"),
        ([1, 2], [1 << 40, 1 << 40], "too many elements"),
    ],
)
def test_sparse_tensors_that_contradict_themselves(places: Any, dims: list[int], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        graph_of(model(node("Add", "x,w"), sparse_initializer=[sparse(VALUES, places, dims)]))


# Constants that stand there twice


def constant(value: Any, name: str = "w") -> NodeProto:
    return node("Constant", "", name, value=numpy_helper.from_array(np.asarray(value)))


def tensor(value: Any, name: str = "w") -> TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


ODD = np.array([np.nan, -0.0, 1], F32)


def test_equal_constants_under_one_name() -> None:
    add = node("Add", "x,w")
    same = [
        model(add, weights=[tensor(ODD), tensor(ODD)]),
        model(constant(ODD), add, weights=[tensor(ODD)]),
        model(add, constant(ODD), constant(ODD)),
        model(node("Constant", "", "w", value_floats=[float(v) for v in ODD]), constant(ODD), add),
        model(add, weights=[tensor(DENSE)], sparse_initializer=[sparse(VALUES, [1, 5], [2, 3])]),
    ]
    for m in same[:-1]:
        np.testing.assert_array_equal(answer(m), X + ODD)
    np.testing.assert_array_equal(answer(same[-1]), X + DENSE)


@pytest.mark.parametrize(
    ("other", "how"),
    [
        (np.array([np.nan, 0.0, 1], F32), r"with different contents, both float32\[3\]"),
        (np.array([1, 2], F32), r"of types float32\[3\] and float32\[2\]"),
        (np.array([1, 2, 3], np.float64), r"of types float32\[3\] and float64\[3\]"),
    ],
)
def test_different_constants_under_one_name(other: Array, how: str) -> None:
    add = node("Add", "x,w")
    with pytest.raises(ModelError, match=f"two initializers are named 'w', {how}"):
        graph_of(model(add, weights=[tensor(ODD), tensor(other)]))
    both = r"initializer 'w' and node 'the_Constant' \(Constant\) both produce 'w', "
    with pytest.raises(ModelError, match=both + how):
        graph_of(model(constant(other), add, weights=[tensor(ODD)]))
    with pytest.raises(ModelError, match=r"'the_Constant' .* and node 'the_Constant' .* both produce 'w', " + how):
        graph_of(model(add, constant(ODD), constant(other)))


@pytest.mark.parametrize("attribute", [{"value": 3}, {"value_ints": 3}, {"value_strings": [1.5]}, {"val": 3}], ids=str)
def test_a_second_constant_of_one_name_that_has_no_value(attribute: dict[str, Any]) -> None:
    """It is refused as any two nodes of one name are."""
    wrong = node("Constant", "", "w", **attribute)
    with pytest.raises(ModelError, match=r"produces 'w', which node 'the_Constant' .* produces too"):
        graph_of(model(constant(ODD), wrong, node("Add", "x,w")))
