"""ONNX Runtime in a process of its own answers as it does in this one, and may end it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import parser

from torshc.base.errors import ConfigError, RunError, TorshcError, UnsupportedError
from torshc.cli import cli
from torshc.workbench.onnx_runtime import ort_outputs, ort_outputs_here, run_ort

HEAD = '<ir_version: 10, opset_import: ["" : 21, "ai.onnx.ml" : 3]>'
VALUES = (
    HEAD
    + """
m (float[n, 2] x, string[k] s, float16[d, e] h) => (
    float[n, 2] same, string[k] t, float16[e, d] f, bool[n, 2] b, float[] total, float[0] none, float8e4m3fn[n, 2] few,
    seq(float[n, 2]) two, seq(string[k]) words, seq(float[n, 2]) no,
    seq(map(int64, float)) by_number, seq(map(string, float)) by_name
) <float[0] none = {}> {
    same = Identity (x)
    t = Identity (s)
    f = Transpose (h)
    b = Greater (x, x)
    total = ReduceSum <keepdims = 0> (x)
    few = Cast <to = 17> (x)
    two = SequenceConstruct (x, x)
    words = SequenceConstruct (s, s)
    no = SequenceEmpty ()
    by_number = ai.onnx.ml.ZipMap <classlabels_int64s = [7, -8]> (x)
    by_name = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b"]> (x)
}
"""
)
OPTIONAL = HEAD + "m () => (optional(float[2]) y) { y = Optional () }"
NARROW = HEAD + "m (bfloat16[n] x) => (bfloat16[n] y) { y = Identity (x) }"
UNKNOWN = HEAD + "m (float[n] x) => (float[n] y) { y = Unheard (x) }"
X = np.array([[0.1, np.nan], [-np.inf, 1e-40]], np.float32)


def saved(text: str, folder: Path) -> Path:
    onnx.save(parser.parse_model(text), folder / "m.onnx")
    return folder / "m.onnx"


def shown(value: Any) -> Any:
    """A value with the types of all that is in it, and the bits of numbers."""
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return [(shown(key), shown(item)) for key, item in value.items()]
    if not isinstance(value, np.ndarray):
        return type(value), repr(value)
    inside = shown(value.tolist()) if value.dtype == np.object_ else value.tobytes()
    return value.dtype, value.shape, inside


def test_a_process_that_it_ends_is_told_with_the_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As 1.32 ends it for a GRU of batch 0; a stand-in ends it in any version."""
    path = str(saved(HEAD + "m (float[rows, 3] x) => (float[rows, 3] y) { y = Neg (x) }", tmp_path))
    assert CliRunner().invoke(cli, ["verify", path, "--against", "ort", "--dims", "rows=2"]).exit_code == 0
    (tmp_path / "onnxruntime.py").write_text("import os\nos.abort()\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    ended = CliRunner().invoke(cli, ["verify", path, "--against", "ort", "--dims", "rows=2"])
    assert ended.exit_code == 6
    assert "ONNX Runtime ended its process with signal 6 (Aborted), given 'x' [2, 3]" in ended.output
    assert "give other sizes with --dims, or compare with --against reference" in ended.output


def test_values_are_those_of_this_process(tmp_path: Path) -> None:
    path = saved(VALUES, tmp_path)
    halves = np.arange(6, dtype=np.float16).reshape(3, 2)
    words = ("", "bé\n", "ends in \0", "\U0001f600")
    for s, h in ((np.array(words, np.object_), halves.T), (np.array(["a", "bb"]), halves[:0])):
        feeds = {"x": X, "s": s, "h": h}
        names = [v.name for v in onnx.load(path).graph.output]
        found, wanted = (run(path, names, feeds) for run in (ort_outputs, ort_outputs_here))
        assert list(found) == names and shown(found) == shown(wanted)
        assert found["few"].dtype == np.uint8 and found["words"][1].tolist() == s.tolist()
        assert sorted(found["by_number"][0]) == [-8, 7] and found["no"] == []


def test_nothing_stays_nothing(tmp_path: Path) -> None:
    made = parser.parse_model(OPTIONAL)
    kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [2])
    made.graph.node[0].attribute.append(onnx.helper.make_attribute("type", kind))
    onnx.save(made, tmp_path / "m.onnx")
    assert ort_outputs(tmp_path / "m.onnx", ["y"], {}) == {"y": None}


@pytest.mark.parametrize(
    ("text", "feeds", "kind"),
    [
        (NARROW, {"x": np.ones(2, ml_dtypes.bfloat16)}, RunError),  # which it takes from no array
        (VALUES, {"x": X}, RunError),
        (UNKNOWN, {"x": np.ones(2, np.float32)}, UnsupportedError),
    ],
)
def test_errors_are_those_of_this_process(text: str, feeds: dict[str, Any], kind: type, tmp_path: Path) -> None:
    path, told = saved(text, tmp_path), []
    for run in (ort_outputs, ort_outputs_here):
        with pytest.raises(TorshcError) as caught:
            run(path, ["y"], feeds)
        told.append((type(caught.value), str(caught.value)))
    assert told[0] == told[1] and told[0][0] is kind


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("raise ImportError", ConfigError, "ONNX Runtime is not installed\n  remedy: pip install onnxruntime"),
        ("raise SystemExit('no luck')", RunError, r"with exit status 1 \(no luck\), given 'x' \[2\]"),
    ],
)
def test_the_child_finds_the_modules_that_are_found_here(
    body: str, kind: type[TorshcError], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text(body)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(kind, match=words):
        ort_outputs(saved(UNKNOWN, tmp_path), ["y"], {"x": np.ones(2, np.float32)})


def test_a_peer_that_fails_is_named_with_what_it_was_given() -> None:
    class Session:
        def run(self, names: list[str] | None, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
            raise ValueError("Invalid input shape: {1,1}")

    with pytest.raises(RunError, match=r"ONNX Runtime failed with 'x' \[1, 1\]: Invalid input shape"):
        run_ort(Session(), {"x": np.zeros((1, 1))})
