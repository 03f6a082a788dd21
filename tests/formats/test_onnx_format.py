"""Importing ONNX: every way of writing a model, and every way in which one can be wrong."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf import json_format
from onnx import TensorProto, helper, numpy_helper

from tests.support import models
from tests.support.evaluate import run
from torshc.base.errors import ConfigError, ModelError, UnsupportedError
from torshc.expr import as_int
from torshc.formats import import_model, load_graph
from torshc.formats.onnx_wire import LARGE

F = TensorProto.FLOAT
Model = onnx.ModelProto


def info(name: str, *dims: int | str | None, dtype: int = F) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, dims)


def model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto] | None = None,
    outputs: list[onnx.ValueInfoProto] | None = None,
    weights: dict[str, Any] | None = None,
    opset: int = 20,
    **more: Any,
) -> Model:
    """A model; by default x[2, 3] goes in and y comes out."""
    return models.model(
        nodes, [info("x", 2, 3)] if inputs is None else inputs, outputs or "y", weights, {"": opset, "local": 1}, **more
    )


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(","), outputs.split(","), name=f"the_{op}", **attributes)


def graph_of(m: Model, **shapes: Any) -> Any:
    return import_model(m.SerializeToString(), shapes)


X = np.arange(6, dtype=np.float32).reshape(2, 3)


def result(m: Model, **feeds: Any) -> Any:
    return run(graph_of(m), feeds or {"x": X})[0]


# Ways of writing a model


@pytest.mark.parametrize("form", ["binary", "text", "json"])
def test_forms(form: str, tmp_path: Path) -> None:
    m = model([node("Add", "x,w")], weights={"w": np.full((2, 3), 2, np.float32)})
    path = tmp_path / "a model 'x' * {{ y }}.bin"
    if form == "binary":
        path.write_bytes(m.SerializeToString())
    elif form == "text":
        path.write_text(onnx.printer.to_text(m))
    else:
        path.write_text(json_format.MessageToJson(m))
    for read in (import_model, load_graph):
        graph = read(path)
        np.testing.assert_array_equal(run(graph, {"x": X})[0], X + 2)
        assert graph.output_names == ["y"]
        assert [v.name for v in graph.inputs] == ["x"]


def test_large_weights_are_not_copied(tmp_path: Path) -> None:
    w = np.arange(LARGE, dtype=np.float32)
    path = tmp_path / "m.onnx"
    path.write_bytes(model([node("Add", "x,w")], [info("x", LARGE)], weights={"w": w}).SerializeToString())
    graph = import_model(path)
    const = graph.nodes[0].inputs[1].const
    np.testing.assert_array_equal(const, w)
    assert not const.flags.owndata
    assert not const.flags.writeable


@pytest.mark.parametrize("size", [3, LARGE])
def test_weights_in_every_field(size: int) -> None:
    for dtype in (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.int8, np.bool_, np.uint64):
        w = np.arange(size).astype(dtype)
        code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        m = model([node("Identity", "w")], [])
        for typed in (True, False):
            del m.graph.initializer[:]
            tensor = helper.make_tensor("w", code, w.shape, w) if typed else numpy_helper.from_array(w, "w")
            tensor.doc_string = "7"  # must not pass for a note of our own
            m.graph.initializer.append(tensor)
            np.testing.assert_array_equal(result(m, none=0), w)


def test_initializers_that_are_inputs_are_constants() -> None:
    m = model([node("Add", "x,w")], [info("x", 2, 3), info("w", 2, 3)], weights={"w": X})
    assert [v.name for v in graph_of(m).inputs] == ["x"]


def test_unsorted_nodes_are_sorted() -> None:
    m = model([node("Neg", "a"), node("Abs", "x", "a")])
    np.testing.assert_array_equal(result(m), -np.abs(X))


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        ({"value_int": 3}, np.asarray(3)),
        ({"value_ints": [3, 4]}, np.asarray([3, 4])),
        ({"value_float": 0.5}, np.asarray(0.5, np.float32)),
        ({"value_floats": [0.5, 1.0]}, np.asarray([0.5, 1.0], np.float32)),
        ({"value": numpy_helper.from_array(X)}, X),
    ],
)
def test_constants(attributes: dict[str, Any], wanted: Any) -> None:
    constant = helper.make_node("Constant", [], ["y"], **attributes)
    got = result(model([constant], []), none=0)
    np.testing.assert_array_equal(got, wanted)
    assert got.dtype == wanted.dtype


def test_sparse_constant() -> None:
    values = numpy_helper.from_array(np.array([5, 7], np.float32), "v")
    indices = numpy_helper.from_array(np.array([1, 5], np.int64), "i")
    constant = helper.make_node("Constant", [], ["y"], sparse_value=helper.make_sparse_tensor(values, indices, [2, 3]))
    np.testing.assert_array_equal(result(model([constant], []), none=0), [[0, 5, 0], [0, 0, 7]])


def test_outputs_that_are_inputs_constants_and_repeats() -> None:
    outputs = [helper.make_empty_tensor_value_info(n) for n in ("x", "w", "a", "b")]
    m = model([node("Identity", "x", "a"), node("Identity", "x", "b")], outputs=outputs, weights={"w": X})
    graph = graph_of(m)
    assert graph.output_names == ["x", "w", "a", "b"]
    assert all((got == X).all() for got in run(graph, {"x": X}))


def test_names_of_nodes_and_values_are_kept() -> None:
    graph = graph_of(model([node("Neg", "x", "a"), helper.make_node("Abs", ["a"], ["y"])]))
    assert [n.name for n in graph.nodes] == ["the_Neg", "y"]
    assert [n.output.name for n in graph.nodes] == ["a", "y"]


def test_functions_are_inlined() -> None:
    inner = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Mul", ["a", "two"], ["b"]),
                                         helper.make_node("Constant", [], ["two"], value_float=2.0)],
        [helper.make_opsetid("", 20)],
    )  # fmt: skip
    ref = helper.make_node("LeakyRelu", ["c"], ["d"])
    ref.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    outer = helper.make_function(
        "local", "Outer", ["a"], ["d"], [helper.make_node("Twice", ["a"], ["c"], domain="local"), ref],
        [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)], ["slope"],
    )  # fmt: skip
    m = model([helper.make_node("Outer", ["x"], ["y"], domain="local", slope=0.5)], functions=[inner, outer])
    x = X - 3
    np.testing.assert_allclose(result(m, x=x), np.where(x < 0, x, 2 * x))


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_with_a_known_condition_is_inlined(condition: bool) -> None:
    then = helper.make_graph([node("Neg", "x", "t")], "then", [], [helper.make_empty_tensor_value_info("t")])
    other = helper.make_graph([node("Abs", "x", "e")], "else", [], [helper.make_empty_tensor_value_info("e")])
    m = model([node("If", "c", then_branch=then, else_branch=other)], weights={"c": np.asarray(condition)})
    np.testing.assert_array_equal(result(m), -X if condition else X)


def test_absent_inputs_and_unused_outputs() -> None:
    m = model([node("Clip", "x,,high"), node("Dropout", "x", ",")], weights={"high": np.asarray(2, np.float32)})
    np.testing.assert_array_equal(result(m), X.clip(max=2))


# Dimensions


def test_dimensions_are_symbols_and_expressions() -> None:
    inputs = [info("x", "n", "2*k"), info("z", None, "2*k"), info("v", "k")]
    graph = graph_of(model([node("Concat", "x,z", axis=0)], inputs))
    assert repr(graph.outputs[0].type) == "f32[n + z_0, 2*k]"
    assert set(graph.symbols()) == {"n", "k", "z_0"}


@pytest.mark.parametrize(
    ("text", "name"),
    [("batch-size", "batch_size"), ("rows - n + 1", "rows_n_1"), ("2*batch", "x_0"), ("n*batch", "n_batch")],
)
def test_an_expression_over_names_that_no_dimension_gives_is_a_name(text: str, name: str) -> None:
    """Exporters write what a user called a dimension; a run could not take the expression apart."""
    graph = graph_of(model([node("Concat", "x,z", axis=1)], [info("x", text, "n"), info("z", text, 3)]))
    assert repr(graph.outputs[0].type) == f"f32[{name}, n + 3]"


def test_shapes_pin_dimensions() -> None:
    inputs = [info("x", "n", "2*k"), info("z", "n", "k")]
    m = model([node("Neg", "x"), node("Neg", "z", "w")], inputs)
    graph = graph_of(m, x=(4, 6))
    assert [v.type.static_shape for v in graph.inputs] == [(4, 6), (4, 3)]
    assert repr(graph_of(m, x=("m", 6)).inputs[1].type) == "f32[m, 3]"


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ({"y": (1, 2)}, "has no input 'y'"),
        ({"xx": (1, 2)}, "did you mean 'x'"),
        ({"x": (1, 2, 3)}, "has 2 dimensions"),
        ({"x": (1, 5)}, "dimension 1 of input 'x'"),
        ({"x": (-1, 6)}, "cannot be -1"),
        ({"x": (4, 6), "z": (5, 3)}, "dimension 0 of input 'z'"),
    ],
)
def test_pins_that_do_not_fit(pins: dict[str, Any], words: str) -> None:
    m = model([node("Neg", "x"), node("Neg", "z", "w")], [info("x", "n", "2*k"), info("z", "n", "k")])
    with pytest.raises(ConfigError, match=words):
        graph_of(m, **pins)


def test_shape_arithmetic_is_known() -> None:
    """The shape of x, its parts multiplied and joined again: the Reshape is known although x is not."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s,zero", "n", axis=0),
        node("Gather", "s,one", "m", axis=0),
        node("Mul", "n,m", "nm"),
        node("Unsqueeze", "nm,axis", "flat"),
        node("Concat", "flat,minus", "target", axis=0),
        node("Reshape", "x,target"),
    ]
    weights = {"zero": np.asarray(0), "one": np.asarray(1), "axis": np.array([0]), "minus": np.array([-1])}
    graph = graph_of(model(nodes, [info("x", "n", "m", 8)], weights=weights))
    assert repr(graph.outputs[0].type) == "f32[m*n, 8]"


# External data


def external(tmp_path: Path, location: str, data: bytes, **entries: str) -> Path:
    m = model([node("Add", "x,w")])
    tensor = TensorProto(name="w", data_type=F, dims=[2, 3], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=value)
    m.graph.initializer.append(tensor)
    (tmp_path / "w.bin").write_bytes(data)
    path = tmp_path / "m.onnx"
    path.write_bytes(m.SerializeToString())
    return path


def test_external_data_is_read_where_it_lies(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin", b"\0" * 16 + X.tobytes() + b"\0", offset="16", length="24")
    graph = import_model(path)
    np.testing.assert_array_equal(run(graph, {"x": X})[0], 2 * X)
    assert not graph.nodes[0].inputs[1].const.flags.owndata


@pytest.mark.parametrize(
    ("location", "entries", "words"),
    [
        ("missing.bin", {}, "cannot be read"),
        ("../w.bin", {}, "outside"),
        ("/etc/passwd", {}, "outside"),
        ("sub/../../w.bin", {}, "outside"),
        ("link.bin", {}, "link"),
        ("links/w.bin", {}, "link"),
        (".", {}, "not a regular file|cannot be read|outside"),
        ("w.bin", {"offset": "8"}, "has 24 bytes"),
        ("w.bin", {"length": "20"}, "20 bytes for a tensor of 24"),
        *(
            ("w.bin", {"offset": text}, "offset .* is not a number of bytes")
            for text in ("x", "-1", "", " 0", "0_0", "\u0660")
        ),
        ("w.bin", {"length": "\uff12\uff14"}, "length '\uff12\uff14', which"),
        ("w.bin", {"offset": "9" * 5000}, "is not a number"),
        ("other.bin", {}, "has more than one hard link"),
        ("fifo", {}, "not a regular file"),
    ],
)
def test_external_data_that_must_not_be_read(
    tmp_path: Path, location: str, entries: dict[str, str], words: str
) -> None:
    path = external(tmp_path, location, X.tobytes(), **entries)
    (tmp_path / "link.bin").symlink_to(tmp_path / "w.bin")
    (tmp_path / "links").symlink_to(tmp_path)
    (tmp_path / "elsewhere").write_bytes(X.tobytes())
    (tmp_path / "other.bin").hardlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ModelError, match=words) as e:
        import_model(path)
    assert str(path) in str(e.value)
    assert "'w'" in str(e.value)


@pytest.mark.parametrize(
    ("location", "length", "remedy"),
    [
        ("missing.bin", 24, "beside it"),
        ("../w.bin", 24, "beside it"),
        (".", 24, "beside it"),
        ("link.bin", 24, "copy the file"),
        ("w.bin", 20, "completely"),
    ],
)
def test_external_data_that_is_not_there_has_a_remedy(tmp_path: Path, location: str, length: int, remedy: str) -> None:
    path = external(tmp_path, location, X.tobytes()[:length])
    (tmp_path / "link.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ModelError) as e:
        import_model(path)
    assert remedy in e.value.remedy
    with pytest.raises(ModelError) as e:
        import_model(path.read_bytes())
    assert e.value.remedy == "give the model's path"


# Models that are wrong


TEXT = b'<ir_version: 8, opset_import: ["" : 18]>\n'


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 64, "not an ONNX model|no graph"),
        (b"PK\x03\x04" + b"\0" * 64, "not an ONNX model|no graph"),
        (b"hello world, this is text", "not an ONNX model"),
        (b"{", "JSON"),
        (b'{"irVersion": 8, "graph": 3}', "JSON"),
        (b"<ir_version: 8>", "text form"),
        (b"<ir_version: 99999999999999999999>", "text form"),
        (TEXT + b"g (float x) => (float y) { y = Elu<alpha = 1e9999>(x) }", "text form"),
        (TEXT + b"g (" + b"seq(" * 200_000, "too deeply"),
        (
            TEXT + b"g (float x) => (y) {" + b'y = If <name = ")}", # ]\n then_branch = g () => (z) {' * 99_999,
            "too deeply",
        ),
        (b"\x08\x08", "no graph"),
        (b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "truncated"),
    ],
)
def test_files_that_are_no_model(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    for source in (path, data):
        with pytest.raises(ModelError, match=words):
            import_model(source)


@pytest.mark.parametrize("data", [b"", b"hello world, this is text", b"\x3a\xff"])
def test_a_damaged_file_has_a_remedy(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError) as e:
        import_model(path)
    assert "completely" in e.value.remedy


def test_a_truncated_model_never_passes() -> None:
    m = model([node("Add", "x,w")], weights={"w": X})
    del m.opset_import[1]  # the last field of the file is one that is needed
    whole = m.SerializeToString()
    for end in range(len(whole)):
        with pytest.raises((ModelError, UnsupportedError)):
            import_model(whole[:end])
    with pytest.raises(ModelError, match="truncated") as caught:
        import_model(whole[:-1])
    assert caught.value.remedy == "check that the file was downloaded or exported completely"


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        load_graph(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match="is a folder, not a model"):
        load_graph(tmp_path)


def without_opset(m: Model) -> None:
    del m.opset_import[:]


def set_dtype(m: Model) -> None:
    m.graph.input[0].type.tensor_type.elem_type = 99


def short_weight(m: Model) -> None:
    m.graph.initializer[0].raw_data = b"123"


def huge_weight(m: Model) -> None:
    m.graph.initializer[0].dims[:] = [1 << 40, 1 << 40]


def negative_weight(m: Model) -> None:
    m.graph.initializer[0].dims[:] = [-2, -3]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_opset, "does not say which operator set"),
        (set_dtype, "unknown element type 99"),
        (short_weight, "initializer 'w': .* takes 24 bytes, and 3 are given"),
        (huge_weight, "too many elements"),
        (negative_weight, "negative dimension"),
    ],
)
def test_damaged_models(change: Callable[[Model], None], words: str) -> None:
    m = model([node("Add", "x,w")], weights={"w": X})
    change(m)
    with pytest.raises(ModelError, match=words):
        graph_of(m)


@pytest.mark.parametrize(
    ("m", "words"),
    [
        (model([node("Neg", "b", "a"), node("Neg", "a", "b"), node("Neg", "x")]), "cyclic.*the_Neg"),
        (model([node("Neg", "nobody")]), "the_Neg.*reads 'nobody', which nothing produces"),
        (model([node("Neg", "x"), node("Abs", "x")]), "the_Abs.*produces 'y', which .*the_Neg.* produces too"),
        (model([node("Neg", "x", "x")]), "which an input or initializer produces too"),
        (model([node("Neg", "x", "z")]), "nothing produces the output 'y'"),
        (model([node("Neg", "x")], [info("x", 1), info("x", 2)]), "two inputs are named 'x'"),
        (model([node("Neg", "x")], outputs=[info("y", 2, 3, dtype=7)]), "declared as i64"),
        (model([node("Add", "x,w")], weights={"w": np.zeros((2, 4), np.float32)}), "the_Add.*do not broadcast"),
        (
            model([node("Add", "x,w")], weights={"w": np.zeros((2, 3), np.int64)}),
            r"the_Add.*Add of different types, f32\[2, 3\] and i64\[2, 3\]",
        ),
        (model([node("LeakyRelu", "x", alpha=1)]), "'alpha' of LeakyRelu must be float"),
        (model([node("Cast", "x")]), "lacks its attribute 'to'"),
        (model([node("Add", "x")]), "Add takes 2 inputs, and 1 are given"),
        (model([node("Transpose", "x", perm=[0, 2])]), "not a permutation"),
        (model([node("Softmax", "x", axis=5)]), "the_Softmax.*axis 5 is out of range"),
        (model([node("Reshape", "x,s")], weights={"s": np.array([4, 4])}), "the_Reshape"),
        (model([node("MatMul", "x,w")], weights={"w": X}), "the_MatMul"),
        (model([node("Neg", "x")], [info("x", 1 << 40, 1 << 40)]), "more than memory can hold"),
        (model([node("Expand", "x,s")], [info("x", 1)], weights={"s": np.array([1 << 40, 1 << 40])}), "memory"),
        (model([node("Add", "x,w")], weights={}), "reads 'w'"),
        (model([helper.make_node("F", ["x"], ["y"], domain="elsewhere")]), "elsewhere"),
    ],
)
def test_contradictions(m: Model, words: str) -> None:
    with pytest.raises((ModelError, UnsupportedError), match=words):
        graph_of(m)


def test_functions_that_call_themselves() -> None:
    calls = [helper.make_node("Loop1", ["a"], ["b"], domain="local")]
    imports = [helper.make_opsetid("", 20), helper.make_opsetid("local", 1)]
    f = helper.make_function("local", "Loop1", ["a"], ["b"], calls, imports)
    m = model([helper.make_node("Loop1", ["x"], ["y"], domain="local")], functions=[f])
    with pytest.raises(ModelError, match="circle"):
        graph_of(m)


def test_everything_unsupported_is_listed_at_once() -> None:
    values, places = helper.make_tensor("thin", F, [1], [1.0]), helper.make_tensor("", TensorProto.INT64, [1], [2])
    nodes = [
        node("Reshape", "x,s", "a"),
        node("Cast", "a", "b", to=F),
        node("Sofmax", "b", "c"),
        helper.make_node("Gemmm", ["c"], ["d"], domain="elsewhere", name="far"),
        node("ImageDecoder", "pixels"),
    ]
    m = model(nodes, [info("x", 2, 3), info("s", "n", dtype=7), info("pixels", 9, dtype=2)])
    m.opset_import.append(helper.make_opsetid("elsewhere", 1))
    m.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1 << 27]))
    with pytest.raises(UnsupportedError) as e:
        graph_of(m)
    text = "\n".join(e.value.problems)
    for words in (
        "'the_Reshape' (Reshape): the shape of Reshape is i64[n]: how many there are is known only at run time",
        "no operator Sofmax in ONNX's own domain; did you mean 'Softmax'?",
        "'far' (Gemmm): no operator Gemmm in domain elsewhere",
        "the_ImageDecoder",
        "initializer 'thin': a sparse tensor of shape [134217728], which would take more than 256 MiB",
    ):
        assert words in text
    assert len(e.value.problems) == 5


@pytest.mark.parametrize("opset", [99, 1000])
def test_opsets_outside_of_the_range(opset: int) -> None:
    with pytest.raises(UnsupportedError, match=f"opset {opset}"):
        graph_of(model([node("Neg", "x")], opset=opset))


def test_a_shape_of_a_rank_known_only_at_run_time_is_unsupported() -> None:
    m = model([node("Reshape", "x,s")], [info("x", 2, 3), info("s", "n", dtype=7)])
    with pytest.raises(UnsupportedError, match=r"the_Reshape.*known only at run time"):
        graph_of(m)


def test_deep_graphs_do_not_exhaust_the_stack() -> None:
    names = ["x", *(f"v{k}" for k in range(3000)), "y"]
    nodes = [helper.make_node("Neg", [a], [b]) for a, b in pairwise(names)]
    assert len(graph_of(model(list(reversed(nodes)))).nodes) == 3001


def test_hostile_names_are_only_names() -> None:
    name = 'x"\n*/ {{ y }} ../ `rm`'
    m = model([helper.make_node("Neg", [name], ["y"], name=name)], [info(name, name, 3)])
    graph = graph_of(m)
    assert graph.inputs[0].name == name
    assert as_int(graph.inputs[0].shape[1]) == 3
