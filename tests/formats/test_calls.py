"""Nodes of calls are counted before they are expanded, and as many are made."""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np
import onnx
import pytest
from onnx import helper

from torshc.base.budget import spending
from torshc.base.errors import UnsupportedError
from torshc.formats import import_model

OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
RELU = helper.make_node("Relu", ["x"], ["y"])


def call(number: int, x: str, y: str) -> onnx.NodeProto:
    return helper.make_node(f"f{number}", [x], [y], domain="f")


def model(bodies: list[list[onnx.NodeProto]]) -> bytes:
    """A call of the last of some functions."""
    functions = [helper.make_function("f", f"f{k}", ["x"], ["y"], nodes, OPSETS) for k, nodes in enumerate(bodies)]
    ends = [[helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [4])] for n in "xy"]
    graph = helper.make_graph([call(len(bodies) - 1, "x", "y")], "g", *ends)
    made: bytes = helper.make_model(graph, functions=functions, opset_imports=OPSETS).SerializeToString()
    return made


def choice(node: onnx.NodeProto, y: str) -> onnx.NodeProto:
    """An If of which both sides are a node."""
    sides = {}
    for side in ("then_branch", "else_branch"):
        own = onnx.NodeProto()
        own.CopyFrom(node)
        own.output[0] = f"{side}_{y}"
        sides[side] = helper.make_graph([own], side, [], [helper.make_empty_tensor_value_info(own.output[0])])
    return helper.make_node("If", ["true"], [y], **sides)


def drawn(random: np.random.Generator) -> tuple[list[list[onnx.NodeProto]], int, int]:
    """Functions that call some of those before, in branches too; nodes that the last becomes, and Constants."""
    bodies, sizes, constants = list[list[onnx.NodeProto]](), [0], [0]
    for number in range(7):
        nodes = [helper.make_node("Constant", [], ["true"], value=onnx.numpy_helper.from_array(np.array(True)))]
        size, held = 0, 1
        for x, y in pairwise(["x", *"abc"[: random.integers(1, 4)], "y"]):
            inner = int(random.integers(number + 1))
            node = call(inner - 1, x, y) if inner else helper.make_node("Relu", [x], [y])
            is_choice = random.random() < 0.3
            nodes.append(choice(node, y) if is_choice else node)
            size += 1 + is_choice + sizes[inner]
            held += constants[inner]
        bodies.append(nodes)
        sizes.append(size)
        constants.append(held)
    return bodies, sizes[-1], constants[-1]


@pytest.mark.parametrize("seed", range(8))
def test_as_many_nodes_are_made_as_were_counted(seed: int) -> None:
    """Constants aside, which are counted once they are made."""
    bodies, size, constants = drawn(np.random.default_rng(seed))
    with spending({"expanded": size + constants}):
        assert import_model(model(bodies)).nodes
    with spending({"expanded": size - 1}), pytest.raises(UnsupportedError) as caught:
        import_model(model(bodies))
    assert caught.value.problems[0].startswith(f"node 'y' (f6): functions and bodies expand to {size} nodes")


def test_forty_levels_are_refused_before_they_are_expanded() -> None:
    made = model([[RELU], *([call(k, "x", "a"), call(k, "a", "y")] for k in range(40))])
    began = time.process_time()
    with pytest.raises(UnsupportedError) as caught:
        import_model(made)
    assert time.process_time() - began < 0.5
    assert f"node 'y' (f40): functions and bodies expand to {3 * 2**40 - 2} nodes" in caught.value.problems[0]
