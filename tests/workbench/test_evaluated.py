"""Users' operators in onnx's reference evaluator: by their reference in NumPy, or by their definition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.contrib import model_of
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.workbench.bisect import bisect_model
from torshc.workbench.verify import reference_outputs, verify_model

DOMAIN = "com.example"
X = np.random.default_rng(5).standard_normal((3, 7)).astype(np.float32)
FILE = """
import numpy as np
from torshc import ops

@ops.composite("Lean", "com.example", reference=REFERENCE)
def lean(x, *, slope: float = 0.5, axes: tuple[int, ...] = (1,)):
    return ops.where(x > 0, x, slope * x) - ops.reduce_sum(x, list(axes), keepdims=1)
"""
RIGHT = "lambda x, slope, axes: np.where(x > 0, x, slope * x) - x.sum(axes, keepdims=True)"


def files(folder: Path, reference: str) -> tuple[Path, CompileOptions]:
    onnx.save(model_of("Lean", (X,), domain=DOMAIN, dims={0: ["n", 7]}, slope=0.25), folder / "m.onnx")
    (folder / "mine.py").write_text(FILE.replace("REFERENCE", reference))
    return folder / "m.onnx", CompileOptions(ops=(folder / "mine.py",))


@pytest.mark.parametrize("reference", ["None", RIGHT])
def test_agrees(reference: str, tmp_path: Path) -> None:
    model, options = files(tmp_path, reference)
    assert verify_model(model, options).ok
    assert bisect_model(model, options, tmp_path / "small.onnx").ok
    found = reference_outputs(model, "reference", ["out0"], {"x0": X}, options.ops)["out0"]
    np.testing.assert_allclose(found, np.where(X > 0, X, 0.25 * X) - X.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)


def test_an_operator_that_disagrees_with_its_reference_is_found(tmp_path: Path) -> None:
    model, options = files(tmp_path, "lambda x, slope, axes: np.where(x > 0, x, x)")
    assert not verify_model(model, options).ok
    found = bisect_model(model, options, tmp_path / "small.onnx")
    assert found.place is not None
    assert found.place.node == "'it' (Lean)"
    assert not verify_model(tmp_path / "small.onnx", options, inputs=[str(tmp_path / "small.npz")]).ok


def test_a_reference_of_other_shapes_or_that_fails(tmp_path: Path) -> None:
    model, options = files(tmp_path, "lambda x, slope, axes: x[0]")
    (output,) = verify_model(model, options).outputs
    assert "its shape is [2, 7], the reference's [7]" in output.problem
    model, options = files(tmp_path, "lambda x, slope: x")
    with pytest.raises(ConfigError, match=r"mine.py:5: the reference of com.example.Lean: TypeError: .*'axes'"):
        verify_model(model, options)
