"""What inputs are used as, found in models as exporters write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.models import model as model_of
from tests.support.models import node, save
from torshc.expr import to_text
from torshc.formats import load_graph
from torshc.plan.uses import preferences_of, uses_of

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Made = list[onnx.NodeProto]


def model(
    folder: Path, nodes: Made, inputs: dict[str, tuple[int, list[int | str]]], weights: dict[str, object] | None = None
) -> Path:
    """A model whose output is its last node's."""
    made = model_of(nodes, inputs, nodes[-1].output, weights)
    return save(onnx.shape_inference.infer_shapes(made), folder)


def found(path: Path) -> dict[str, tuple[str, int, str]]:
    """The uses of a model's inputs, by name."""
    graph = load_graph(path)
    return {
        graph.inputs[u.input].name: (u.kind, u.least, "" if u.most is None else to_text(u.most)) for u in uses_of(graph)
    }


TABLE = np.zeros((50, 8), np.float32)


def test_indices_of_a_table_behind_what_moves_them(tmp_path: Path) -> None:
    nodes = [
        node("Cast", "ids", "c", to=TensorProto.INT32),
        node("Transpose", "c", "t"),
        node("Gather", "table t", "y"),
    ]
    assert found(model(tmp_path, nodes, {"ids": (INT, ["b", "t"])}, {"table": TABLE})) == {"ids": ("index", 0, "49")}


def test_an_index_of_two_tables_stays_below_both(tmp_path: Path) -> None:
    nodes = [node("Gather", "table i", "u"), node("Gather", "x i", "v", axis=0), node("Add", "u v", "y")]
    inputs: dict[str, tuple[int, list[int | str]]] = {"i": (INT, ["k"]), "x": (FLOAT, ["n", 8])}
    assert found(model(tmp_path, nodes, inputs, {"table": TABLE})) == {"i": ("index", 0, "min(n - 1, 49)")}


def test_words_that_are_hidden_where_they_are_padding_are_words(tmp_path: Path) -> None:
    nodes = [
        node("Equal", "ids zero", "padding"),
        node("Where", "padding low none", "mask"),
        node("Gather", "scores ids", "s"),
        node("Add", "s mask", "y"),
    ]
    weights = {"zero": np.array(0), "low": np.float32(-1e9), "none": np.float32(0), "scores": TABLE[:, 0]}
    assert found(model(tmp_path, nodes, {"ids": (INT, ["t"])}, weights)) == {"ids": ("index", 0, "49")}


def test_lengths_of_sequences(tmp_path: Path) -> None:
    """An LSTM's, sorted as PyTorch exports it, and those that are compared with 0, 1, 2, ..."""
    weights = {"w": np.zeros((1, 16, 3), np.float32), "r": np.zeros((1, 16, 4), np.float32), "k": np.array([2])}
    nodes = [
        helper.make_node("TopK", ["lens", "k"], ["sorted", "places"]),
        node("Cast", "sorted", "c", to=TensorProto.INT32),
        node("LSTM", "x w r _ c", "y", hidden_size=4),
    ]
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (FLOAT, ["t", 2, 3]), "lens": (INT, [2])}
    assert found(model(tmp_path, nodes, inputs, weights)) == {"lens": ("length", 1, "t")}
    masked = [
        node("Shape", "x", "shape", start=0, end=1),
        node("Squeeze", "shape", "count"),
        node("Range", "zero count one", "places"),
        node("Unsqueeze", "lens last", "column"),
        node("Less", "places column", "y"),
    ]
    weights = {"zero": np.array(0), "one": np.array(1), "last": np.array([1])}
    inputs = {"x": (FLOAT, ["t"]), "lens": (INT, ["b"])}
    assert found(model(tmp_path, masked, inputs, weights)) == {"lens": ("length", 1, "t")}


@pytest.mark.parametrize(("flip", "swap", "kind"), [(0, 0, "hide"), (1, 0, "keep"), (0, 1, "keep"), (1, 1, "hide")])
def test_masks_keep_or_hide(tmp_path: Path, flip: int, swap: int, kind: str) -> None:
    nodes = [node("Not", "m", "c")] if flip else [node("Identity", "m", "c")]
    nodes.append(node("Where", "c x low" if swap else "c low x", "y"))
    inputs: dict[str, tuple[int, list[int | str]]] = {"m": (BOOL, ["n"]), "x": (FLOAT, ["n"])}
    assert found(model(tmp_path, nodes, inputs, {"low": np.float32(-np.inf)})) == {"m": (kind, 0, "1")}


def test_positions_turn_angles(tmp_path: Path) -> None:
    nodes = [node("Cast", "at", "f", to=FLOAT), node("Mul", "f rate", "angle"), node("Cos", "angle", "y")]
    assert found(model(tmp_path, nodes, {"at": (INT, ["t", 1])}, {"rate": np.ones(4, np.float32)})) == {
        "at": ("position", 0, "")
    }
    rotary = [node("RotaryEmbedding", "x at cos sin", "y", domain="com.microsoft", num_heads=1)]
    inputs: dict[str, tuple[int, list[int | str]]] = {"x": (FLOAT, ["b", "t", 8]), "at": (INT, ["b", "t"])}
    tables = {"cos": np.ones((32, 4), np.float32), "sin": np.ones((32, 4), np.float32)}
    assert found(model(tmp_path, rotary, inputs, tables)) == {"at": ("position", 0, "31")}


def test_numbers_and_ratios_of_suppression(tmp_path: Path) -> None:
    nodes = [node("NonMaxSuppression", "boxes scores most iou", "y")]
    inputs: dict[str, tuple[int, list[int | str]]] = {
        "boxes": (FLOAT, [1, "n", 4]), "scores": (FLOAT, [1, 1, "n"]), "most": (INT, [1]), "iou": (FLOAT, [1]),
    }  # fmt: skip
    assert found(model(tmp_path, nodes, inputs)) == {"most": ("number", 1, "n"), "iou": ("ratio", 0, "1")}


@pytest.mark.parametrize(
    ("op", "kind", "most"), [("Log", "positive", ""), ("Sqrt", "positive", ""), ("Asin", "ratio", "1")]
)
def test_functions_that_few_numbers_have(tmp_path: Path, op: str, kind: str, most: str) -> None:
    nodes = [node("Transpose", "x", "t"), node(op, "t", "y")]
    assert found(model(tmp_path, nodes, {"x": (FLOAT, ["n", 3])})) == {"x": (kind, 0, most)}


def test_preferences_are_sizes_that_could_be_0(tmp_path: Path) -> None:
    nodes = [node("MaxPool", "x", "p", kernel_shape=[2], strides=[2]), node("Relu", "p", "y")]
    graph = load_graph(model(tmp_path, nodes, {"x": (FLOAT, ["b", 3, "n"])}))
    assert [to_text(e) for e in preferences_of(graph)] == ["1 <= (n // 2)"]
    assert not preferences_of(
        load_graph(model(tmp_path, [node("Concat", "x x", "y", axis=2)], {"x": (FLOAT, ["b", 3, "n"])}))
    )
