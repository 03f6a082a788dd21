"""Transposes against NumPy: every permutation, types, sizes around a square and a task, at every number of lanes."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import DTYPES, const
from torshc.kernels.machine import Machine
from torshc.targets.cpu.transpose import TileKernel

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_kernel import Program, compilers, kind_of, native_lanes

RNG = seeded(7)
INFO = Path("/proc/cpuinfo")
WIDE = [16] if INFO.exists() and "avx512dq" in INFO.read_text() else []
LANES = sorted({*WIDE, native_lanes(), 4 if native_lanes() >= 4 else 1})
MACHINES = [(lanes, compiler) for lanes in LANES for compiler in compilers()]
DIMS = {"n": 67, "m": 9, "none": 0, "one": 1}


def check(shape: Shape, perm: tuple[int, ...], dtype: str = "f32", lanes: int = native_lanes(), **more: str) -> Program:
    """A transpose with what is fused behind it: a sum with an operand that lies as the result does."""
    compiler = more.get("compiler", compilers()[0])
    kind = DTYPES[dtype]
    x = random(RNG, sizes(shape, DIMS), np.int8).astype(kind.numpy)
    z = random(RNG, x.transpose(perm).shape, np.int8).astype(kind.numpy)
    m = Maker()
    turned = m.add("Transpose", m.input(*shape, dtype=kind), perm=perm)
    other = m.input(*(shape[d] for d in perm), dtype=kind)
    y = m.add("Add", turned, other) if dtype != "bool" else m.add("And", turned, other)
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    program = Program(m.output(y), DIMS, machine=machine, compiler=compiler)
    (got,) = program.run(x, z)
    wanted = x.transpose(perm) & z if dtype == "bool" else (x.transpose(perm) + z).astype(kind.numpy)
    np.testing.assert_array_equal(got, wanted)
    return program


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("dtype", ["f32", "u8", "f16", "i64", "bool"])
def test_types(dtype: str, lanes: int, compiler: str) -> None:
    program = check((2, 67, 35), (0, 2, 1), dtype, lanes, compiler=compiler)
    assert [type(k) for k in program.kernels] == [TileKernel]


@pytest.mark.parametrize("perm", list(permutations(range(3))))
def test_permutations(perm: tuple[int, ...]) -> None:
    check((17, 9, 33), perm)


@pytest.mark.parametrize("shape", [("n", "m"), ("none", "m"), ("m", "one"), (300, 70)])
def test_sizes(shape: Shape) -> None:
    """None, one, sizes that are known only at run time, and more than a task on both sides."""
    check(shape, (1, 0))
    check(tuple(reversed(shape)), (1, 0))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize(
    ("shape", "asks"), [((331, 3169), True), ((512, 2048), False), ((3169, 331), False), ((43, 3137), False)]
)
def test_lines_that_lie_pages_apart_are_asked_for(shape: Shape, asks: bool, lanes: int, compiler: str) -> None:
    """Not where they share sets of a cache, where they follow each other, or of what a core's cache holds."""
    program = check(shape, (1, 0), "f32", lanes, compiler=compiler)
    assert ("T_FETCH(" in program.launches[0].source) == asks


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("dtype", ["f32", "f16", "f64", "u8", "i64"])
@pytest.mark.parametrize(("longer", "few"), [(35, 2), (67, 3), (32, 1)])
def test_vectors_run_along_the_longer_of_the_last_axes(
    longer: int, few: int, dtype: str, lanes: int, compiler: str
) -> None:
    """Where the last has less than half a vector; results are stored apart."""
    kind = DTYPES[dtype]
    m = Maker()
    x, y = m.input(3, longer, 1, dtype=kind), m.input(3, 1, few, dtype=kind)
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    program = Program(m.output(m.add("Add", x, y)), machine=machine, compiler=compiler)
    a = random(RNG, (3, longer, 1), np.int8).astype(kind.numpy)
    b = random(RNG, (3, 1, few), np.int8).astype(kind.numpy)
    np.testing.assert_array_equal(program.run(a, b)[0], a + b)
    apart = 1 < few < lanes // 2 and longer >= 2 * lanes
    assert bool(re.search(r"t_scatter_|t_store2_", program.launches[0].source)) == apart


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
def test_places_as_floats(lanes: int, compiler: str) -> None:
    """By way of 32 bits where they surely fit, and beyond 2^24 rounded as 64 bits are."""
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    for start in (0, 2**24 - 5, 2**31 - 9, 2**31 + 2**9 - 11, -(2**33) - 13):
        for to in ("f32", "f64"):
            m = Maker()
            numbers = m.add("Range", start=const(start), step=const(1), count=const(67))
            program = Program(m.output(m.add("Cast", numbers, to=DTYPES[to])), machine=machine, compiler=compiler)
            np.testing.assert_array_equal(program.run()[0], (np.arange(67) + start).astype(DTYPES[to].numpy))
