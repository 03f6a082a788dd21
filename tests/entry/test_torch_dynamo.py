"""torch.compile(backend="torshc"); skipped where there is no PyTorch, on which torshc does not depend."""

from __future__ import annotations

import logging
import tomllib
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")

from torshc.entry.torch_dynamo import torshc  # noqa: E402  # after the skip


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_a_module_with_its_weights(caplog: pytest.LogCaptureFixture) -> None:
    layers = torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8)
    module = torch.nn.Sequential(*layers).eval()
    compiled = torch.compile(module, backend=torshc)
    x = torch.randn(3, 4)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "torshc"):
        torch.testing.assert_close(compiled(x), module(x))
        layers[0].weight.mul_(2)  # the weights are constants of the compiled model, until they change
        torch.testing.assert_close(compiled(x), module(x))
        torch.testing.assert_close(compiled(x[:2]), module(x[:2]))
    assert not [r for r in caplog.records if r.name == "torshc"]


def test_graph_breaks_and_mutations_are_respected() -> None:
    def function(x: Any) -> Any:
        y = torch.relu(x) * 2
        x.add_(1)
        return (y + x, x) if y.sum() > 0 else (y - 1, 3)

    compiled = torch.compile(function, backend=torshc)
    with torch.no_grad():
        for sign in (1, -1):
            here, there = sign * torch.ones(3, 3), sign * torch.ones(3, 3)
            got, wanted = compiled(here), function(there)
            assert torch.equal(here, there) and torch.equal(got[0], wanted[0])
            assert got[1] is here if sign > 0 else got[1] == 3


def test_what_torshc_cannot_do_runs_in_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    compiled = torch.compile(lambda x: torch.linalg.eigvalsh(x), backend=torshc)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "torshc"):
        torch.testing.assert_close(compiled(torch.eye(3)), torch.ones(3))
    assert "leaves a graph to PyTorch" in caplog.text


def test_gradients_are_refused() -> None:
    compiled = torch.compile(torch.nn.Linear(2, 2), backend=torshc)
    with pytest.raises(Exception, match=r"torshc computes no gradients(.|\n)*torch.no_grad"):
        compiled(torch.ones(1, 2))


def test_pytorch_finds_it_by_name() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["torch_dynamo_backends"] == {"torshc": f"{torshc.__module__}:{torshc.__name__}"}
