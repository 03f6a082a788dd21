"""The sizes at which work is evaluated."""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.explain import explain, to_text
from torshc.explain.sizes import choose_sizes
from torshc.pipeline.compiler import prepare
from torshc.pipeline.fitting import NoSizes

from ..support.models import save

POOLED = """<ir_version: 8, opset_import: ["" : 17]>
m (float[b, 1, n] x) => (float[b, 1, k] y) {
    p = MaxPool <kernel_shape = [8], strides = [8]> (x)
    y = Relu (p)
}
"""
IMPOSSIBLE = """<ir_version: 8, opset_import: ["" : 17]>
m (float[b, 1, n] x) => (float[b, 1, n] y) {
    twice = Concat <axis = 2> (x, x)
    y = Add (x, twice)
}
"""


def test_work_is_that_of_sizes_that_the_model_can_take(tmp_path: Path) -> None:
    """Not of a picture of one pixel, of which nothing is left."""
    done = prepare(save(POOLED, tmp_path / "m.onnx"), CompileOptions())
    found = explain(done)
    assert found.dims == {"b": 1, "n": 64} and found.flops > 0 and not found.unfit
    assert "(numbers at b=1, n=64)" in to_text(found)
    assert choose_sizes(done, {"n": 5}) == {"b": 1, "n": 5}
    with pytest.raises(ConfigError, match="no symbolic dimension 'm'"):
        choose_sizes(done, {"m": 5})


def test_where_no_sizes_are_found_it_is_said(tmp_path: Path) -> None:
    done = prepare(save(IMPOSSIBLE, tmp_path / "m.onnx"), CompileOptions())
    with pytest.raises(NoSizes):
        choose_sizes(done, {})
    found = explain(done)
    assert found.dims == {"b": 1, "n": 1} and "no sizes were found that satisfy" in found.unfit
    assert found.unfit in " ".join(to_text(found).split())
