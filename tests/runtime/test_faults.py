"""Messages of failed runs speak in the model's own names."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torshc
from tests.support.models import model, save
from torshc.base.errors import RunError

INFO, NODE, F = helper.make_tensor_value_info, helper.make_node, TensorProto.FLOAT


def compiled(
    folder: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[str | int]],
    y: list[str | int],
    loose: str = "auto",
) -> Path:
    made = model(nodes, inputs, [INFO("y", F, y)])
    torshc.compile(save(made, folder), folder / "m.tsc", loose=loose)
    return folder / "m.tsc"


def test_shapes_that_do_not_fit_are_named(tmp_path: Path) -> None:
    """The equation in the model's names, both values, and where each symbol stands."""
    flat = NODE("Reshape", ["b", "flat"], ["c"])
    flat_shape = NODE("Constant", [], ["flat"], value_ints=[-1])
    nodes = [flat_shape, flat, NODE("Add", ["a", "c"], ["y"])]
    bundle = compiled(tmp_path, nodes, {"a": ["frames"], "b": ["batch", 2]}, ["frames"])
    with torshc.load(bundle) as model:
        model.run({"a": np.zeros(6, np.float32), "b": np.zeros((3, 2), np.float32)})
        with pytest.raises(RunError) as caught:
            model.run({"a": np.zeros(6, np.float32), "b": np.zeros((2, 2), np.float32)})
    text = str(caught.value)
    assert "do not fit together: frames == 2*batch does not hold, 6 is not 4" in text
    assert "frames is dimension 0 of input 'a', batch is dimension 0 of input 'b'" in text


def test_a_one_that_numpy_would_broadcast_has_to_be_declared_without_a_loose_form(tmp_path: Path) -> None:
    """The remedy names the input and the dimension, and holds."""
    inputs: dict[str, list[str | int]] = {"a": ["m", "n", 2], "b": ["k", 2]}
    feeds = {"a": np.ones((3, 1, 2), np.float32), "b": np.ones((4, 2), np.float32)}
    bundle = compiled(tmp_path, [NODE("Add", ["a", "b"], ["y"])], inputs, ["m", "n", 2], "none")
    with torshc.load(bundle) as model, pytest.raises(RunError) as caught:
        model.run(feeds)
    assert "it was left out (--loose none)" in caught.value.remedy
    assert caught.value.remedy.endswith("to broadcast n as 1, compile with --shapes a:?x1x2")
    torshc.compile(tmp_path / "m.onnx", bundle, shapes={"a": (None, 1, 2)})
    with torshc.load(bundle) as model:
        np.testing.assert_array_equal(model.run(feeds)["y"], feeds["a"] + feeds["b"])


def test_run_time_dependent_sizes_that_do_not_fit(tmp_path: Path) -> None:
    nodes = [
        NODE("NonZero", ["a"], ["places"]),
        NODE("Squeeze", ["places", "first"], ["row"]),
        NODE("Cast", ["row"], ["found"], to=F),
        NODE("Concat", ["b", "found"], ["long"], axis=0),
        NODE("Sub", ["long", "c"], ["y"]),
    ]
    first = NODE("Constant", [], ["first"], value_ints=[0])
    bundle = compiled(tmp_path, [first, *nodes], {"a": ["n"], "b": ["m"], "c": ["k"]}, ["k"])
    with torshc.load(bundle) as model:
        a, b = np.array([0, 1, 1, 0], np.float32), np.zeros(3, np.float32)
        assert model.run({"a": a, "b": b, "c": np.zeros(5, np.float32)})["y"].tolist() == [0, 0, 0, 1, 2]
        with pytest.raises(RunError) as caught:
            model.run({"a": a, "b": b, "c": np.zeros(4, np.float32)})
    text = str(caught.value)
    assert ("do not fit together" in text and "5 is not 4" in text) or "4 is not 5" in text
    assert "k is dimension 0 of input 'c'" in text
