"""What kernels of groups of warps leave out where sizes are known, which are launched else, and what they ask memory
for ahead: on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import F16, F32, DType
from torshc.kernels.base import Packed
from torshc.kernels.machine import Device, Machine
from torshc.targets.gpu import contraction
from torshc.targets.gpu.contraction import SHARING
from torshc.targets.gpu.contraction_choice import GROUP_EXACT, Cut
from torshc.targets.gpu.contraction_kernels import GroupMmaKernel
from torshc.targets.gpu.contraction_tiles import GROUP_TILES, AnyTile
from torshc.targets.gpu.cuda.target import CudaTarget

from ...support.kernels import Maker, random
from ...support.run_grid import GridProgram, needs_emulator
from ...support.run_kernel import close

pytestmark = needs_emulator
RNG = seeded(12)
HOPPER = CudaTarget(Machine(archs=("sm_90a",)))
CHECK, LINES = "column >= columns) continue;", "3, {})"  # in the text of a kernel


def force(monkeypatch: pytest.MonkeyPatch, tile: AnyTile, splits: int) -> None:
    """Products have this tile from now on."""
    monkeypatch.setattr(contraction, "choose", lambda *_, **__: (tile, splits))
    monkeypatch.setattr(contraction, "choose_by_size", lambda *_, **__: (Cut(tile, splits),))


@pytest.mark.parametrize("splits", [1, 3, 12])
@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (16, 128), (5, 40), ("s", 128), (64, 136)], ids=str)
def test_few_rows(monkeypatch: pytest.MonkeyPatch, rows: int | str, columns: int, splits: int) -> None:
    """Copies bring no more rows than there are; nothing asks for the last row or column where tiles are whole."""
    tile = GROUP_TILES[-1]
    force(monkeypatch, tile, splits)
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


SMALL = replace(HOPPER.machine.device, units=4)  # so that few rows fill it


@pytest.mark.parametrize("dtype", [F16, F32], ids=repr)
def test_sizes_of_a_run_choose_a_kernel(dtype: DType) -> None:
    """A launch, and one more where pieces of sums are joined apart; equal weights whichever it is."""
    target = CudaTarget(HOPPER.machine)
    target.machine = replace(target.machine, device=SMALL)
    right, taken = random(RNG, (640, 136), dtype.numpy), set[str]()
    for rows in (0, 1, 2, 7, 65, 129, 500):
        maker, left = Maker(), random(RNG, (rows, 640), dtype.numpy)
        y = maker.add("MatMul", maker.input("s", 640, dtype=dtype), maker.constant(right), out="f32")
        program = GridProgram(maker.output(maker.add("Relu", y)), {"s": rows}, target)
        launched = [x for x in program.launches if x.library is not None]
        assert [x.kernel.template for x in launched][1:] in ([], ["map.j2"])
        assert len({b.operand for k in program.kernels for b in k.buffers if isinstance(b.operand, Packed)}) == 1
        taken.add(launched[0].symbol)
        expected = np.maximum(left.astype(np.float64) @ right.astype(np.float64), 0)
        # Products of 16-bit floats are exact in f32, those of two tf32 for each float 2^-22 from it; 640 terms of f32.
        close(program.run(left)[0], expected, 1e-5)
    assert len(taken) >= 3


@pytest.mark.parametrize(("columns", "narrow"), [(64, True), (32, False)])
def test_rows_of_a_run_are_counted_in_32_bits(columns: int, narrow: bool) -> None:
    """Where 2^31 of them, of 128 bytes and more, are more than a card's memory."""
    maker, left = Maker(), random(RNG, (130, 128), np.float16)
    right = random(RNG, (128, columns), np.float16)
    product = maker.add("MatMul", maker.input("s", 128, dtype=F16), maker.constant(right), out="f32")
    program = GridProgram(maker.output(maker.add("Cast", product, to=F16)), {"s": 130}, HOPPER)
    kernel, text = program.kernels[0], program.launches[0].source
    assert isinstance(kernel, GroupMmaKernel) and bool(kernel.counted) == narrow
    assert ("const int rows = (int)(s0)" in text or "const int rows = (int)s0" in text) == narrow, text
    close(program.run(left)[0], left.astype(np.float64) @ right.astype(np.float64), 1e-3)


def test_tiles_that_cannot_be_brought_leave_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """As 128 threads do not share a tile of 192 columns evenly: the rest of its kind is chosen from."""
    wide = next(t for t in GROUP_TILES if t.n == 192)
    asked = []

    def choose(_: Device, sizes: object, tiles: Sequence[AnyTile], *__: object, **___: object) -> list[Cut]:
        asked.append(wide in tiles)
        return [Cut(wide if wide in tiles else tiles[-1], 1)]

    monkeypatch.setattr(contraction, "choose_by_size", choose)
    monkeypatch.setattr(GroupMmaKernel, "is_served", property(lambda k: k.tile.n != 192))
    maker, left = Maker(), random(RNG, (70, 128), np.float16)
    right = random(RNG, (128, 64), np.float16)
    y = maker.add("MatMul", maker.input("s", 128, dtype=F16), maker.constant(right), out="f32")
    program = GridProgram(maker.output(y), {"s": 70}, HOPPER)
    assert asked == [True, False] and isinstance(program.kernels[0], GroupMmaKernel)
    close(program.run(left)[0], left.astype(np.float64) @ right.astype(np.float64), 1e-5)


def test_results_ask_ahead_for_rows_that_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a residual, not for a bias, which all rows read."""
    force(monkeypatch, GROUP_TILES[2], 1)
    columns = 136
    maker, shape = Maker(), (150, columns)
    x, w = maker.input(150, 128, dtype=F16), maker.input(128, columns, dtype=F16)
    bias, residual = maker.input(columns), maker.input(*shape)
    summed = maker.add("Add", maker.add("Add", maker.add("MatMul", x, w, out="f32"), bias), residual)
    program = GridProgram(maker.output(summed), target=HOPPER)
    (text,) = (found.source for found in program.launches if found.kernel.template == "contraction_group.j2")
    assert text.count("t_prefetch(") == 1
    given = [random(RNG, s) for s in ((150, 128), (128, columns), (columns,), shape)]
    halves = [g.astype(np.float16) for g in given[:2]]
    expected = halves[0].astype(np.float64) @ halves[1].astype(np.float64) + given[2] + given[3]
    close(program.run(*halves, *given[2:])[0], expected, 1e-4)


@pytest.mark.parametrize("terms", [16, 24, 64, 96])
def test_short_sums_of_floats_by_groups(terms: int) -> None:
    """Where a model may round as often as 96 terms do; sums of so many terms may anyway."""
    left, right = random(RNG, (2000, terms)), random(RNG, (144, terms))
    for slack, groups in ((None, terms >= GROUP_EXACT), (SHARING * GROUP_EXACT - 1, terms >= 96), (10_000, True)):
        target = CudaTarget(replace(HOPPER.machine, slack=slack))
        maker = Maker()
        x, y = maker.input(2000, terms), maker.input(144, terms)
        out = maker.output(maker.add("MatMul", x, maker.add("Transpose", y, perm=(1, 0))))
        program = GridProgram(out, target=target)
        kernel = program.kernels[-1]
        assert isinstance(kernel, GroupMmaKernel) == groups
        assert getattr(kernel, "roundings", 0) == (GROUP_EXACT if groups and terms < GROUP_EXACT else 0)
        assert target.on_processor().machine.slack is None  # what a device leaves to it is summed plainly
        # A term has an error of 2^-22, and 96 are rounded 12 times.
        close(program.run(left, right)[0], left.astype(np.float64) @ right.T.astype(np.float64), 1e-6)
