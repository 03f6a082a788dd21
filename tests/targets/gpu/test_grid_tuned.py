"""What tuning may choose of nests on devices of blocks: every variant computes the same, on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import F16
from torshc.kernels.base import Kernel
from torshc.pipeline.records import Choices
from torshc.targets.gpu import grid
from torshc.targets.gpu.grid import GridColumns, GridMap, GridRow, GridTiles

from ...support.kernels import Maker, random
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import close
from ...support.tuned import tuned, variants_of

pytestmark = needs_emulator
RNG = seeded(21)


@pytest.mark.parametrize("choices", variants_of("map.j2"))
@pytest.mark.parametrize("shape", [(3, 1000), (7, 101)], ids=str)
def test_maps(choices: Choices, shape: tuple[int, int]) -> None:
    m = Maker()
    x, y = m.input(*shape, dtype=F16), m.input(shape[1])
    program = GridProgram(m.output(m.add("Mul", m.add("Cast", x, to=y.dtype), y)), target=tuned(choices))
    assert templates(program) == ["map"]
    a, b = random(RNG, shape).astype(np.float16), random(RNG, shape[1:])
    np.testing.assert_array_equal(program.run(a, b)[0], a.astype(np.float32) * b)


@pytest.mark.parametrize("choices", variants_of("transpose.j2"))
@pytest.mark.parametrize("shape", [(64, 128), (70, 45)], ids=str)
def test_transposes(choices: Choices, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "TILED", 1)
    m = Maker()
    turned = m.add("Transpose", m.input(*shape), perm=(1, 0))
    program = GridProgram(m.output(m.add("Neg", turned)), target=tuned(choices))
    assert templates(program) == ["transpose"]
    x = random(RNG, shape)
    np.testing.assert_array_equal(program.run(x)[0], -x.T)


@pytest.mark.parametrize("choices", variants_of("row.j2"))
@pytest.mark.parametrize("shape", [(3, 2000), (37, 133)], ids=str)
def test_rows(choices: Choices, shape: tuple[int, int]) -> None:
    """Sums, and what a row needs twice: 37 rows are no multiple of those of a block, 133 of no packet."""
    m = Maker()
    x = m.input(*shape)
    total = m.add("ReduceSum", x, axes=(1,), keepdims=True)
    program = GridProgram(m.output(m.add("Div", x, total), m.add("Softmax", x)), target=tuned(choices))
    assert "row" in templates(program)
    a = random(RNG, shape) + 3
    found, soft = program.run(a)
    close(found, a / a.sum(1, keepdims=True), 1e-5)
    e = np.exp(a - a.max(1, keepdims=True))
    close(soft, e / e.sum(1, keepdims=True), 1e-5)


@pytest.mark.parametrize("choices", variants_of("columns.j2"))
@pytest.mark.parametrize("shape", [(300, 64), (133, 5)], ids=str)
def test_columns(choices: Choices, shape: tuple[int, int]) -> None:
    m = Maker()
    x = m.input(*shape)
    mean = m.add("ReduceMean", x, axes=(0,), keepdims=True)
    program = GridProgram(m.output(m.add("Sub", x, mean)), target=tuned(choices))
    assert "columns" in templates(program)
    a = random(RNG, shape)
    close(program.run(a)[0], a - a.mean(0), 1e-5)


def kernel_of(choices: Choices, shape: tuple[int, ...], axes: tuple[int, ...]) -> list[Kernel]:
    m = Maker()
    x = m.input(*shape)
    y = m.add("ReduceSum", x, axes=axes, keepdims=False) if axes else m.add("Neg", x)
    return GridProgram(m.output(y), target=tuned(choices)).kernels


def test_what_is_chosen_is_there() -> None:
    """And what cannot be had, such as a packet that does not divide, counts as not given."""
    (flat,) = kernel_of((("packet", (8,)), ("threads", (512,))), (3, 1000), ())
    assert isinstance(flat, GridMap) and (flat.packet, flat.threads) == (8, 512)
    (flat,) = kernel_of((("packet", (8,)),), (3, 1004), ())
    assert isinstance(flat, GridMap) and flat.packet == grid.PACKET
    row = kernel_of((("share", (64,)), ("pieces", (4,))), (3, 2000), (1,))[0]
    assert isinstance(row, GridRow) and (row.share, row.length) == (64, 500)
    column = kernel_of((("turns", (2,)), ("pieces", (1,))), (300, 64), (0,))[0]
    assert isinstance(column, GridColumns) and (column.turns, column.length) == (2, 0)


def test_a_tile_that_does_not_fit_is_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "TILED", 1)
    m = Maker()
    x, y = m.input(64, 128), m.input(64, 128)
    both = m.add("Add", m.add("Transpose", x, perm=(1, 0)), m.add("Transpose", y, perm=(1, 0)))
    (kernel,) = GridProgram(m.output(both), target=tuned((("side", (64,)),))).kernels
    assert isinstance(kernel, GridTiles) and kernel.side == grid.TILE
