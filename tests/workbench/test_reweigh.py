"""Other weights for a bundle, without a compiler."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

import torshc
from tests.support.seeded import seeded
from torshc.base import arrays
from torshc.base.errors import BundleError, ConfigError, RunError
from torshc.base.manifest import manifest_hash
from torshc.base.options import CompileOptions
from torshc.cli import cli
from torshc.workbench.reweigh import set_weights

from ..support.cli_models import STATIC
from ..support.models import parsed

RNG = seeded(0)
Weights = dict[str, np.ndarray[Any, Any]]
FIRST: Weights = {n: RNG.standard_normal(s).astype(np.float32) for n, s in {"w": (8, 16), "b": (16,)}.items()}
OTHER: Weights = {n: RNG.standard_normal(a.shape).astype(np.float32) for n, a in FIRST.items()}
X = RNG.standard_normal((2, 8)).astype(np.float32)


def dense(weights: Weights) -> onnx.ModelProto:
    text = '<ir_version: 8, opset_import: ["" : 18]> d (float[2,8] x) => (float[2,16] y) { y = Gemm(x, w, b) }'
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return made


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a bundle, the model that it was made of, and other weights."""
    onnx.save(dense(FIRST), tmp_path / "m.onnx")
    onnx.save(dense(OTHER), tmp_path / "other.onnx")
    np.savez(tmp_path / "other.npz", **OTHER)
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    return tmp_path


def answers(bundle: Path, weights: Weights) -> bool:
    with torshc.load(bundle) as loaded:
        return bool(np.allclose(loaded(x=X)[0], X @ weights["w"] + weights["b"], rtol=1e-5, atol=1e-5))


@pytest.mark.parametrize("given", [["other.npz", "--model", "m.onnx"], ["other.onnx"]], ids=["npz", "model"])
def test_weights_change_and_the_library_does_not(
    files: Path, given: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    library = Path("m.tsc/libmodel.so").read_bytes()
    assert CliRunner().invoke(cli, ["weights", "m.tsc", *given, "-o", "new.tsc"]).exit_code == 0
    assert answers(files / "m.tsc", FIRST) and answers(files / "new.tsc", OTHER)
    assert CliRunner().invoke(cli, ["weights", "m.tsc", *given]).exit_code == 0
    assert answers(files / "m.tsc", OTHER) and Path("m.tsc/libmodel.so").read_bytes() == library
    assert {p.name for p in Path("new.tsc").iterdir()} == {p.name for p in Path("m.tsc").iterdir()}


def test_new_weights_are_those_that_compiling_would_write(files: Path) -> None:
    set_weights(files / "m.tsc", files / "other.onnx", CompileOptions())
    torshc.compile(files / "other.onnx", files / "wanted.tsc")
    got, wanted = ((files / f"{name}.tsc" / "weights.bin").read_bytes() for name in ("m", "wanted"))
    assert got[:-64] == wanted[:-64]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="no other compiler here knows x86-64")
def test_kernels_that_follow_from_features(tmp_path: Path) -> None:
    """Which form of Winograd's a convolution has follows from instructions that the level does not have."""
    digits = Path(__file__).parents[2] / "samples/digits.onnx"
    torshc.compile(digits, tmp_path / "m.tsc", mcpu="x86-64-v4+avxvnni+avx512vnni+avx512bf16")
    set_weights(tmp_path / "m.tsc", digits, CompileOptions(), out=tmp_path / "new.tsc")
    old, new = ((tmp_path / name / "weights.bin").read_bytes() for name in ("m.tsc", "new.tsc"))
    assert old == new


def test_what_does_not_fit_is_told_at_once(files: Path) -> None:
    np.savez(files / "bad.npz", w=OTHER["w"].T, bb=OTHER["b"])
    with pytest.raises(ConfigError, match=r"'w' is float\[16, 8\]; expected float\[8, 16\]\n.*'bb'; did you mean 'b'"):
        set_weights(files / "m.tsc", files / "m.onnx", CompileOptions(), files / "bad.npz")
    assert answers(files / "m.tsc", FIRST)


def test_weights_that_unpack_to_much(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(files / "bad.npz", w=np.zeros(1 << 20, np.float32), c=OTHER["b"])
    monkeypatch.setattr(arrays, "read_bytes", None)
    with pytest.raises(
        ConfigError, match=r"'w' is float32\[1048576\] of 4194304 bytes.* float\[8, 16\]\n.* weight 'c'"
    ):
        set_weights(files / "m.tsc", files / "m.onnx", CompileOptions(), files / "bad.npz")
    (files / "bad.npz").write_bytes(b"PK")
    for name, message in (
        ("bad.npz", r"bad\.npz cannot be read as \.npz"),
        ("none.npz", "cannot be read: No such file"),
    ):
        with pytest.raises(RunError, match=message):
            set_weights(files / "m.tsc", files / "m.onnx", CompileOptions(), files / name)


def test_another_model_or_plan_is_refused(files: Path) -> None:
    onnx.save(parsed(STATIC), files / "static.onnx")
    with pytest.raises(ConfigError, match=r"the weights do not fit .*m.tsc: the kernel of"):
        set_weights(files / "m.tsc", files / "static.onnx", CompileOptions())
    onnx.save(dense({**FIRST, "b": np.zeros(1, np.float32)}), files / "scalar.onnx")
    with pytest.raises(ConfigError, match="the weights do not fit"):
        set_weights(files / "m.tsc", files / "scalar.onnx", CompileOptions())


def test_weights_that_cannot_be_changed(files: Path) -> None:
    torshc.compile(files / "m.onnx", files / "embedded.tsc", embed_weights=True)
    with pytest.raises(BundleError, match="inside the library"):
        set_weights(files / "embedded.tsc", files / "other.onnx", CompileOptions())
    onnx.save(parsed(STATIC), files / "static.onnx")
    torshc.compile(files / "static.onnx", files / "static.tsc")
    with pytest.raises(BundleError, match="has no weights"):
        set_weights(files / "static.tsc", files / "static.onnx", CompileOptions())
    manifest = json.loads((files / "m.tsc" / "manifest.json").read_text())
    assert len(manifest["weights"]["layout"]) == 64


def test_the_command_says_how_it_is_called(files: Path) -> None:
    refused = CliRunner().invoke(cli, ["weights", str(files / "m.tsc"), str(files / "other.npz")])
    assert refused.exit_code == 2 and "--model names the model" in refused.stderr


@pytest.mark.parametrize(("field", "value"), [("target", 5), ("tools", "x"), ("opt_level", 9), ("weights", [1])])
def test_a_manifest_with_fields_of_other_types(field: str, value: Any, files: Path) -> None:
    path = files / "m.tsc" / "manifest.json"
    body = json.loads(path.read_text()) | {field: value}
    body["sha256"] = manifest_hash({n: v for n, v in body.items() if n != "sha256"})
    path.write_text(json.dumps(body))
    with pytest.raises(BundleError, match=r"manifest\.json"):
        set_weights(files / "m.tsc", files / "other.onnx", CompileOptions())
