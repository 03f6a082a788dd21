"""Transposes against NumPy: every permutation, types, sizes around a square and a task, at every number of lanes."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import DTYPES
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
