"""Gradient of ONNX: names, values that take the place of others, derivatives of derivatives, what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.evaluate import Array, run
from tests.support.models import node
from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model
from torshc.graph import Graph

F32 = np.float32


def gradient(inputs: str, outputs: str, y: str, xs: Sequence[str], zs: Sequence[str] = ()) -> onnx.NodeProto:
    names = [n if n != "_" else "" for n in outputs.split()]
    more = {"zs": list(zs)} if zs else {}
    domain = "ai.onnx.preview.training"
    return helper.make_node("Gradient", inputs.split(), names, "slope", domain=domain, y=y, xs=list(xs), **more)


def imported(nodes: Sequence[onnx.NodeProto], inputs: dict[str, Any], outputs: str, kind: int = 1) -> Graph:
    values = [helper.make_tensor_value_info(n, kind if n != "i" else 7, s) for n, s in inputs.items()]
    found = [helper.make_empty_tensor_value_info(n) for n in outputs.split()]
    graph = helper.make_graph(list(nodes), "test", values, found)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.preview.training", 1)]
    return import_model(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def evaluated(nodes: Sequence[onnx.NodeProto], feeds: dict[str, Array], outputs: str) -> list[Any]:
    shapes = {k: v.shape for k, v in feeds.items()}
    return [a.tolist() for a in run(imported(nodes, shapes, outputs), feeds)]


CUBE = [node("Mul", "x x", "s"), node("Mul", "s x", "y")]
TWO = {"x": np.array(2, F32)}


def test_derivatives_of_derivatives() -> None:
    """Of x ** 3 at 2: 12, 12, 6 and 0."""
    nodes = [*CUBE, gradient("x", "a", "y", ["x"]), gradient("x", "b", "a", ["x"]), gradient("x", "c", "b", ["x"])]
    assert evaluated([*nodes, gradient("x", "d", "c", ["x"])], TWO, "a b c d") == [12, 12, 6, 0]


def test_results_that_are_not_wanted_and_the_order_of_nodes() -> None:
    nodes = [gradient("x z", "_ b", "y", ["x", "z"]), node("Mul", "x z", "y")]
    assert evaluated(nodes, {"x": np.array(3, F32), "z": np.array(5, F32)}, "b") == [3]


def test_with_respect_to_what_is_between() -> None:
    """Of s * x by s; what s is made of is another matter."""
    assert evaluated([*CUBE, gradient("s x", "a b", "y", ["s", "x"])], TWO, "a b") == [2, 4]
    assert evaluated([*CUBE, gradient("s x", "a", "y", ["s"], ["x"])], TWO, "a") == [2]


def test_other_values_take_the_place_of_those_that_are_named() -> None:
    """The slope of x ** 3 at 5 while y is of x = 2; of s * x at s = 7, and of both from one value."""
    feeds = {**TWO, "w": np.array(5, F32)}
    assert evaluated([*CUBE, gradient("w", "a", "y", ["x"])], feeds, "y a") == [8, 75]
    assert evaluated([*CUBE, gradient("w x", "a b", "y", ["s", "x"])], feeds, "a b") == [2, 5]
    assert evaluated([*CUBE, gradient("w w", "a b", "y", ["s", "x"])], feeds, "a b") == [5, 5]


def test_several_elements_are_summed() -> None:
    feeds = {"x": np.array([[1, 2], [3, 4]], F32)}
    nodes = [node("MatMul", "x x", "y"), gradient("x", "a", "y", ["x"])]
    assert evaluated(nodes, feeds, "a") == [[[3 + 4, 7 + 4], [3 + 6, 7 + 6]]]


@pytest.mark.parametrize(
    ("made", "match"),
    [
        (gradient("x", "a", "q", ["x"]), "'slope'.* reads 'q', which nothing produces"),
        (gradient("x", "a", "y", ["q"]), "'slope'.* reads 'q', which nothing produces"),
        (gradient("x w", "a", "y", ["x"]), "xs and zs name 1 values, and it has 2 inputs"),
        (gradient("i", "a", "y", ["i"]), r"'i' is i64\[\], and gradients are of floats"),
        (gradient("i", "a", "y", ["x"]), r"'x' is f32\[\], and i64\[\] is given for it"),
        (gradient("w", "a", "v", ["v"]), r"2 and 3 must be equal"),
        (gradient("x", "a", "a", ["x"]), "cyclic"),
    ],
)
def test_mistakes(made: onnx.NodeProto, match: str) -> None:
    with pytest.raises(ModelError, match=match):
        imported([*CUBE, made], {"x": [], "i": [], "v": [2], "w": [3]}, "a")


def test_what_has_no_gradient_is_named() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["n"], "small", to=17), helper.make_node("Cast", ["n"], ["y"], "big", to=1),
        gradient("x", "a", "y", ["x"]),
    ]  # fmt: skip
    with pytest.raises(UnsupportedError) as found:
        imported(nodes, {"x": [2]}, "a")
    assert len(found.value.problems) == 2
    assert all("node 'slope' (Gradient): node " in p and "Cast has no gradient" in p for p in found.value.problems)
