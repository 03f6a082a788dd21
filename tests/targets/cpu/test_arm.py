"""Products of narrow types by Arm's instructions, run by qemu: those of bytes are exact whatever multiplies them."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

from torshc.expr import U8, const
from torshc.ops.quant.integer import IntegerConv, IntegerMatMul

from ...support.kernels import Maker
from ...support.run_emulated import Emulated
from .test_dot import LAST, Case, convolved

BYTES = [  # a processor to compile for, one that runs it, and one that lacks its instructions
    ("armv8-a-bf16", "max", "neoverse-n1"),
    ("armv8-a-dotprod", "neoverse-n1", "cortex-a72"),
]
PRODUCTS = [(13, 37, 19), (1, 64, 100), (2, 21, 9)]
CONVOLUTIONS = [
    Case((1, 8, 9, 7), (20, 8, 3, 3), pads=(1, 1, 1, 1)),
    Case((2, 10, 9, 7), (22, 5, 3, 2), strides=(2, 1), pads=(0, 1, 2, 0), group=2),
    Case((2, 37, 9, 8), (37, 1, 3, 3), "depthwise_int8", pads=(1, 1, 1, 1), group=37),
]


def unsigned(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def signed(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize(("mcpu", "on", "lacking"), BYTES, ids=str)
def test_bytes(mcpu: str, on: str, lacking: str) -> None:
    """Whatever is left over of rows, columns and terms, and where all numbers are the largest."""
    m = Maker()
    left = [unsigned(i, rows, depth) for i, (rows, depth, _) in enumerate(PRODUCTS)]
    right = [signed(i, depth, columns) for i, (_, depth, columns) in enumerate(PRODUCTS)]
    left[0][5], right[0][:, 3] = 255, -128
    inputs = [m.input(*x.shape, dtype=U8) for x in left]
    made = [m.builder.one(IntegerMatMul(), x, m.constant(w)) for x, w in zip(inputs, right, strict=True)]
    emulated = Emulated(m.output(*made), mcpu)
    found = emulated.run(*left, on=on)
    for x, w, y in zip(left, right, found, strict=True):
        np.testing.assert_array_equal(y, x.astype(np.int32) @ w.astype(np.int32))
    assert emulated.status(lacking) == -signal.SIGILL


@pytest.mark.parametrize(("mcpu", "on", "lacking"), BYTES, ids=str)
def test_convolutions_of_bytes(mcpu: str, on: str, lacking: str) -> None:
    """Of whole and several groups, and of a channel to a group, with a margin."""
    m, outputs, data = Maker(), [], []
    margin = np.asarray(77, np.uint8)
    edge = m.input(dtype=U8)
    for i, case in enumerate(CONVOLUTIONS):
        fields: Any = (case.strides, tuple(map(const, case.pads)), case.dilations, case.group)
        data.append((unsigned(i, *case.x), signed(i, *case.w)))
        x = m.input(*case.x, dtype=U8, layout=LAST)
        (y,) = m.builder.add(IntegerConv(*fields), [x, m.constant(data[-1][1]), edge])
        y.layout = LAST
        outputs.append(y)
    made = Emulated(m.output(*outputs), mcpu)
    assert [k.template for k in made.kernels] == [f"{case.template}.c.j2" for case in CONVOLUTIONS]
    found = made.run(margin, *(x for x, _ in data), on=on)
    for case, (x, w), y in zip(CONVOLUTIONS, data, found, strict=True):
        np.testing.assert_array_equal(y, convolved(case, x, w, int(margin)))
    assert made.status(lacking) == -signal.SIGILL
