"""Several maps in one launch, on the emulator, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.passes.policy import Policy
from torshc.targets.gpu import grid
from torshc.targets.gpu.cuda.horizontal_fusion import BesideKernel

from ....support.kernels import Maker
from ....support.run_grid import GridProgram, needs_emulator

pytestmark = needs_emulator
RNG = seeded(4)


def test_maps_of_other_sizes_and_one_that_both_read() -> None:
    """One element at a time where there are few or they are no whole packets, else packets, several blocks of them."""
    m = Maker()
    a, b, c = m.input(5, 7), m.input(40, 1000), m.input(1000)
    results = m.add("Exp", a), m.add("Mul", b, c), m.add("Neg", c)
    program = GridProgram(m.output(*results), limits=replace(Policy.of(), horizontal_fusion=True))
    (kernel,) = program.kernels
    assert isinstance(kernel, BesideKernel) and [p.packet for p in kernel.parts] == [1, 4, 1]
    x, y, z = (RNG.standard_normal(s).astype(np.float32) for s in ((5, 7), (40, 1000), (1000,)))
    for got, wanted in zip(program.run(x, y, z), (np.exp(x), y * z, -z), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_maps_beside_one_that_transposes(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a launch of its own, the others share one."""
    monkeypatch.setattr(grid, "TILED", 1000)
    m = Maker()
    a, b, c = m.input(40, 33), m.input(3, 10), m.input(7)
    results = m.add("Neg", m.add("Transpose", a, perm=(1, 0))), m.add("Exp", b), m.add("Neg", c)
    program = GridProgram(m.output(*results), limits=replace(Policy.of(), horizontal_fusion=True))
    assert [type(k) for k in program.kernels] == [grid.GridTiles, BesideKernel]
    x, y, z = (RNG.standard_normal(s).astype(np.float32) for s in ((40, 33), (3, 10), (7,)))
    for got, wanted in zip(program.run(x, y, z), (-x.T, np.exp(y), -z), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
