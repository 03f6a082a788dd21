"""The files that a model consists of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import SparseTensorProto, TensorProto, helper, numpy_helper

from torshc.formats.files import model_files


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
