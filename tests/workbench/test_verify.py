"""What a verdict says, and of what."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import parser

from torshc.base.errors import ConfigError, RunError
from torshc.base.options import CompileOptions
from torshc.bundle.manifest import SCHEMA
from torshc.cli import cli
from torshc.pipeline.compilation import manifest_of
from torshc.pipeline.compiler import compile_model
from torshc.pipeline.tolerance import Tolerance
from torshc.runtime import load
from torshc.workbench.verify import Verdict, compare, reference_outputs, verify_bundle, verify_model

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
# The mean over the first elements of each row: nothing divided by nothing where there are none.
MEAN = (
    HEAD
    + """
m (float[b, t] x, int64[b] lens) => (float[b] y)
<int64 zero = {0}, int64 one = {1}, int64[1] last = {1}>
{
    shape = Shape <start = 1> (x)
    count = Squeeze (shape)
    places = Range (zero, count, one)
    column = Unsqueeze (lens, last)
    seen = Less (places, column)
    weights = Cast <to = 1> (seen)
    kept = Mul (x, weights)
    total = ReduceSum <keepdims = 0> (kept, last)
    many = ReduceSum <keepdims = 0> (weights, last)
    y = Div (total, many)
}
"""
)
NAN = HEAD + "m (float[n] x) => (float[n] y) { a = Abs (x) b = Neg (a) y = Log (b) }"
ZERO = HEAD + "m (float[n] x) => (float[n] y) { y = Sub (x, x) }"
NONE = HEAD + "m (float[n] x) => (int64[1, k] y) <float big = {1000}> { a = Greater (x, big) y = NonZero (a) }"
PICK = HEAD + "m (float[a, b] x, int64[c, d] at) => (float[c, d] y) { y = GatherElements <axis = -1> (x, at) }"
LABELS = (
    '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>'
    "m (float[n, 2] x) => (seq(map(int64, float)) y) { y = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (x) }"
)
NO_ELEMENTS = HEAD + "m (float[n, 0] x) => (float[n, 0] y) { y = Relu (x) }"


@pytest.fixture
def model(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    onnx.save(parser.parse_model(request.param), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def verdict(model: Path, *inputs: str) -> Verdict:
    return verify_model(model, CompileOptions(), inputs=inputs)


@pytest.mark.parametrize("model", [MEAN], indirect=True)
def test_lengths_are_drawn_so_that_there_is_something_to_compare(model: Path, tmp_path: Path) -> None:
    """With a bundle alone too, whose manifest knows what the lengths are of."""
    done = compile_model(model, tmp_path / "m.tsc", CompileOptions())
    body = json.loads((tmp_path / "m.tsc" / "manifest.json").read_text())
    jsonschema.validate(body, json.loads(SCHEMA.read_text()))
    assert body["uses"] == [{"input": 1, "kind": "length", "least": 1, "most": "t"}]
    for found in (verdict(model), verify_bundle(model, tmp_path / "m.tsc")):
        assert found.ok and [(o.note, o.checked) for o in found.outputs] == [("", True)]
    with load(tmp_path / "m.tsc") as loaded:
        assert loaded.needs == manifest_of(done).needs


@pytest.mark.parametrize("model", [NAN], indirect=True)
def test_nan_throughout_is_not_ok_unless_all_inputs_were_given(model: Path, tmp_path: Path) -> None:
    found = verdict(model)
    assert not found.ok and [(o.ok, o.checked, o.note) for o in found.outputs] == [
        (False, False, "every element is NaN")
    ]
    shown = CliRunner().invoke(cli, ["verify", str(model)])
    assert shown.exit_code == 1 and "unchecked" in shown.output and "y: every element is NaN" in shown.output
    assert "nothing to compare in some outputs with reference" in shown.output and "--seed" in shown.output
    told = json.loads(CliRunner().invoke(cli, ["verify", str(model), "--json"]).stdout)
    assert told["ok"] is False and told["outputs"][0]["checked"] is False
    bisected = CliRunner().invoke(cli, ["bisect", str(model), "-o", str(tmp_path / "part.onnx")])
    assert bisected.exit_code == 1 and "unchecked" in bisected.output and not (tmp_path / "part.onnx").exists()
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    found = verdict(model, f"x={tmp_path / 'x.npy'}")
    assert found.ok and [(o.checked, o.note) for o in found.outputs] == [(True, "every element is NaN")]


@pytest.mark.parametrize("model", [ZERO], indirect=True)
def test_one_value_is_said(model: Path) -> None:
    assert verdict(model).ok
    shown = CliRunner().invoke(cli, ["verify", str(model)])
    assert shown.exit_code == 0 and "y: every element is 0" in shown.output


@pytest.mark.parametrize("model", [NONE], indirect=True)
def test_an_output_that_the_inputs_left_empty_is_not_ok(model: Path) -> None:
    found = verdict(model)
    assert not found.ok and [(o.checked, o.note) for o in found.outputs] == [(False, "it has no elements")]


@pytest.mark.parametrize("model", [NO_ELEMENTS], indirect=True)
def test_an_output_that_has_to_be_empty_is_ok_and_said(model: Path) -> None:
    found = verdict(model)
    assert found.ok and [(o.checked, o.note) for o in found.outputs] == [(True, "it has no elements")]


@pytest.mark.parametrize("model", [ZERO], indirect=True)
def test_a_wrong_key_of_outputs_is_refused(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "wanted.npz", yy=np.zeros(2, np.float32))
    shown = CliRunner().invoke(cli, ["verify", str(model), "--against", str(tmp_path / "wanted.npz")])
    assert shown.exit_code == 6 and "holds 'yy', and there is no such output; did you mean 'y'?" in shown.output


@pytest.mark.parametrize("model", [PICK], indirect=True)
def test_the_reference_picks_from_a_long_axis(model: Path) -> None:
    x, at = np.arange(400.0, dtype=np.float32).reshape(2, 200), np.array([[199, -1, 70]])
    found = reference_outputs(model, "reference", ["y"], {"x": x, "at": at})
    np.testing.assert_array_equal(found["y"], [[199, 199, 70]])


@pytest.mark.parametrize("model", [LABELS], indirect=True)
def test_what_the_reference_lacks_is_named_in_one_line(model: Path) -> None:
    with pytest.raises(RunError) as caught:
        reference_outputs(model, "reference", ["y"], {"x": np.zeros((1, 2), np.float32)})
    assert "cannot run this model" in caught.value.message and "'ZipMap'" in caught.value.message
    assert "\n" not in caught.value.message and caught.value.remedy == "compare with --against ort"


def test_a_reference_that_there_is_not_is_refused_before_anything_is_compiled(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'onnxruntime' is no reference"):
        verify_model(tmp_path / "none.onnx", CompileOptions(), "onnxruntime")


@pytest.mark.parametrize(("dtype", "far"), [("int64", -(2**63)), ("uint64", 0)])
def test_integers_differ_by_one_however_large(dtype: str, far: int) -> None:
    """Not each integer above 2^53 is a float."""
    right = np.array([2**63 - 1, 2**60, far], dtype)
    wrong = right + np.array([0, 1, 0], dtype)
    exact = Tolerance(0.0)
    assert compare("y", right, right, exact).ok and not compare("y", wrong, right, exact).ok
    assert compare("y", right[2:], right[:1], exact).error == pytest.approx(1 if dtype == "uint64" else 2)


@pytest.mark.parametrize("against", ["reference", "ort"])
@pytest.mark.parametrize("model", [ZERO], indirect=True)
def test_a_bundle_of_another_model_is_told(model: Path, against: str, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    compile_model(model, tmp_path / "m.tsc", CompileOptions())
    for text, words in ((ZERO.replace("x", "v"), "no input 'v'"), (ZERO.replace("y", "w"), "has no output 'y'")):
        onnx.save(parser.parse_model(text), other)
        with pytest.raises(RunError, match=f"other.onnx is another model: .*{words}") as caught:
            verify_bundle(other, tmp_path / "m.tsc", against)
        assert "the bundle was made of" in caught.value.remedy


@pytest.mark.parametrize("model", [NONE], indirect=True)
def test_sizes_of_unknown_dimensions_are_refused_before_kernels_are_compiled(model: Path) -> None:
    stages: list[str] = []
    with pytest.raises(ConfigError, match="no symbolic dimension 'm'"):
        verify_model(model, CompileOptions(), observer=lambda stage, seconds: stages.append(stage), dims={"m": 3})
    assert "render" in stages and "compile" not in stages


@pytest.mark.parametrize("word", ["verify --rtol", "bisect -o part.onnx --rtol", "bench --seconds", "tune --budget"])
@pytest.mark.parametrize("model", [ZERO], indirect=True)
def test_nan_is_no_bound(model: Path, word: str) -> None:
    done = CliRunner().invoke(cli, [*word.split(), "nan", str(model)])
    assert done.exit_code == 2 and "nan is not a number" in done.output
