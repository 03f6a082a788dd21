"""Random shape arithmetic over symbolic dimensions, compiled once and run with many sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.support.models import model, node
from torshc.base.errors import RunError

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


def test_a_run_whose_sizes_wrap_is_refused(tmp_path: Path) -> None:
    """The model multiplies dimensions in int32, which does not hold the product of these."""
    nodes = [
        node("Shape", "x", "s", end=2), node("Cast", "s", "i", to=6), node("ReduceProd", "i", "p"),
        node("Cast", "p", "l", to=7), node("Concat", "l zero", "c", axis=0), node("Expand", "row", "y"),
    ]  # fmt: skip
    nodes[-1].input.append("c")
    weights = {"zero": np.array([0]), "row": np.ones((1, 1), np.float32)}
    onnx.save(model(nodes, {"x": ["n", "m", 0]}, ["y"], weights), tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    with torshc.load(tmp_path / "m.tsc", threads=1) as compiled:
        assert compiled.run({"x": np.ones((3, 5, 0), np.float32)})["y"].shape == (15, 0)
        with pytest.raises(RunError, match=r"m\*n == .* does not hold, 2147483648 is not -2147483648"):
            compiled.run({"x": np.ones((1 << 16, 1 << 15, 0), np.float32)})


def test_a_graph_depends_on_its_seed_alone() -> None:
    one, two = (make_part(5, zeros=True) for _ in range(2))
    assert one == two != make_part(6, zeros=True)
    assert 5 < max(len(make_part(s, zeros=False).nodes) for s in range(40)) <= 40
