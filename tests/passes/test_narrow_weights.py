"""Products with quantised weights: which keep them narrow, in what form, and the numbers that come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.compare import compiled
from tests.support.models import model, node
from tests.support.seeded import seeded
from torshc.base.options import CompileOptions
from torshc.expr import F16
from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes import PASSES

from ..support.pass_graphs import OPTIONS, Model, lines, names, run_one, text

RNG = seeded(3)
F32 = np.float32


def narrow(graph: Graph, **parameters: Any) -> Graph:
    run_one("narrow_weights", graph, OPTIONS, **parameters)
    PASSES["dead_code"](graph, OPTIONS)
    verify(graph, "narrow_weights")
    return graph


def test_blocks() -> None:
    m = Model()
    w = m.const(RNG.integers(-8, 8, (64, 9)), "i4")
    wide = m("DequantizeLinear", w, m.const(np.ones((2, 9))), axis=0, block_size=32)
    assert text(narrow(m.done(m("MatMul", m.input(3, 64), wide)), above_kib=0)) == lines("""
        in   %0 f32[3, 64]
        %3 = BlockMatMul[block=32](%0, @1:i8[64, 9], @2:f32[2, 9]) : f32[3, 9]
        out  %3
    """)


@pytest.mark.parametrize("case", ["small", "device", "differences", "blocks of columns", "short blocks"])
def test_what_stays(case: str) -> None:
    m = Model()
    data = m.const(np.full((32, 64), -128 if case == "differences" else 1), "i8")
    zero = m.const(np.full(64, 100), "i8") if case == "differences" else None
    if case == "short blocks":
        wide = m("DequantizeLinear", data, m.const(np.ones((8, 64))), axis=0, block_size=4)
    elif case == "blocks of columns":
        wide = m("DequantizeLinear", data, m.const(np.ones((32, 2))), axis=1, block_size=32)
    else:
        wide = m("DequantizeLinear", data, m.const(np.ones(64)), *([zero] if zero else []), axis=1)
    graph = m.done(m("MatMul", m.input(3, 32), wide))
    options = CompileOptions(target="cuda") if case == "device" else OPTIONS
    assert not run_one("narrow_weights", graph, options, above_kib=256 if case == "small" else 0)
    assert names(graph) == ["DequantizeLinear", "MatMul"]


@pytest.mark.parametrize(
    ("rows", "block", "low", "pairs"), [(32, 32, -8, True), (33, 32, -8, False), (1, 16, -8, False), (1, 64, -9, False)]
)
def test_few_rows_of_halves_on_cards(rows: int, block: int, low: int, pairs: bool) -> None:
    """Weights of 4 bits lie two to a byte, the first below, with 8 added."""
    m = Model()
    numbers = RNG.integers(-8, 8, (64, 9))
    numbers[0, :2] = low, 7
    w = m.const(numbers, "i8")
    wide = m("DequantizeLinear", w, m.const(np.ones((64 // block, 9)), "f16"), axis=0, block_size=block, to=F16)
    graph = m.done(m("MatMul", m.input(1, rows, 64, dtype="f16"), wide))
    found = run_one("narrow_weights", graph, CompileOptions(target="cuda"), above_kib=0)
    assert found == pairs
    if pairs:
        PASSES["dead_code"](graph, OPTIONS)
        assert names(graph) == ["PairMatMul"]
        bytes_ = graph.nodes[0].operands[1].const
        assert bytes_ is not None and bytes_.shape == (9, 32) and bytes_[0, 0] & 15 == 0 and bytes_[1, 0] & 15 == 15
        assert (bytes_[4] >> 4).tolist() == (numbers[1::2, 4] + 8).tolist()


@pytest.mark.parametrize("rows", [1, 13])
@pytest.mark.parametrize("lanes", ["native", "x86-64-v2"])
def test_numbers(rows: int, lanes: str, tmp_path: Path) -> None:
    """Blocks that do not divide, with zero points; scales of columns behind a Transpose; one scale and a bias."""
    blocks = RNG.uniform(0.01, 0.1, (7, 700)).astype(F32)
    constants: dict[str, Any] = {
        "w": RNG.integers(0, 256, (402, 700)).astype(np.uint8), "s": blocks,
        "z": np.full((7, 700), 128, np.uint8), "v": RNG.integers(-128, 128, (700, 402)).astype(np.int8),
        "vs": RNG.uniform(0.01, 0.1, 700).astype(F32), "t": np.asarray(0.02, F32),
        "b": RNG.standard_normal(700).astype(F32),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", "w s z", "wide", axis=0, block_size=64),
        node("MatMul", "x wide", "y"),
        node("DequantizeLinear", "v vs", "rows", axis=0),
        node("Transpose", "rows", "turned", perm=[1, 0]),
        node("MatMul", "x turned", "u"),
        node("DequantizeLinear", "v t", "all"),
        node("Gemm", "x all b", "g", transB=1),
    ]
    made = model(nodes, {"x": (rows, 402)}, ["y", "u", "g"], constants, opset=21)
    x = RNG.standard_normal((rows, 402)).astype(F32)
    got = compiled(made, {"x": x}, tmp_path, jobs=1, mcpu=lanes)
    wide = (constants["w"].astype(F32) - 128) * np.repeat(blocks, 64, 0)[:402]
    v = constants["v"].astype(F32).T
    wanted = {"y": x @ wide, "u": x @ (v * constants["vs"]), "g": x @ (v * F32(0.02)) + constants["b"]}
    for name, array in wanted.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-4, atol=1e-5 * np.abs(array).max(), err_msg=name)
    assert (tmp_path / "m.tsc" / "weights.bin").stat().st_size < 402 * 700 * 4


@pytest.mark.parametrize("rows", [1, 2, 13])
@pytest.mark.parametrize(
    ("depth", "block", "lanes"), [(402, 64, "native"), (402, 30, "x86-64-v2"), (401, 64, "native")]
)
def test_two_weights_of_four_bits_share_a_byte(rows: int, depth: int, block: int, lanes: str, tmp_path: Path) -> None:
    """Where rows come in pairs; all numbers of 4 bits, next to each other and in blocks that do not divide."""
    blocks = -(-depth // block)
    w = RNG.integers(-8, 8, (depth, 700)).astype(np.int8)
    w[:2, :256] = np.stack(np.meshgrid(np.arange(-8, 8), np.arange(-8, 8))).reshape(2, 256)
    scale = RNG.uniform(0.01, 0.1, (blocks, 700)).astype(F32)
    nodes = [
        node("DequantizeLinear", "w s", "wide", axis=0, block_size=block),
        node("MatMul", "x wide", "y"),
    ]
    made = model(nodes, {"x": (rows, depth)}, ["y"], {"w": w, "s": scale}, opset=21)
    x = RNG.standard_normal((rows, depth)).astype(F32)
    got = compiled(made, {"x": x}, tmp_path, jobs=1, mcpu=lanes)["y"]
    wanted = x @ (w * np.repeat(scale, block, 0)[:depth])
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
    size = (tmp_path / "m.tsc" / "weights.bin").stat().st_size
    assert (size < (depth // 2 + 4 * blocks + 4) * 704 + 8192) == (depth % 2 == 0)
