"""torshc.compile of a program of torch.export; the parts that need PyTorch are skipped where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import torshc
from torshc.base.errors import RunError
from torshc.formats.torch_program import is_program


def test_other_things_are_no_programs() -> None:
    class ExportedProgram:
        pass

    assert not is_program(ExportedProgram()) and not is_program("model.onnx") and not is_program(None)


@pytest.fixture
def torch() -> Any:
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs onnxscript")
    return pytest.importorskip("torch", reason="PyTorch is not installed")


def test_a_program_with_a_dynamic_dimension(torch: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 3)).eval()
    free = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=({0: free},))
    with torshc.compile(program) as model:
        for batch in (1, 7):
            x = torch.randn(batch, 4)
            (y,) = model.run({model.inputs[0].name: x}).values()
            # f32 sums of 8 products, in another order than PyTorch's.
            np.testing.assert_allclose(y, module(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def test_a_program_that_pytorch_cannot_export(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise ValueError("no such operator\nand a long story")

    program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
    monkeypatch.setattr(torch.onnx, "export", fails)
    with pytest.raises(RunError, match="export failed: no such operator"):
        torshc.compile(program)
