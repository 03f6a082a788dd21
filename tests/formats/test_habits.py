"""What older exporters write: each habit as a small model that compiles and answers as the reference does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import torshc
from tests.support import models
from tests.support.compare import compiled
from tests.support.evaluate import Array
from torshc.base.errors import TorshcError

F, H, INT, B = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info
X = np.random.default_rng(5).standard_normal((2, 3, 4, 5)).astype(np.float32)


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> NodeProto:
    """A node; names are separated by commas, nothing between two is an absent one."""
    return helper.make_node(op, inputs.split(",") if inputs else [], outputs.split(","), **attributes)


def model(
    nodes: list[NodeProto],
    inputs: list[Any] | None = None,
    outputs: str = "y",
    weights: dict[str, Any] | None = None,
    opset: int = 17,
    ir: int = 8,
    **more: Any,
) -> ModelProto:
    """A model; by default of one input x."""
    given = [info("x", F, [2, 3, 4, 5])] if inputs is None else inputs
    return models.model(nodes, given, outputs.split(","), weights, {"": opset, "local": 1}, ir_version=ir, **more)


def body(nodes: list[NodeProto], outputs: str, **more: Any) -> GraphProto:
    return helper.make_graph(nodes, "body", [], [helper.make_empty_tensor_value_info(o) for o in outputs.split(",")])


def answers(made: ModelProto, feeds: dict[str, Array], folder: Path) -> list[Any]:
    return list(compiled(made, feeds, folder, threads=1, opt_level=1).values())


def reference(made: ModelProto, feeds: dict[str, Array]) -> list[Any]:
    return list(ReferenceEvaluator(made).run(None, feeds))


def agree(made: ModelProto, feeds: dict[str, Array], folder: Path, rtol: float = 1e-5) -> None:
    wanted = reference(made, feeds)
    for got, want in zip(answers(made, feeds, folder), wanted, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=1e-5)


def test_outputs_declared_with_another_shape(tmp_path: Path) -> None:
    """As skl2onnx declares regressors of several targets, and labels of one dimension that have two."""
    for wrong in ([2, 3, 4, 1], [None, 5], []):
        made = model([node("Neg", "x")])
        made.graph.output[0].CopyFrom(info("y", F, wrong))
        agree(made, {"x": X}, tmp_path)


# Attributes of opsets 7 to 9


def batch_norm(**attributes: Any) -> NodeProto:
    return node("BatchNormalization", "x,scale,bias,mean,var", **attributes)


VECTORS = {k: np.linspace(0.5, 1.5, 3).astype(np.float32) for k in ("scale", "bias", "mean", "var")}
OLD: dict[str, tuple[list[NodeProto], int, dict[str, Any], Callable[[Array], Array]]] = {
    "Slice": (
        [node("Slice", "x", starts=[1, -2], ends=[2**63 - 1, 5], axes=[1, 3])], 9, {},
        lambda x: x[:, 1:, :, -2:5],
    ),
    "Slice of all axes": ([node("Slice", "x", starts=[0, 1], ends=[1, -1])], 7, {}, lambda x: x[0:1, 1:-1]),
    "Pad": (
        [node("Pad", "x", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=3.0)], 7, {},
        lambda x: np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=3),
    ),
    "Pad that reflects and crops": (
        [node("Pad", "x", pads=[0, 0, 1, -1, 0, 0, 1, 0], mode="reflect")], 8, {},
        lambda x: np.pad(x[..., 1:], ((0, 0), (0, 0), (1, 1), (0, 0)), mode="reflect"),
    ),
    "Squeeze, Unsqueeze": (
        [node("Unsqueeze", "x", "u", axes=[0, 5]), node("Squeeze", "u", axes=[0])], 7, {}, lambda x: x[..., None],
    ),
    "Squeeze of all": ([node("Unsqueeze", "x", "u", axes=[0, 3]), node("Squeeze", "u")], 8, {}, lambda x: x),
    "Split": (
        [node("Split", "x", "a,b,y", axis=-1, split=[1, 1, 3])], 7, {}, lambda x: x[..., 2:],
    ),
    "Reductions": (
        [node("ReduceSum", "x", "s", axes=[1, -1], keepdims=0), node("ReduceMax", "s", axes=[0])], 9, {},
        lambda x: x.sum((1, 3)).max(0, keepdims=True),
    ),
    "Upsample of opset 7": (
        [node("Upsample", "x", scales=[1.0, 1.0, 2.0, 3.0])], 7, {}, lambda x: x.repeat(2, 2).repeat(3, 3),
    ),
    "Upsample of opset 9": (
        [node("Upsample", "x,scales", mode="nearest")], 9, {"scales": np.array([1, 1, 2, 2], np.float32)},
        lambda x: x.repeat(2, 2).repeat(2, 3),
    ),
    "BatchNormalization, spatial": (
        [batch_norm(spatial=1, momentum=0.9, epsilon=0.0)], 7, VECTORS,
        lambda x: x / np.sqrt(VECTORS["var"])[:, None, None] * VECTORS["scale"][:, None, None]
        + (VECTORS["bias"] - VECTORS["mean"] * VECTORS["scale"] / np.sqrt(VECTORS["var"]))[:, None, None],
    ),
    "Dropout with a ratio": ([node("Dropout", "x", "y,mask", ratio=0.3)], 7, {}, lambda x: x),
    "Clip": ([node("Clip", "x", min=-0.5, max=0.25)], 6, {}, lambda x: x.clip(-0.5, 0.25)),
    "TopK": ([node("TopK", "x", "y,i", k=2)], 9, {}, lambda x: -np.sort(-x)[..., :2]),
    "Scatter": (
        [node("Scatter", "x,i,u", axis=1)], 9,
        {"i": np.zeros((2, 1, 4, 5), np.int64), "u": np.full((2, 1, 4, 5), 7, np.float32)},
        lambda x: np.concatenate([np.full((2, 1, 4, 5), 7, np.float32), x[:, 1:]], 1),
    ),
    "Gemm that broadcasts": (
        [node("Flatten", "x", "f"), node("Gemm", "f,w,b", transB=1, alpha=0.5)], 7,
        {"w": np.ones((3, 60), np.float32), "b": np.float32(2)},
        lambda x: np.repeat(x.reshape(2, 60).sum(1, keepdims=True) / 2 + 2, 3, 1),
    ),
    "Cast by name, Softmax of a flat matrix": (
        [node("Softmax", "x", axis=1)], 7, {},
        lambda x: (np.exp(x.reshape(2, 60)) / np.exp(x.reshape(2, 60)).sum(1, keepdims=True)).reshape(x.shape),
    ),
    "MaxPool without dilations": (
        [node("MaxPool", "x", kernel_shape=[2, 2], strides=[2, 2], storage_order=0, auto_pad="SAME_UPPER")], 8, {},
        lambda x: np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 1)), constant_values=-9).reshape(2, 3, 2, 2, 3, 2).max((3, 5)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("habit", OLD)
def test_old_attributes(habit: str, tmp_path: Path) -> None:
    nodes, opset, weights, wanted = OLD[habit]
    (got, *_) = answers(model(nodes, weights=weights, opset=opset, ir=3), {"x": X}, tmp_path)
    np.testing.assert_allclose(got, wanted(X), rtol=2e-5, atol=1e-5)


# How nodes, weights and names are written


def test_inputs_that_are_weights_and_nodes_in_any_order(tmp_path: Path) -> None:
    """Up to IR version 3 each initializer is an input too."""
    nodes = [
        node("Relu", "b"),
        node("Mul", "a,k", "b"),
        node("Add", "x,w", "a"),
        node("Constant", "", "k", value_float=2.0),
    ]
    inputs = [info("w", F, [5]), info("x", F, [2, 3, 4, 5])]
    made = model(nodes, inputs, weights={"w": np.ones(5, np.float32)}, opset=12, ir=3)
    np.testing.assert_allclose(answers(made, {"x": X}, tmp_path)[0], np.maximum((X + 1) * 2, 0), rtol=1e-6)


def test_weights_of_constant_nodes(tmp_path: Path) -> None:
    """All attributes of Constant, sparse ones too, those of a branch, and one that is an output."""
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 7], np.float32), "v"),
        numpy_helper.from_array(np.array([[0, 1], [1, 4]]), "i"), [2, 5],
    )  # fmt: skip
    nodes = [
        node("Constant", "", "w", value=numpy_helper.from_array(X[0, 0])),
        node("Constant", "", "row", value_floats=[1.0, 2.0, 3.0, 4.0, 5.0]),
        node("Constant", "", "one", value_float=1.0),
        node("Constant", "", "at", value_int=1),
        node("Constant", "", "axes", value_ints=[0, 2]),
        node("Constant", "", "s", sparse_value=sparse),
        node("Constant", "", "t", value_string="text"),
        node("Constant", "", "ts", value_strings=["a", "b"]),
        node("Gather", "x,at", "g", axis=0), node("Add", "g,w", "a"), node("Mul", "a,row", "m"),
        node("Sub", "m,one", "d"),
        node("ReduceSum", "d,axes", "r"), node("Gather", "s,at", "q"), node("Add", "r,q", "y"),
    ]  # fmt: skip
    made = model(nodes, outputs="y,row,t,ts")
    got = answers(made, {"x": X}, tmp_path)
    summed = ((X[1] + X[0, 0]) * np.arange(1, 6) - 1).sum((0, 2), keepdims=True)
    np.testing.assert_allclose(got[0], summed + np.array([0, 0, 0, 0, 7]), rtol=1e-5)
    assert got[2].tolist() == "text" and got[3].tolist() == ["a", "b"]


def test_absent_operands_and_unused_results(tmp_path: Path) -> None:
    weights = {"high": np.float32(1), "w": np.ones((1, 8, 3), np.float32), "r": np.ones((1, 8, 2), np.float32),
               "h": np.full((1, 5, 2), 0.5, np.float32)}  # fmt: skip
    nodes = [
        node("Clip", "x,,high", "c"), node("Dropout", "c", "d,"), node("MaxPool", "d", "p,", kernel_shape=[1, 1]),
        node("TopK", "p,k", ",i"), node("Constant", "", "k", value_ints=[2]), node("Abs", "x", "nobody"),
        node("Cast", "i", "f", to=F), node("ReduceSum", "f,", "y"),
        node("ReduceMax", "x", "steps", axes=[1, 2], keepdims=0), node("Unsqueeze", "steps,last", "u"),
        node("Constant", "", "last", value_ints=[2]), node("Concat", "u,u,u", "lstm", axis=2),
        node("LSTM", "lstm,w,r,,,h,", ",last_h,", hidden_size=2),
        node("Split", "x,", ",part", axis=0),
    ]  # fmt: skip
    made = model(nodes, outputs="y,last_h,part", weights=weights)
    total, last, part = answers(made, {"x": X}, tmp_path)
    order = np.argsort(-X.clip(max=1), axis=-1, kind="stable")[..., :2]
    np.testing.assert_allclose(total, order.sum(keepdims=True))
    np.testing.assert_array_equal(part, X[1:])
    lstm = node("LSTM", "steps,w,r,,,h", "all,last_h,c", hidden_size=2)
    steps = np.repeat(X.max((1, 2))[..., None], 3, 2)
    alone = model([lstm], [info("steps", F, steps.shape)], "last_h", weights)
    np.testing.assert_allclose(last, reference(alone, {"steps": steps})[0], rtol=1e-5)


@pytest.mark.parametrize("first", [True, False])
def test_names_of_bodies_that_shadow(first: bool, tmp_path: Path) -> None:
    """Old exporters number values again in each body, so that names of the graph around stand there again."""
    then = body([node("Neg", "x", "a"), node("Abs", "a", "r")], "r")
    other = body([node("Exp", "x", "a"), node("Identity", "a", "r")], "r")
    nodes = [node("If", "c", "r", then_branch=then, else_branch=other), node("Relu", "x", "a"), node("Add", "a,r")]
    nodes = [nodes[1], nodes[0], nodes[2]] if first else nodes
    made = model(nodes, [info("x", F, [2, 3, 4, 5]), info("c", B, [])])
    for c in (True, False):
        wanted = np.maximum(X, 0) + (abs(X) if c else np.exp(X))
        (got,) = answers(made, {"x": X, "c": np.asarray(c)}, tmp_path)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_domains_spelled_out_and_imported_for_nothing(tmp_path: Path) -> None:
    made = model([node("Relu", "x", "a", domain="ai.onnx"), node("Neg", "a", doc_string="words")], opset=11)
    made.opset_import[0].domain = "ai.onnx"
    for domain, version in (("com.microsoft", 1), ("ai.onnx.ml", 2), ("org.pytorch.aten", 1)):
        made.opset_import.append(helper.make_opsetid(domain, version))
    made.producer_name, made.model_version = "an exporter", 7
    helper.set_model_props(made, {"author": "nobody", "": "empty"})
    made.metadata_props.add(key="twice", value="1")
    made.metadata_props.add(key="twice", value="2")
    np.testing.assert_array_equal(answers(made, {"x": X}, tmp_path)[0], -np.maximum(X, 0))


def test_dimensions_without_a_meaning(tmp_path: Path) -> None:
    """Names made up by an exporter, unknown ones, none, 0 and -1 for a batch of any size; no types in between."""
    nodes = [node("Add", "x,z", "a"), node("ReduceMean", "a", axes=[1])]
    for batch in ("unk__123", "?", None, "-1", "batch size", "None"):
        inputs = [info("x", F, [batch, 4]), info("z", F, [batch, 4])]
        for value in inputs:
            if batch is None:
                value.type.tensor_type.shape.dim[0].Clear()
        for rows in (4, 1):
            agree(model(nodes, inputs), {"x": X[0, 0, :rows, :4], "z": X[0, 1, :rows, :4]}, tmp_path)


# Numbers


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_halves(dtype: str, raw: bool, tmp_path: Path) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype) if dtype == "bfloat16" else dtype)
    code = helper.np_dtype_to_tensor_dtype(kind)
    w = np.array([1.5, -2, 0.25, 3, -0.0], kind)
    tensor = helper.make_tensor("w", code, [5], w.tobytes() if raw else w.astype(np.float32), raw=raw)
    made = model([node("Mul", "x,w")], [info("x", code, [4, 5])])
    made.graph.initializer.append(tensor)
    x = X[0, 0].astype(kind)
    (got,) = answers(made, {"x": x}, tmp_path)
    assert got.dtype == kind
    np.testing.assert_array_equal(got.astype(np.float32), (x * w).astype(np.float32))


def test_a_model_of_halves_with_islands(tmp_path: Path) -> None:
    """As converters write it: all of it f16, casts around what would lose too much."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((6, 3, 3, 3)) / 5, "b": rng.standard_normal(6)}
    weights |= {"m": rng.standard_normal((6, 4)) / 3, "scale": np.ones(6), "zero": np.zeros(6)}
    nodes = [
        node("Cast", "x", "x16", to=H),
        node("Conv", "x16,w,b", "c", pads=[1, 1, 1, 1]), node("BatchNormalization", "c,scale,zero,zero,scale", "n"),
        node("Relu", "n", "r"), node("Cast", "r", "r32", to=F),
        node("ReduceMean", "r32", "mean", axes=[2, 3], keepdims=0),
        node("Cast", "mean", "mean16", to=H), node("MatMul", "mean16,m", "l"), node("Cast", "l", "l32", to=F),
        node("Softmax", "l32", "s32"), node("Cast", "s32", "s", to=H), node("Cast", "s", "y", to=F),
    ]  # fmt: skip
    made = model(nodes, weights={k: v.astype(np.float16) for k, v in weights.items()})
    wanted = reference(made, {"x": X})[0]
    (got,) = answers(made, {"x": X}, tmp_path)
    np.testing.assert_allclose(got, wanted, rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("large", [False, True])
def test_external_data(large: bool, tmp_path: Path) -> None:
    w = np.arange(20 if not large else 2000, dtype=np.float32)
    made = model([node("Slice", "w,a,b", "s"), node("Reshape", "s,t", "q"), node("Mul", "x,q")],
                 weights={"w": w, "a": [1], "b": [6], "t": [1, 5]})  # fmt: skip
    onnx.save(made, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=16)
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", threads=1)
    with torshc.load(tmp_path / "m.tsc") as compiled:
        np.testing.assert_allclose(compiled.run({"x": X})["y"], X * w[1:6], rtol=1e-6)


# Functions


def reference_to(name: str, of: str, kind: AttributeProto.AttributeType) -> AttributeProto:
    return AttributeProto(name=name, ref_attr_name=of, type=kind)


def test_functions_with_attributes_and_defaults(tmp_path: Path) -> None:
    """Given, defaulted and left out; within each other, within a branch; names that stand outside too.

    The answer is worked out here: onnx's evaluator cannot pass attributes on, and its inliner forgets the defaults.
    """
    leaky = node("LeakyRelu", "a", "t")
    leaky.attribute.append(reference_to("alpha", "slope", AttributeProto.FLOAT))
    soft = node("Softmax", "t", "b")
    soft.attribute.append(reference_to("axis", "along", AttributeProto.INT))
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    inner = helper.make_function("local", "Inner", ["a"], ["b"], [leaky, soft], ops, ["along"],
                                 [helper.make_attribute("slope", 0.5)])  # fmt: skip
    first = node("Inner", "a", "t", domain="local")
    first.attribute.append(reference_to("along", "dim", AttributeProto.INT))
    second = node("Inner", "t", "b", domain="local", along=0, slope=0.25)
    outer = helper.make_function(
        "local", "Outer", ["a", "z"], ["c"], [first, second, node("Sum", "b,z", "c")], ops, ["dim"]
    )
    then = body([node("Outer", "x,x", "r", domain="local", dim=2)], "r")
    other = body([node("Inner", "x", "r", domain="local", along=1)], "r")
    nodes = [
        node("Relu", "x", "t"), node("Outer", "x,t", "o", domain="local", dim=1),
        node("Inner", "o", "p", domain="local"),
        node("If", "c", "q", then_branch=then, else_branch=other), node("Add", "p,q"),
    ]  # fmt: skip
    made = model(nodes, [info("x", F, [2, 3, 4, 5]), info("c", B, [])], functions=[outer, inner])

    def numbers(x: Array, along: int, slope: float = 0.5) -> Array:
        e = np.exp(np.where(x < 0, slope * x, x))
        return np.asarray(e / e.sum(along, keepdims=True))

    for c in (True, False):
        o = numbers(numbers(X, 1), 0, 0.25) + np.maximum(X, 0)
        q = numbers(numbers(X, 2), 0, 0.25) + X if c else numbers(X, 1)
        (got,) = answers(made, {"x": X, "c": np.asarray(c)}, tmp_path)
        np.testing.assert_allclose(got, numbers(o, -1) + q, rtol=1e-5)


# If around checks of shapes


def squeezing(axis: int) -> tuple[GraphProto, GraphProto]:
    """What exporters make of ``x.squeeze(axis)``: the branches differ in rank."""
    return body([node("Squeeze", "x,axis", "s")], "s"), body([node("Identity", "x", "s")], "s")


def squeeze_model(shape: list[Any], after: list[NodeProto], outputs: str) -> ModelProto:
    then, other = squeezing(1)
    nodes = [
        node("Shape", "x", "shape"), node("Gather", "shape,at", "d"), node("Equal", "d,one", "c"),
        node("If", "c", "s", then_branch=then, else_branch=other), *after,
    ]  # fmt: skip
    weights = {"axis": [1], "at": np.asarray(1), "one": np.asarray(1)}
    return model(nodes, [info("x", F, shape)], outputs, weights, opset=13)


@pytest.mark.parametrize("size", [1, 3])
def test_a_check_that_static_shapes_decide(size: int, tmp_path: Path) -> None:
    x = X[:, :size, 0]
    agree(squeeze_model(list(x.shape), [node("Relu", "s")], "y"), {"x": x}, tmp_path)


def test_a_check_that_symbols_decide(tmp_path: Path) -> None:
    """The size that is looked at is 2n, which is never 1, whatever n."""
    then, other = squeezing(1)
    nodes = [
        node("Concat", "z,z", "x", axis=1), node("Shape", "x", "shape"), node("Gather", "shape,at", "d"),
        node("Equal", "d,one", "c"), node("If", "c", "s", then_branch=then, else_branch=other), node("Relu", "s"),
    ]  # fmt: skip
    weights = {"axis": [1], "at": np.asarray(1), "one": np.asarray(1)}
    made = model(nodes, [info("z", F, [2, "n", 5])], "y", weights, opset=13)
    for n in (1, 2):
        agree(made, {"z": X[:, :n, 0]}, tmp_path)


def test_ranks_that_only_a_run_decides(tmp_path: Path) -> None:
    """Refused, with the node, why, and what to do about it."""
    made = squeeze_model([2, "n", 5], [node("Relu", "s")], "y")
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(TorshcError, match=r"'s' \(If\).* f32.2, 5. and f32.2, n, 5..*--shapes"):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    x = X[:, :1, 0]
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", shapes={"x": x.shape})
    with torshc.load(tmp_path / "m.tsc") as compiled:
        np.testing.assert_array_equal(compiled.run({"x": x})["y"], np.maximum(x[:, 0], 0))


@pytest.mark.parametrize("size", [1, 3])
def test_a_check_of_a_runs_numbers(size: int, tmp_path: Path) -> None:
    """Both branches of one rank, and of shapes that differ."""
    then = body([node("ReduceSum", "x,axis", "s")], "s")
    other = body([node("Identity", "x", "s")], "s")
    nodes = [
        node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m,zero", "c"),
        node("If", "c", "s", then_branch=then, else_branch=other), node("Exp", "s"),
    ]  # fmt: skip
    made = model(nodes, [info("x", F, [2, "n", 5])], "y", {"axis": [1], "zero": np.float32(0)}, opset=13)
    x = X[:, :size, 0]
    for feed in (x, -abs(x)):
        agree(made, {"x": feed}, tmp_path)


@pytest.mark.parametrize("limit", [4, None])
def test_loops_whose_number_is_a_vector(limit: int | None, tmp_path: Path) -> None:
    """Old converters declare the number of a round and its condition as vectors of one element."""
    rounds = helper.make_graph(
        [
            node("Gather", "rows,i", "row"),
            node("Squeeze", "row,zero", "r"),
            node("Add", "s,r", "t"),
            node("ReduceSum", "t", "all", keepdims=0),
            node("Less", "all,most", "less"),
            node("And", "less,c", "on"),
        ],
        "body",
        [info("i", INT, [1]), info("c", B, [1]), info("s", F, [3])],
        [info("on", B, [1]), info("t", F, [3]), info("r", F, [3])],
    )
    weights = {
        "zero": np.array([0]),
        "most": np.float32(1e9),
        "true": np.array([True]),
        "start": np.zeros(3, np.float32),
    }
    inputs = [info("rows", F, [4, 3])]
    feeds = {"rows": X[0, :, :, 0].T.copy()}
    if limit is None:
        inputs, feeds = [*inputs, info("n", INT, [1])], {**feeds, "n": np.array([3])}
    else:
        weights["n"] = np.array([limit])
    made = model([node("Loop", "n,true,start", "sum,each", body=rounds)], inputs, "sum,each", weights)
    total, each = answers(made, feeds, tmp_path)
    wanted = feeds["rows"][: limit or 3]
    np.testing.assert_array_equal(each, wanted)
    np.testing.assert_allclose(total, wanted.sum(0), rtol=1e-6, atol=1e-6)


LOOPED = {
    "one": np.array([1]), "minus": np.array([-1]), "zero": np.array([0]), "two": np.array([2]), "four": np.array([4]),
    "true": np.array(True), "one32": np.int32([1]), "zero32": np.int32([0]), "zeros": np.zeros(2, np.float32),
    "ones": np.ones(2, np.float32), "crop": np.int32([4, 5]),
}  # fmt: skip
TAKEN = [node("Add", "from,one32", "to"), node("Slice", "x,from,to,zero32", "image")]  # the image of a box


def looped(
    nodes: list[NodeProto], inputs: list[Any], limit: str = "which", number: list[int] | None = None
) -> ModelProto:
    """A model that stacks `part` of each round, as many rounds as `limit` has elements."""
    rounds = helper.make_graph(
        [*nodes, node("Identity", "c", "on")],
        "body",
        [info("i", INT, [1] if number is None else number), info("c", B, [])],
        [info("on", B, []), helper.make_empty_tensor_value_info("part")],
    )
    return model([node("Size", limit, "n"), node("Loop", "n,true", "y", body=rounds)], inputs, "y", LOOPED, opset=13)


@pytest.mark.parametrize("boxes", [3, "boxes"])
def test_crops_of_boxes_that_a_loop_reads(boxes: int | str, tmp_path: Path) -> None:
    """As tf2onnx writes crop_and_resize: the image of a box is a slice whose ends are computed in int32."""
    nodes = [
        node("Add", "i,one", "next"), node("Slice", "which,i,next", "from"), *TAKEN,
        node("Transpose", "image", "planes", perm=[0, 3, 1, 2]),
        node("Slice", "boxes,i,next,zero", "box"), node("Reshape", "box,four", "edges"),
        node("Slice", "edges,zero,two", "low"), node("Slice", "edges,two,four", "high"),
        node("Concat", "zeros,low", "starts", axis=0), node("Concat", "ones,high", "ends", axis=0),
        node("Concat", "starts,ends", "roi", axis=0), node("Shape", "planes", "shape"),
        node("Slice", "shape,zero,two", "images"), node("Cast", "crop", "crop64", to=INT),
        node("Concat", "images,crop64", "sizes", axis=0),
        node("Resize", "planes,roi,,sizes", "resized", mode="linear", extrapolation_value=0.5,
             coordinate_transformation_mode="tf_crop_and_resize"),
        node("Transpose", "resized", "back", perm=[0, 2, 3, 1]), node("Squeeze", "back,zero", "part"),
    ]  # fmt: skip
    inputs = [info("x", F, [2, 3, 4, 5]), info("boxes", F, [boxes, 4]), info("which", TensorProto.INT32, [boxes])]
    made = looped(nodes, inputs)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", threads=1, opt_level=1)
    peer = onnxruntime.InferenceSession(made.SerializeToString())
    places = np.random.default_rng(2)
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        for count in (3,) if boxes == 3 else (1, 3, 0):
            feeds = {"x": X, "boxes": places.random((count, 4), np.float32), "which": np.int32([1, 0, 1][:count])}
            got = compiled.run(feeds)["y"]
            if not count:
                assert got.shape == (0, 4, 5, 5)
                continue
            np.testing.assert_allclose(got, peer.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


WHICH = info("which", TensorProto.INT32, ["n"])
VECTOR = node("Unsqueeze", "i,zero", "at")


@pytest.mark.parametrize(
    "nodes",
    [
        [node("Add", "at,one", "next"), node("Slice", "which,at,next", "from")],
        [node("Cast", "at", "at32", to=TensorProto.INT32), node("Add", "at32,one32", "next"),
         node("Slice", "which,at32,next", "from")],
        [node("Shape", "which", "len"), node("Sub", "len,at", "next"), node("Sub", "next,one", "first"),
         node("Slice", "which,first,next", "from")],
        [node("Shape", "which", "len"), node("Sub", "at,one", "before"), node("Sub", "before,len", "last"),
         node("Slice", "which,at,last,zero,minus", "from")],
    ],
    ids=["i:i+1", "int32", "n-1-i:n-i", "i:i-1-n:-1"],
)  # fmt: skip
def test_one_element_in_each_round(nodes: list[NodeProto], tmp_path: Path) -> None:
    """The number of a round is below the limit, so that a slice at it has one element whatever the limit is."""
    made = looped([VECTOR, *nodes, *TAKEN, node("Squeeze", "image,zero", "part")], [info("x", F, [2, 3]), WHICH],
                  number=[])  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", threads=1, opt_level=1)
    x = X[:, :, 0, 0]
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        for which in (np.int32([1]), np.int32([1, 0, 0, 1])):
            feeds = {"x": x, "which": which}
            (wanted,) = ReferenceEvaluator(made).run(None, feeds)
            np.testing.assert_array_equal(compiled.run(feeds)["y"], wanted)


def test_as_many_rounds_as_something_else_has_elements(tmp_path: Path) -> None:
    """Nothing says that a slice at the number of a round has an element then."""
    nodes = [VECTOR, node("Add", "at,one", "next"), node("Slice", "which,at,next", "from"), *TAKEN,
             node("Squeeze", "image,zero", "part")]  # fmt: skip
    made = looped(nodes, [info("x", F, [2, 3]), WHICH, info("other", F, ["m"])], "other", [])
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(TorshcError, match=r"starts of Slice is .*round.*: how many there are is known only at run"):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    # Where the number of elements does not matter, the run checks that all rounds have as many.
    made = looped([VECTOR, node("Add", "at,one", "next"), node("Slice", "x,at,next,zero", "part")],
                  [info("x", F, [2, 3]), info("other", F, ["m"])], "other", [])  # fmt: skip
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", threads=1, opt_level=1)
    x = X[:, :, 0, 0]
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        np.testing.assert_array_equal(compiled.run({"x": x, "other": np.zeros(2, np.float32)})["y"], x[:, None])
        with pytest.raises(TorshcError, match="iterations have different shapes"):
            compiled.run({"x": x, "other": np.zeros(3, np.float32)})
