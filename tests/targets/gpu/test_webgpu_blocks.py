"""Sums of several points in one thread."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.targets.gpu.test_webgpu import check, model
from torshc.compiler import prepare
from torshc.options import CompileOptions

F32 = TensorProto.FLOAT


def product(rows: int, columns: int) -> bytes:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    return model(nodes, {"x": (F32, [rows, 33]), "w": (F32, [33, columns])}, {"y": F32})


@pytest.mark.parametrize(("rows", "columns", "sums"), [(64, 128, 16), (63, 130, 6), (61, 127, 1), (4, 4, 1)])
def test_points_of_a_thread(rows: int, columns: int, sums: int) -> None:
    """As many as divide both sides, where enough threads are left."""
    compilation = prepare(product(rows, columns), CompileOptions(target="webgpu", fallback=False))
    (kernel,) = (k for unit in compilation.units for k in unit.kernels)
    assert len(kernel.stages[0].accumulators) == sums == len(kernel.row)


@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (63, 130)])
def test_products(rows: int, columns: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.normal(size=(rows, 33)).astype(np.float32),
        "w": rng.normal(size=(33, columns)).astype(np.float32),
    }
    check(product(rows, columns), feeds, tmp_path, 1e-5)


def test_convolution_with_a_border(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)
    source = model([node], {"x": (F32, [1, 3, 24, 24]), "w": (F32, [8, 3, 3, 3])}, {"y": F32})
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.normal(size=(1, 3, 24, 24)).astype(np.float32),
        "w": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
    }
    check(source, feeds, tmp_path, 1e-5)
