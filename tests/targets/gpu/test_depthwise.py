"""Depthwise convolutions by packets of channels, on the emulator, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import BF16, F32, DType, const
from torshc.targets.gpu import depthwise

from ...support.kernels import Maker, random
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import close
from ..cpu.test_conv import LAST_1D, Case
from .test_contraction import convolve

pytestmark = needs_emulator
RNG = seeded(14)
CASES = [
    Case((2, 24, 9, 7), (24, 1, 3, 3), "", pads=(1, 1, 1, 1), group=24),  # weights come in packets
    Case((2, 24, 9, 7), (24, 1, 3, 3), "", pads=(1, 1, 1, 1), group=24, residual=True, packed=False),
    Case((3, 264, 8, 6), (264, 1, 3, 3), "", (2, 2), (1, 1, 1, 1), group=264, activation="Tanh", packed=False),
    Case((2, 24, 5, 8), (24, 1, 3, 3), "", pads=(1, 1, 1, 1), group=24, residual=True, packed=False),  # in runs
    Case((1, 12, 9, 11), (12, 1, 3, 2), "", (1, 2), (0, 1, 2, 0), (2, 1), group=12, packed=False),
    Case((2, 16, 31), (16, 1, 3), "", pads=(1, 1), group=16, layout=LAST_1D, out=LAST_1D, packed=False),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_packets_of_channels(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many pixels."""
    monkeypatch.setattr(depthwise, "UNIT_THREADS", 0)
    monkeypatch.setattr(depthwise, "STEPS", 2)
    assert convolve(case) == ["channels"]


def test_gradients_of_data_of_longer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each phase of the pixels has a kernel, which adds up one, two or four taps."""
    monkeypatch.setattr(depthwise, "UNIT_THREADS", 0)
    maker, layout = Maker(), (0, 2, 3, 1)
    made = maker.add(
        "ConvTranspose", maker.input(3, 24, 5, 4, layout=layout), maker.input(24, 1, 3, 3), layout=layout, group=24,
        strides=(2, 2), pads=(const(1),) * 4, dilations=(1, 1), output_padding=(1, 1), margins=True,
    )  # fmt: skip
    program = GridProgram(maker.output(made))
    assert templates(program) == ["channels"] * 4
    gradient, weights = random(RNG, (3, 24, 5, 4)), random(RNG, (24, 1, 3, 3))
    wide = np.zeros((3, 24, 12, 10))
    for i, j in np.ndindex(3, 3):
        wide[:, :, i : i + 10 : 2, j : j + 8 : 2] += gradient * weights[:, 0, i, j, None, None]
    close(program.run(gradient, weights)[0], wide[:, :, 1:11, 1:9], 1e-6)


@pytest.mark.parametrize(("channels", "dtype"), [(24, BF16), (22, F32)], ids=str)
def test_halves_and_single_channels(channels: int, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels that are no multiple of a packet have a thread for each result, and so have few pixels."""
    case = Case((2, channels, 9, 8), (channels, 1, 3, 3), "", pads=(1, 1, 1, 1), group=channels)
    assert convolve(case, dtype) == ["row"]
    monkeypatch.setattr(depthwise, "UNIT_THREADS", 0)
    assert convolve(case, dtype) == ["channels" if channels % 4 == 0 else "row"]
