"""Random graphs whose operands meet in dimensions of different names: each 1 in turn, as ONNX Runtime has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .broadcast_check import IN_PROCESS, faults
from .broadcast_graphs import Graph

COUNT = 24


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_broadcasts(seed: int, tmp_path: Path) -> None:
    """24 graphs whose seeds stay; `make shape-fuzz` takes others."""
    assert not [*faults(Graph(seed, scripts=True), tmp_path, opt_level=3 * (seed % 2))]


@pytest.mark.parametrize("seed", range(COUNT, 4 * COUNT))
def test_random_broadcasts_in_the_process(seed: int, tmp_path: Path) -> None:
    assert not [*faults(Graph(seed, scripts=False), tmp_path, IN_PROCESS, opt_level=3 * (seed % 2))]
