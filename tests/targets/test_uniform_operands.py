"""Operands that are one number everywhere, on devices: what is read of them has no axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.emulation.emulated import emulated_tools
from tests.support.compare import check
from tests.support.models import model, node

NODES: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], tuple[int, ...]]] = {
    "convolution": ([node("Conv", "x w", "y", pads=[1, 1, 1, 1])], (2, 3, 6, 5), (4, 3, 3, 3)),
    "groups": ([node("Conv", "x w", "y", group=3)], (2, 3, 6, 5), (6, 1, 2, 2)),
    "transposed": ([node("ConvTranspose", "x w", "y", strides=[2, 2])], (2, 3, 6, 5), (3, 2, 2, 2)),
    "product": ([node("MatMul", "x w", "y")], (2, 3, 6, 5), (5, 7)),
    "wide product": ([node("Gemm", "x w", "y", transB=1)], (1, 600), (512, 600)),  # too large to be folded
    "from the left": ([node("MatMul", "w x", "y")], (2, 3, 6, 5), (7, 6)),
    "of two": ([node("Mul", "x zero", "x0"), node("MatMul", "w w", "y0"), node("Add", "x0 y0", "y")], (5, 5), (5, 5)),
}


@pytest.mark.parametrize("target", ["cuda", "metal"])
@pytest.mark.parametrize("name", NODES)
def test_against_the_reference(name: str, target: str, tmp_path: Path) -> None:
    nodes, shape, weights = NODES[name]
    value = onnx.numpy_helper.from_array(np.array([0.25], np.float32))
    nodes = [node("ConstantOfShape", "s", "w", value=value), *nodes]
    constants = {"s": np.array(weights), "zero": np.zeros((), np.float32)}
    made = model(nodes, {"x": shape}, ["y"], constants)
    feeds = {"x": np.linspace(-0.5, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)}
    with emulated_tools():
        check(made, feeds, tmp_path, target=target)
