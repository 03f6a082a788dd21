from __future__ import annotations

import numpy as np
import pytest

from torshc.expr import F16
from torshc.ops.quant.narrow import PairMatMul
from torshc.targets.gpu.contraction_pairs import PairKernel

from ...support.kernels import Maker, op
from ...support.run_grid import GridProgram, needs_emulator
from ...support.run_kernel import Array

RNG = np.random.default_rng(5)
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
    assert [type(k) for k in program.kernels] == [PairKernel]
    (got,) = program.run(x)
    # The product is rounded to f16 by the model; sums are f32, in the kernel's order.
    product = (x.astype(np.float64) @ exact.astype(np.float64)).astype(np.float16)
    wanted = np.maximum(product.astype(np.float64) + bias, 0)
    np.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)


def test_what_the_kernel_does_not_take_is_a_plain_nest() -> None:
    """More rows than tiles, short blocks, and cards without tensor cores."""
    pairs, scales, exact = weights(16, 64, 16)
    m = Maker()
    y = m.builder.one(PairMatMul(16), m.input(1, 3, 64, dtype=F16), m.constant(pairs), m.constant(scales))
    program = GridProgram(m.output(y))
    assert not any(isinstance(k, PairKernel) for k in program.kernels)
    x = RNG.standard_normal((1, 3, 64)).astype(np.float16)
    (got,) = program.run(x)
    np.testing.assert_allclose(got, x.astype(np.float64) @ exact.astype(np.float64), rtol=2e-3, atol=2e-3)
