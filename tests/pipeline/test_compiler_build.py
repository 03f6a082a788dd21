"""What compiling a model does at the same time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from tests.support.models import parsed
from torshc.base.errors import ModelError
from torshc.base.options import CompileOptions
from torshc.bundle.package import BundleWriter
from torshc.pipeline import compiler
from torshc.pipeline.compiler import compile_model


def model() -> bytes:
    """A product with a weight."""
    made = parsed("(float[2,64] x) => (float[2,64] y) { y = MatMul(x, w) }")
    made.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    return made.SerializeToString()


def wait_for(what: Path, pattern: str) -> None:
    """Wait until a folder has such a file."""
    for _ in range(6000):
        if any(what.glob(pattern)):
            return
        time.sleep(0.01)
    pytest.fail(f"no {pattern} in {what}")


def test_kernels_are_compiled_while_weights_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = BundleWriter.write_weights

    def write(bundle: BundleWriter, *arguments: Any, **how: Any) -> Any:
        wait_for(tmp_path / "work" / "obj", "k*.o")
        return real(bundle, *arguments, **how)

    monkeypatch.setattr(BundleWriter, "write_weights", write)
    options = CompileOptions(cache=False, workdir=tmp_path / "work")
    compile_model(model(), tmp_path / "m.tsc", options)
    assert (tmp_path / "m.tsc" / "libmodel.so").exists()


def test_what_all_libraries_have_is_compiled_while_the_model_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compiler.prepare_versions

    def prepare(*arguments: Any) -> Any:
        wait_for(tmp_path / "work" / "obj", "t_model.o")
        return real(*arguments)

    monkeypatch.setattr(compiler, "prepare_versions", prepare)
    told = list[str]()
    options = CompileOptions(cache=False, workdir=tmp_path / "work")
    compile_model(model(), tmp_path / "m.tsc", options, lambda stage, _: told.append(stage))
    assert (tmp_path / "m.tsc" / "libmodel.so").exists()
    assert all(stage.startswith("compile") for stage in told[told.index("compile") :])  # and not before that


def test_a_wrong_model_ends_the_compilers(tmp_path: Path) -> None:
    options = CompileOptions(cache=False, workdir=tmp_path / "work")
    with pytest.raises(ModelError):
        compile_model(b"no model", tmp_path / "m.tsc", options)
    assert [p.name for p in tmp_path.iterdir()] == ["work"]
