"""Products of few rows with weights of 4 bits by digits; in C where this machine lacks the instructions."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.graph import Graph
from torshc.kernels.machine import Machine
from torshc.ops.quant.narrow import BlockMatMul
from torshc.targets.cpu.nibbles import NibblesKernel, choose_group
from torshc.targets.isa import resolve

from ...support.kernels import Maker
from ...support.run_kernel import Array, Program, compilers, kind_of, kinds, native_lanes

WIDEST = max(native_lanes(), resolve().lanes)
LANES = sorted({WIDEST, native_lanes(), 4 if native_lanes() >= 4 else 1, 1})
EXTRAS = tuple(e for e in ("avxvnni", "avx512vnni") if e in resolve().extras) or ("avx512vnni",)


def weights(rng: np.random.Generator, depth: int, columns: int, block: int) -> tuple[Array, Array]:
    scale = rng.uniform(0.5, 1.5, (-(-depth // block), columns)).astype(np.float32)
    return rng.integers(-8, 8, (depth, columns)).astype(np.int8), scale


def product(shape: tuple[int, ...], w: Array, scale: Array, block: int) -> Graph:
    m = Maker()
    return m.output(m.builder.one(BlockMatMul(block), m.input(*shape), m.constant(w), m.constant(scale)))


def program(graph: Graph, lanes: int = 0, compiler: str = "") -> Program:
    compiler = compiler or compilers()[0]
    return Program(graph, {}, Machine(lanes or WIDEST, kind_of(compiler), extras=EXTRAS), compiler)


def wanted(x: Array, w: Array, scale: Array, block: int) -> tuple[Array, Array]:
    """The product in f64, and how far sums may be off.

    A digit's number is off by half of 2^-21 of the largest of its group, which is less than the group's norm, and so by
    that of a vector of K such errors at random, for which 8 deviations are allowed; f32 sums add 2^-24 of each summand.
    """
    wide = w * np.repeat(scale.astype(np.float64), block, 0)[: len(w)]
    x = x.astype(np.float64)
    return x @ wide, 2.0**-20 * np.sqrt((x**2).sum(-1, keepdims=True) * (wide**2).sum(0))


def check(x: Array, w: Array, scale: Array, block: int, lanes: int = 0, compiler: str = "") -> None:
    made = program(product(x.shape, w, scale, block), lanes, compiler)
    assert kinds(made) == ["digits", "gemm_nibbles"]
    exact, off = wanted(x, w, scale, block)
    found = made.run(x)[0]
    assert found.shape == exact.shape
    assert (np.abs(found - exact) <= off).all(), float((np.abs(found - exact) / off).max())


# Loops of a machine without vectors take gcc up to 14 s.
@pytest.mark.parametrize(
    ("lanes", "compiler"), [(n, c) for n in LANES for c in compilers() if n > 1 or c == compilers()[0]]
)
@pytest.mark.parametrize(
    ("shape", "columns", "block"),
    [
        ((1, 64), 64, 32), ((1, 96), 17, 16), ((2, 128), 130, 128), ((3, 48), 9, 16), ((4, 256), 100, 64),
        ((1, 32), 1000, 32), ((2, 1, 64), 33, 32), ((1, 16), 5, 16),
    ],
    ids=str,
)  # fmt: skip
def test_sizes(shape: tuple[int, ...], columns: int, block: int, lanes: int, compiler: str) -> None:
    rng = np.random.default_rng(5)
    w, scale = weights(rng, shape[-1], columns, block)
    check(rng.standard_normal(shape).astype(np.float32), w, scale, block, lanes, compiler)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite(value: float) -> None:
    """It reaches every column, as in a sum of floats; other rows are as without it."""
    rng = np.random.default_rng(5)
    w, scale = weights(rng, 64, 40, 32)
    w[33] = np.where(w[33] == 0, 1, w[33])
    x = rng.standard_normal((2, 64)).astype(np.float32)
    plain = program(product(x.shape, w, scale, 32)).run(x)[0]
    x[1, 33] = value
    found = program(product(x.shape, w, scale, 32)).run(x)[0]
    np.testing.assert_array_equal(found[0], plain[0])
    np.testing.assert_array_equal(found[1], value * np.sign(w[33]).astype(np.float32))


@pytest.mark.parametrize("size", [2.0**-59, 2.0**-70, 2.0**-140, 2.0**100, 2.0**126])
def test_large_and_small_numbers(size: float) -> None:
    rng = np.random.default_rng(5)
    w, scale = weights(rng, 64, 40, 32)
    x = (rng.uniform(-1, 1, (1, 64)) * size).astype(np.float32)
    scale *= np.float32(2.0**-20)
    exact, off = wanted(x, w, scale, 32)
    found = program(product(x.shape, w, scale, 32)).run(x)[0]
    assert (np.abs(found - exact) <= off + 64 * 2.0**-149).all()


def test_rows_are_zeros() -> None:
    rng = np.random.default_rng(5)
    w, scale = weights(rng, 32, 20, 32)
    np.testing.assert_array_equal(program(product((2, 32), w, scale, 32)).run(np.zeros((2, 32), np.float32))[0], 0)


def test_a_row_does_not_depend_on_others() -> None:
    rng = np.random.default_rng(5)
    w, scale = weights(rng, 96, 50, 32)
    x = rng.standard_normal((4, 96)).astype(np.float32)
    whole = program(product((4, 96), w, scale, 32)).run(x)[0]
    for k in range(4):
        np.testing.assert_array_equal(program(product((1, 96), w, scale, 32)).run(x[k : k + 1])[0], whole[k : k + 1])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("number", [7, -8])
def test_the_largest_sums(number: int, lanes: int) -> None:
    """All digits and weights of a group are the largest, which sums of 16 bits hold."""
    w, scale = np.full((64, 40), number, np.int8), np.ones((2, 40), np.float32)
    x = np.array([[1.0], [-1.0]], np.float32) * np.ones((2, 64), np.float32)
    check(x, w, scale, 32, lanes)


@pytest.mark.parametrize(
    ("rows", "depth", "block", "lanes", "extras", "suits"),
    [
        (1, 64, 32, 16, ("avx512vnni",), True), (4, 64, 32, 8, ("avxvnni",), True),
        (5, 64, 32, 16, ("avx512vnni",), False), (None, 64, 32, 16, ("avx512vnni",), False),
        (1, 64, 32, 16, (), False), (1, 64, 32, 8, (), True), (5, 64, 32, 8, (), False), (1, 64, 32, 4, (), False),
        (1, 72, 32, 16, ("avx512vnni",), False), (1, 48, 16, 16, ("avx512vnni",), True),
        (1, 60, 20, 16, ("avx512vnni",), False),
    ],
)  # fmt: skip
def test_what_it_suits(
    rows: int | None, depth: int, block: int, lanes: int, extras: tuple[str, ...], suits: bool
) -> None:
    assert NibblesKernel.suits(Machine(lanes, "clang", extras=extras), rows, depth, block) is suits


def test_groups_fill_blocks() -> None:
    assert [choose_group(b, d) for b, d in ((128, 256), (16, 64), (32, 48), (20, 40))] == [32, 16, 16, 0]
