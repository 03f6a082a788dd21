"""Sizes that share parts: written whole at each use, each would double with every layer of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import torshc
from torshc.base.errors import UnsupportedError
from torshc.bundle import program

LAYERS = 12
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64


def layers(counted: bool) -> onnx.ModelProto:
    """Each layer appends a part of what it has; the last bound is an input, or a number that the run counts."""
    info = helper.make_tensor_value_info
    inputs = [info("x", FLOAT, ["n"]), info("from", INT, [1]), info("to", INT, [1])]
    nodes = []
    if counted:
        inputs[2] = info("marks", FLOAT, ["m"])
        nodes += [
            helper.make_node("NonZero", ["marks"], ["places"]),
            helper.make_node("Shape", ["places"], ["to"], start=1, end=2),
        ]
    last = "x"
    for k in range(LAYERS):
        nodes.append(helper.make_node("Slice", [last, "from", "to"], [f"part{k}"]))
        nodes.append(helper.make_node("Concat", [last, f"part{k}"], [f"long{k}"], axis=0))
        nodes.append(helper.make_node("Sin", [f"long{k}"], [f"y{k}"]))
        last = f"y{k}"
    graph = helper.make_graph(nodes, "layers", inputs, [info(last, FLOAT, ["out"])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("counted", [False, True], ids=["input", "counted"])
@pytest.mark.parametrize("level", [0, 3])
def test_many_layers(counted: bool, level: int, tmp_path: Path) -> None:
    model = layers(counted)
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", opt_level=level, threads=1, keep_intermediates=True)
    assert max(f.stat().st_size for f in (tmp_path / "m.tsc" / "src").iterdir()) < 1 << 20
    reference = ReferenceEvaluator(model)
    random = np.random.default_rng(level)
    with torshc.load(tmp_path / "m.tsc", threads=1) as loaded:
        for n, start, end in ((5, 0, 2), (3, -2, 2), (1, 4, 3), (7, 1, 1)):
            feeds = {"x": random.standard_normal(n).astype(np.float32), "from": np.array([start], np.int64)}
            if counted:
                feeds["marks"] = np.array([0.0] + [1.0] * end, np.float32)
            else:
                feeds["to"] = np.array([end], np.int64)
            (wanted,) = reference.run(None, feeds)
            (got,) = loaded.run(feeds).values()
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)  # an ulp or two for each of 12 sines


def shorter() -> onnx.ModelProto:
    """Each layer leaves out the last element, whose place it computes: conditions on a size choose the next one."""
    info, node = helper.make_tensor_value_info, helper.make_node
    one, zero = (numpy_helper.from_array(np.array([k]), name) for k, name in ((1, "one"), (0, "zero")))
    nodes, last = [], "x"
    for k in range(2 * LAYERS):
        nodes += [node("Shape", [last], [f"n{k}"]), node("Sub", [f"n{k}", "one"], [f"end{k}"])]
        nodes.append(node("Slice", [last, "zero", f"end{k}"], [f"y{k}"]))
        last = f"y{k}"
    graph = helper.make_graph(nodes, "m", [info("x", FLOAT, ["n"])], [info(last, FLOAT, ["out"])], [one, zero])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_sizes_chosen_by_sizes(tmp_path: Path) -> None:
    onnx.save(shorter(), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", threads=1, keep_intermediates=True)
    assert max(f.stat().st_size for f in (tmp_path / "m.tsc" / "src").iterdir()) < 1 << 18
    with torshc.load(tmp_path / "m.tsc", threads=1) as loaded:
        for n in (0, 1, 7, 2 * LAYERS, 2 * LAYERS + 1, 40):
            x = np.arange(n, dtype=np.float32)
            np.testing.assert_array_equal(next(iter(loaded.run({"x": x}).values())), x[: max(n - 2 * LAYERS, 0)])


def dims(many: int) -> onnx.ModelProto:
    """As many inputs, each of a length of its own."""
    info = helper.make_tensor_value_info
    inputs = [info(f"x{k}", FLOAT, [f"n{k}"]) for k in range(many)]
    outputs = [info(f"y{k}", FLOAT, [f"n{k}"]) for k in range(many)]
    nodes = [helper.make_node("Neg", [f"x{k}"], [f"y{k}"]) for k in range(many)]
    graph = helper.make_graph(nodes, "dims", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_hundreds_of_dimensions(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(dims(300).SerializeToString())
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", opt_level=0, threads=1)
    feeds = {f"x{k}": np.full(k % 3, k, np.float32) for k in range(300)}
    with torshc.load(tmp_path / "m.tsc", threads=1) as loaded:
        for k, got in enumerate(loaded.run(feeds).values()):
            np.testing.assert_array_equal(got, -feeds[f"x{k}"])


def test_too_many_dimensions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "SYMBOLS_MAX", 3)
    (tmp_path / "m.onnx").write_bytes(dims(4).SerializeToString())
    with pytest.raises(UnsupportedError, match=r"have 4 symbolic dimensions.*at most 3"):
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", emit="source")
