"""Transposed convolutions whose weights a run brings, as gradients of the data of convolutions are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import torshc
from tests.support.compilers import needed
from tests.training.networks import Steps, write_step
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare

from .test_conv_weights import STEP, convolutions

# Channels, kernel, stride, margin; pixels that no tap reaches, and vectors of channels that are left over, too.
CASES = [(40, 3, 2, 1), (24, 5, 3, 2), (9, 3, 2, 4), (16, 2, 3, 0)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_channels_apart_by_longer_steps(case: tuple[int, int, int, int], tmp_path: Path) -> None:
    """The taps of a pixel are written out, beside each other for neighbouring channels, for each phase of the step."""
    needed()
    channels, size, stride, pad = case
    cases = [(channels, channels, channels, size, stride, 1, pad)]
    step, x = write_step(tmp_path, STEP), np.random.default_rng(2).standard_normal((3, 2, 7, 6))
    units = prepare(convolutions(cases, np.float32), CompileOptions(train=step)).units
    back = [k for u in units for k in u.kernels if any(n.op.name == "ConvTranspose" for n in u.group.nodes)]
    assert [k.template for k in back] == ["map.c.j2"] * (1 + stride**2)
    torshc.compile(convolutions(cases, np.float32), tmp_path / "m.tsc", train=step)
    with torshc.load(tmp_path / "m.tsc", threads=2) as trained:
        trained.step({"x": x.astype(np.float32)})
        found = trained.state_dict()["torshc.momentum/wide0"]
    reference = Steps(convolutions(cases, np.float64), step, {"x": x.shape})
    reference(x=x)
    exact = reference.states["torshc.momentum/wide0"]
    # Two hundred products of f32 a sum, of roundings of 6e-8 each, and what went into them is as far off.
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-5 * abs(exact).max())
