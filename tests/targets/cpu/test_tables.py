"""Functions of elements of 8 bits by tables: the bits that vectors give, of every value, at every number of lanes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import DTYPES
from torshc.graph import Graph
from torshc.kernels.machine import Machine
from torshc.kernels.nest import MapKernel
from torshc.targets.cpu.tables import POINTS, VALUES, TableKernel

from ...support.kernels import Maker, Shape
from ...support.run_kernel import Program, compilers, kind_of, native_lanes

RNG = seeded(5)
INFO = Path("/proc/cpuinfo")
WIDE = [16] if INFO.exists() and "avx512dq" in INFO.read_text() else []
LANES = sorted({*WIDE, native_lanes(), 4 if native_lanes() >= 4 else 1})
MACHINES = [(lanes, compiler) for lanes in LANES for compiler in compilers()]
SCALE = np.array(37.5, np.float32)


def activated(shape: Shape, dtype: str, to: str) -> Graph:
    """Two functions of bytes, of which one is of another type, and of a number that is known only in a run."""
    m = Maker()
    factor = m.input()
    x = m.add("Cast", m.input(*shape, dtype=DTYPES[dtype]), to=DTYPES["f32"])
    y = m.add("Mul", m.add("Tanh", m.add("Mul", x, factor)), m.constant(SCALE))
    return m.output(m.add("Cast", y, to=DTYPES[dtype]), m.add("Cast", m.add("Sigmoid", y), to=DTYPES[to]))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize(
    ("dtype", "to"), [("u8", "f32"), ("i8", "f16"), ("i8", "bool"), ("u8", "i64"), ("u8", "i8"), ("i8", "u8")]
)
def test_bits_are_those_of_vectors(dtype: str, to: str, lanes: int, compiler: str) -> None:
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    every = np.arange(VALUES).astype(np.uint8).view(DTYPES[dtype].numpy)
    few = Program(activated((VALUES,), dtype, to), machine=machine, compiler=compiler)
    many = Program(activated(("n",), dtype, to), {"n": 20011}, machine=machine, compiler=compiler)
    assert [type(k) for k in few.kernels] == [MapKernel]
    assert [type(k) for k in many.kernels] == [TableKernel]
    factor = np.array(0.02, np.float32)
    at = RNG.integers(0, VALUES, 20011)  # more than a task
    for one, all_ in zip(few.run(factor, every), many.run(factor, every[at]), strict=True):
        np.testing.assert_array_equal(all_, one[at])


@pytest.mark.parametrize("shape", [(0,), (3, 1000), ("n", 5, 7), ("none", 7), (2, 3, 400)])
def test_sizes(shape: Shape) -> None:
    """Rows that do not join, since the function has an operand that is transposed, and no elements at all."""
    m = Maker()
    perm = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2) if len(shape) > 1 else (0,)
    x = m.add("Transpose", m.input(*shape, dtype=DTYPES["u8"]), perm=perm)
    y = m.add("Cast", m.add("Erf", m.add("Mul", m.add("Cast", x, to=DTYPES["f32"]), m.constant(SCALE / 1000))))
    dims = {"n": 67, "none": 0}
    program = Program(m.output(m.add("Cast", y, to=DTYPES["bool"])), dims)
    data = RNG.integers(0, VALUES, [dims.get(d, d) for d in shape]).astype(np.uint8)  # type: ignore[arg-type]
    (got,) = program.run(data)
    np.testing.assert_array_equal(got, data.transpose(perm) != 0)


def test_when_a_table_is_made() -> None:
    """Not of few elements, of a cheap function, or of two elements."""

    def kind(points: int, *ops: str, other: bool = False) -> type:
        m = Maker()
        x = m.add("Cast", m.input(points, dtype=DTYPES["u8"]), to=DTYPES["f32"])
        for op in ops:
            x = m.add(op, x)
        if other:
            x = m.add("Add", x, m.input(points))
        (kernel,) = Program(m.output(x), machine=Machine(lanes=8)).kernels
        return type(kernel)

    assert kind(POINTS, "Sigmoid") is TableKernel
    assert kind(POINTS - 1, "Sigmoid") is MapKernel
    assert kind(POINTS, "Neg") is MapKernel
    assert kind(POINTS, "Sigmoid", other=True) is MapKernel
