"""Products in WGSL: tile by tile, or sums of several points in one thread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.seeded import seeded
from tests.targets.gpu.webgpu.test_target import check, model
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare
from torshc.targets.gpu.contraction_kernels import ContractionKernel

F32, I32 = TensorProto.FLOAT, TensorProto.INT32
RNG = seeded(0)


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def product(rows: Any, columns: int, kind: int = F32, depth: int = 33) -> bytes:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Abs", ["m"], ["y"])]
    return model(nodes, {"x": (kind, [rows, depth]), "w": (kind, [depth, columns])}, {"y": kind})


@pytest.mark.parametrize(("rows", "columns", "sums"), [(64, 128, 16), (63, 130, 6), (61, 127, 1), (4, 4, 1)])
def test_points_of_a_thread(rows: int, columns: int, sums: int) -> None:
    """As many as divide both sides, where enough threads are left; of floats there are tiles."""
    compilation = prepare(product(rows, columns, I32), CompileOptions(target="webgpu", fallback=False))
    (kernel,) = (k for unit in compilation.units for k in unit.kernels)
    assert len(kernel.stages[0].accumulators) == sums == len(kernel.row)


@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (63, 130)])
def test_products_of_integers(rows: int, columns: int, tmp_path: Path) -> None:
    feeds = {"x": RNG.integers(-9, 9, (rows, 33), np.int32), "w": RNG.integers(-9, 9, (33, columns), np.int32)}
    check(product(rows, columns, I32), feeds, tmp_path)


@pytest.mark.parametrize(
    ("rows", "columns", "depth"), [(64, 128, 33), (63, 130, 33), ("n", 40, 33), (300, 260, 16), (16, 24, 700)]
)
def test_tiles(rows: Any, columns: int, depth: int, tmp_path: Path) -> None:
    """Whole tiles and parts of them, rows of any number, and sums in pieces."""
    source = product(rows, columns, depth=depth)
    compilation = prepare(source, CompileOptions(target="webgpu", fallback=False))
    assert any(isinstance(k, ContractionKernel) for unit in compilation.units for k in unit.kernels)
    feeds = {"x": floats(37 if rows == "n" else rows, depth), "w": floats(depth, columns)}
    check(source, feeds, tmp_path, 1e-4)  # sums of at most 700 products of about 1, each rounded in f32


CONVOLUTIONS = [
    ("Conv", [1, 3, 24, 24], [8, 3, 3, 3], {"pads": [1] * 4}),
    ("Conv", [2, 12, 15, 13], [20, 6, 3, 3], {"pads": [1, 0, 2, 1], "strides": [2, 1], "group": 2}),
    ("ConvTranspose", [1, 16, 9, 7], [16, 24, 3, 3], {"strides": [2, 2], "pads": [1] * 4}),
]


@pytest.mark.parametrize(("kind", "x", "w", "attributes"), CONVOLUTIONS)
def test_convolutions(kind: str, x: list[int], w: list[int], attributes: dict[str, Any], tmp_path: Path) -> None:
    node = helper.make_node(kind, ["x", "w"], ["y"], **attributes)
    check(model([node], {"x": (F32, x), "w": (F32, w)}, {"y": F32}), {"x": floats(*x), "w": floats(*w)}, tmp_path, 1e-4)
