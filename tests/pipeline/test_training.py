"""Compiled training steps: beside the same steps by NumPy in f64, over threads, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import torshc
from tests.support.compilers import needed
from tests.training.networks import ADAM, Reference, Steps, affine, batches, convolutional, model, write_step
from torshc.base.errors import ConfigError, RunError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.bundle.program import Program
from torshc.formats import load_graph
from torshc.pipeline.compiler import prepare


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    needed()
    folder = tmp_path_factory.mktemp("train")
    torshc.compile(convolutional(), folder / "net.tsc", train=write_step(folder, ADAM))
    return folder / "net.tsc"


def test_steps_are_those_of_f64(bundle: Path) -> None:
    reference, trained = Reference(), torshc.load(bundle)
    losses = []
    for k, batch in enumerate(batches(100)):
        expected, found = reference.step(**batch), float(trained.step(batch)["loss"])
        losses.append(found)
        # Each step is some hundred roundings of f32, of 6e-8 each, and begins with the errors of those before.
        assert found == pytest.approx(expected, rel=1e-5 * (k + 1), abs=1e-6 * (k + 1)), k
        if k == 0:
            states = trained.state_dict()
            for name, w in reference.weights.items():
                # Adam's first update is the sign of the gradient times the rate, but for gradients near epsilon.
                np.testing.assert_allclose(states[name], w, rtol=1e-5, atol=2e-6, err_msg=name)
    assert np.mean(losses[-10:]) < 0.3 * np.mean(losses[:10])
    assert trained.state_dict()["torshc.step"] == 100


def test_steps_of_llvm_are_those_of_f64_and_go_on_from_states_of_c(bundle: Path, tmp_path: Path) -> None:
    torshc.compile(convolutional(), tmp_path / "net.tsc", train=write_step(tmp_path, ADAM), target="llvm")
    reference, first, given = Reference(), torshc.load(bundle), batches(20)
    trained = [torshc.load(tmp_path / "net.tsc", threads=n) for n in (1, 3)]
    for k, batch in enumerate(given):
        expected = reference.step(**batch)
        if k == 10:
            first.save_state(tmp_path / "s.safetensors")
            for model in trained:
                model.load_state(tmp_path / "s.safetensors")
        running = [first] if k < 10 else trained
        found = {m.step(batch)["loss"].tobytes() for m in running}
        assert len(found) == 1
        loss = float(np.frombuffer(found.pop(), np.float32)[0])
        assert loss == pytest.approx(expected, rel=1e-5 * (k + 1), abs=1e-6 * (k + 1)), k  # as above
    before = trained[0].state_dict()
    with pytest.raises(RunError, match="out of range"):
        trained[0].step({**given[0], "target": given[0]["target"] + 3})
    assert all(np.array_equal(before[n], s) for n, s in trained[0].state_dict().items())


def test_the_bits_do_not_depend_on_threads(bundle: Path) -> None:
    models = [torshc.load(bundle, threads=n) for n in (1, 2, 3)]
    for batch in batches(10):
        assert len({m.step(batch)["loss"].tobytes() for m in models}) == 1
    first, *others = (m.state_dict() for m in models)
    for other in others:
        assert all(np.array_equal(first[n], other[n]) for n in first)


def test_a_step_that_is_refused_changes_nothing(bundle: Path) -> None:
    trained = torshc.load(bundle)
    (batch,) = batches(1)
    trained.step(batch)
    before = trained.state_dict()
    for target in (3, -1):
        wrong = {**batch, "target": np.where(np.arange(8) == 4, target, batch["target"])}
        with pytest.raises(RunError, match="cross_entropy"):
            trained.step(wrong)
    with pytest.raises(RunError, match="expected 1 to"):
        trained.step({"x": batch["x"][:0], "target": batch["target"][:0]})
    after = trained.state_dict()
    assert all(np.array_equal(before[n], after[n]) for n in before)


def program_of(source: bytes, folder: Path, text: str, **options: Any) -> Program:
    return prepare(source, CompileOptions(train=write_step(folder, text), **options)).program


@pytest.mark.parametrize("level", [0, 3])
def test_each_state_is_written_in_place_or_moved_there(level: int, tmp_path: Path) -> None:
    program = program_of(convolutional(), tmp_path, ADAM, opt_level=level)
    names = {s.offset: s.name for s in program.states}
    assert [*names.values()][:3] == ["torshc.step", "conv.weight", "conv.bias"]
    moved = {names[int(m.target.offset)] for m in program.moves}
    # Elementwise updates are safe in place. At -O3 one is fused with a sum over rows, which is not looked into.
    assert moved <= ({n for n in names.values() if n == "torshc.step" or "conv.bias" in n} if level else set())


TANGLED = "weights: [w, v]\nloss: mse\noptimizer: {sgd: {learning_rate: 0.1}}\n"


def test_a_state_that_is_still_read_is_not_overwritten(tmp_path: Path) -> None:
    """The gradient of w reads v, and that of v reads w."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Mul", ["p", "v"], ["y"])]
    first = {"w": np.array([1.0, 2.0, 3.0]), "v": np.array([2.0, -1.0, 0.5])}
    source = model(nodes, {"x": [3]}, {"y": [3]}, first, np.float32)
    needed()
    for level in (0, 3):
        torshc.compile(source, tmp_path / "p.tsc", train=write_step(tmp_path, TANGLED), opt_level=level)
        trained, (w, v) = torshc.load(tmp_path / "p.tsc"), first.values()
        rng = np.random.default_rng(2)
        for _ in range(3):
            x, t = (rng.standard_normal(3).astype(np.float32) for _ in range(2))
            loss = trained.step({"x": x, "target": t})["loss"]
            assert loss == pytest.approx(np.mean((x * w * v - t) ** 2), rel=1e-5)
            d = 2 * (x * w * v - t) / 3
            w, v = w - 0.1 * d * x * v, v - 0.1 * d * x * w
            found = trained.state_dict()
            np.testing.assert_allclose(found["w"], w, rtol=1e-5)
            np.testing.assert_allclose(found["v"], v, rtol=1e-5)


def test_weights_whose_values_decide_the_graph_are_refused(tmp_path: Path) -> None:
    """`s` is a factor, and the scales of a Resize, which the graph holds as numbers."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("Resize", ["x", "", "s"], ["r"]),
        helper.make_node("ReduceSum", ["r"], ["q"], keepdims=0), helper.make_node("Mul", ["p", "s"], ["u"]),
        helper.make_node("Add", ["u", "q"], ["y"]),
    ]  # fmt: skip
    weights = {"w": np.ones(3), "s": np.array([2.0])}
    source = model(nodes, {"x": [3]}, {"y": [3]}, weights, np.float32)
    text = "weights: {}\nloss: mse\noptimizer: {{sgd: {{learning_rate: 0.1}}}}\n"
    assert [s.name for s in program_of(source, tmp_path, text.format("w")).states] == ["torshc.step", "w"]
    with pytest.raises(ConfigError, match="the values of 's' decided how the model was imported"):
        program_of(source, tmp_path, text.format("[w, s]"))


def test_sizes_that_a_run_decides_are_refused(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"]), helper.make_node("NonZero", ["x"], ["i"], "find"),
        helper.make_node("Transpose", ["i"], ["j"]), helper.make_node("GatherND", ["p", "j"], ["y"]),
    ]  # fmt: skip
    source = model(nodes, {"x": [3]}, {"y": ["n"]}, {"w": np.ones(3)}, np.float32)
    step = write_step(tmp_path, "weights: w\nloss: mse\noptimizer: {sgd: {learning_rate: 0.1}}\n")
    with pytest.raises(UnsupportedError, match=r"'find'.*known only in a run"):
        prepare(source, CompileOptions(train=step))


def test_options_that_do_not_go_with_training_are_refused(tmp_path: Path) -> None:
    step = write_step(tmp_path, ADAM)
    with pytest.raises(ConfigError, match="--train with --named-weights"):
        CompileOptions(train=step, named_weights=True)
    with pytest.raises(ConfigError, match="--train with --precision bf16") as caught:
        prepare(convolutional(), CompileOptions(train=step, precision="bf16"))
    assert caught.value.remedy == "leave it out, or compile for --target cuda"
    (tmp_path / "nan.yaml").write_text(ADAM + "refuse_nan: true\n")
    with pytest.raises(ConfigError, match="refuse_nan with --target cuda"):
        prepare(convolutional(), CompileOptions(train=tmp_path / "nan.yaml", target="cuda"))
    with pytest.raises(ConfigError, match="the target metal does not use --train") as caught:
        prepare(convolutional(), CompileOptions(train=step, target="metal"))
    assert "--train: c, cuda, llvm, webgpu" in caught.value.remedy
    with pytest.raises(ConfigError, match="a Graph cannot be trained"):
        prepare(load_graph(convolutional()), CompileOptions(train=step))


def test_frozen_weights_stay(tmp_path: Path) -> None:
    text = ADAM.replace('"*"', "linear.*")
    steps = Steps(convolutional(np.float64), write_step(tmp_path, text), {"x": (8, 1, 6, 6)})
    found = program_of(convolutional(), tmp_path, text)
    assert {s.name for s in found.states if s.trained} == {"linear.weight", "linear.bias"}
    assert {s.name for s in steps.graph.states} == {s.name for s in found.states}


def test_states_begin_with_the_weights_inside_a_library(tmp_path: Path) -> None:
    needed()
    found = onnx.load_from_string(convolutional())
    first = {w.name: numpy_helper.to_array(w) for w in found.graph.initializer}
    step = write_step(tmp_path, ADAM)
    torshc.compile(convolutional(), tmp_path / "e.tsc", train=step, embed_weights=True)
    states = torshc.load(tmp_path / "e.tsc").state_dict()
    assert all(np.array_equal(states[n], first[n]) for n in first)
    assert all(not s.any() for n, s in states.items() if n not in first)


def test_an_embedding_is_trained_and_its_indices_are_checked(tmp_path: Path) -> None:
    """The model's own checks of indices stand beside the loss's."""
    rng = np.random.default_rng(9)
    weights = {"table": rng.standard_normal((5, 3)), "scale": np.array(2.0)}
    nodes = [helper.make_node("Gather", ["table", "ids"], ["e"]), helper.make_node("Mul", ["e", "scale"], ["y"])]
    known = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    entry = helper.make_tensor_value_info("ids", TensorProto.INT64, [4])
    graph = helper.make_graph(
        nodes, "net", [entry], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3])], known
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    step = write_step(tmp_path, 'weights: "*"\nloss: cross_entropy\noptimizer: {sgd: {learning_rate: 1}}\n')
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", train=step)
    ids, target = np.array([4, 0, 4, 2]), np.array([1, 2, 0, 1])
    with torshc.load(tmp_path / "m.tsc") as trained:
        for fault in ({"ids": ids + 1, "target": target}, {"ids": ids, "target": target + 1}):
            with pytest.raises(RunError, match="out of range"):
                trained.step(fault)
        np.testing.assert_array_equal(trained.state_dict()["table"], weights["table"].astype(np.float32))
        trained.step({"ids": ids, "target": target})
        states = trained.state_dict()
    assert "scale" not in states  # a single number, which no pattern takes
    e = np.exp(2.0 * weights["table"][ids])
    slope = 2.0 * (e / e.sum(1, keepdims=True) - np.eye(3)[target]) / 4
    expected = weights["table"].copy()
    np.subtract.at(expected, ids, slope)
    np.testing.assert_allclose(states["table"], expected, rtol=1e-5, atol=1e-6)


def test_cells_of_too_many_or_unknown_steps_are_refused_by_name(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((1, 2, 3)), "r": rng.standard_normal((1, 2, 2)), "v": rng.standard_normal(2)}
    nodes = [
        helper.make_node("RNN", ["x", "w", "r"], ["h"], "cell", hidden_size=2),
        helper.make_node("Mul", ["h", "v"], ["y"]),
    ]
    files = {steps: tmp_path / f"{steps}.onnx" for steps in (4, "steps")}
    for steps, file in files.items():
        file.write_bytes(model(nodes, {"x": [steps, 1, 3]}, {"y": [steps, 1, 1, 2]}, weights, np.float32))

    def options(chosen: str = '"*"', **more: Any) -> CompileOptions:
        text = f"weights: {chosen}\nloss: mse\noptimizer: {{sgd: {{learning_rate: 1}}}}\n"
        return CompileOptions(train=write_step(tmp_path, text), **more)

    for steps, less, why in (
        (4, {"unrolled": 3}, "a loop of 4 turns"),
        ("steps", {}, "a loop of as many turns as a run"),
    ):
        with pytest.raises(UnsupportedError, match=f"'cell': {why}") as caught:
            prepare(files[steps], options(budget=less))
        assert len(caught.value.problems) == 1
        assert all(word in caught.value.remedy for word in ("--shapes", "--budget unrolled", "come after it"))
        prepare(files[steps], options("v", budget=less))
    prepare(files["steps"], options(shapes={"x": (4, 1, 3)}))


MODES = """\
weights: "*"
loss: cross_entropy
optimizer: {momentum: {learning_rate: 0.05}}
seed: 3
"""


def test_statistics_and_masks_are_those_of_f64_and_go_on_from_a_file(tmp_path: Path) -> None:
    """Batch normalisation and dropout, compiled, beside the graph by NumPy in f64; a stop changes no bit."""
    needed()
    found = []
    for dtype in (np.float64, np.float32):
        rng = np.random.default_rng(11)
        weights = {"w": rng.standard_normal((6, 4)), **{n: np.ones(4) for n in ("scale", "bias", "mean", "var")}}
        weights |= {"ratio": np.array(0.4), "v": rng.standard_normal((4, 3))}
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["p"]),
            helper.make_node("BatchNormalization", ["p", "scale", "bias", "mean", "var"], ["n"], "norm"),
            helper.make_node("Dropout", ["n", "ratio"], ["d"], "drop"),
            helper.make_node("MatMul", ["d", "v"], ["y"]),
        ]
        found.append(model(nodes, {"x": ["batch", 6]}, {"y": ["batch", 3]}, weights, dtype))
    step = write_step(tmp_path, MODES)
    reference = Steps(found[0], step, {"x": (9, 6)})
    torshc.compile(found[1], tmp_path / "m.tsc", train=step)
    rng, trained = np.random.default_rng(12), torshc.load(tmp_path / "m.tsc", threads=2)
    given = [{"x": rng.standard_normal((9, 6)), "target": rng.integers(0, 3, 9)} for _ in range(6)]
    for k, batch in enumerate(given):
        narrow = {**batch, "x": batch["x"].astype(np.float32)}
        # Some dozen roundings of f32 a step, of 6e-8 each, which grow as a step begins with the errors of those before.
        assert trained.step(narrow)["loss"] == pytest.approx(reference(**batch), rel=1e-5 * (k + 1)), k
        if k == 2:
            trained.save_state(tmp_path / "s.safetensors")
    states = trained.state_dict()
    for name in ("mean", "var", "w", "v", "scale"):
        np.testing.assert_allclose(states[name], reference.states[name], rtol=1e-4, atol=1e-5, err_msg=name)
    assert states["torshc.seed"] == 3
    with torshc.load(tmp_path / "m.tsc") as resumed:
        resumed.load_state(tmp_path / "s.safetensors")
        for batch in given[3:]:
            resumed.step({**batch, "x": batch["x"].astype(np.float32)})
        again = resumed.state_dict()
    assert all(states[n].tobytes() == again[n].tobytes() for n in states)


def test_a_loss_that_is_no_number_is_refused_on_request(tmp_path: Path) -> None:
    """In the midst of a batch's parts too; without the request it is not."""
    needed()
    text = ADAM + "accumulate: 2\n"
    for refuse in (True, False):
        step = write_step(tmp_path, text + f"refuse_nan: {str(refuse).lower()}\n")
        torshc.compile(convolutional(), tmp_path / f"{refuse}.tsc", train=step)
        trained, (batch, other) = torshc.load(tmp_path / f"{refuse}.tsc"), batches(2)
        trained.step(batch)
        before = trained.state_dict()
        for wrong in (np.nan, np.inf):
            bad = {**other, "x": np.where(other["x"] == other["x"].max(), np.float32(wrong), other["x"])}
            if not refuse:
                assert not np.isfinite(trained.step(bad)["loss"])
                continue
            with pytest.raises(RunError, match="the loss is no finite number"):
                trained.step(bad)
            after = trained.state_dict()
            assert all(before[n].tobytes() == after[n].tobytes() for n in before)
        if refuse:
            trained.step(other)
            assert trained.state_dict()["torshc.step"] == 1
            assert trained.state_dict()["conv.weight"].tobytes() != before["conv.weight"].tobytes()


def test_a_refused_loss_names_the_node_where_numbers_ended(tmp_path: Path) -> None:
    """The logarithm of a negative number, in the midst; where there is none, the loss itself is too large."""
    needed()
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["p"], "first"), helper.make_node("Log", ["p"], ["q"], "middle"),
        helper.make_node("Mul", ["q", "v"], ["y"], "last"),
    ]  # fmt: skip
    source = model(nodes, {"x": ["n"]}, {"y": ["n"]}, {"w": np.full(1, 2.0), "v": np.full(1, 0.5)}, np.float32)
    step = write_step(tmp_path, TANGLED + "refuse_nan: true\n")
    torshc.compile(source, tmp_path / "m.tsc", train=step, opt_level=0)
    trained, x = torshc.load(tmp_path / "m.tsc"), np.ones(3, np.float32)
    trained.step({"x": x, "target": x})
    before = trained.state_dict()
    bad = np.array([1, 2, -1, 3], np.float32)
    with pytest.raises(RunError, match=r"the first NaN is a result of this step \(nodes 'middle'\)"):
        trained.step({"x": bad, "target": np.ones(4, np.float32)})
    with pytest.raises(RunError, match=r"\(loss\): the loss is no finite number\n"):
        trained.step({"x": x, "target": np.full(3, 1e30, np.float32)})
    assert all(before[n].tobytes() == s.tobytes() for n, s in trained.state_dict().items())


@pytest.mark.parametrize("target", ["c", "llvm"])
def test_a_learning_rate_that_is_none_is_refused(target: str, tmp_path: Path) -> None:
    needed()
    step = write_step(tmp_path, "weights: '*'\nloss: mse\noptimizer: {adam: {learning_rate: input}}\n")
    torshc.compile(affine(np.float32), tmp_path / "m.tsc", train=step, target=target)
    trained = torshc.load(tmp_path / "m.tsc")
    batch = {"x": np.ones((4, 3), np.float32), "target": np.ones((4, 2), np.float32)}
    trained.step({**batch, "learning_rate": np.float32(0.1)})
    before = trained.state_dict()
    for wrong in (-0.1, np.nan, np.inf, 1e38):
        with pytest.raises(RunError, match=r"learning_rate"):
            trained.step({**batch, "learning_rate": np.float32(wrong)})
        assert all(before[n].tobytes() == s.tobytes() for n, s in trained.state_dict().items())
    trained.step({**batch, "learning_rate": np.float32(0)})
