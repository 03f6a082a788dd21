"""Random shape arithmetic over symbolic dimensions, compiled once and run with many sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from .shape_check import BATCH, batch_of, failures, keep, shrink
from .shape_graphs import make_part

COUNT = 300


@pytest.mark.parametrize("batch", range(COUNT // BATCH))
def test_random_shape_arithmetic(batch: int, tmp_path: Path) -> None:
    """300 graphs whose seeds stay; `make shape-fuzz` takes others."""
    print(f"seeds {batch * BATCH} to {batch * BATCH + BATCH - 1}")
    wrong = failures(batch_of(batch * BATCH, BATCH), tmp_path)
    found = [(keep(shrink(part, error, tmp_path), error), error) for part, error in wrong]
    assert not found, "\n".join(f"seed {path.stem}, {path}: {type(e).__name__}: {e}" for path, e in found)


def test_a_graph_depends_on_its_seed_alone() -> None:
    one, two = (make_part(5, zeros=True) for _ in range(2))
    assert one == two != make_part(6, zeros=True)
    assert 5 < max(len(make_part(s, zeros=False).nodes) for s in range(40)) <= 40
