"""The ONNX backend interface."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx.backend.base import Backend, BackendRep

from tests.emulation.emulated import emulated_tools
from torshc import backend
from torshc.base.errors import ConfigError, RunError, UnsupportedError
from torshc.targets.gpu.cuda.nvcc import find_cards

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n,4] x, float[4] w) => (float[n,4] y, float[n,4] z) {
  y = Mul(x, w)
  z = Tanh(y)
}
"""
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.array([1, 2, 3, 4], np.float32)


@pytest.fixture
def model() -> onnx.ModelProto:
    return parser.parse_model(MODEL)


def test_it_is_a_backend(model: onnx.ModelProto) -> None:
    assert issubclass(backend.TorshcBackend, Backend)
    assert isinstance(backend.prepare(model), BackendRep)


def test_prepare_takes_inputs_by_order_and_by_name(model: onnx.ModelProto) -> None:
    rep = backend.prepare(model, device="CPU", opt_level=1)
    for inputs in ([X, W], (X, W), {"w": W, "x": X}):
        y, z = rep.run(inputs)
        np.testing.assert_allclose(y, X * W, rtol=1e-6)
        np.testing.assert_allclose(z, np.tanh(X * W), rtol=1e-5)
    with pytest.raises(RunError):
        rep.run([X])


def test_run_model(model: onnx.ModelProto) -> None:
    np.testing.assert_allclose(backend.run_model(model, [X, W])[0], X * W, rtol=1e-6)


def test_run_node() -> None:
    (y,) = backend.run_node(helper.make_node("Relu", ["x"], ["y"]), [X])
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    (y,) = backend.run_node(helper.make_node("Add", ["x", "x"], ["y"]), [X], opset_version=14)
    np.testing.assert_array_equal(y, X + X)


def test_run_node_takes_a_shape_as_known() -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    (y,) = backend.run_node(node, [X, np.array([4, 3], np.int64)])
    np.testing.assert_array_equal(y, X.reshape(4, 3))


def test_run_node_takes_sequences_optionals_and_absent_inputs() -> None:
    a, b = X[:1], X[1:]
    insert = helper.make_node("SequenceInsert", ["s", "x", "k"], ["y"])
    (y,) = backend.run_node(insert, [[a], b, np.array(0, np.int64)])
    assert isinstance(y, list)
    for got, wanted in zip(y, [b, a], strict=True):
        np.testing.assert_array_equal(got, wanted)
    (y,) = backend.run_node(helper.make_node("SequenceInsert", ["s", "x"], ["y"]), [[], np.arange(3)])
    np.testing.assert_array_equal(y, [np.arange(3)])
    has = helper.make_node("OptionalHasElement", ["x"], ["y"])
    assert [bool(backend.run_node(has, [value])[0]) for value in (None, X, [a, b])] == [False, True, True]
    (y,) = backend.run_node(helper.make_node("OptionalGetElement", ["x"], ["y"]), [X], opset_version=15)
    np.testing.assert_array_equal(y, X)


def test_run_node_takes_absent_inputs_as_none_or_not_at_all() -> None:
    high = np.float32(0.5)
    for node, inputs in (
        (helper.make_node("Clip", ["x", "", "high"], ["y"]), [X, high]),
        (helper.make_node("Clip", ["x", "", "high"], ["y"]), [X, None, high]),
        (helper.make_node("Clip", ["x", "low", "high"], ["y"]), [X, None, high]),
        (helper.make_node("Clip", ["x", "low", "high"], ["y"]), {"x": X, "low": None, "high": high}),
    ):
        np.testing.assert_array_equal(backend.run_node(node, inputs)[0], np.minimum(X, high))
    with pytest.raises(RunError, match=r"1 inputs; expected 2\n.*'x', 'high'"):
        backend.run_node(helper.make_node("Clip", ["x", "", "high"], ["y"]), [X])
    with pytest.raises(RunError, match="'high' is missing"):
        backend.run_node(helper.make_node("Clip", ["x", "", "high"], ["y"]), {"x": X})


def test_run_node_takes_strings_narrow_types_and_other_domains() -> None:
    (y,) = backend.run_node(helper.make_node("StringConcat", ["a", "b"], ["y"]), [np.array(["x", "y"]), np.array("z")])
    assert y.tolist() == ["xz", "yz"]
    narrow = np.array([-8, 7, 3], ml_dtypes.int4)
    (y,) = backend.run_node(helper.make_node("Cast", ["x"], ["y"], to=onnx.TensorProto.BFLOAT16), [narrow])
    assert y.dtype == ml_dtypes.bfloat16 and y.tolist() == [-8, 7, 3]
    node = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=0.0)
    np.testing.assert_array_equal(backend.run_node(node, [X])[0], X > 0)


def test_run_node_takes_what_a_subgraph_captures() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [onnx.ValueInfoProto(name=name)])

    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("a", "Relu"), else_branch=branch("b", "Neg"))
    for flag, wanted in ((True, np.maximum(X, 0)), (False, -X)):
        np.testing.assert_array_equal(backend.run_node(node, {"c": np.array(flag), "x": X})[0], wanted)


def test_maps_are_dictionaries() -> None:
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[4, 5, 6, 7])
    (rows,) = backend.run_node(node, [X])
    assert rows == [dict(zip((4, 5, 6, 7), row, strict=True)) for row in X.tolist()]


def test_tolerances_of_the_runner_are_not_options(model: onnx.ModelProto) -> None:
    assert len(backend.run_model(model, [X, W], rtol=1e-3, atol=0.0)) == 2
    with pytest.raises(ConfigError, match="rtoll"):
        backend.prepare(model, rtoll=1e-3)


def test_devices(model: onnx.ModelProto) -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("TPU") and not backend.supports_device("CPU:first")
    here = bool(find_cards()) and shutil.which("nvcc") is not None
    assert backend.supports_device("CUDA") == backend.supports_device("CUDA:0") == here
    with pytest.raises(ConfigError, match="no device"):
        backend.prepare(model, device="TPU")


def test_compatibility(model: onnx.ModelProto) -> None:
    assert backend.is_compatible(model)
    strange = helper.make_node("Mystery", ["x"], ["y"], domain="com.example")
    with pytest.raises(UnsupportedError):
        backend.run_node(strange, [X])
    info = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 4])
    graph = helper.make_graph([strange], "g", [info], [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    assert not backend.is_compatible(helper.make_model(graph, opset_imports=opsets))


def test_no_bundle_is_left_once_it_is_loaded(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    rep = backend.prepare(model)
    assert not [*tmp_path.iterdir()]
    np.testing.assert_array_equal(rep.run([X, W])[0], X * W)


def test_a_node_on_a_device(tmp_path_factory: pytest.TempPathFactory) -> None:
    with emulated_tools():
        node = helper.make_node("Add", ["a", "b"], ["c"])
        (got,) = backend.run_node(node, [X, W], device="CUDA")
    np.testing.assert_array_equal(got, X + W)
