"""Ensembles of trees on devices of blocks, on the emulator, against a walk in Python."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.ensembles import COMPARE, Ensemble, grown, rows
from tests.support.kernels import Maker
from tests.support.run_grid import GridProgram, needs_emulator
from tests.support.seeded import seeded
from torshc.expr import F32, F64
from torshc.kernels.base import NoKernel

pytestmark = needs_emulator
RNG = seeded(0)


@pytest.mark.parametrize(("trees", "targets", "count"), [(1, 1, 5), (37, 1, 300), (37, 3, 1)])
def test_trees(trees: int, targets: int, count: int) -> None:
    for dtype, modes in ((F32, ["LEQ"]), (F64, list(COMPARE))):
        made = grown(RNG, trees, modes, targets=targets, depth=4, lost=dtype is F64, dtype=dtype)
        m = Maker()
        scores = made.add(m.builder, m.input("n", 5, dtype=dtype))
        m.output(m.add("Exp", scores), scores)
        x = rows(RNG, count, dtype=dtype)
        got = GridProgram(m.graph, {"n": count}).run(x)
        # Sums of 37 leaves in another order: some units in the last place of f32, of sums of about 10.
        np.testing.assert_allclose(got[1], made.run(x), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(got[0], np.exp(got[1]), rtol=1e-5)


def test_what_is_too_deep() -> None:
    branches = [(0, "LEQ", 0.0, False, -1, k + 1 if k < 99 else -2) for k in range(100)]
    m = Maker()
    m.output(Ensemble(branches, [0], np.ones((2, 1), np.float32)).add(m.builder, m.input("n", 5)))
    with pytest.raises(NoKernel, match="deeper than 64"):
        GridProgram(m.graph, {"n": 5})
