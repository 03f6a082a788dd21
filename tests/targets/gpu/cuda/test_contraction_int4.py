from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import F16
from torshc.ops.quant.narrow import PairLayer, PairMatMul
from torshc.targets.gpu.cuda import contraction_int4
from torshc.targets.gpu.cuda.contraction_int4 import Int4Kernel

from ....support.kernels import Maker, op
from ....support.run_grid import GridProgram, needs_emulator
from ....support.run_kernel import Array

RNG = seeded(5)
pytestmark = needs_emulator


def weights(columns: int, depth: int, block: int) -> tuple[Array, Array, Array]:
    """Bytes of two numbers, scales, and the weights [depth, columns] that they are, rounded to f16."""
    numbers = RNG.integers(0, 16, (columns, depth))
    numbers[:, :16] = np.arange(16)  # all there are
    scales = RNG.uniform(0.01, 0.2, (columns, -(-depth // block))).astype(np.float16)
    pairs = (numbers[:, ::2] | numbers[:, 1::2] << 4).astype(np.uint8)
    exact = (numbers - 8).astype(np.float32) * np.repeat(scales, block, 1)[:, :depth].astype(np.float32)
    return pairs, scales, exact.astype(np.float16).T


@pytest.mark.parametrize(
    ("shape", "columns", "depth", "block"),
    [
        ((1,), 16, 32, 32), ((1,), 40, 128, 32), ((1,), 33, 1024, 128), ((3,), 48, 160, 32), ((8,), 16, 1408, 64),
        ((9,), 24, 256, 64), ((32,), 17, 416, 32), ((2, 5), 16, 2176, 256), ((1, 1), 64, 4096, 32),
        ((2, 1), 16, 96, 64),
    ],
    ids=str,
)  # fmt: skip
def test_products(shape: tuple[int, ...], columns: int, depth: int, block: int) -> None:
    m = Maker()
    pairs, scales, exact = weights(columns, depth, block)
    x = RNG.standard_normal((*shape, depth)).astype(np.float16)
    x = x if len(shape) > 1 else x.reshape(1, *x.shape)
    given = m.input(*x.shape, dtype=F16)
    bias = RNG.standard_normal(columns).astype(np.float16)
    y = m.builder.one(PairMatMul(block), given, m.constant(pairs), m.constant(scales))
    program = GridProgram(m.output(m.builder.one(op("Relu"), m.builder.one(op("Add"), y, m.constant(bias)))))
    (kernel,) = program.kernels
    assert isinstance(kernel, Int4Kernel) and len(kernel.early) == (kernel.rows * 16 <= kernel.threads)
    (got,) = program.run(x)
    # The product is rounded to f16 by the model; sums are f32, in the kernel's order.
    product = (x.astype(np.float64) @ exact.astype(np.float64)).astype(np.float16)
    wanted = np.maximum(product.astype(np.float64) + bias, 0)
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "gate", "normed"),
    [(1, 48, 160, "Swish", True), (3, 32, 1024, "", True), (8, 32, 1120, "Relu", False), (2, 64, 256, "Gelu", True)],
)
def test_norms_before_and_gates_behind(rows: int, columns: int, depth: int, gate: str, normed: bool) -> None:
    """In one kernel, where the norm's result is rounded, and the gate's factors are not."""
    m = Maker()
    pairs, scales, exact = weights(columns, depth, 32)
    x = (3 * RNG.standard_normal((1, rows, depth))).astype(np.float16)
    factors = [m.input(*x.shape, dtype=F16), m.constant(pairs), m.constant(scales)]
    gain = RNG.uniform(0.5, 1.5, depth).astype(np.float16)
    y = m.builder.one(PairLayer(32, 0.5, gate), *factors, *([m.constant(gain)] if normed else []))
    shape = (1, rows, columns // (2 if gate else 1))
    other = m.input(*shape, dtype=F16)
    program = GridProgram(m.output(m.builder.one(op("Add"), y, other)))
    assert [type(k) for k in program.kernels] == [Int4Kernel]
    added = RNG.standard_normal(shape).astype(np.float16)
    (got,) = program.run(x, added)
    wide = x.astype(np.float64)
    if normed:
        wide = (wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 0.5)).astype(np.float16) * gain.astype(
            np.float64
        )
    sums = wide.astype(np.float16).astype(np.float64) @ exact.astype(np.float64)
    if gate:
        first, second = np.split(sums, 2, -1)
        erf = np.vectorize(math.erf)
        act = {"Swish": lambda v: v / (1 + np.exp(-v)), "Relu": lambda v: np.maximum(v, 0)}
        act["Gelu"] = lambda v: v * (1 + erf(v / 2**0.5)) / 2
        sums = act[gate](first) * second
    np.testing.assert_allclose(got, sums + added, rtol=3e-3, atol=2e-2)


@pytest.mark.parametrize(
    ("rows", "columns", "depth", "gate"),
    [(1, 6369, 128, ""), (1, 6400, 128, "Relu"), (2, 2120, 5120, ""), (9, 2120, 128, "")],
)
def test_tiles_one_after_the_other(
    rows: int, columns: int, depth: int, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block computes two or three where there are more than fit on the card; weights may come in several rounds."""
    monkeypatch.setattr(contraction_int4, "THREADS", 1)
    monkeypatch.setattr(contraction_int4, "MORE_THREADS", 1)
    m = Maker()
    pairs, scales, exact = weights(columns, depth, 32)
    x = RNG.standard_normal((1, rows, depth)).astype(np.float16)
    y = PairLayer(32, gate=gate) if gate else PairMatMul(32)
    given = m.input(*x.shape, dtype=F16)
    program = GridProgram(m.output(m.builder.one(y, given, m.constant(pairs), m.constant(scales))))
    (kernel,) = program.kernels
    assert isinstance(kernel, Int4Kernel) and kernel.tiles > kernel.most
    (got,) = program.run(x)
    sums = x.astype(np.float64) @ exact.astype(np.float64)
    if gate:
        first, second = np.split(sums, 2, -1)
        sums = np.maximum(first, 0) * second
    np.testing.assert_allclose(got, sums, rtol=4e-3, atol=2e-2)


@pytest.mark.parametrize(
    ("depth", "columns", "warps", "ahead"),
    [(2048, 2048, 8, 4), (2048, 11264, 8, 4), (5632, 2048, 11, 4), (11008, 4096, 8, 4), (11008, 2048, 24, 4),
     (14336, 2048, 16, 4), (64, 16, 1, 4)],
)  # fmt: skip
def test_few_warps_ask_for_all_of_a_tile(depth: int, columns: int, warps: int, ahead: int) -> None:
    """As few as have it all on its way at once, where a block has one tile; the fewest where it has more."""
    m = Maker()
    pairs, scales, _ = weights(columns, depth, 32)
    given = m.input(1, 1, depth, dtype=F16)
    y = m.builder.one(PairMatMul(32), given, m.constant(pairs), m.constant(scales))
    (kernel,) = GridProgram(m.output(y)).kernels
    assert isinstance(kernel, Int4Kernel) and (kernel.warps, kernel.ahead) == (warps, ahead)


def test_what_is_added_is_read_before_the_sums_are_there() -> None:
    m = Maker()
    pairs, scales, _ = weights(32, 256, 32)
    x, other = m.input(1, 1, 256, dtype=F16), m.input(1, 1, 32, dtype=F16)
    y = m.builder.one(PairMatMul(32), x, m.constant(pairs), m.constant(scales))
    program = GridProgram(m.output(m.builder.one(op("Add"), y, other)))
    (kernel,) = program.kernels
    text = program.target.render(kernel).source
    assert text.count("early0 = given0;") == 1 and text.index("early0 = given0;") < text.index("t_mma_f16(sum")


def test_what_the_kernel_does_not_take_is_a_plain_nest() -> None:
    """More rows than tiles, short blocks, and cards without tensor cores."""
    pairs, scales, exact = weights(16, 64, 16)
    m = Maker()
    y = m.builder.one(PairMatMul(16), m.input(1, 3, 64, dtype=F16), m.constant(pairs), m.constant(scales))
    program = GridProgram(m.output(y))
    assert not any(isinstance(k, Int4Kernel) for k in program.kernels)
    x = RNG.standard_normal((1, 3, 64)).astype(np.float16)
    (got,) = program.run(x)
    np.testing.assert_allclose(got, x.astype(np.float64) @ exact.astype(np.float64), rtol=2e-3, atol=2e-3)
