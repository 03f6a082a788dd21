"""Models from memory, and compilation to a loaded model, of which nothing is left on disk."""

from __future__ import annotations

import os
from typing import Any

from ..base.errors import ConfigError, ModelError
from ..base.folders import scratch_folder
from ..base.options import CompileOptions
from ..formats.torch_program import is_program, to_onnx
from ..graph import Graph
from ..pipeline.compiler import compile_model
from ..runtime import Model, load


def source_of(model: Any) -> str | bytes | Graph:
    """What the compiler takes for a model as callers have it: a path, its bytes, an onnx ModelProto, a graph, or
    a program of ``torch.export``.

    Raises:
        ConfigError: it is none of these.
        RunError: PyTorch cannot export the program to ONNX.
        ModelError: a ModelProto of 2 GiB or more, which protobuf cannot hold in one piece.
    """
    if isinstance(model, str | bytes | Graph):
        return model
    if isinstance(model, bytearray | memoryview):
        return bytes(model)
    if isinstance(model, os.PathLike):
        return os.fsdecode(model)
    if is_program(model):
        model = to_onnx(model)
    if not hasattr(model, "SerializeToString"):
        raise ConfigError(
            f"model is of type {type(model).__name__}",
            "pass a path, the bytes of a file, an onnx.ModelProto, a Graph or a torch.export.ExportedProgram",
        )
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf's own, which has changed its class more than once
        raise ModelError(
            f"the ModelProto cannot be serialised: {error}", "save it with external data, and pass the path"
        ) from error


def compile_loaded(model: Any, options: CompileOptions) -> Model:
    """Compiles a model to a temporary bundle and loads it. The files go at once: an open library needs none.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    if options.emit != "bundle":
        raise ConfigError(f"emit={options.emit!r} writes files", "name the output")
    with scratch_folder() as folder:
        compile_model(source_of(model), folder / "model.tsc", options)
        return load(folder / "model.tsc", options.threads or None, verify=False)
