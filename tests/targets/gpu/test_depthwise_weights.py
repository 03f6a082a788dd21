"""Gradients of the weights of depthwise convolutions, on the emulator, against sums tap by tap in f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.expr import BF16, F32, DType, as_int, const

from ...support.kernels import Maker, random
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import close
from .test_contraction import Ints, weights_gradient

pytestmark = needs_emulator


@pytest.mark.parametrize(
    ("x", "taps", "stride", "dtype", "pieces"),
    [
        ((16, 24, 30, 28), 3, 2, BF16, 5),  # packets of channels, two pixels at a time
        ((2, 36, 9, 8), 3, 1, F32, 1),
        ((2, 36, 9, 7), 3, 1, F32, 1),
        ((3, 19, 9, 7), 5, 1, F32, 1),  # single channels
        ((3, 24, 9, 7), 5, 2, BF16, 1),
    ],
    ids=str,
)
def test_weights_of_channels_apart(x: Ints, taps: int, stride: int, dtype: DType, pieces: int) -> None:
    """A thread sums for all taps of its channels; packets are read as a whole, within the image alone."""
    rng, maker, layout, margin = np.random.default_rng(5), Maker(), (0, 2, 3, 1), taps // 2
    shape, channels = (x[1], 1, taps, taps), x[1]
    size = (x[0], channels, *((d + 2 * margin - taps) // stride + 1 for d in x[2:]))
    data, slope = (random(rng, s).astype(dtype.numpy) for s in (x, size))
    form: dict[str, Any] = {"strides": (stride,) * 2, "dilations": (1, 1), "pads": (const(margin),) * 4}
    operands = (maker.input(*s, layout=layout, dtype=dtype) for s in (x, size))
    form |= {"out": "f32"} if dtype is BF16 else {}
    gradient = maker.add(
        "ConvWeights", *operands, domain="torshc", shape=tuple(map(const, shape)), group=channels, **form
    )
    w, old = maker.input(*shape), random(rng, shape)
    program = GridProgram(maker.output(maker.add("Add", w, gradient), maker.add("Mul", w, gradient)))
    assert templates(program) == ["columns", "row"]
    first = program.launches[0]
    assert as_int(first.kernel.tasks) == pieces
    run = next(n for n in (4, 2, 1) if size[3] % n == 0)  # pixels that a thread takes together
    reads = taps * (taps + (run - 1) * stride) + run
    assert first.source.count("t_read4(p") == (reads if taps == 3 else 0)  # each of the taps, and the slope
    wide = (slope.astype(np.float32), data.astype(np.float32))
    exact = weights_gradient(*wide, shape, (stride,) * 2, (margin,) * 4, (1, 1), channels)
    found = program.run(data, slope, old)
    close(found[0], old + exact, 1e-5)
    close(found[1], old * exact, 1e-5)
