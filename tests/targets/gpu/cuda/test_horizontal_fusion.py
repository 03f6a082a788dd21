"""Several maps in one launch, on the emulator, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.support.seeded import seeded
from torshc.passes.policy import Policy
from torshc.targets.gpu.cuda.horizontal_fusion import BesideKernel

from ....support.kernels import Maker
from ....support.run_grid import GridProgram, needs_emulator

pytestmark = needs_emulator
RNG = seeded(4)


def test_maps_of_other_sizes_and_one_that_both_read() -> None:
    """One element at a time, whole packets, and several blocks of them."""
    m = Maker()
    a, b, c = m.input(5, 7), m.input(3, 1000), m.input(1000)
    results = m.add("Exp", a), m.add("Mul", b, c), m.add("Neg", c)
    program = GridProgram(m.output(*results), limits=replace(Policy.of(), horizontal_fusion=True))
    (kernel,) = program.kernels
    assert isinstance(kernel, BesideKernel) and [p.packet for p in kernel.parts] == [1, 4, 4]
    x, y, z = (RNG.standard_normal(s).astype(np.float32) for s in ((5, 7), (3, 1000), (1000,)))
    for got, wanted in zip(program.run(x, y, z), (np.exp(x), y * z, -z), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)
