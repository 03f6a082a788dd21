"""PyTorch beside torshc in one run; what needs PyTorch is skipped where it is not installed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from torshc.base.errors import ConfigError, RunError
from torshc.base.options import CompileOptions
from torshc.workbench.bench import bench_model
from torshc.workbench.torch_baseline import _mode

from ..support.cli_models import STATIC
from ..support.models import save

MODULE = """
import torch

class Relu(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

module = Relu()
function = torch.relu
total = torch.sum
number = 3

def broken(x):
    raise ValueError("no\\nway")
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.py").write_text(MODULE)
    return save(STATIC, tmp_path / "static.onnx")


def bench(path: Path, module: str = "", *names: str) -> Any:
    return bench_model(
        path, CompileOptions(), against=names or ("torch",), torch_module=module, rounds=2, seconds=0.001
    )


def test_without_pytorch_the_remedy_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ConfigError, match="PyTorch is not installed") as caught:
        bench(path)
    assert "pip install torch" in caught.value.remedy


def test_a_module_for_nobody_is_refused(path: Path) -> None:
    with pytest.raises(ConfigError, match="--torch-module goes with --against torch"):
        bench(path, "m.py:module", "ort")
    with pytest.raises(ConfigError, match="--against 'tf'") as caught:
        bench(path, "", "tf")
    assert "ort, torch, torch-compile, torch-max-autotune" in caught.value.remedy


@pytest.mark.parametrize("name", ["module", "function"])
def test_modules_and_functions_of_a_file(path: Path, name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    found = bench(path, f"m.py:{name}", "torch", "ort")
    assert [f.system for f in found.figures] == ["torshc -O3", "ONNX Runtime", "PyTorch"]
    for figure in found.figures:
        p = figure.percentiles
        assert 0 < p["p50"] <= p["p90"] <= p["p99"] and figure.ratio > 0


def test_an_exported_program_beside_the_model(path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2, 8),)), str(path.with_suffix(".pt2")))
    assert [f.system for f in bench(path).figures] == ["torshc -O3", "PyTorch"]
    assert json.dumps({f.system: dict(f.percentiles) for f in bench(path).figures})


def test_compiled_by_torch(path: Path) -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
    real = torch.compile
    try:
        torch.compile = lambda module, mode: real(module, backend="eager")  # that of C++ takes half a minute
        assert [f.system for f in bench(path, "m.py:module", "torch-compile").figures] == [
            "torshc -O3",
            "torch.compile",
        ]
    finally:
        torch.compile = real


@pytest.mark.parametrize(
    ("name", "place", "mode"),
    [
        ("torch-compile", "cuda", "reduce-overhead"),
        ("torch-compile", "cpu", "default"),
        ("torch-max-autotune", "cuda", "max-autotune"),
    ],
)
def test_torch_compiles_in_its_fastest_mode(name: str, place: str, mode: str) -> None:
    """On a card without CUDA graphs it would take twice as long and make torshc look better than it is."""
    assert _mode(name, place) == mode


@pytest.mark.parametrize(
    ("module", "error", "said"),
    [
        ("", ConfigError, "--against torch needs the module that static.onnx was made of"),
        ("m.py", ConfigError, "it is neither a .pt2 file nor FILE.py:NAME"),
        ("none.py:x", ConfigError, "--torch-module none.py:x: .*No such file"),
        ("none.pt2", ConfigError, "--torch-module none.pt2: "),
        ("m.py:missing", ConfigError, "m.py defines no 'missing'"),
        ("m.py:number", ConfigError, "--torch-module m.py:number is int"),
        ("m.py:Relu", ConfigError, "--torch-module m.py:Relu is type"),
        ("m.py:broken", RunError, "the module cannot be run: no$"),
        ("m.py:total", RunError, r"the module gives \[\(\)\], the model \[\(2, 8\)\]"),
    ],
)
def test_modules_that_will_not_do(path: Path, module: str, error: type[Exception], said: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(error) as caught:
        bench(path, module)
    message = getattr(caught.value, "message", "")
    assert re.search(said, message), message
