"""The ONNX backend interface."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx.backend.base import Backend, BackendRep

from tests.emulation.emulated import emulated_tools
from torshc import backend
from torshc.bundle.nvcc import find_cards
from torshc.errors import ConfigError, RunError, UnsupportedError

MODEL = """
<ir_version: 8, opset_import: ["" : 18]>
g (float[n,4] x, float[4] w) => (float[n,4] y, float[n,4] z) {
  y = Mul(x, w)
  z = Tanh(y)
}
"""
X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
W = np.array([1, 2, 3, 4], np.float32)


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORSHC_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


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


def test_devices(model: onnx.ModelProto) -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("TPU")
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


def test_the_bundle_goes_with_the_model(model: onnx.ModelProto) -> None:
    rep = backend.prepare(model)
    folder = Path(rep._folder.name)
    assert folder.is_dir()
    del rep
    assert not folder.exists()


def test_a_node_on_a_device(tmp_path_factory: pytest.TempPathFactory) -> None:
    with emulated_tools():
        node = helper.make_node("Add", ["a", "b"], ["c"])
        (got,) = backend.run_node(node, [X, W], device="CUDA")
    np.testing.assert_array_equal(got, X + W)
