"""Gradients of compiled steps beside f64 and central differences: what agrees, and what a wrong one shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from tests.emulation.emulated import emulated_tools
from tests.support.compilers import needed
from tests.training.networks import model, write_step
from torshc.base.errors import ConfigError, ModelError
from torshc.base.options import CompileOptions
from torshc.cli import cli
from torshc.ops.core.gradient import RULES, Backward
from torshc.ops.core.tensor import Tensor
from torshc.ops.math.linalg import MatMul
from torshc.workbench.verify_training import verify_training, widened

STEP = """\
weights: '*'
loss: cross_entropy
optimizer: {adam: {learning_rate: 0.01}}
clip_norm: 0.1
outputs: y
gradients: '*'
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A model with a bias that a batch normalisation takes away, a normalisation and a Dropout; and a step of it."""
    needed()
    rng = np.random.default_rng(11)
    weights = {"w": rng.standard_normal((6, 4)), "b": np.ones(4), "v": rng.standard_normal((4, 3))}
    weights |= {"ratio": np.array(0.4), **{n: np.ones(4) for n in ("scale", "shift", "mean", "var")}}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("BatchNormalization", ["q", "scale", "shift", "mean", "var"], ["n"], "norm"),
        helper.make_node("Tanh", ["n"], ["t"]),
        helper.make_node("Dropout", ["t", "ratio"], ["d"], "drop"),
        helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]
    source = tmp_path / "m.onnx"
    source.write_bytes(model(nodes, {"x": ["batch", 6]}, {"y": ["batch", 3]}, weights, np.float32))
    return source, write_step(tmp_path, STEP)


def test_a_scaled_step_of_halves_agrees_once_its_scale_is_small_enough(files: tuple[Path, Path]) -> None:
    """Masks too, which depend on how many updates were left out before."""
    source, step = files
    step.write_text(STEP + "loss_scale: {initial: 67108864}\n")
    options = CompileOptions(train=step, target="cuda", arch="sm_90a", precision="f16")
    with emulated_tools():
        verdict = verify_training(source, options, dims={"batch": 9}, rtol=2e-2)  # factors are rounded by 2^-11
    assert verdict.ok and max(o.error for o in verdict.outputs if o.name != "b") > 1e-6


def test_a_step_agrees(files: tuple[Path, Path]) -> None:
    source, step = files
    verdict = verify_training(source, CompileOptions(train=step), dims={"batch": 9})
    assert verdict.ok and [o.name for o in verdict.outputs] == ["loss", "w", "b", "v", "scale", "shift"]
    # Some dozen roundings of f32, of 6e-8 each; of b, whose gradient is 0, as a part of the largest of all.
    assert all(o.error < 1e-5 for o in verdict.outputs if o.name != "b")


def test_a_wrong_gradient_is_told(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a product, whose rule is the same in f32 and in f64: only differences show it."""
    right = RULES[MatMul]

    def wrong(op: MatMul, at: Backward) -> list[Tensor | None]:
        found = right(op, at)
        assert not isinstance(found, Tensor) and found is not None
        return [None if t is None else t * 1.01 for t in found]

    monkeypatch.setitem(RULES, MatMul, wrong)
    source, step = files
    verdict = verify_training(source, CompileOptions(train=step), dims={"batch": 9})
    bad = {o.name for o in verdict.outputs if "differences of the loss" in o.problem}
    assert not verdict.ok and {"w", "v"} <= bad and "loss" not in bad


def test_a_recurrent_network_agrees(tmp_path: Path) -> None:
    """From the last step on, with first states, peepholes and a sequence that ends early."""
    needed()
    rng = np.random.default_rng(12)
    sizes = {"w": (1, 12, 2), "r": (1, 12, 3), "b": (1, 24), "h": (1, 2, 3), "c": (1, 2, 3), "p": (1, 9)}
    nodes = [
        helper.make_node("Cast", ["ends"], ["lengths"], to=TensorProto.INT32),
        helper.make_node(
            "LSTM", ["x", "w", "r", "b", "lengths", "h", "c", "p"], ["y"], hidden_size=3, direction="reverse"
        ),
    ]
    weights = {n: rng.standard_normal(dims) for n, dims in sizes.items()}
    shapes = {"x": [3, 2, 2]}, {"y": [3, 1, 2, 3]}
    made = onnx.load_from_string(model(nodes, *shapes, weights, np.float32))
    made.graph.initializer.append(numpy_helper.from_array(np.array([2, 3]), "ends"))
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    step = write_step(tmp_path, "weights: '*'\nloss: mse\noptimizer: {sgd: {learning_rate: 0.01}}\n")
    verdict = verify_training(tmp_path / "m.onnx", CompileOptions(train=step))
    assert verdict.ok and [o.name for o in verdict.outputs] == ["loss", *sizes]
    # Some dozen roundings of f32, of 6e-8 each.
    assert all(o.error < 1e-5 for o in verdict.outputs)


def test_files_are_read_as_the_compiler_reads_them(tmp_path: Path) -> None:
    """A JSON graph is refused by name, and so is a weight in a file that lies elsewhere."""
    (tmp_path / "m.json").write_text('{"inputs": {}, "outputs": [], "nodes": []}')
    with pytest.raises(ConfigError, match="verify --train takes no JSON graph"):
        widened(tmp_path / "m.json")
    weights = {"w": np.ones((6, 4), np.float32)}
    proto = onnx.load_from_string(
        model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [1, 6]}, {"y": [1, 4]}, weights, np.float32)
    )
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../w.bin")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match=r"\.\./w\.bin"):
        widened(tmp_path / "m.onnx")


def test_the_command_shows_each_weight(files: tuple[Path, Path]) -> None:
    source, step = files
    given = ["verify", str(source), "--train", str(step), "--dims", "batch=9"]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 0 and "agrees with gradients in f64 and central differences" in done.output
    shown = [line.split()[0] for line in done.output.splitlines() if line.endswith("ok")]
    assert shown == ["loss", "w", "b", "v", "scale", "shift"]
    assert CliRunner().invoke(cli, [*given, "--rtol", "0"]).exit_code == 1
    refused = CliRunner().invoke(cli, [*given, "--against", "ort"])
    assert refused.exit_code == 2 and "leave it out with --train" in refused.output
