"""Models whose sizes or steps are run-time dependent on a device, through the emulator: what runs where, and tensors
on the device on both sides. That results are right for each kind of step is in test_scripts.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools
from tests.runtime.test_device import to_device
from torshc.base.errors import RunError
from torshc.base.options import CompileOptions
from torshc.explain import explain
from torshc.pipeline.compiler import prepare
from torshc.runtime import DeviceArray

from .test_compiler_scripts import INT, B, F, agree, body_of, floats, model_of, node


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    with emulated_tools():
        yield


def test_compress(tmp_path: Path) -> None:
    nodes = [node("Mul", ["x", "x"], ["s"]), node("Compress", ["s", "keep"], ["y"], axis=0)]
    model = model_of(nodes, {"x": (F, ["n", 3]), "keep": (B, ["n"])}, ["y"])
    feeds = [{"x": floats(n, 3), "keep": np.arange(n) % k == 0} for n, k in ((5, 2), (1, 1), (4, 7), (0, 1))]
    agree(tmp_path, model, *feeds, target="cuda")


def test_scales_of_a_resize(tmp_path: Path) -> None:
    nodes = [node("Resize", ["x", "", "scales"], ["y"], mode="linear"), node("Neg", ["y"], ["z"])]
    model = model_of(nodes, {"x": (F, [1, 1, 4, 4]), "scales": (F, [4])}, ["z"])
    scales = [(1, 1, 2, 0.5), (1, 1, 1, 1), (1, 1, 1.7, 3)]
    feeds = [{"x": floats(1, 1, 4, 4), "scales": np.array(s, np.float32)} for s in scales]
    agree(tmp_path, model, *feeds, target="cuda")


def test_the_depth_of_onehot(tmp_path: Path) -> None:
    nodes = [node("OneHot", ["x", "depth", "values"], ["y"], axis=-1)]
    model = model_of(nodes, {"x": (INT, ["n"]), "depth": (INT, []), "values": (F, [2])}, ["y"])
    values = np.array([-1, 2], np.float32)
    feeds = [{"x": np.array(x), "depth": np.array(d), "values": values} for x, d in (([0, 2, -1], 3), ([1], 9))]
    agree(tmp_path, model, *feeds, target="cuda")


def test_the_bounds_of_a_range(tmp_path: Path) -> None:
    nodes = [node("Range", ["a", "b", "step"], ["r"]), node("Mul", ["r", "r"], ["y"])]
    model = model_of(nodes, {"a": (F, []), "b": (F, []), "step": (F, [])}, ["y"])
    bounds = [(0, 5, 1), (2, -3, -0.5), (1, 1, 1), (0, 700, 1)]
    feeds = [{name: np.array(v, np.float32) for name, v in zip(("a", "b", "step"), b, strict=True)} for b in bounds]
    agree(tmp_path, model, *feeds, target="cuda")


def two_places() -> onnx.ModelProto:
    """Whether the first of the counts is above 1 is computed for the host; the branches are work for the device."""
    then = body_of([node("Mul", ["x", "x"], ["p"])], [], ["p"])
    other = body_of([node("Exp", ["x"], ["e"])], [], ["e"])
    nodes = [
        node("ReduceSum", ["counts"], ["total"], keepdims=0),
        node("Greater", ["total", "one"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    return model_of(nodes, {"x": (F, ["n"]), "counts": (INT, [3])}, ["y"], {"one": np.array(1)})


def test_what_only_the_host_reads_runs_on_the_processor(tmp_path: Path) -> None:
    model = two_places()
    runs = [(3, [0, 1, 0]), (5, [2, 0, 0]), (0, [1, 1, 1])]
    agree(tmp_path, model, *[{"x": floats(n), "counts": np.array(c)} for n, c in runs], target="cuda")
    compilation = prepare(tmp_path / "m.onnx", CompileOptions(target="cuda"))
    places = {n.op.name: u.device for u in compilation.units for n in u.group.nodes}
    assert places["Mul"] == places["Exp"] == 2 and places["Greater"] == 1
    launches = [line.text for line in explain(compilation).course if line.what == "launch"]
    assert launches[0].endswith("on the processor") and "processor" not in launches[1]
    assert not compilation.fallbacks and compilation.script is not None
    steps = json.loads((tmp_path / "m.tsc" / "manifest.json").read_text())["steps"]
    assert sorted(step["device"] for step in steps) == [1, 2, 2]
    on_c = prepare(tmp_path / "m.onnx", CompileOptions())
    assert on_c.script is not None and not on_c.script.for_host


def test_tensors_on_the_device(tmp_path: Path) -> None:
    """In and out, in any mixture with arrays; an input that a device segment and the host read."""
    nodes = [node("Relu", ["x"], ["r"]), node("NonZero", ["x"], ["places"]), node("Neg", ["r"], ["y"])]
    onnx.save(model_of(nodes, {"x": (F, ["a", 5])}, ["places", "y"]), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="cuda")
    x = floats(3, 5) * (np.arange(15).reshape(3, 5) % 2).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc") as model:
        for given in (x, to_device(model, x)):
            assert model._opened is not None
            y = DeviceArray(model._opened, (3, 5), np.dtype(np.float32), (2, 32))
            found = model.run({"x": given}, out={"y": y})
            assert found["y"] is y
            np.testing.assert_array_equal(y.numpy(), -np.maximum(x, 0))
            np.testing.assert_array_equal(found["places"], np.nonzero(x))
        with pytest.raises(RunError, match="not an array of the type and shape"):
            model.run({"x": x[:2]}, out={"y": y})


def test_a_size_in_the_devices_memory_is_refused(tmp_path: Path) -> None:
    nodes = [node("Reshape", ["x", "shape"], ["r"]), node("NonZero", ["r"], ["y"])]
    onnx.save(model_of(nodes, {"x": (F, [6]), "shape": (INT, [2])}, ["y"]), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="cuda")
    shape = np.array([2, 3])
    with torshc.load(tmp_path / "m.tsc") as model:
        assert model.run({"x": np.ones(6, np.float32), "shape": shape})["y"].shape == (2, 6)
        with pytest.raises(RunError, match="holds sizes: pass it in the processor's memory"):
            model.run({"x": np.ones(6, np.float32), "shape": to_device(model, shape)})


def test_a_constant_that_the_host_and_the_device_read(tmp_path: Path) -> None:
    """The weights stay on the processor beside their copy on the device."""
    table = floats(4, 3)
    nodes = [
        node("NonZero", ["table"], ["places"]),
        node("Compress", ["table", "keep"], ["kept"], axis=0),
        node("MatMul", ["kept", "x"], ["y"]),
    ]
    model = model_of(nodes, {"x": (F, [3, "n"]), "keep": (B, [4])}, ["places", "y"], {"table": table})
    keep = np.array([True, False, True, True])
    agree(tmp_path, model, {"x": floats(3, 2), "keep": keep}, {"x": floats(3, 5), "keep": ~keep}, target="cuda")


def test_steps_of_segments_are_measured(tmp_path: Path) -> None:
    """Each round of a loop counts, on the device and on the processor."""
    body = body_of(
        [
            node("Add", ["s", "x"], ["t"]),
            node("ReduceMax", ["t"], ["most"], keepdims=0),
            node("Less", ["most", "limit"], ["on"]),
        ],
        ["i", "c", "s"],
        ["on", "t"],
    )
    loop = node("Loop", ["n", "go", "x"], ["y"], body=body)
    model = model_of(
        [loop], {"x": (F, [2000]), "n": (INT, []), "go": (B, [])}, ["y"], {"limit": np.array(6, np.float32)}
    )
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", target="cuda", profile=True)
    with torshc.load(tmp_path / "m.tsc") as compiled:
        y = compiled.run({"x": np.ones(2000, np.float32), "n": np.array(50), "go": np.array(True)})["y"]
        calls = [step.calls for step in compiled.stats().steps]
    assert y[0] == 6 and calls and set(calls) == {5}
