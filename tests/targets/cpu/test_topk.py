"""TopK against NumPy, bit for bit: NaN, ties, zeros of both signs, every k, axis, type and number of lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torshc
from tests.support.seeded import seeded
from torshc.base.errors import RunError
from torshc.expr import DTYPES, DType, Expr, const, dim
from torshc.kernels.machine import Machine
from torshc.passes.interpret import run_graph

from ...support.kernels import Maker, Shape, op, sizes
from ...support.run_kernel import Array, Program, compilers, kind_of, kinds, native_lanes

RNG = seeded(6)
LANES = sorted({native_lanes(), 4 if native_lanes() >= 4 else 1, 1})
DIMS = {"a": 3, "n": 211, "b": 4, "k": 9}
F32 = DTYPES["f32"]


def expected(x: Array, k: int, axis: int = -1, largest: int = 1) -> tuple[Array, Array]:
    """In order; of equal elements the first comes first, and NaN is above all numbers."""
    if x.dtype.kind in "iu":
        keys = np.unique(x, return_inverse=True)[1].reshape(x.shape)
    else:
        wide = x.astype(np.float64)
        numbers = np.unique(np.where(np.isnan(wide), 0, wide))
        keys = np.where(np.isnan(wide), numbers.size, np.searchsorted(numbers, np.where(np.isnan(wide), 0, wide)))
    places = np.argsort(-keys if largest else keys, axis=axis, kind="stable")
    places = np.take(places, range(k), axis=axis)
    return np.take_along_axis(x, places, axis), places


def hostile(shape: list[int], dtype: DType = F32) -> Array:
    """Few different values, so that many are equal, with all that is special."""
    if dtype.is_int:
        low, high = dtype.range
        x = RNG.integers(-9, 9, shape) if dtype.kind == "i" else RNG.integers(0, 9, shape)
        x = x.astype(dtype.numpy)
        special: list[Any] = [low, high]
    else:
        x = np.round(RNG.standard_normal(shape), 1).astype(dtype.numpy)
        special = [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0]
    for value in special:
        x[RNG.random(shape) < 0.03] = np.array(value, dtype.numpy)
    return x


def same(got: Array, wanted: Array) -> None:
    """The same bits, up to those of a NaN."""
    assert got.dtype == wanted.dtype
    if got.dtype.kind not in "iu":
        nan = np.isnan(wanted.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), nan)
        np.testing.assert_array_equal(np.signbit(got)[~nan], np.signbit(wanted)[~nan])
        got, wanted = got[~nan], wanted[~nan]
    np.testing.assert_array_equal(got, wanted)


def build(shape: Shape, k: int | Expr, axis: int, largest: int, dtype: DType = F32) -> Maker:
    m = Maker()
    count = const(k) if isinstance(k, int) else k
    made = m.builder.add(op("TopK", axis=axis, k=count, largest=largest), [m.input(*shape, dtype=dtype)])
    m.output(*made)
    return m


def check(shape: Shape, k: int | Expr, axis: int = -1, largest: int = 1, dtype: DType = F32, **build_for: Any) -> None:
    x = hostile(sizes(shape, DIMS), dtype)
    program = Program(build(shape, k, axis, largest, dtype).graph, DIMS, **build_for)
    assert kinds(program) == ["topk"] * bool(x.size and k != 0)
    values, places = program.run(x)
    count = k if isinstance(k, int) else DIMS["k"]
    wanted = expected(x, count, axis, largest)
    np.testing.assert_array_equal(places, wanted[1])
    same(values, wanted[0])


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(("size", "k"), [(1, 1), (5, 0), (5, 5), (7, 3), (64, 16), (65, 17), (200, 64), (200, 65),
                                         (200, 200), (129, 1), (9000, 100), (0, 0)])  # fmt: skip
def test_counts(size: int, k: int, largest: int) -> None:
    check((3, size), k, largest=largest)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_axes(axis: int) -> None:
    for k in (1, 4, 20):
        check((20, 21, 22), k, axis, largest=k % 2)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8"])
def test_types(dtype: str) -> None:
    for k in (3, 20, 150):
        for largest in (0, 1):
            check((2, 150), k, 1, largest, DTYPES[dtype])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("compiler", compilers())
def test_lanes_and_compilers(compiler: str, lanes: int) -> None:
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    for k in (5, 150):
        for dtype in ("f32", "f64", "u8"):
            check((2, 150), k, 1, 0, DTYPES[dtype], machine=machine, compiler=compiler)


@pytest.mark.parametrize("k", [9, dim("k")])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_symbolic_sizes(axis: int, k: int | Expr) -> None:
    check(("n", 12, "n"), k, axis)


def test_rows_in_order_and_in_reverse() -> None:
    """The most work for a heap: every element replaces one."""
    for k in (10, 40):
        program = Program(build((2, 5000), k, 1, 1).graph)
        x = np.stack([np.arange(5000), np.arange(5000)[::-1]]).astype(np.float32)
        for got, wanted in zip(program.run(x), expected(x, k), strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_what_follows_joins() -> None:
    m = build(("a", "n"), 6, -1, 1)
    values, places = m.graph.outputs
    m.output(m.add("Exp", values), m.add("Add", places, m.constant(np.array(3, np.int64))))
    program = Program(m.graph, DIMS)
    assert kinds(program) == ["topk"]
    x = RNG.standard_normal((3, 211)).astype(np.float32)
    got, wanted = program.run(x), expected(x, 6)
    np.testing.assert_allclose(got[0], np.exp(wanted[0]), rtol=1e-5)
    np.testing.assert_array_equal(got[1], wanted[1] + 3)


def test_one_result_alone() -> None:
    for k in (0, 1):
        m = build((3, 50), 6, -1, 0)
        m.output(m.graph.outputs[k])
        x = hostile([3, 50])
        same(Program(m.graph).run(x)[0], expected(x, 6, largest=0)[k])


def test_evaluated_when_compiling() -> None:
    x = hostile([4, 30])
    m = build((4, 30), 7, -1, 1)
    values, places = run_graph(m.graph, {m.graph.inputs[0]: x})
    wanted = expected(x, 7)
    same(values, wanted[0])
    np.testing.assert_array_equal(places, wanted[1])


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled(level: int, threads: int, tmp_path: Path) -> None:
    """With k and sizes known only at run time."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("TopK", ["x", "k"], ["values", "places"], axis=-1)],
        "top",
        [info("x", TensorProto.FLOAT, ["n", "m"]), info("k", TensorProto.INT64, [1])],
        [info("values", TensorProto.FLOAT, ["n", "c"]), info("places", TensorProto.INT64, ["n", "c"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", opt_level=level)
    with torshc.load(tmp_path / "m.tsc", threads=threads) as loaded:
        for shape, k in (((2, 5), 0), ((3, 5), 5), ((0, 4), 2), ((40, 3000), 2), ((2, 70000), 69999)):
            x = hostile(list(shape))
            values, places = loaded.run({"x": x, "k": np.array([k], np.int64)}).values()
            wanted = expected(x, k)
            same(values, wanted[0])
            np.testing.assert_array_equal(places, wanted[1])
        with pytest.raises(RunError):
            loaded.run({"x": np.zeros((2, 5), np.float32), "k": np.array([6], np.int64)})
