"""Transposed convolutions whose weights a run brings, as gradients of the data of convolutions are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import torshc
from tests.support.compilers import needed
from tests.support.slow import SLOW
from tests.training.networks import Steps, write_step
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare

from .test_conv_weights import STEP, Case, convolutions

ROWS = 7  # of the images of convolutions(), of 6 columns
# Channels, kernel, stride, margin; pixels that no tap reaches, and vectors of channels that are left over, too.
CASES = [(40, 3, 2, 1), (24, 5, 3, 2), (9, 3, 2, 4), (16, 2, 3, 0)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_channels_apart_by_longer_steps(case: tuple[int, ...], tmp_path: Path) -> None:
    """Taps of a pixel are written out, beside each other for neighbouring channels; phases of as many rows share."""
    needed()
    channels, size, stride, pad = case
    cases = [(channels, channels, channels, size, stride, 1, pad)]
    rows = {len(range(row, ROWS, stride)) for row in range(stride)}  # of columns all have as many
    assert gradients_agree(cases, tmp_path) == ["map.c.j2"] * (1 + len(rows))


# As of convolutions(): channels in and out, groups, kernel, stride, dilation, margin.
DENSE = [
    (33, 25, 1, 3, 2, 1, 1), (40, 24, 1, 1, 2, 1, 0), (12, 9, 3, 3, 2, 1, 1), (17, 20, 1, 3, 2, 3, 2),
    (11, 5, 1, 3, 3, 2, 4), (7, 9, 1, 6, 4, 1, 3),
]  # fmt: skip


@pytest.mark.parametrize("cases", [DENSE[::3], pytest.param(DENSE, marks=SLOW)], ids=["some", "all"])
def test_gradients_of_the_data_of_longer_steps(cases: Sequence[Case], tmp_path: Path) -> None:
    """They multiply the taps of each phase of the step alone, of weights that are packed in the step."""
    needed()
    assert gradients_agree(cases, tmp_path) == ["map.c.j2", "conv.c.j2"] * len(cases)


def gradients_agree(cases: Sequence[Case], folder: Path) -> list[str]:
    """Compares gradients of what is before convolutions with those of f64; the templates of the kernels."""
    step, x = write_step(folder, STEP), np.random.default_rng(2).standard_normal((3, 2, ROWS, 6))
    units = prepare(convolutions(cases, np.float32), CompileOptions(train=step)).units
    back = [k for u in units for k in u.kernels if any(n.op.name == "ConvTranspose" for n in u.group.nodes)]
    torshc.compile(convolutions(cases, np.float32), folder / "m.tsc", train=step)
    with torshc.load(folder / "m.tsc", threads=2) as trained:
        trained.step({"x": x.astype(np.float32)})
        found = trained.state_dict()
    reference = Steps(convolutions(cases, np.float64), step, {"x": x.shape})
    reference(x=x)
    for k in range(len(cases)):
        exact = reference.states[f"torshc.momentum/wide{k}"]
        # Two hundred products of f32 a sum, of roundings of 6e-8 each, and what went into them is as far off.
        np.testing.assert_allclose(found[f"torshc.momentum/wide{k}"], exact, rtol=1e-4, atol=1e-5 * abs(exact).max())
    return [k.template for k in back]
