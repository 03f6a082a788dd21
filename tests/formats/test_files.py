"""The files that a model consists of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from torshc.base.errors import ModelError
from torshc.formats.files import model_files, one_piece, onnx_proto


@pytest.mark.parametrize("constant", [False, True])
def test_values_of_sparse_tensors_beside_the_model(constant: bool, tmp_path: Path) -> None:
    values = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    values.external_data.add(key="location", value="v.bin")
    (tmp_path / "v.bin").write_bytes(bytes(8))
    sparse = SparseTensorProto(values=values, indices=numpy_helper.from_array(np.array([0, 3])), dims=[4])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y])
    if constant:
        graph.node.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    else:
        graph.sparse_initializer.append(sparse)
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    assert model_files(tmp_path / "m.onnx") == [tmp_path / "m.onnx", tmp_path / "v.bin"]


def _away(name: str) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=f"{name}.bin")
    return tensor


def _of_everywhere() -> onnx.ModelProto:
    """Tensors in all places that a model has for them, each in a file of its own."""
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    indices = numpy_helper.from_array(np.array([0, 1]))
    one = helper.make_graph([helper.make_node("Identity", ["a"], ["y"])], "one", [], [result], [_away("a")])
    two = helper.make_graph([helper.make_node("Constant", [], ["y"], value=_away("b"))], "two", [], [result])
    two.sparse_initializer.append(SparseTensorProto(values=_away("c"), indices=indices, dims=[4]))
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=one, else_branch=two)], "g", [condition], [result]
    )
    model = helper.make_model(graph)
    body = helper.make_node("Constant", [], ["z"])
    body.attribute.add(name="value", ref_attr_name="v", type=onnx.AttributeProto.TENSOR)
    function = helper.make_function("own", "F", [], ["z"], [body], [helper.make_opsetid("", 18)])
    function.attribute_proto.append(helper.make_attribute("v", _away("d")))
    function.node.append(helper.make_node("Constant", [], ["w"], value=_away("e")))
    model.functions.append(function)
    return model


def test_tensors_of_everywhere(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(_of_everywhere().SerializeToString())
    for name in "abcde":
        (tmp_path / f"{name}.bin").write_bytes(name.encode() * 8)
    found = {path.name for path in model_files(tmp_path / "m.onnx")}
    assert found == {"m.onnx", *(f"{name}.bin" for name in "abcde")}
    model = onnx_proto(tmp_path / "m.onnx")
    assert model is not None
    text = str(model)
    assert all(f'raw_data: "{name * 8}"' in text for name in "abcde") and "external_data" not in text


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("a", "initializer 'a'"),
        ("b", r"node 'y' \(Constant\): attribute 'value'"),
        ("d", "function 'F': attribute 'v'"),
    ],
)
def test_whose_data_are_missing(name: str, where: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(_of_everywhere().SerializeToString())
    for other in set("abcde") - {name}:
        (tmp_path / f"{other}.bin").write_bytes(bytes(8))
    with pytest.raises(ModelError, match=rf"m\.onnx: {where}: external data '{name}.bin' cannot be read"):
        onnx_proto(tmp_path / "m.onnx")


def test_more_than_protobuf_holds() -> None:
    class Large:
        def SerializeToString(self) -> bytes:
            raise ValueError("Failed to serialize proto")

    with pytest.raises(ModelError, match=r"big\.onnx is larger than 2 GiB with its weights"):
        one_piece(Large(), "big.onnx", "")  # type: ignore[arg-type]
