"""torshc.compile from memory, and to a loaded model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest

import torshc
from torshc.base.errors import ConfigError, ModelError
from torshc.base.options import CompileOptions
from torshc.formats import load_graph
from torshc.targets import TARGETS

from ..support.cli_models import STATIC
from ..support.models import parsed


@pytest.fixture
def proto() -> onnx.ModelProto:
    return parsed(STATIC)


@pytest.mark.parametrize("form", ["proto", "bytes", "path", "graph"])
def test_every_form_of_a_model(proto: onnx.ModelProto, form: str, tmp_path: Path) -> None:
    onnx.save(proto, tmp_path / "m.onnx")
    forms: dict[str, Any] = {
        "proto": proto, "bytes": proto.SerializeToString(), "path": tmp_path / "m.onnx",
        "graph": load_graph(tmp_path / "m.onnx"),
    }  # fmt: skip
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    with torshc.compile(forms[form]) as loaded:
        assert np.array_equal(loaded(x=x)[0], np.maximum(x, 0))
    if form != "graph":  # which compiling has changed
        assert np.array_equal(torshc.load_model(forms[form])(x)[0], np.maximum(x, 0))


def test_nothing_is_left_on_disk(proto: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with torshc.compile(proto) as loaded:
        assert loaded.name == "static" and not list(tmp_path.iterdir())


def test_bytes_to_a_bundle(proto: onnx.ModelProto, tmp_path: Path) -> None:
    done = torshc.compile(proto, tmp_path / "m.tsc", emit="source")
    assert done.name == "static" and (tmp_path / "m.tsc" / "manifest.json").is_file()


def test_what_is_no_model_is_refused(proto: onnx.ModelProto) -> None:
    with pytest.raises(ConfigError, match="model is of type int"):
        torshc.compile(3)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="model is of type int"):
        torshc.load_model(cast(Any, 3))
    with pytest.raises(ConfigError, match="writes files"):
        torshc.compile(proto, emit="source")
    with pytest.raises(ModelError, match="the model: "):
        torshc.compile(b"\x08")


def test_docstrings_name_every_target() -> None:
    for text in (torshc.compile.__doc__, CompileOptions.__doc__):
        assert [name for name in TARGETS if f'"{name}"' not in (text or "")] == []
