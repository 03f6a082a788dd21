"""Products and convolutions on devices of blocks: one kernel, on the emulator, against NumPy and ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import BF16, F16, F32, F64, I32, DType, as_int, const
from torshc.kernels.machine import Device, Machine
from torshc.targets.gpu import contraction
from torshc.targets.gpu.contraction import EXACT
from torshc.targets.gpu.contraction_choice import GROUP_EXACT, Cut, choose, float_tiles, joins, mma_tiles
from torshc.targets.gpu.contraction_kernels import ContractionKernel, GroupMmaKernel
from torshc.targets.gpu.contraction_tiles import (
    GROUP_TILES,
    MMA_TILES,
    ROUNDED_GROUP_TILES,
    TF32_GROUP_TILES,
    TF32_SINGLE_TILES,
    TF32_TILES,
    TILES,
    AnyTile,
    GridTile,
    Tf32GroupTile,
    Tf32Tile,
)
from torshc.targets.gpu.cuda.target import CudaTarget

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import Array, close
from ..cpu.test_conv import CONV, TRANSPOSED, Case, reference

pytestmark = needs_emulator
RNG = seeded(12)
DIMS = {"b": 2, "h": 9, "w": 7, "s": 17, "k": 21, "n": 19}

# Shapes of a and b, whether b is a constant, templates that are expected.
PRODUCTS: list[tuple[Shape, Shape, bool, str]] = [
    ((13, 21), (21, 19), True, "contraction"),
    ((13, 21), (21, 19), False, "contraction"),
    ((65, 64), (64, 130), True, "contraction"),
    ((129, 40), (40, 24), False, "contraction"),
    ((64, 1024), (1024, 64), True, "contraction map"),
    ((9, 1001), (1001, 13), False, "contraction map"),
    ((200, 5), (5, 200), True, "contraction"),
    ((1, 64), (64, 100), True, "row"),
    ((1, 64), (64, 100), False, "row"),
    ((3, 64), (64, 48), True, "row"),
    ((1, 640), (640, 100), True, "row"),
    ((1, 640), (640, 100), False, "contraction map"),
    ((640,), (3, 640, 10), False, "contraction map"),
    ((3, 640), (640, 48), True, "contraction map"),
    ((7, 1), (1, 9), True, "row"),
    ((21,), (21, 19), True, "row"),
    ((13, 21), (21,), True, "row"),
    ((21,), (21,), False, "row"),
    ((2, 5, 21), (21, 19), True, "contraction"),
    ((2, 9, 21), (2, 21, 19), False, "contraction"),
    ((2, 9, 21), (2, 21, 19), True, "contraction"),
    ((3, 1, 5, 21), (2, 21, 20), False, "contraction"),
    ((5, 21), (2, 21, 19), False, "row"),
    (("b", "s", 21), (21, 20), True, "contraction"),
    (("b", "s", "k"), ("b", "k", "n"), False, "contraction"),
    (("s", "k"), ("k", 20), False, "contraction map"),
    ((0, 21), (21, 19), True, ""),
    ((13, 0), (0, 19), True, "map"),
]


@pytest.mark.parametrize(("a", "b", "constant", "expected"), PRODUCTS, ids=str)
def test_product(a: Shape, b: Shape, constant: bool, expected: str) -> None:
    m = Maker()
    left, right = random(RNG, sizes(a, DIMS)), random(RNG, sizes(b, DIMS))
    x = m.input(*a)
    y = m.constant(right) if constant else m.input(*b)
    program = GridProgram(m.output(m.add("MatMul", x, y)), DIMS)
    assert " ".join(templates(program)) == expected
    if expected:
        (found,) = program.run(left, *([] if constant else [right]))
        close(found, np.matmul(left, right))


def convolve(case: Case, dtype: DType = F32, target: CudaTarget | None = None) -> list[str]:
    """Compares a convolution with ONNX Runtime; the templates that were used."""
    m = Maker()
    w = (random(RNG, case.w) / np.float32(np.prod(case.w[1:]) ** 0.5)).astype(dtype.numpy)
    bias = random(RNG, (case.w[0] if case.extra is None else case.w[1] * case.group,)).astype(dtype.numpy)
    source = m.input(*case.x, layout=case.layout, dtype=dtype)
    weights = m.constant(w) if case.packed else m.input(*case.w)
    attributes = {**case.attributes(), "pads": tuple(const(p) for p in case.pads or (0,) * 2 * (len(case.w) - 2))}
    y = m.add(case.op, source, weights, m.constant(bias), layout=case.out, **attributes)
    x = random(RNG, sizes(case.x, DIMS)).astype(dtype.numpy)
    exact = [a.astype(np.float32) for a in (x, w, bias)]
    arrays, expected = [x] if case.packed else [x, w], reference(case, *exact)
    if case.residual:
        r = m.graph.new_value(y.type, "r")
        r.layout = case.out
        m.graph.inputs.append(r)
        y = m.add("Add", y, r, layout=case.out)
        arrays.append(random(RNG, expected.shape).astype(dtype.numpy))
        expected = expected + arrays[-1].astype(np.float32)
    y = m.add(case.activation, y, layout=case.out)
    program = GridProgram(m.output(y), DIMS, target)
    expected = np.maximum(expected, 0) if case.activation == "Relu" else np.tanh(expected)
    tolerance = {F32: 1e-5, F16: 1e-3, BF16: 8e-3}[dtype]
    close(program.run(*arrays)[0].astype(np.float32), expected, tolerance)
    return templates(program)


@pytest.mark.parametrize("case", [*CONV, *TRANSPOSED], ids=str)
def test_convolution(case: Case) -> None:
    """Grouped ones, those of few channels and of one output pixel may be rows; all others have tiles."""
    channels = case.w[0] if case.extra is None else case.w[1]
    rows = case.group > 1 or channels < 8 or (case.extra is None and case.x[2:] == case.w[2:])
    nests = ["row", "columns"] if rows or not case.packed else []
    assert convolve(case)[-1] in ("contraction", "map", *nests)


# Of the data, of the weights, strides, pads, dilations, groups, templates that are expected.
Ints = tuple[int, ...]
WEIGHTS: list[tuple[Ints, Ints, Ints, Ints, Ints, int, str]] = [
    ((5, 16, 9, 7), (24, 16, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1, "contraction map"),
    ((3, 12, 9, 8), (20, 12, 3, 2), (2, 3), (1, 0, 2, 1), (1, 2), 1, "contraction"),
    ((4, 16, 6, 5), (40, 16, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1, "contraction"),
    ((2, 32, 6, 6), (64, 16, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 2, "contraction"),
    ((3, 19, 9, 7), (19, 1, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 19, "columns row"),
]


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(("x", "w", "strides", "pads", "dilations", "group", "expected"), WEIGHTS, ids=str)
def test_gradients_of_weights(
    x: Ints, w: Ints, strides: Ints, pads: Ints, dilations: Ints, group: int, expected: str, last: bool
) -> None:
    """Sums over the pixels of all pictures, of tensors whose channels lie innermost, and of others."""
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations, "group": group}
    attributes["pads"] = tuple(map(const, pads))
    maker, layout = Maker(), (0, 2, 3, 1) if last else None
    size = maker.add("Conv", maker.input(*x), maker.input(*w), **attributes).type.static_shape
    assert size is not None
    data, gradient = random(RNG, x), random(RNG, size)
    maker = Maker()
    made = maker.add(
        "ConvWeights", maker.input(*x, layout=layout), maker.input(*size, layout=layout),
        domain="torshc", shape=tuple(map(const, w)), layout=layout, **attributes,
    )  # fmt: skip
    program = GridProgram(maker.output(made))
    (found,) = program.run(data, gradient)
    if last:
        assert " ".join(templates(program)) == expected
    close(found, weights_gradient(gradient, data, w, strides, pads, dilations, group), 1e-5)


@pytest.mark.parametrize(
    ("g", "w", "strides", "pads", "extra"),
    [
        ((3, 24, 5, 4), (24, 16, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
        ((3, 24, 5, 4), (24, 16, 1, 1), (2, 2), (0, 0, 0, 0), (1, 0)),  # three phases of four are zeros
        ((2, 40, 4, 5), (40, 16, 3, 2), (2, 3), (1, 0, 2, 1), (0, 2)),
    ],
    ids=str,
)
def test_gradients_of_data_of_longer_steps(g: Ints, w: Ints, strides: Ints, pads: Ints, extra: Ints) -> None:
    """Products of weights that a run brings, a kernel for each phase."""
    maker, layout = Maker(), (0, 2, 3, 1)
    made = maker.add(
        "ConvTranspose", maker.input(*g, layout=layout), maker.input(*w), layout=layout, strides=strides,
        pads=tuple(map(const, pads)), dilations=(1, 1), output_padding=extra, margins=True,
    )  # fmt: skip
    program = GridProgram(maker.output(made))
    assert {"row", "columns"}.isdisjoint(templates(program)) and "contraction" in templates(program)
    gradient, weights = random(RNG, g), random(RNG, w)
    (found,) = program.run(gradient, weights)
    wide = np.zeros((g[0], w[1], *(found.shape[2 + d] + pads[d] + pads[2 + d] for d in (0, 1))))
    for i, j in np.ndindex(*w[2:]):
        term = np.einsum("nmyx,mc->ncyx", gradient.astype(np.float64), weights[:, :, i, j].astype(np.float64))
        ends = [at + (n - 1) * s + 1 for at, n, s in zip((i, j), g[2:], strides, strict=True)]
        wide[:, :, i : ends[0] : strides[0], j : ends[1] : strides[1]] += term
    close(found, wide[:, :, pads[0] : wide.shape[2] - pads[2], pads[1] : wide.shape[3] - pads[3]], 1e-5)


def weights_gradient(g: Array, x: Array, w: Ints, strides: Ints, pads: Ints, dilations: Ints, group: int) -> Array:
    """Tap by tap, in f64."""
    (top, left, below, right), found = pads, np.zeros(w)
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, below), (left, right)))
    high, across = ((n - 1) * s + 1 for n, s in zip(g.shape[2:], strides, strict=True))
    for i, j in np.ndindex(*found.shape[2:]):
        y, z = i * dilations[0], j * dilations[1]
        seen = wide[:, :, y : y + high : strides[0], z : z + across : strides[1]]
        parts = zip(np.split(g, group, 1), np.split(seen, group, 1), strict=True)
        found[:, :, i, j] = np.concatenate([np.einsum("nmyx,ncyx->mc", a, b) for a, b in parts])
    return found


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Case((1, 64, 9, 7), (40, 64, 3, 3), "", pads=(1, 1, 1, 1), residual=True),
        Case((2, 16, 9, 7), (20, 16, 3, 3), "", (2, 2), (1, 1, 1, 1)),
        Case((1, 3, 15, 13), (16, 3, 7, 7), "", (2, 2), (3, 3, 3, 3), layout=None),
        Case((1, 64, 5, 5), (64, 24, 4, 4), "", (2, 2), (1, 1, 1, 1), extra=(0, 0)),
    ],
    ids=str,
)
def test_convolution_on_tensor_cores(case: Case, dtype: DType) -> None:
    found = convolve(case, dtype)
    assert {x for x in found if x != "map"} == {"contraction_mma"}


def forced(monkeypatch: pytest.MonkeyPatch, tile: AnyTile, splits: int) -> None:
    """From now on products have this tile."""
    monkeypatch.setattr(contraction, "choose", lambda *_, **__: (tile, splits))
    monkeypatch.setattr(contraction, "choose_by_size", lambda *_, **__: (Cut(tile, splits),))


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("tile", [*TILES, *MMA_TILES], ids=str)
def test_every_tile(monkeypatch: pytest.MonkeyPatch, tile: AnyTile, splits: int) -> None:
    """Odd sizes, a few tiles each way, sums whole and in pieces, with an epilogue; packets and single elements."""
    forced(monkeypatch, tile, splits)
    dtype = F32 if isinstance(tile, GridTile) else F16
    for m, k, n in ((tile.m + 5, 7 * tile.k - 3, tile.n + 3), (2 * tile.m, 4 * tile.k, tile.n + 8)):
        maker = Maker()
        left, right, bias = (random(RNG, s, dtype.numpy) for s in ((m, k), (k, n), (n,)))
        x, y = maker.input(m, k, dtype=dtype), maker.input(k, n, dtype=dtype)
        product = maker.add("MatMul", x, y, out="f32")
        out = maker.add("Relu", maker.add("Add", product, maker.constant(bias.astype(np.float32))))
        (found,) = GridProgram(maker.output(out)).run(left, right)
        close(found, np.maximum(left.astype(np.float32) @ right.astype(np.float32) + bias, 0), 1e-5)


def test_many_pieces_are_added_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by a thread that reads all of them first, for which it has too few registers."""
    forced(monkeypatch, MMA_TILES[-1], 32)
    m, (left, right) = Maker(), (random(RNG, s, np.float16) for s in ((20, 2048), (2048, 40)))
    y = m.add("MatMul", m.input(20, 2048, dtype=F16), m.input(2048, 40, dtype=F16), out="f32")
    program = GridProgram(m.output(m.add("Relu", y)))
    close(program.run(left, right)[0], np.maximum(left.astype(np.float32) @ right.astype(np.float32), 0), 1e-5)
    assert templates(program) == ["contraction_mma", "columns"]


HOPPER = CudaTarget(Machine(archs=("sm_90a",)))


AMPERE = CudaTarget(Machine(archs=("sm_80",)))


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("tile", TF32_TILES, ids=str)
def test_floats_as_two_tf32(monkeypatch: pytest.MonkeyPatch, tile: AnyTile, splits: int) -> None:
    """Odd sizes and whole packets, factors along the sum and across it, with an epilogue."""
    forced(monkeypatch, tile, splits)
    for m, k, n, right in ((tile.m + 5, 7 * tile.k - 3, tile.n + 3, True), (tile.m, 4 * tile.k, tile.n + 8, False)):
        maker = Maker()
        left, other, bias = (random(RNG, s) for s in ((m, k), (k, n), (n,)))
        x, y = maker.input(m, k), maker.input(*((n, k) if right else (k, n)))
        product = maker.add("MatMul", x, maker.add("Transpose", y, perm=(1, 0)) if right else y)
        out = maker.add("Relu", maker.add("Add", product, maker.constant(bias)))
        program = GridProgram(maker.output(out), target=AMPERE)
        assert templates(program)[0] == "contraction_mma"
        (found,) = program.run(left, other.T if right else other)
        # A term has an error of 2^-22, and the sums of at most 221 terms are rounded 28 times.
        close(found, np.maximum(left.astype(np.float64) @ other.astype(np.float64) + bias, 0), 1e-6)


@pytest.mark.parametrize("splits", [1, 3, 12])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("tile", [*TF32_GROUP_TILES, TF32_SINGLE_TILES[0]], ids=str)
def test_floats_by_groups(monkeypatch: pytest.MonkeyPatch, tile: Tf32GroupTile, right: bool, splits: int) -> None:
    """A batch, ragged tiles, a short last stage, more tiles than blocks; what does not lie along the sum is copied."""
    forced(monkeypatch, tile, splits)
    monkeypatch.setattr(type(tile), "blocks", 3)
    monkeypatch.setattr(contraction, "COPIED", 1)
    maker = Maker()
    b, m, k, n = 2, tile.m + 8, 7 * tile.k - 12, tile.n + 8
    left, other, bias = (random(RNG, s) for s in ((b, m, k), (b, k, n), (n,)))
    x, y = maker.input(b, m, k), maker.input(b, *((n, k) if right else (k, n)))
    product = maker.add("MatMul", x, maker.add("Transpose", y, perm=(0, 2, 1)) if right else y)
    out = maker.add("Relu", maker.add("Add", product, maker.constant(bias)))
    program = GridProgram(maker.output(out), target=HOPPER)
    assert templates(program) == [
        *(() if right else ("map",)),
        "contraction_group",
        *(["map"] * (not joins(HOPPER.machine.device, tile, splits) and splits > 1)),
    ]
    source = next(x.source for x in program.launches if "t_group.h" in x.source)
    assert f"t_barrier_init(&empty[i], {32 * tile.warps + tile.splitters});" in source  # all that read a stage
    (found,) = program.run(left, other.swapaxes(1, 2) if right else other)
    # A term has an error of 2^-22, and the sums of at most 212 terms are rounded 28 times; of one product each 2^-10.
    tolerance = 1e-6 if tile.products == 3 else 2.0**-10
    close(found, np.maximum(left.astype(np.float64) @ other.astype(np.float64) + bias, 0), tolerance)


@pytest.mark.parametrize("splits", [1, 3, 12])
@pytest.mark.parametrize("tile", [*TF32_GROUP_TILES, *TF32_SINGLE_TILES], ids=str)
def test_floats_across_the_sum_by_groups(monkeypatch: pytest.MonkeyPatch, tile: Tf32GroupTile, splits: int) -> None:
    """Both factors are turned on their way: ragged tiles, a short last stage, more tiles than blocks, no copies."""
    forced(monkeypatch, tile, splits)
    monkeypatch.setattr(type(tile), "blocks", 3)
    maker = Maker()
    b, m, k, n = 2, tile.m + 8, 7 * tile.k - 12, tile.n + 8
    left, other, bias = (random(RNG, s) for s in ((b, m, k), (b, k, n), (n,)))
    product = maker.add("MatMul", maker.input(b, m, k, layout=(0, 2, 1)), maker.input(b, k, n))
    out = maker.add("Relu", maker.add("Add", product, maker.constant(bias)))
    program = GridProgram(maker.output(out), target=HOPPER)
    joined = joins(HOPPER.machine.device, tile, splits) or splits == 1
    assert templates(program) == ["contraction_group", *(["map"] * (not joined))]
    (found,) = program.run(left, other)
    # As in the test before.
    tolerance = 1e-6 if tile.products == 3 else 2.0**-10
    expected = left.astype(np.float64) @ other.astype(np.float64) + bias
    close(found, np.maximum(expected, 0), tolerance)


@pytest.mark.parametrize(("products", "splits"), [(1, 2), (3, 2), (1, 12)])
@pytest.mark.parametrize(
    ("x", "w", "strides", "pads", "dilations"),
    [
        ((33, 32, 5, 4), (72, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
        ((5, 36, 6, 5), (40, 36, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
        ((34, 24, 7, 6), (16, 24, 3, 2), (2, 3), (1, 0, 2, 1), (1, 2)),
        ((6, 64, 9, 8), (24, 64, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
    ],
    ids=str,
)
def test_gradients_of_weights_by_groups(
    monkeypatch: pytest.MonkeyPatch,
    x: Ints,
    w: Ints,
    strides: Ints,
    pads: Ints,
    dilations: Ints,
    products: int,
    splits: int,
) -> None:
    """Pixels of pictures and the gradients there, neither along the sum; few filters, and many pieces."""
    forced(monkeypatch, replace(TF32_GROUP_TILES[1], products=products), splits)
    attributes: dict[str, Any] = {
        "strides": strides,
        "pads": tuple(map(const, pads)),
        "dilations": dilations,
        "group": 1,
    }
    maker, layout = Maker(), (0, 2, 3, 1)
    size = maker.add("Conv", maker.input(*x), maker.input(*w), **attributes).type.static_shape
    assert size is not None
    data, gradient = random(RNG, x), random(RNG, size)
    maker = Maker()
    made = maker.add(
        "ConvWeights", maker.input(*x, layout=layout), maker.input(*size, layout=layout),
        domain="torshc", shape=tuple(map(const, w)), layout=layout, **attributes,
    )  # fmt: skip
    program = GridProgram(maker.output(made), target=HOPPER)
    assert templates(program) == ["contraction_group", *(["map"] if splits == 12 else [])]
    expected = weights_gradient(gradient, data, w, strides, pads, dilations, 1)
    close(program.run(data, gradient)[0], expected, 2.0**-10 if products == 1 else 1e-6)


@pytest.mark.parametrize(("taps", "expected"), [(1, "contraction_group"), (3, "contraction_group map")])
def test_updates_in_the_order_of_states(monkeypatch: pytest.MonkeyPatch, taps: int, expected: str) -> None:
    """Gradients of taps side by side lie apart from what they update: another kernel does, in the order of that."""
    tile = GROUP_TILES[-1]
    monkeypatch.setattr(contraction, "_choose", lambda *_, **__: [Cut(tile, 1)])
    maker, layout, margin = Maker(), (0, 2, 3, 1), taps // 2
    form: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (const(margin),) * 4, "group": 1}
    x, g = (maker.input(2, c, 8, 8, layout=layout, dtype=BF16) for c in (16, 24))
    w, shape = maker.input(24, 16, taps, taps), tuple(map(const, (24, 16, taps, taps)))
    gradient = maker.add("ConvWeights", x, g, domain="torshc", shape=shape, out="f32", **form)
    program = GridProgram(maker.output(maker.add("Add", w, gradient), maker.add("Mul", w, gradient)), target=HOPPER)
    assert " ".join(templates(program)) == expected
    data, slope = (random(RNG, (2, c, 8, 8)).astype(BF16.numpy) for c in (16, 24))
    old = random(RNG, (24, 16, taps, taps))
    wide = (slope.astype(np.float32), data.astype(np.float32))
    exact = weights_gradient(*wide, (24, 16, taps, taps), (1, 1), (margin,) * 4, (1, 1), 1)
    found = program.run(data, slope, old)
    close(found[0], old + exact, 1e-5)
    close(found[1], old * exact, 1e-5)


@pytest.mark.parametrize("signs", ["both", "positive"])
def test_sums_of_tf32_are_as_exact_as_of_f32(monkeypatch: pytest.MonkeyPatch, signs: str) -> None:
    """Against f64, with tensor cores that round toward zero; one product of tf32 alone is far from it."""
    monkeypatch.setattr(contraction, "COPIED", 1)

    def error(target: CudaTarget, tile: AnyTile, k: int) -> float:
        forced(monkeypatch, tile, 1)
        m, n, maker, rng = 64, 64, Maker(), np.random.default_rng(3)
        left, right = (x if signs == "both" else abs(x) for x in (random(rng, (m, k)), random(rng, (k, n))))
        expected = left.astype(np.float64) @ right.astype(np.float64)
        product = maker.add("MatMul", maker.input(m, k), maker.input(k, n))
        (found,) = GridProgram(maker.output(product), target=target).run(left, right)
        return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))

    tiles = (TILES[4], TF32_TILES[3], replace(TF32_TILES[3], products=1))
    plain, exact, rounded = (error(AMPERE, t, EXACT) for t in tiles)
    assert exact <= plain < 2e-7 < 2e-5 < rounded < 2**-10
    assert error(HOPPER, TF32_GROUP_TILES[1], GROUP_EXACT) <= error(AMPERE, TILES[4], GROUP_EXACT)


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize(("target", "tile"), [(AMPERE, TF32_TILES[-2]), (HOPPER, TF32_GROUP_TILES[1])])
def test_what_tf32_cannot_hold(monkeypatch: pytest.MonkeyPatch, target: CudaTarget, tile: AnyTile, splits: int) -> None:
    """Infinite, NaN, large and tiny elements give what f32 gives, and nothing else of the result changes."""
    forced(monkeypatch, tile, splits)
    monkeypatch.setattr(contraction, "COPIED", 1)
    most = np.finfo(np.float32).max
    left, right = random(RNG, (40, 80)), random(RNG, (80, 40))
    left[0, 3], left[1, 5], left[2, 79], left[3, 0] = np.inf, -np.inf, np.nan, most
    left[4, 70:72] = np.inf, -np.inf
    right[3, 7] = 0.0
    left[5], left[6] = left[5] * np.float32(2.0**-120), left[6] * np.float32(2.0**-100)
    left[7], left[7, 9], right[9, 11] = 0.0, most, 1.0
    right[:, 12] *= np.float32(2.0**-90)
    maker = Maker()
    program = GridProgram(maker.output(maker.add("MatMul", maker.input(40, 80), maker.input(80, 40))), target=target)
    assert ("contraction_mma" if target is AMPERE else "contraction_group") in templates(program)
    with np.errstate(all="ignore"):
        (found,), expected = program.run(left, right), left.astype(np.float64) @ right.astype(np.float64)
        same = expected.astype(np.float32)
        error, size = abs(found - expected), abs(left.astype(np.float64)) @ abs(right.astype(np.float64))
    finite = np.isfinite(same)
    assert (found[~finite] == same[~finite])[~np.isnan(same[~finite])].all()
    assert (np.isnan(found) == np.isnan(same)).all()
    # 80 roundings of a sum that is at most the terms' sizes; below 2^-126 numbers have fewer bits.
    assert (error[finite] <= 80 * 2.0**-24 * size[finite] + 80 * 2.0**-149).all()
    assert found[7, 11] == most


@pytest.mark.parametrize("case", [
    Case((1, 64, 9, 7), (40, 64, 3, 3), "", pads=(1, 1, 1, 1), residual=True),
    Case((2, 16, 9, 7), (20, 16, 3, 3), "", (2, 2), (1, 1, 1, 1)),
    Case((1, 3, 15, 13), (16, 3, 7, 7), "", (2, 2), (3, 3, 3, 3), layout=None),
    Case((1, 64, 5, 5), (64, 24, 4, 4), "", (2, 2), (1, 1, 1, 1), extra=(0, 0)),
], ids=str)  # fmt: skip
def test_convolution_of_tf32(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    forced(monkeypatch, TF32_TILES[-2], 1)
    assert {x for x in convolve(case, F32, AMPERE) if x != "map"} == {"contraction_mma"}


@pytest.mark.parametrize("case", [
    Case((1, 64, 9, 7), (40, 64, 3, 3), "", pads=(1, 1, 1, 1), residual=True),
    Case((2, 16, 9, 7), (20, 16, 3, 3), "", (2, 2), (1, 1, 1, 1)),
], ids=str)  # fmt: skip
def test_convolution_of_tf32_by_groups(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    """Pixels are brought by threads, weights lie along the sum and are copied by the card."""
    forced(monkeypatch, TF32_GROUP_TILES[1], 1)
    assert {x for x in convolve(case, F32, HOPPER) if x != "map"} == {"contraction_group"}


@pytest.mark.parametrize(("tile", "splits"), [(0, 1), (1, 2), (6, 1), (8, 4)])
def test_convolution_of_images_of_tf32(monkeypatch: pytest.MonkeyPatch, tile: int, splits: int) -> None:
    """Images are tf32 in memory, weights are rounded as they are copied; nothing is rounded to zero."""
    forced(monkeypatch, ROUNDED_GROUP_TILES[tile], splits)
    monkeypatch.setattr(contraction, "COPIED", 1)
    maker, layout = Maker(), (0, 2, 3, 1)
    x = maker.add("RoundToTf32", maker.input(2, 64, 9, 7, layout=layout), domain="torshc", layout=layout)
    attributes: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (const(1),) * 4, "group": 1}
    made = maker.add("Conv", x, maker.input(72, 64, 3, 3), layout=layout, **attributes)
    program = GridProgram(maker.output(made), target=CudaTarget(Machine(archs=("sm_90a",), tf32=True)))
    assert templates(program)[:3] == ["map", "map", "contraction_group"]  # rounds images, copies weights
    images, weights = random(RNG, (2, 64, 9, 7)), random(RNG, (72, 64, 3, 3))
    wide = np.pad(tf32(images), ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.zeros((2, 72, 9, 7))
    for i, j in np.ndindex(3, 3):
        expected += np.einsum("ncyx,mc->nmyx", wide[:, :, i : i + 9, j : j + 7], tf32(weights)[:, :, i, j])
    close(program.run(images, weights)[0], expected, 1e-5)


def tf32(x: Array) -> Array:
    """The nearest numbers of 10 bits of mantissa, as f64."""
    return ((x.view(np.uint32) + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32).astype(np.float64)


@pytest.mark.parametrize(
    ("archs", "tf32", "k", "products"),
    [
        (("sm_80",), False, 512, 3), (("sm_80", "sm_90a"), False, 512, 3), (("sm_90a",), False, EXACT - 1, 0),
        (("sm_90a",), False, 512, 3), (("sm_90a",), True, 512, 1),
        (("sm_86",), False, 512, 0), ((), False, 512, 0), (("sm_86",), True, 48, 1), (("sm_75",), True, 512, 0),
    ],
)  # fmt: skip
def test_which_products_are_of_tf32(archs: tuple[str, ...], tf32: bool, k: int, products: int) -> None:
    """Those of cards whose tensor cores are fast enough for three, or what the options allow to be rounded."""
    maker = Maker()
    product = maker.add("MatMul", maker.input(1024, k), maker.input(k, 1024))
    target = CudaTarget(Machine(archs=archs, tf32=tf32))
    kernel = GridProgram(maker.output(product), target=target).kernels[-1]
    assert isinstance(kernel, ContractionKernel)
    assert (kernel.tile.products if isinstance(kernel.tile, Tf32Tile | Tf32GroupTile) else 0) == products
    assert isinstance(kernel, GroupMmaKernel) == (archs == ("sm_90a",) and k == 512)


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize(("turned", "right"), [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("tile", GROUP_TILES, ids=str)
@pytest.mark.parametrize("splits", [1, 2])
def test_groups_of_four_warps(
    monkeypatch: pytest.MonkeyPatch, splits: int, tile: AnyTile, turned: bool, right: bool, dtype: DType
) -> None:
    """Factors along the sum and across it; a batch, ragged tiles, a short last stage, and more tiles than blocks."""
    forced(monkeypatch, tile, splits)
    monkeypatch.setattr(type(tile), "blocks", 3)
    maker = Maker()
    b, m, k, n = 2, tile.m + 8, 7 * tile.k - 24, tile.n + 8
    left, other = (random(RNG, s).astype(dtype.numpy) for s in ((b, m, k), (b, k, n)))
    x, y = maker.input(b, m, k, dtype=dtype), maker.input(b, *((n, k) if right else (k, n)), dtype=dtype)
    out = maker.add("MatMul", x, maker.add("Transpose", y, perm=(0, 2, 1)) if right else y, out="f32")
    out = maker.add("Transpose", out, perm=(0, 2, 1)) if turned else maker.add("Relu", out)
    program = GridProgram(maker.output(out), target=HOPPER)
    kernel = program.kernels[0]
    assert isinstance(kernel, ContractionKernel) and kernel.template == "contraction_group.j2"
    assert len(program.kernels) == (1 if splits == 1 or joins(HOPPER.machine.device, tile, splits) else 2)
    assert (kernel.a.along_k, kernel.b.along_k) == (not turned, turned or right)
    (found,) = program.run(left, other.swapaxes(1, 2) if right else other)
    expected = left.astype(np.float64) @ other.astype(np.float64)
    # Products of 16-bit floats are exact in f32, and the sums have 424 terms of f32.
    close(found, expected.swapaxes(1, 2) if turned else np.maximum(expected, 0), 1e-5)


@pytest.mark.parametrize("shape", [("s", 72), ("b", "s", 72)], ids=str)
@pytest.mark.parametrize(("dtype", "tile"), [(F16, GROUP_TILES[-1]), (F32, TF32_GROUP_TILES[-1])], ids=str)
def test_groups_over_symbolic_sizes(monkeypatch: pytest.MonkeyPatch, dtype: DType, tile: AnyTile, shape: Shape) -> None:
    """Both factors are brought by the card, rows whose number only a run knows too."""
    forced(monkeypatch, tile, 1)
    dims, maker = {"b": 3, "s": 50}, Maker()
    left, right = random(RNG, sizes(shape, dims), dtype.numpy), random(RNG, (72, 80), dtype.numpy)
    product = maker.add("MatMul", maker.input(*shape, dtype=dtype), maker.constant(right), out="f32")
    program = GridProgram(maker.output(product), dims, HOPPER)
    (kernel,) = program.kernels
    assert isinstance(kernel, GroupMmaKernel) and list(kernel.copied) == ["a", "b"]
    # Products of 16-bit floats are exact in f32, those of floats 2^-22 from it; the sums have 72 terms of f32.
    close(program.run(left)[0], left.astype(np.float64) @ right.astype(np.float64), 1e-5)


@pytest.mark.parametrize("case", [
    Case((1, 64, 9, 7), (40, 64, 3, 3), "", pads=(1, 1, 1, 1), residual=True),
    Case((2, 16, 9, 7), (24, 16, 3, 3), "", (2, 2), (1, 1, 1, 1)),
    Case((1, 64, 5, 5), (64, 24, 4, 4), "", (2, 2), (1, 1, 1, 1), extra=(0, 0)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("splits", [1, 2])
def test_convolution_by_groups(monkeypatch: pytest.MonkeyPatch, case: Case, splits: int) -> None:
    forced(monkeypatch, GROUP_TILES[-1], splits)
    assert {x for x in convolve(case, F16, HOPPER) if x != "map"} == {"contraction_group"}


def test_sums_of_an_unknown_number_of_images_are_whole_for_many() -> None:
    """Of few images sums may be cut into pieces; the kernel for any number beyond has no memory for these."""
    maker = Maker()
    x = maker.input("b", 256, 28, 28, layout=(0, 2, 3, 1), dtype=F16)
    weights = maker.constant(np.ones((256, 256, 3, 3), np.float16))
    pads = tuple(const(1) for _ in range(4))
    given = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "pads": pads}
    y = maker.add("Conv", x, weights, layout=(0, 2, 3, 1), **given)
    kernels = [k for k in GridProgram(maker.output(y), {"b": 2}, HOPPER).kernels if isinstance(k, GroupMmaKernel)]
    assert any(as_int(k.part.args[0]) == 1 for k in kernels)


def test_what_groups_multiply() -> None:
    """Products whose factors are read in whole packets, where all cards are Hopper's."""
    large, small = (1, 4096, 4096, 4096), (1, 128, 128, 256)
    device = Device(132, 48 * 1024, tensor=True, groups=True)
    assert choose(device, large, mma_tiles(device))[0] in GROUP_TILES
    assert choose(device, small, mma_tiles(device))[0] in GROUP_TILES
    ampere = replace(device, groups=False)
    for size in (large, small):
        assert choose(ampere, size, mma_tiles(ampere))[0] in MMA_TILES
    for k, template in ((512, "contraction_group"), (500, "contraction_mma")):
        maker = Maker()
        x, y = maker.input(1024, k, dtype=F16), maker.input(k, 2000, dtype=F16)
        assert templates(GridProgram(maker.output(maker.add("MatMul", x, y)), target=HOPPER)) == [template]
    for archs, groups in ((("sm_90a",), True), (("sm_80", "sm_90a", "compute_80"), False), ((), False)):
        assert CudaTarget(Machine(archs=archs)).machine.device.groups == groups


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64], ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("sizes_", [(40, 72, 48), (37, 29, 21)], ids=str)
def test_order_in_memory(dtype: DType, right: bool, turned: bool, sizes_: tuple[int, int, int]) -> None:
    """A factor along the sum or across it, in every element type, and results along the rows: factors change places."""
    m, k, n = sizes_
    maker = Maker()
    a, b = random(RNG, (m, k)).astype(dtype.numpy), random(RNG, (k, n)).astype(dtype.numpy)
    x, y = maker.input(m, k, dtype=dtype), maker.input(*((n, k) if right else (k, n)), dtype=dtype)
    out = maker.add("MatMul", x, maker.add("Transpose", y, perm=(1, 0)) if right else y)
    program = GridProgram(maker.output(maker.add("Transpose", out, perm=(1, 0)) if turned else out))
    assert templates(program) == ["contraction_mma" if dtype in (F16, BF16) else "contraction"]
    (kernel,) = program.kernels
    assert isinstance(kernel, ContractionKernel)
    along = (kernel.b.along_k, kernel.a.along_k) if turned else (kernel.a.along_k, kernel.b.along_k)
    assert along == (True, right)
    (found,) = program.run(a, b.T if right else b)
    expected = (
        (a.astype(np.float64) @ b.astype(np.float64)).T if turned else a.astype(np.float64) @ b.astype(np.float64)
    )
    close(np.asarray(found).astype(np.float64), expected, {F32: 1e-6, F64: 1e-14, F16: 1e-3, BF16: 8e-3}[dtype])


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("sizes_", [(40, 72, 48), (37, 29, 21)], ids=str)
def test_halves_without_tensor_cores(dtype: DType, sizes_: tuple[int, int, int]) -> None:
    """They are summed in f32 by the ordinary kernel, from packets of four and from single elements."""
    m, k, n = sizes_
    maker = Maker()
    a, b = random(RNG, (m, k)).astype(dtype.numpy), random(RNG, (k, n)).astype(dtype.numpy)
    product = maker.add("MatMul", maker.input(m, k, dtype=dtype), maker.constant(b), out="f32")
    program = GridProgram(maker.output(product), target=CudaTarget(Machine(archs=("sm_75", "sm_90a"))))
    assert templates(program) == ["contraction"]
    close(program.run(a)[0], a.astype(np.float32) @ b.astype(np.float32), 1e-6)


def test_a_reshape_without_strides() -> None:
    """An operand that views leave no strides is read from a copy."""
    maker = Maker()
    x = maker.input(8, 24)
    y = maker.add("Reshape", maker.add("Transpose", x, perm=(1, 0)), shape=(const(12), const(16)))
    w = random(RNG, (16, 20))
    program = GridProgram(maker.output(maker.add("MatMul", y, maker.constant(w))))
    array = random(RNG, (8, 24))
    close(program.run(array)[0], array.T.reshape(12, 16) @ w)


@pytest.mark.parametrize(
    "dims", [{"b": 0, "s": 5, "k": 4, "n": 3}, {"b": 2, "s": 5, "k": 0, "n": 3}, {"b": 1, "s": 1, "k": 1, "n": 1}]
)
def test_symbolic_sizes_of_zero_and_one(dims: dict[str, int]) -> None:
    m = Maker()
    a, b = ("b", "s", "k"), ("b", "k", "n")
    program = GridProgram(m.output(m.add("MatMul", m.input(*a), m.input(*b))), dims)
    left, right = random(RNG, sizes(a, dims)), random(RNG, sizes(b, dims))
    close(program.run(left, right)[0], np.matmul(left, right))


def test_integers_are_rows() -> None:
    m = Maker()
    a, b = random(RNG, (5, 21), np.int32), random(RNG, (21, 9), np.int32)
    program = GridProgram(m.output(m.add("MatMul", m.input(5, 21, dtype=I32), m.input(21, 9, dtype=I32))))
    assert templates(program) == ["row"]
    assert (program.run(a, b)[0] == a @ b).all()


@pytest.mark.parametrize(
    ("sizes_", "wanted"),
    [
        ((1, 49, 512, 4608), True),
        ((1, 4096, 4096, 4096), False),
        ((8, 512, 512, 64), False),
        ((None, 4096, 4096, 4608), False),
    ],
)
def test_the_choice_of_tiles(sizes_: tuple[int | None, ...], wanted: bool) -> None:
    """Few tiles cut their sums until the card is busy; many tiles do not."""
    device = Device(132, 48 * 1024)
    tile, splits = choose(device, sizes_, float_tiles(device, F32, sizes_[3]))
    assert tile.shared(4) <= device.shared
    assert (splits > 1) == wanted
    other = Device(132, 32 * 1024)
    small, _ = choose(other, sizes_, float_tiles(other, F32, sizes_[3]))
    assert small.shared(4) <= 32 * 1024
