"""What kernels of groups of warps leave out where sizes are known, on the emulator, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import F16
from torshc.kernels.machine import Machine
from torshc.targets.gpu import contraction
from torshc.targets.gpu.contraction_kernels import GroupMmaKernel
from torshc.targets.gpu.contraction_tiles import GROUP_TILES
from torshc.targets.gpu.cuda.target import CudaTarget

from ...support.kernels import Maker, random
from ...support.run_grid import GridProgram, needs_emulator
from ...support.run_kernel import close

pytestmark = needs_emulator
RNG = seeded(12)
HOPPER = CudaTarget(Machine(archs=("sm_90a",)))
CHECK, LINES = "column >= columns) continue;", "3, {})"  # in the text of a kernel


@pytest.mark.parametrize("splits", [1, 3, 12])
@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (16, 128), (5, 40), ("s", 128), (64, 136)], ids=str)
def test_few_rows(monkeypatch: pytest.MonkeyPatch, rows: int | str, columns: int, splits: int) -> None:
    """Copies bring no more rows than there are; nothing asks for the last row or column where tiles are whole."""
    tile = GROUP_TILES[-1]
    monkeypatch.setattr(contraction, "choose_mma_tile", lambda *_, **__: (tile, splits))
    maker, count = Maker(), rows if isinstance(rows, int) else 33
    left, right = random(RNG, (count, 640), np.float16), random(RNG, (640, columns), np.float16)
    bias = random(RNG, (columns,))
    product = maker.add("MatMul", maker.input(rows, 640, dtype=F16), maker.constant(right), out="f32")
    program = GridProgram(maker.output(maker.add("Add", product, maker.constant(bias))), {"s": count}, HOPPER)
    kernel, text = program.kernels[0], program.launches[0].source
    assert isinstance(kernel, GroupMmaKernel)
    assert kernel.whole == ((rows, columns) == (64, 128)) == (CHECK not in text)
    assert rows == "s" or LINES.format(min(count, tile.m)) in text
    assert ("const float *__restrict__ b2" in text) == (splits < 12)  # the bias, else added by a second kernel
    assert ("__cluster_dims__(3, 1, 1)" in text) == (splits == 3)
    close(program.run(left)[0], left.astype(np.float64) @ right.astype(np.float64) + bias, 1e-5)
