"""Products and convolutions of bytes: exact whatever the compiler, the width and the instructions that there are."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.support.seeded import seeded
from torshc.expr import U8, const
from torshc.graph import Graph
from torshc.kernels.machine import Machine
from torshc.ops.quant.integer import IntegerConv, IntegerConvTranspose, IntegerMatMul
from torshc.ops.quant.narrow import BlockMatMul

from ...support.kernels import Maker
from ...support.run_kernel import Array, Program, close, compilers, kind_of, kinds, native_lanes

RNG = seeded(5)
LANES = sorted({native_lanes(), 4 if native_lanes() >= 4 else 1, 1})
# Rows, depth, columns; the last has weights that tiles ask for ahead.
SHAPES = [(13, 21, 19), (1, 64, 100), (3, 65, 48), (30, 6, 1030), (7, 1, 9), (9, 515, 520)]
LAST = (0, 2, 3, 1)


def unsigned(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def signed(*shape: int) -> Array:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def program(graph: Graph, compiler: str, lanes: int, dims: dict[str, int] | None = None) -> Program:
    return Program(graph, dims, Machine(lanes, kind_of(compiler)), compiler)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products(shape: tuple[int, int, int], lanes: int, compiler: str) -> None:
    rows, depth, columns = shape
    x, w = unsigned(rows, depth), signed(depth, columns)
    m = Maker()
    made = program(m.output(m.builder.one(IntegerMatMul(), m.input("s", depth, dtype=U8), m.constant(w))), compiler,
                   lanes, {"s": rows})  # fmt: skip
    assert kinds(made) == ["gemm"]
    np.testing.assert_array_equal(made.run(x)[0], x.astype(np.int32) @ w.astype(np.int32))


def test_extremes() -> None:
    x, w = np.full((5, 300), 255, np.uint8), np.full((300, 40), -128, np.int8)
    m = Maker()
    y = m.builder.one(IntegerMatMul(), m.input(5, 300, dtype=U8), m.constant(w))
    (found,) = program(m.output(y), compilers()[0], native_lanes()).run(x)
    assert np.all(found == -300 * 255 * 128)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(
    ("least", "most", "few"), [(-64, 64, True), (-65, 0, False), (0, 65, False), (-128, 127, False)]
)
def test_weights_of_seven_bits(least: int, most: int, few: bool, lanes: int, compiler: str) -> None:
    """Sums of two products fit into 16 bits by weights of 7 bits, of which the kernel is told, and by no others."""
    x, w = np.full((5, 66), 255, np.uint8), np.where(np.arange(40) % 2, least, most).astype(np.int8)
    weights = np.broadcast_to(w, (66, 40)).copy()
    m = Maker()
    product = m.builder.one(IntegerMatMul(), m.input(5, 66, dtype=U8), m.constant(weights))
    image, edge = m.input(1, 66, 1, 5, dtype=U8, layout=LAST), m.input(dtype=U8)
    fields: Any = ((1, 1), tuple(map(const, (0, 1, 0, 1))), (1, 1), 1)
    filters = np.repeat(weights.T[:, :, None, None], 3, axis=3)
    (image_sums,) = m.builder.add(IntegerConv(*fields), [image, m.constant(filters), edge])
    image_sums.layout = LAST
    made = program(m.output(product, image_sums), compiler, lanes)
    assert [("T_SEVEN_BITS" in k.source) == few for k in made.launches] == [True] * 2
    sums, convolution = made.run(x, x.T.reshape(1, 66, 1, 5).copy(), np.asarray(255, np.uint8))
    np.testing.assert_array_equal(sums, x.astype(np.int32) @ weights.astype(np.int32))
    np.testing.assert_array_equal(convolution[0, :, 0], np.repeat(3 * sums[:1].T, 5, axis=1))


def test_epilogue_and_batches() -> None:
    """A sum scaled, by a long function, of rows that lie in another order."""
    m = Maker()
    w, scale = signed(10, 37), RNG.random(37).astype(np.float32)
    x = m.input(2, 10, 9, dtype=U8)
    total = m.builder.one(IntegerMatMul(), m.add("Transpose", x, perm=(0, 2, 1)), m.constant(w))
    scaled = m.add("Mul", m.add("Cast", total), m.constant(scale))
    graph = m.output(m.add("Tanh", m.add("Erf", m.add("Tanh", scaled))), scaled)
    made = program(graph, compilers()[0], native_lanes())
    assert kinds(made)[-1] == "gemm"
    data = unsigned(2, 10, 9)
    wanted = (data.swapaxes(1, 2).astype(np.int32) @ w.astype(np.int32)).astype(np.float32) * scale
    np.testing.assert_array_equal(made.run(data)[1], wanted)


@dataclasses.dataclass(frozen=True)
class Case:
    """A convolution of bytes and the template that it takes."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    template: str = "conv"
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, int] = (1, 1)
    group: int = 1


CASES = [
    Case((1, 8, 9, 7), (20, 8, 3, 3), pads=(1, 1, 1, 1)),
    Case((2, 5, 9, 7), (70, 5, 3, 2), strides=(2, 1), pads=(0, 1, 2, 0)),
    Case((1, 12, 9, 9), (10, 6, 3, 3), dilations=(2, 2), pads=(2, 2, 2, 2), group=2),
    Case((1, 11, 6, 7), (33, 11, 1, 1), template="gemm"),
    Case((1, 11, 6, 7), (33, 11, 1, 1), strides=(2, 2)),
    Case((1, 3, 9, 8), (12, 3, 3, 3), "map conv", pads=(1, 1, 1, 1)),
    Case((2, 1, 9, 11), (21, 1, 2, 7), "map conv", strides=(1, 2), pads=(0, 3, 1, 2), dilations=(2, 1)),
    Case((1, 3, 9, 8), (12, 3, 3, 3), pads=(1, 1, 2, 2), dilations=(1, 2)),
    Case((2, 37, 9, 8), (37, 1, 3, 3), "depthwise_int8", pads=(1, 1, 1, 1), group=37),
    Case(
        (1, 16, 9, 11), (16, 1, 5, 3), "depthwise_int8", strides=(2, 1), pads=(0, 2, 3, 0), dilations=(1, 2), group=16
    ),
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", [native_lanes(), 1])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions(case: Case, lanes: int, compiler: str) -> None:
    x, w, margin = unsigned(*case.x), signed(*case.w), np.asarray(77, np.uint8)
    m = Maker()
    fields: Any = (case.strides, tuple(map(const, case.pads)), case.dilations, case.group)
    data, edge = m.input(*case.x, dtype=U8, layout=LAST), m.input(dtype=U8)
    (y,) = m.builder.add(IntegerConv(*fields), [data, m.constant(w), edge])
    y.layout = LAST
    made = program(m.output(y), compiler, lanes)
    assert kinds(made) == case.template.split()
    np.testing.assert_array_equal(made.run(x, margin)[0], convolved(case, x, w, int(margin)))


TRANSPOSED = [
    Case((1, 8, 5, 7), (8, 20, 2, 2), strides=(2, 2)),
    Case((2, 5, 6, 5), (5, 35, 3, 2), strides=(2, 1), pads=(1, 0, 0, 1), dilations=(1, 2)),
    Case((1, 70, 4, 3), (70, 9, 2, 2), strides=(3, 3)),  # some pixels sum nothing
    Case((1, 12, 4, 5), (12, 5, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1), group=2),
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", [native_lanes(), 1])
@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_convolutions(case: Case, lanes: int, compiler: str) -> None:
    x, w = unsigned(*case.x), signed(*case.w)
    m = Maker()
    slid = IntegerConvTranspose(case.strides, tuple(map(const, case.pads)), case.dilations, case.group, (0, 0))
    y = m.builder.one(slid, m.input(*case.x, dtype=U8, layout=LAST), m.constant(w))
    y.layout = LAST
    made = program(m.output(y), compiler, lanes)
    assert kinds(made) == ["conv"]
    fields = {"strides": case.strides, "pads": case.pads, "dilations": case.dilations, "group": case.group}
    np.testing.assert_array_equal(made.run(x)[0], by_runtime("ConvTranspose", x, w, fields))


def convolved(case: Case, x: Array, w: Array, margin: int) -> Array:
    """By ONNX Runtime."""
    top, left, bottom, right = case.pads
    wide = np.pad(x.astype(np.float32), ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=margin)
    fields: dict[str, Any] = {"strides": case.strides, "dilations": case.dilations, "group": case.group}
    return by_runtime("Conv", wide, w, fields)


def by_runtime(op: str, x: Array, w: Array, fields: dict[str, Any]) -> Array:
    """In floats, which hold these sums exactly."""
    values = [helper.make_tensor_value_info(k, TensorProto.FLOAT, None) for k in "xwy"]
    graph = helper.make_graph([helper.make_node(op, ["x", "w"], ["y"], **fields)], "c", values[:2], values[2:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(made.SerializeToString())
    (out,) = session.run(None, {"x": x.astype(np.float32), "w": w.astype(np.float32)})
    return np.asarray(out).astype(np.int32)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("shape", [(1, 70, 100, 32), (13, 64, 19, 8), (5, 21, 40, 21)], ids=str)
def test_floats_by_bytes(shape: tuple[int, ...], lanes: int, compiler: str) -> None:
    """Weights that are scaled in blocks, the last of which may be short."""
    rows, depth, columns, block = shape
    x, w = RNG.standard_normal((rows, depth)).astype(np.float32), signed(depth, columns)
    scale = RNG.random((-(-depth // block), columns)).astype(np.float32)
    m = Maker()
    y = m.builder.one(BlockMatMul(block), m.input(rows, depth), m.constant(w), m.constant(scale))
    made = program(m.output(y), compiler, lanes)
    assert kinds(made) == ["gemm"]
    close(made.run(x)[0], x @ (w * np.repeat(scale, block, 0)[:depth]))
