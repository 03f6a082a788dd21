"""Nodes with many operands whose sizes only a run has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare

from ..support.compare import check
from ..support.models import model, node


def concatenation(count: int) -> onnx.ModelProto:
    names = [f"x{k}" for k in range(count)]
    return model([node("Concat", " ".join(names), "y", axis=0)], {n: [f"d{n}", 3] for n in names}, ["y"])


def test_a_concatenation_of_many_parts_of_symbolic_sizes(tmp_path: Path) -> None:
    sizes = [k % 3 for k in range(40)]  # some empty
    check(
        concatenation(40),
        {f"x{k}": np.full((size, 3), k, np.float32) for k, size in enumerate(sizes)},
        tmp_path,
    )


def test_its_text_does_not_grow_with_the_square_of_their_number(tmp_path: Path) -> None:
    length = []
    for count in (50, 200):
        onnx.save(concatenation(count), tmp_path / "m.onnx")
        length.append(sum(map(len, prepare(tmp_path / "m.onnx", CompileOptions()).sources.values())))
    assert length[1] < 8 * length[0]  # 4 times as many parts, in groups of twice as many: 4 sqrt(4)
