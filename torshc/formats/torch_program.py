"""PyTorch's programs as ONNX models, through ``torch.onnx.export``. torshc does not depend on PyTorch."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from typing import Any, Protocol

from ..base.errors import RunError


class Program(Protocol):
    """A ``torch.export.ExportedProgram``, as far as types need to know it."""

    @property
    def graph_signature(self) -> Any: ...


def is_program(model: Any) -> bool:
    """Whether something is what ``torch.export.export`` gives; does not import PyTorch."""
    return any(
        f"{c.__module__}.{c.__name__}" == "torch.export.exported_program.ExportedProgram" for c in type(model).mro()
    )


def to_onnx(model: Program) -> Any:
    """An ``onnx.ModelProto`` of an exported program, whose dynamic dimensions stay symbolic.

    Raises:
        RunError: PyTorch cannot export it.
    """
    import torch  # optional package

    try:
        with redirect_stdout(io.StringIO()), torch.no_grad():  # the exporter tells of its steps
            return torch.onnx.export(model, (), dynamo=True, verbose=False).model_proto
    except Exception as error:  # PyTorch raises what comes, for operators and for packages that are not there
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RunError(f"torch.onnx.export failed: {reason}", "pip install onnxscript, if that is missing") from error


__all__ = ["Program", "is_program", "to_onnx"]
