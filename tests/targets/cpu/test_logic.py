"""Truth values as bytes against NumPy: operators, what is not 0 or 1, operands that are broadcast or lie elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import BOOL
from torshc.kernels.machine import Machine
from torshc.kernels.nest import MapKernel
from torshc.targets.cpu.logic import LogicKernel

from ...support.kernels import Maker, Shape, sizes
from ...support.run_kernel import Program, compilers, kind_of, native_lanes

RNG = seeded(3)
DIMS = {"n": 67, "none": 0}


def drawn(shape: Shape) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Bytes of which each that is not 0 is true."""
    return RNG.choice(np.array([0, 1, 2, 255], np.uint8), sizes(shape, DIMS)).view(np.bool_)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("shape", [(), (1,), ("none",), (33, 7), ("n", 5), (40000,)])
def test_operators(shape: Shape, compiler: str) -> None:
    m = Maker()
    x, y = m.input(*shape, dtype=BOOL), m.input(*shape, dtype=BOOL)
    both, one = m.add("And", x, y), m.add("Xor", x, y)
    graph = m.output(m.add("Or", m.add("Not", both), one), m.add("And", one, m.add("Not", y)))
    machine = Machine(lanes=native_lanes(), compiler=kind_of(compiler))
    program = Program(graph, DIMS, machine=machine, compiler=compiler)
    assert [type(k) for k in program.kernels] == [LogicKernel]
    a, b = drawn(shape), drawn(shape)
    p, q = a.view(np.uint8) != 0, b.view(np.uint8) != 0
    for got, wanted in zip(program.run(a, b), (~(p & q) | (p ^ q), (p ^ q) & ~q), strict=True):
        np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))


@pytest.mark.parametrize("other", [(1,), (7,), (33, 1)])
def test_broadcast_and_transposed(other: Shape) -> None:
    m = Maker()
    x = m.add("Transpose", m.input(7, 33, dtype=BOOL), perm=(1, 0))
    program = Program(m.output(m.add("Xor", m.add("Xor", x, m.input(*other, dtype=BOOL)), m.input(33, 7, dtype=BOOL))))
    a, b, c = drawn((7, 33)), drawn(other), drawn((33, 7))
    p, q, r = (z.view(np.uint8) != 0 for z in (a, b, c))
    np.testing.assert_array_equal(program.run(a, b, c)[0], p.T ^ q ^ r)


def test_other_operands_keep_masks() -> None:
    m = Maker()
    x, y = m.input(100), m.input(100, dtype=BOOL)
    (kernel,) = Program(m.output(m.add("And", m.add("Less", x, m.input(100)), y))).kernels
    assert type(kernel) is MapKernel
