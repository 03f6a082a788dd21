"""Products and convolutions of bytes by tiles: exact on every machine, in C where instructions are missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.expr import U8, const
from torshc.graph import Graph
from torshc.kernels.machine import Machine
from torshc.ops.quant.integer import IntegerConv, IntegerMatMul
from torshc.targets.cpu.int8 import Int8AmxKernel
from torshc.targets.isa import resolve

from ...support.kernels import Maker, Shape, sizes
from ...support.run_kernel import Array, Program, compilers, kind_of, kinds, native_lanes
from .test_dot import LAST, Case, convolved

WIDEST = max(native_lanes(), resolve().lanes)
LANES = sorted({WIDEST, native_lanes(), 1})
DIMS = {"b": 2, "s": 37}


def unsigned(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def signed(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


def program(graph: Graph, lanes: int = 0, compiler: str = "") -> Program:
    compiler = compiler or compilers()[0]
    return Program(graph, DIMS, Machine(lanes or WIDEST, kind_of(compiler), extras=Int8AmxKernel.needs), compiler)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((35, 65), (65, 50)), ((16, 1), (1, 9)), ((17, 63), (63, 16)), ((33, 16), (16, 40)), ((64, 128), (128, 64)),
        (("s", 40), (40, 37)), (("b", "s", 40), (40, 33)), ((2, 5, 21), (2, 21, 19)), ((800, 7), (7, 16)),
    ],
    ids=str,
)  # fmt: skip
def test_products(a: Shape, b: tuple[int, ...], lanes: int, compiler: str) -> None:
    """Whatever the rows, columns and terms that are left over."""
    m = Maker()
    x, w = unsigned(1, *sizes(a, DIMS)), signed(2, *b)
    y = m.builder.one(IntegerMatMul(), m.input(*a, dtype=U8), m.constant(w))
    made = program(m.output(y), lanes, compiler)
    assert kinds(made) == ["gemm_int8_amx"]
    np.testing.assert_array_equal(made.run(x)[0], np.matmul(x.astype(np.int32), w.astype(np.int32)))


def test_extremes() -> None:
    """Nothing saturates."""
    m = Maker()
    y = m.builder.one(IntegerMatMul(), m.input(20, 300, dtype=U8), m.constant(np.full((300, 40), -128, np.int8)))
    (found,) = program(m.output(y)).run(np.full((20, 300), 255, np.uint8))
    assert np.all(found == -300 * 255 * 128)


@pytest.mark.parametrize("depth", [64, 70])
def test_parts_of_rows(depth: int) -> None:
    """Rows that do not follow each other are read as they lie, and nothing behind the last one."""
    m = Maker()
    w, x = signed(3, depth, 20), unsigned(4, 50, 200)
    fields: Any = {"starts": (const(0), const(10)), "sizes": (const(50), const(depth)), "steps": (1, 1)}
    part = m.add("Slice", m.input(50, 200, dtype=U8), **fields)
    made = program(m.output(m.builder.one(IntegerMatMul(), part, m.constant(w))))
    assert kinds(made) == ["gemm_int8_amx"]
    np.testing.assert_array_equal(made.run(x)[0], x[:, 10 : 10 + depth].astype(np.int32) @ w.astype(np.int32))


def test_few_rows_only_stream_their_weights() -> None:
    m = Maker()
    y = m.builder.one(IntegerMatMul(), m.input(4, 64, dtype=U8), m.constant(signed(5, 64, 40)))
    assert kinds(program(m.output(y))) == ["gemm"]


def test_epilogue() -> None:
    """A sum scaled for each column, of rows that do not lie along the sum, stored beside a result of it."""
    m = Maker()
    w, scale = signed(6, 70, 37), np.random.default_rng(7).random(37).astype(np.float32)
    x = m.add("Transpose", m.input(2, 70, 19, dtype=U8), perm=(0, 2, 1))
    scaled = m.add("Mul", m.add("Cast", m.builder.one(IntegerMatMul(), x, m.constant(w))), m.constant(scale))
    made = program(m.output(m.add("Relu", scaled), scaled))
    assert kinds(made)[-1] == "gemm_int8_amx"
    data = unsigned(8, 2, 70, 19)
    wanted = (data.swapaxes(1, 2).astype(np.int32) @ w.astype(np.int32)).astype(np.float32) * scale
    relu, plain = made.run(data)
    np.testing.assert_array_equal(plain, wanted)
    np.testing.assert_array_equal(relu, np.maximum(wanted, 0))


CASES = [
    Case((1, 8, 9, 7), (20, 8, 3, 3), pads=(1, 1, 1, 1)),
    Case((2, 5, 9, 7), (70, 5, 3, 2), strides=(2, 1), pads=(0, 1, 2, 0)),
    Case((1, 70, 9, 9), (10, 70, 3, 3), dilations=(2, 2), pads=(2, 2, 2, 2)),
    Case((1, 3, 19, 17), (16, 3, 7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    Case((1, 64, 9, 7), (40, 64, 3, 3), pads=(1, 1, 1, 1)),
    Case((2, 32, 13, 21), (17, 32, 3, 2), dilations=(2, 1), pads=(0, 1, 1, 0)),
    Case((1, 256, 40, 30), (5, 256, 2, 2)),
    Case((2, 3, 30, 23), (40, 3, 5, 7), strides=(3, 2), pads=(2, 3, 1, 3), dilations=(2, 1)),
    Case((1, 11, 6, 7), (33, 11, 1, 1)),
    Case((1, 11, 6, 7), (33, 11, 1, 1), strides=(2, 2)),
    Case((1, 12, 9, 9), (10, 6, 3, 3), pads=(2, 2, 2, 2), group=2),
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: Case, lanes: int, compiler: str) -> None:
    """What the taps of a pixel read is a row of a product; the margin counts as the zero point."""
    x, w, margin = unsigned(9, *case.x), signed(10, *case.w), np.asarray(77, np.uint8)
    m = Maker()
    fields: Any = (case.strides, tuple(map(const, case.pads)), case.dilations, case.group)
    data, edge = m.input(*case.x, dtype=U8, layout=LAST), m.input(dtype=U8)
    (y,) = m.builder.add(IntegerConv(*fields), [data, m.constant(w), edge])
    y.layout = LAST
    made = program(m.output(y), lanes, compiler)
    assert kinds(made) == ["conv" if case.group > 1 else "gemm_int8_amx"]
    np.testing.assert_array_equal(made.run(x, margin)[0], convolved(case, x, w, int(margin)))
