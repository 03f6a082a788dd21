"""Map kernels of devices of blocks, on the emulator, against NumPy: packets, and transposes through shared memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.bundle.program import _elementwise_pairs
from torshc.expr import BF16, BOOL, F16, F32, F64, U8, DType, const
from torshc.passes.policy import Policy
from torshc.targets.gpu import grid
from torshc.targets.gpu.grid import GridMap, GridTiles

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import close

pytestmark = needs_emulator
RNG = seeded(14)
DIMS = {"n": 3, "s": 70}

# Shape, permutation, and whether it goes through tiles: both axes are long enough for them, and memory's order changes.
TRANSPOSES: list[tuple[Shape, tuple[int, ...], bool]] = [
    ((64, 96), (1, 0), True),
    ((70, 45), (1, 0), True),
    ((2, 37, 50), (0, 2, 1), True),
    ((40, 3, 33), (2, 1, 0), True),
    ((2, 32, 7, 9), (0, 2, 3, 1), True),
    (("n", "s", 40), (0, 2, 1), True),
    (("n", 40, 33), (2, 0, 1), True),
    ((70, 3, "s"), (2, 1, 0), True),
    ((40, 6, 3, 3), (2, 3, 1, 0), True),  # taps of an input channel lie behind each other
    ((70, 3), (1, 0), False),
    ((5, 40, 50), (1, 0, 2), False),
]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "TILED", 1)


@pytest.mark.parametrize(("shape", "perm", "tiled"), TRANSPOSES, ids=str)
def test_transpose(shape: Shape, perm: tuple[int, ...], tiled: bool) -> None:
    m = Maker()
    program = GridProgram(m.output(m.add("Neg", m.add("Transpose", m.input(*shape), perm=perm))), DIMS)
    assert templates(program) == ["transpose" if tiled else "map"]
    x = random(RNG, sizes(shape, DIMS))
    np.testing.assert_array_equal(program.run(x)[0], -x.transpose(perm))


@pytest.mark.parametrize("dtype", [F16, F64, BOOL], ids=str)
def test_other_types(dtype: DType) -> None:
    m = Maker()
    y = m.add("Transpose", m.input(130, 67, dtype=dtype), perm=(1, 0))
    program = GridProgram(m.output(m.add("Cast", y, to=F32)), DIMS)
    (kernel,) = program.kernels
    assert isinstance(kernel, GridTiles) and kernel.side == (64 if dtype.size < 4 else 32)
    x = (random(RNG, (130, 67)) > 0.5) if dtype is BOOL else random(RNG, (130, 67)).astype(dtype.numpy)
    np.testing.assert_array_equal(program.run(x)[0], x.T.astype(np.float32))


def test_what_stands_beside_a_transpose() -> None:
    """Operands in the order of the result are read as they are, and what is read in both orders is not overwritten."""
    m = Maker()
    x, w = m.input(45, 45), m.input(45)
    y = m.add("Add", m.add("Mul", m.add("Transpose", x, perm=(1, 0)), w), x)
    program = GridProgram(m.output(y, m.add("Neg", y)), DIMS)
    (kernel,) = program.kernels
    assert isinstance(kernel, GridTiles) and len(kernel.reads) == 1 and not list(_elementwise_pairs(kernel))
    a, b = random(RNG, (45, 45)), random(RNG, (45,))
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for order in ("forward", "reverse", "random:2"):
            patch.setenv("T_EMULATE_ORDER", order)
            found.append(program.run(a, b))
    close(found[0][0], a.T * b + a, 1e-6)
    assert all((f[0] == found[0][0]).all() and (f[1] == -f[0]).all() for f in found)


def test_a_margin_is_not_read() -> None:
    """Elements under a condition of their place may lie outside of memory: each thread decides for its own."""
    m = Maker()
    padded = m.add("Pad", m.input(40, 50), before=(const(3), const(0)), after=(const(2), const(0)))
    program = GridProgram(m.output(m.add("Neg", m.add("Transpose", padded, perm=(1, 0)))), DIMS)
    assert templates(program) == ["map"]
    x = random(RNG, (40, 50))
    np.testing.assert_array_equal(program.run(x)[0], -np.pad(x, ((3, 2), (0, 0))).T)


@pytest.mark.parametrize(("channels", "packet"), [(8, 8), (12, 4)])
def test_threads_take_neighbours_of_short_rows(monkeypatch: pytest.MonkeyPatch, channels: int, packet: int) -> None:
    """Where points are many, eight of them if these are whole; with the bits of a thread for each."""
    found = []
    for many in (True, False):
        monkeypatch.setattr(grid, "UNIT_THREADS", 0 if many else 2**20)
        maker, layout = Maker(), (0, 2, 3, 1)
        g, taps = (maker.input(2, channels, 5, 6, layout=layout, dtype=t) for t in (F32, U8))
        window = {"kernel": (3, 3), "strides": (2, 2), "pads": (const(0),) * 4, "dilations": (1, 1), "ceil": False}
        size = (const(11), const(13))
        back = maker.add("PoolBack", g, taps, domain="torshc", layout=layout, size=size, **window)
        program = GridProgram(maker.output(back))
        assert templates(program) == ["columns" if many else "row"]
        assert not many or program.kernels[0].packet == packet
        rng = np.random.default_rng(0)
        places = rng.integers(0, 9, (2, channels, 5, 6)).astype(np.uint8)
        found.append(program.run(random(rng, (2, channels, 5, 6)), places)[0])
    np.testing.assert_array_equal(*found)
    assert found[0].any()


def test_many_that_transpose_share_smaller_tiles() -> None:
    """As the shared memory that every device has holds six of these, not six of those."""
    m = Maker()
    given = [m.input(70, 45, dtype=F16) for _ in range(6)]
    results = [m.add("Neg", m.add("Transpose", x, perm=(1, 0))) for x in given]
    program = GridProgram(m.output(*results), limits=replace(Policy.of(), horizontal_fusion=True))
    (kernel,) = program.kernels
    assert isinstance(kernel, GridTiles) and kernel.side == 32
    arrays = [random(RNG, (70, 45)).astype(np.float16) for _ in given]
    for got, x in zip(program.run(*arrays), arrays, strict=True):
        np.testing.assert_array_equal(got, -x.T)


@pytest.mark.parametrize(("dtype", "channels", "positive"), [(F32, 8, True), (BF16, 8, False), (F32, 6, True)], ids=str)
def test_maxima_and_their_places_are_one_kernel(
    monkeypatch: pytest.MonkeyPatch, dtype: DType, channels: int, positive: bool
) -> None:
    """Which reads the data once; packets of channels keep it in registers, where these are whole."""
    monkeypatch.setattr(grid, "UNIT_THREADS", 0)
    maker, layout = Maker(), (0, 2, 3, 1)
    window = {"kernel": (3, 3), "strides": (2, 2), "pads": (const(1),) * 4, "dilations": (1, 1), "ceil": False}
    x = maker.input(2, channels, 9, 10, layout=layout, dtype=dtype)
    top = maker.add("MaxPool", x, layout=layout, **window)
    places = maker.add("PoolTap", x, top, domain="torshc", layout=layout, positive=positive, **window)
    program = GridProgram(maker.output(top, places), limits=replace(Policy.of(), shared_rows=True))
    assert templates(program) == ["columns" if channels % 4 == 0 else "row"]
    data = np.round(random(np.random.default_rng(0), (2, channels, 9, 10)) * 2)  # many are equal
    data[0, 1, 4, 3:6], data[1, 2, :5] = np.nan, -np.inf
    pooled, taps = program.run(data.astype(dtype.numpy))
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    inside = np.pad(np.ones((9, 10), bool), 1)
    for n, c, i, j in np.ndindex(pooled.shape):
        part, real = (a[..., 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] for a in (padded[n, c], inside))
        most = np.max(part)
        assert np.array_equal(np.float32(pooled[n, c, i, j]), most, equal_nan=True)
        hit = (np.isnan(part) if np.isnan(most) else part == most) & real
        assert taps[n, c, i, j] == (9 if positive and not most > 0 else np.flatnonzero(hit)[0])


def test_packets_of_rows_that_are_a_sum() -> None:
    """The number of packets of [n + 1, 16] elements is a quarter of the whole sum; none lies behind the result."""
    m = Maker()
    rows = m.add("Concat", m.input("n", 16), m.input(1, 16), axis=0)
    program = GridProgram(m.output(m.add("Neg", rows)), DIMS)
    (kernel,) = program.kernels
    assert isinstance(kernel, GridMap) and kernel.packet == 4
    x, y = random(RNG, (3, 16)), random(RNG, (1, 16))
    np.testing.assert_array_equal(program.run(x, y)[0], -np.concatenate([x, y]))
