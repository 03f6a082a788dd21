"""Running sums and products against NumPy: every axis and direction, type, number of lanes and odd size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import torshc
from tests.support.seeded import seeded
from torshc.expr import DTYPES, DType, const
from torshc.kernels.machine import Machine

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_kernel import Array, Program, compilers, kind_of, kinds, native_lanes

RNG = seeded(5)
LANES = sorted({native_lanes(), 4 if native_lanes() >= 4 else 1, 1})
DIMS = {"a": 3, "n": 37, "b": 11}
ROUGH = {"f16": 1e-2, "bf16": 3e-2, "f32": 1e-5, "f64": 1e-12}


def expected(x: Array, axis: int, combine: str = "CumSum", exclusive: int = 0, reverse: int = 0) -> Array:
    """In float64, or in the integers' own type, where it wraps."""
    x = x if x.dtype.kind in "iu" else x.astype(np.float64)
    x = np.flip(x, axis) if reverse else x
    start = np.full_like(x[(slice(None),) * axis + (slice(0, 1),)], 0 if combine == "CumSum" else 1)
    if exclusive:
        x = np.concatenate([start, x], axis)[(slice(None),) * axis + (slice(0, x.shape[axis]),)]
    with np.errstate(all="ignore"):
        y = (np.cumsum if combine == "CumSum" else np.cumprod)(x, axis, dtype=x.dtype)
    return np.flip(y, axis) if reverse else y


def check(shape: Shape, axis: int, combine: str = "CumSum", dtype: DType = DTYPES["f32"], **form: Any) -> None:
    m = Maker()
    machine, compiler = form.pop("machine", None), form.pop("compiler", None)
    x = random(RNG, sizes(shape, DIMS), np.int64 if dtype.is_int else np.float64).astype(dtype.numpy)
    graph = m.output(m.add(combine, m.input(*shape, dtype=dtype), axis=axis, **form))
    program = Program(graph, DIMS, machine=machine, compiler=compiler)
    (got,) = program.run(x)
    assert kinds(program) == ["scan"] * bool(x.size)
    agrees(got, expected(x, axis, combine, **form), dtype)


def agrees(got: Array, wanted: Array, dtype: DType) -> None:
    if dtype.is_int:
        np.testing.assert_array_equal(got, wanted)
        return
    rough = ROUGH[dtype.name]
    scale = max(float(np.abs(wanted).max(initial=0)), 1)
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=rough, atol=rough * scale)


FORMS: list[dict[str, Any]] = [{"exclusive": e, "reverse": r} for e in (0, 1) for r in (0, 1)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("combine", ["CumSum", "CumProd"])
def test_axes_and_directions(combine: str, form: dict[str, Any]) -> None:
    for axis in range(3):
        check((3, 21, 19), axis, combine, **form)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9, 15, 16, 17, 300])
def test_odd_sizes(size: int) -> None:
    for form in FORMS:
        check((2, size), 1, **form)
        check((size, 5), 0, **form)
        check((3, size), 0, **form)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("compiler", compilers())
def test_lanes_and_compilers(compiler: str, lanes: int) -> None:
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    for form in (FORMS[0], FORMS[3]):
        check((3, 37), 1, machine=machine, compiler=compiler, **form)
        check((3, 37, 5), 1, machine=machine, compiler=compiler, **form)
        check((3, 37), 1, "CumProd", machine=machine, compiler=compiler, **form)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u8"])
def test_types(dtype: str) -> None:
    for combine in ("CumSum", "CumProd"):
        for axis in (0, 1):
            check((20, 21), axis, combine, DTYPES[dtype], reverse=axis)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_symbolic_extents(axis: int) -> None:
    check(("a", "n", "b"), axis, exclusive=1)


def test_a_wide_innermost_axis_is_cut() -> None:
    check((5, 1000), 0)
    check((2, 3, 700), 1, reverse=1)
    check((3, 5000), 0)  # more than a thread does in one pass


def test_nan_and_infinity_spread_from_where_they_stand() -> None:
    x = np.ones((2, 40), np.float32)
    x[0, 13], x[1, 5], x[1, 20] = np.nan, np.inf, -np.inf
    m = Maker()
    program = Program(m.output(m.add("CumSum", m.input(2, 40), axis=1)))
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(program.run(x)[0], np.cumsum(x, 1))


def test_a_product_of_floats_goes_in_order() -> None:
    x = np.array([[1e30, 1e30, 1e-30, 1e-30, 2.0, 0.5]], np.float32)
    m = Maker()
    program = Program(m.output(m.add("CumProd", m.input(1, 6), axis=1)))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(program.run(x)[0], np.cumprod(x, 1))


def test_what_follows_joins() -> None:
    m = Maker()
    x, bias = m.input("a", "n", 6), m.input(6)
    graph = m.output(m.add("Relu", m.add("Sub", m.add("CumSum", x, axis=1), bias)))
    values = random(RNG, (3, 37, 6)), random(RNG, (6,))
    program = Program(graph, DIMS)
    assert kinds(program) == ["scan"]
    np.testing.assert_allclose(
        program.run(*values)[0], np.maximum(np.cumsum(values[0], 1) - values[1], 0), rtol=1e-4, atol=1e-4
    )


def test_another_order_in_memory() -> None:
    x = random(RNG, (2, 3, 4, 5))
    for axis in range(4):
        m = Maker()
        source = m.input(2, 3, 4, 5, layout=(0, 2, 3, 1))
        program = Program(m.output(m.add("CumSum", source, layout=(0, 2, 3, 1), axis=axis)))
        agrees(program.run(x)[0], expected(x, axis), DTYPES["f32"])


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_compiled(level: int, threads: int, tmp_path: Path) -> None:
    """With an axis and sizes known only at run time."""
    graph = helper.make_graph(
        [helper.make_node("CumSum", ["x", "axis"], ["y"])],
        "sums",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m"]),
            helper.make_tensor_value_info("axis", TensorProto.INT64, []),
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", opt_level=level)
    with torshc.load(tmp_path / "m.tsc", threads=threads) as loaded:
        for shape in ((0, 3), (1, 1), (70, 300), (3, 70000)):
            x = random(RNG, shape)
            for axis in (-2, 1):
                (y,) = loaded.run({"x": x, "axis": np.array(axis, np.int64)}).values()
                np.testing.assert_allclose(y, np.cumsum(x.astype(np.float64), axis), rtol=1e-3, atol=1e-2)


def test_a_constant_is_folded() -> None:
    m = Maker()
    total = m.add("CumSum", m.constant(np.arange(5)), axis=0)
    assert total.data == tuple(const(v) for v in (0, 1, 3, 6, 10))
