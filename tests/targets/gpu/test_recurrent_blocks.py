"""Recurrent networks on CUDA whose blocks wait for each other, as whole bundles: what a run leaves for the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import torshc
from tests.emulation.emulated import emulated_tools
from torshc.base.errors import RunError
from torshc.base.options import CompileOptions
from torshc.expr import as_int
from torshc.pipeline.compiler import prepare

# After two steps every slot still has a count that the next run begins with.
HIDDEN, STEPS, BATCH = 40, 2, 2


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    with emulated_tools():
        yield


def two_layers() -> onnx.ModelProto:
    """x [2, 2, 7] through two bidirectional LSTMs of 40 hidden units."""
    rng = np.random.default_rng(3)
    nodes, weights, size, x = [], {}, 7, "x"
    for k in range(2):
        for name, shape in (("w", (2, 4 * HIDDEN, size)), ("r", (2, 4 * HIDDEN, HIDDEN)), ("b", (2, 8 * HIDDEN))):
            weights[f"{name}{k}"] = (0.3 * rng.standard_normal(shape)).astype(np.float32)
        nodes += [
            helper.make_node(
                "LSTM", [x, f"w{k}", f"r{k}", f"b{k}"], [f"y{k}"], hidden_size=HIDDEN, direction="bidirectional"
            ),
            helper.make_node("Transpose", [f"y{k}"], [f"t{k}"], perm=[0, 2, 1, 3]),
            helper.make_node("Reshape", [f"t{k}", "flat"], [x := f"x{k}"]),
        ]
        size = 2 * HIDDEN
    weights["flat"] = np.array([STEPS, BATCH, size])
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (STEPS, BATCH, 7))],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, (STEPS, BATCH, size))],
        [onnx.numpy_helper.from_array(a, name) for name, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9)


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize("order", ["forward", "random:2"])
def test_runs_after_each_other(profile: bool, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four runs, of which the second is recorded and the others replay it, where runs are not timed."""
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    made = two_layers()
    onnx.save(made, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="cuda", profile=profile)
    rng = np.random.default_rng(4)
    with torshc.load(tmp_path / "m.tsc") as model:
        for _ in range(4):
            x = rng.standard_normal((STEPS, BATCH, 7)).astype(np.float32)
            (y,) = model.run({"x": x}).values()
            np.testing.assert_allclose(y, session.run(None, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_a_card_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(two_layers(), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="cuda")
    x = np.ones((STEPS, BATCH, 7), np.float32)
    with torshc.load(tmp_path / "m.tsc") as model:
        monkeypatch.setenv("T_EMULATE_UNITS", "1")
        with pytest.raises(RunError, match=r"6 blocks wait for each other and do not fit on the 1 multiproc.*sm_87"):
            model.run({"x": x})
        monkeypatch.delenv("T_EMULATE_UNITS")
        (y,) = model.run({"x": x}).values()
        assert np.isfinite(y).all()
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="cuda", arch="sm_90,sm_87")
    monkeypatch.setenv("T_EMULATE_UNITS", "1")
    with torshc.load(tmp_path / "m.tsc") as model:
        np.testing.assert_allclose(next(iter(model.run({"x": x}).values())), y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("arch", "most"),
    [("", 16), ("sm_80,compute_80", 16), ("sm_90a", 32), ("sm_80,sm_100f", 32), ("sm_90a,sm_87", 0), ("compute_75", 0)],
)
def test_blocks_by_architecture(arch: str, most: int, tmp_path: Path) -> None:
    """256 hidden units: two a warp in 16 blocks, one in 32."""
    size = 256
    shapes = {"x": (3, 1, 4), "w": (2, 4 * size, 4), "r": (2, 4 * size, size)}
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=size, direction="bidirectional")],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9), tmp_path / "m.onnx")
    made = prepare(tmp_path / "m.onnx", CompileOptions(target="cuda", arch=arch, emit="source"))
    (kernel,) = (k for u in made.units for k in u.kernels if k.template == "recurrent.j2")
    blocks = {0: 2, 16: 16, 32: 32}[most]
    assert (as_int(kernel.tasks), kernel.cooperative) == (blocks, most > 0)
    assert any("cudaLaunchCooperativeKernel" in text for text in made.sources.values()) == (most > 0)


def test_a_state_too_large_for_shared_memory_is_left_to_the_processor(tmp_path: Path) -> None:
    size = 4100
    shapes = {"x": (2, 1, 1), "w": (1, size, 1), "r": (1, size, size)}
    graph = helper.make_graph(
        [helper.make_node("RNN", ["x", "w", "r"], ["y"], hidden_size=size)],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9)
    onnx.save(made, tmp_path / "m.onnx")
    (refused,) = prepare(tmp_path / "m.onnx", CompileOptions(target="cuda")).refusals
    assert "too large for shared memory" in refused and "4100" in refused
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="cuda")
    rng = np.random.default_rng(5)
    feeds = {n: (0.02 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    with torshc.load(tmp_path / "m.tsc") as model:
        (y,) = model.run(feeds).values()
    np.testing.assert_allclose(y, session.run(None, feeds)[0], rtol=1e-5, atol=1e-5)
