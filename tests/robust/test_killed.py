"""A process that trains and is killed leaves the file of the last save or of the one before, and is gone on from."""

from __future__ import annotations

from pathlib import Path

import torshc

from ..support.compilers import needed
from .killed import kill

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def test_training_that_is_killed_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    needed()
    torshc.compile(SAMPLES / "digits.onnx", tmp_path / "digits.tsc", train=SAMPLES / "train_digits.yaml")
    steps, _, _ = kill(tmp_path / "digits.tsc", tmp_path, count=4, seed=3)
    assert steps >= 4
