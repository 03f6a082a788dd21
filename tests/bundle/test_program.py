"""Where symbols come from: a dimension of an input that has a name of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import torshc
from torshc.base.errors import UnsupportedError


def test_a_symbol_that_stands_in_expressions_only(tmp_path: Path) -> None:
    """All of them are named with where they stand, and what to do."""
    shapes = {"x": ["2*seq + 1", 3], "y": ["n + m", "n"]}
    inputs = {name: {"dtype": "f32", "shape": shape} for name, shape in shapes.items()}
    nodes = [{"op": "Relu", "inputs": [name], "outputs": [f"of {name}"]} for name in shapes]
    model = {"torshc": 1, "inputs": inputs, "nodes": nodes, "outputs": ["of x", "of y"]}
    (tmp_path / "m.json").write_text(json.dumps(model))
    with pytest.raises(UnsupportedError) as caught:
        torshc.compile(tmp_path / "m.json", tmp_path / "m.tsc", emit="source")
    assert caught.value.problems == (
        "dimension 'seq' of the inputs appears only in 2*seq + 1, dimension 0 of input 'x'",
        "dimension 'm' of the inputs appears only in m + n, dimension 0 of input 'y'",
    )
    assert "by one word" in caught.value.remedy
