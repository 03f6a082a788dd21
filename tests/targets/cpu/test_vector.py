"""Loads along lanes against NumPy: steps, margins and blocks at the end of a row, at every number of lanes.

Memory ends at a page that must not be touched, so a vector that reaches too far does not pass unseen.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import DTYPES, F32, I8, I32, U8, const
from torshc.kernels.machine import Machine

from ...support.kernels import Maker, random
from ...support.run_kernel import Array, Program, compilers, kind_of, native_lanes, sources

RNG = seeded(7)
INFO = Path("/proc/cpuinfo")
WIDE = [16] if INFO.exists() and "avx512dq" in INFO.read_text() else []
LANES = sorted({*WIDE, native_lanes(), 4 if native_lanes() >= 4 else 1})
MACHINES = [(lanes, compiler) for lanes in LANES for compiler in compilers()]


def run(m: Maker, output: object, x: Array, lanes: int, compiler: str) -> Array:
    graph = m.output(output)  # type: ignore[arg-type]
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    return Program(graph, {"n": x.shape[-1]}, machine=machine, compiler=compiler).run(x)[0]


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("step", [-1, 2, 3, 4])
def test_steps(step: int, lanes: int, compiler: str) -> None:
    """The last element of memory is read, and none behind it."""
    for name in ("f32", "u8", "f16", "i64"):
        dtype, count = DTYPES[name], 2 * lanes + 1
        size = (count - 1) * abs(step) + 1
        x = random(RNG, (3, size), np.int8).astype(dtype.numpy)
        m = Maker()
        start = size - 1 if step < 0 else 0
        y = m.add("Slice", m.input(3, size, dtype=dtype), starts=(const(0), const(start)), steps=(1, step),
                  sizes=(const(3), const(count)))  # fmt: skip
        np.testing.assert_array_equal(run(m, y, x, lanes, compiler), x[:, ::step])


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
def test_every_element_twice(lanes: int, compiler: str) -> None:
    """As resizing by two to the nearest reads; the last element of memory is read, and none behind it."""
    for name in ("f32", "u8", "f16", "i64"):
        for size in (lanes, 3 * lanes // 2 + 1):
            dtype = DTYPES[name]
            x = random(RNG, (3, size), np.int8).astype(dtype.numpy)
            m = Maker()
            one, two = ((const(3), const(size), const(n)) for n in (1, 2))
            pairs = m.add("Expand", m.add("Reshape", m.input(3, size, dtype=dtype), shape=one), shape=two)
            wide = m.add("Reshape", pairs, shape=(const(3), const(2 * size)))
            y = m.add("Max", wide, m.constant(np.ones((), dtype.numpy)))
            np.testing.assert_array_equal(run(m, y, x, lanes, compiler), np.maximum(x.repeat(2, axis=1), 1))


def pooled(x: Array, kernel: int, stride: int, pad: int) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
    return windows.max((-2, -1))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("width", [3, 35, 71, "n"])
def test_windows(width: int | str, lanes: int, compiler: str) -> None:
    """Rows shorter than a vector, and such that the last block overlaps; NaN in the window is the result."""
    size = 37 if isinstance(width, str) else width
    for kernel, stride, pad in ((3, 2, 1), (5, 1, 2), (2, 2, 0), (3, 3, 1)):
        x = random(RNG, (1, 2, 6, size))
        x[0, 1, 2, size // 2] = np.nan
        m = Maker()
        y = m.add("MaxPool", m.input(1, 2, 6, width), kernel=(kernel,) * 2, strides=(stride,) * 2,
                  pads=(const(pad),) * 4, dilations=(1, 1))  # fmt: skip
        np.testing.assert_array_equal(run(m, y, x, lanes, compiler), pooled(x, kernel, stride, pad))


def test_results_that_may_take_the_place_of_what_is_read_are_stored_once() -> None:
    """As a new state that of the old one: a block that overlaps the one before it would read what that has stored."""
    for reads in (False, True):
        m = Maker()
        y = m.add("ReduceMax", m.input(6, 7), axes=(0,))
        y = m.add("Add", y, m.input(1, 7)) if reads else m.add("Relu", y)
        source = Program(m.output(y), machine=Machine(lanes=4, compiler=kind_of(compilers()[0]))).launches[0].source
        assert ("overlaps the one before" in source) != reads


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
def test_windows_of_other_types(lanes: int, compiler: str) -> None:
    for name, stride in (("f64", 2), ("u8", 2), ("i64", 3), ("f16", 2)):
        dtype = DTYPES[name]
        x = RNG.integers(1, 99, (1, 2, 6, 2 * lanes + 3)).astype(dtype.numpy)
        m = Maker()
        y = m.add("MaxPool", m.input(*x.shape, dtype=dtype), kernel=(3, 3), strides=(stride,) * 2,
                  pads=(const(1),) * 4, dilations=(1, 1))  # fmt: skip
        np.testing.assert_array_equal(run(m, y, x, lanes, compiler), pooled(x.astype(np.float64), 3, stride, 1))


def test_steps_behind_a_margin_are_no_gathers() -> None:
    m = Maker()
    y = m.add("MaxPool", m.input(1, 2, 6, 71), kernel=(3, 3), strides=(2, 2), pads=(const(1),) * 4, dilations=(1, 1))
    source = Program(m.output(y), machine=Machine(lanes=4, compiler=kind_of(compilers()[0]))).launches[0].source
    assert "t_load2_f32(" in source and "t_stepm_f32(" in source and "t_gather" not in source


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap"])
def test_margins_that_repeat_what_is_inside(mode: str, lanes: int, compiler: str) -> None:
    """Blocks inside are loads of neighbours; rows shorter than a block, than a margin of it, and of run-time size."""
    for name in ("f32", "i64", "f16"):
        for size, before, after in ((3, 2, 1), (lanes, 1, 1), (5 * lanes + 3, 2, lanes - 1), (71, 0, 3)):
            dtype = DTYPES[name]
            before, after = min(before, size - 1), max(min(after, size - 1), 0)
            x = random(RNG, (3, size), np.int8).astype(dtype.numpy)
            for width in (size, "n"):
                m = Maker()
                pads = {"before": (const(1), const(before)), "after": (const(0), const(after))}
                y = m.add("Pad", m.input(3, width, dtype=dtype), mode=mode, **pads)
                wanted = np.pad(x, ((1, 0), (before, after)), mode=mode)  # type: ignore[call-overload]
                np.testing.assert_array_equal(run(m, y, x, lanes, compiler), wanted)


def test_blocks_inside_repeated_margins_are_no_gathers() -> None:
    for mode in ("reflect", "edge"):
        m = Maker()
        ends = {"before": (const(0), const(1)), "after": (const(0), const(1))}
        graph = m.output(m.add("Pad", m.input(3, 100), mode=mode, **ends))
        source = Program(graph, machine=Machine(lanes=4, compiler=kind_of(compilers()[0]))).launches[0].source
        assert "t_load_f32(" in source and "t_gather_f32(" in source


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("channels", [3, "n"])
def test_places_are_computed_in_lanes_of_32_bits(channels: int | str, lanes: int, compiler: str) -> None:
    """Elements at places that another tensor says, some of them far outside or not numbers."""
    size = 2 * lanes + 3
    x = random(RNG, (1, 3, 5, 7), np.float32)
    grid = RNG.uniform(-1.2, 1.2, (1, 1, size, 2)).astype(np.float32)
    grid[0, 0, :4, 0] = np.nan, np.inf, -np.inf, 1e30
    m = Maker()
    graph = m.output(m.add("GridSample", m.input(1, channels, 5, 7), m.input(1, 1, size, 2)))
    program = Program(graph, {"n": 3}, machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
    (text,) = sources(program)
    assert "t_gather32_f32(" in text and "i64v" not in text
    np.testing.assert_allclose(program.run(x, grid)[0][..., 4:], bilinear(x, grid)[..., 4:], rtol=1e-5, atol=1e-4)
    assert np.isfinite(program.run(x, grid)[0][..., 2:]).all()


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("axis", [0, 1])
def test_indices_that_are_moved_into_a_range_gather_by_32_bits(axis: int, lanes: int, compiler: str) -> None:
    """Also where an index is none: what the range makes of it is near."""
    x, wanted = random(RNG, (5, 70)), RNG.integers(-5, 5, (5, 70))
    far = np.where(wanted == 4, 2**40, wanted)
    m = Maker()
    graph = m.output(m.add("GatherElements", m.input(5, 70), m.input(5, 70, dtype=DTYPES["i64"]), axis=axis))
    program = Program(graph, machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
    (text,) = sources(program)
    assert "t_gather32_f32(" in text
    ends = np.where(far > 100, x.shape[axis] - 1, wanted)
    np.testing.assert_array_equal(program.run(x, far)[0], np.take_along_axis(x, ends, axis))


def bilinear(x: Array, grid: Array) -> Array:
    """GridSample of one image, with zeros outside."""
    height, width = x.shape[2:]
    column, row = ((grid[0, ..., k].astype(np.float64) + 1) * n / 2 - 0.5 for k, n in ((0, width), (1, height)))
    column, row = np.nan_to_num(column, posinf=1e6, neginf=-1e6), np.nan_to_num(row)
    total = np.zeros((x.shape[1], *row.shape))
    for i in (np.floor(row), np.floor(row) + 1):
        for j in (np.floor(column), np.floor(column) + 1):
            inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            at = np.clip(i, 0, height - 1).astype(int), np.clip(j, 0, width - 1).astype(int)
            total += np.where(inside, x[0][:, at[0], at[1]] * (1 - abs(row - i)) * (1 - abs(column - j)), 0)
    return total[None]


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
def test_every_second_element_is_stored(lanes: int, compiler: str) -> None:
    """Of a result whose last axis has two points: those of the other stay, and none is written behind the last."""
    theta = np.array([[[2, 0, 1], [0, 3, 5]]], np.float32)
    m = Maker()
    width = 65
    y = m.add("AffineGrid", m.input(1, 2, 3), sizes=(const(5), const(width)))
    program = Program(m.output(y), machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
    assert lanes < 8 or "t_store2_f32" in "".join(sources(program))
    high, wide = ((2 * np.arange(n) + 1) / n - 1 for n in (5, width))
    wanted = np.stack([*np.broadcast_arrays(2 * wide + 1, 3 * high[:, None] + 5)], -1)
    np.testing.assert_allclose(program.run(theta)[0][0], wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
def test_limits_come_before_rounding(lanes: int, compiler: str) -> None:
    """Bytes are those of rounding first: halves to even, at and beyond the limits, of NaN and infinities."""
    near = np.concatenate([k + np.array([-0.75, -0.5, -0.25, 0, 0.25, 0.5]) for k in (-256, -129, -128, -1, 0, 1)])
    x = np.concatenate([near, -near, near + 255, [np.nan, np.inf, -np.inf, 3e9, -3e9]]).astype(np.float32)
    for name, zero in (("u8", 0), ("u8", 128), ("u8", 255), ("i8", 0), ("i8", 3)):
        m, dtype = Maker(), DTYPES[name]
        total = m.add("Add", m.add("Round", m.input(len(x))), m.constant(np.array(zero, np.float32)))
        y = m.add("Cast", total, to=dtype)
        program = Program(m.output(y), machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
        assert ("t_whole_f32" in "".join(sources(program))) is (name == "u8" or not zero)
        limits = np.iinfo(dtype.numpy)
        wanted = np.clip(np.rint(x) + np.float32(zero), limits.min, limits.max)
        np.testing.assert_array_equal(program.run(x)[0], np.where(np.isnan(x), 0, wanted))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
def test_least_numbers_of_i8_come_before_rounding(lanes: int, compiler: str) -> None:
    """QuantizeLinear makes NaN the least number, which a Cast makes 0."""
    x = np.array(
        [-0.5, 1.5, 2.5, -127.5, -128.5, -131, 124.5, 126.5, 127.5, 3e9, -3e9, np.nan, np.inf, -np.inf], np.float32
    )
    for zero in (0, 3, -128):
        m = Maker()
        scale, point = m.constant(np.array(1, np.float32)), m.constant(np.array(zero, np.int8))
        y = m.add("QuantizeLinear", m.input(len(x)), scale, point, to=I8)
        program = Program(m.output(y), machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
        assert "t_limited_f32_i8" in "".join(sources(program))
        wanted = np.where(np.isnan(x), -128, np.clip(np.rint(x) + np.float32(zero), -128, 127))
        np.testing.assert_array_equal(program.run(x)[0], wanted)


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
def test_numbers_of_quantised_tensors_stay_floats(lanes: int, compiler: str) -> None:
    """What bytes would give that are read again: halves to even, limits, NaN as the byte 0, and no zero is negative."""
    x = np.array([-0.25, -0.5, 0.5, 1.5, 2.5, -127.5, -128.5, 127.5, 300, -300, np.nan, np.inf, -np.inf], np.float32)
    for zero in (0, 7, 255):
        m = Maker()
        total = m.add("Add", m.add("Round", m.input(len(x))), m.constant(np.array(zero, np.float32)))
        byte = m.add("Cast", m.add("Cast", total, to=U8), to=I32)
        y = m.add("Cast", m.add("Sub", byte, m.constant(np.array(zero, np.int32))), to=F32)
        program = Program(m.output(y), machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
        assert "t_level_f32" in "".join(sources(program))
        wanted = np.where(np.isnan(x), 0, np.clip(np.rint(x) + zero, 0, 255)) - zero + np.float32(0)
        found = program.run(x)[0]
        np.testing.assert_array_equal(found.view(np.uint32), wanted.astype(np.float32).view(np.uint32))
