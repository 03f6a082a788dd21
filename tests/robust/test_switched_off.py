"""All levels, all modes of fusion and each pass switched off: one answer, within the error class of the specimen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import torshc
from torshc.base.options import FUSION_MODES, CompileOptions
from torshc.passes import pipeline_of

from ..support.slow import some
from ..support.zoo import zoo
from .test_zoo import agrees

ZOO = zoo()
NAMES = (
    "lstm", "layer norm", "attention", "convolutions", "transposed convolution", "reductions", "einsum", "views",
    "sizes in other types", "results over operands",
)  # fmt: skip
WAYS: list[dict[str, Any]] = [
    *({"opt_level": level} for level in range(4)),
    *({"fusion": fusion} for fusion in FUSION_MODES),
    *({"passes": {name: False}} for name in pipeline_of(CompileOptions()).names()),
]


@pytest.mark.parametrize("name", some(NAMES, len(NAMES)))
def test_each_way_gives_the_answer(name: str, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    specimen, feeds = ZOO[name], ZOO[name].feeds(0)
    onnx.save(specimen.model, tmp_path / "m.onnx")
    for way in WAYS:
        torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc", **way)
        with torshc.load(tmp_path / "m.tsc") as model:
            found = model.run(feeds)
        agrees(found, specimen, feeds)
    record_property("at most ways to compile a model", len(WAYS))
    record_property("compilations", len(WAYS))
