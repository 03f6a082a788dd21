"""Front ends: files of other tools, and our own JSON graph, as graphs. The only users of those tools' libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..base.digest import Digest
from ..graph import Graph
from ..ops import NONE, CustomOperators
from . import schemas
from .contents import read_file
from .foreign import refuse_folder, refuse_foreign
from .json_format import import_json, parse
from .model import Misfit
from .onnx_format import import_model

__all__ = ["import_json", "import_model", "load_graph"]


def load_graph(
    path: str | Path | bytes,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    weights: Mapping[str, npt.NDArray[Any]] | None = None,
    loose: frozenset[str] = frozenset(),
    custom: CustomOperators = NONE,
) -> Graph:
    """Import a model of any form, told by its content: a JSON graph, or ONNX (binary, text, protobuf-JSON).

    Args:
        path: a file, or the bytes of one.
        shapes: dimensions that inputs are fixed to, e.g. ``{"x": (1, 3, 224, 224)}``.
        weights: arrays in place of the model's weights of these names, of the same types and shapes. When given, even
            if empty, the graph keeps the model's weights by name.
        loose: names of dimensions of inputs that may be 1 in a run where they are broadcast; :attr:`Graph.meetings` of
            the graph without it tells them.
        custom: operators that users declare.

    Raises:
        ModelError: when the file is damaged or contradicts itself; names file and node.
        UnsupportedError: with all that torshc cannot do in this model.
        ConfigError: when `shapes` does not fit the model, or a declared operator is one that torshc has.
    """
    schemas.require_new(custom)
    if not isinstance(path, bytes):
        refuse_folder(Path(path))
    data = memoryview(path) if isinstance(path, bytes) else read_file(Path(path))
    refuse_foreign(data, None if isinstance(path, bytes) else Path(path))
    digest = Digest(data)
    read = import_json if _is_json_graph(data) else import_model
    graph = read(path, shapes, weights, loose, custom, data)
    graph.file_sha256 = digest.text
    if not isinstance(path, bytes):
        graph.name = Path(path).stem  # exporters call every graph main_graph
    return graph


def _is_json_graph(data: memoryview) -> bool:
    """Whether the bytes are JSON, but not a protobuf message; damaged JSON counts, as its reader names the line."""
    if not bytes(data[:4096]).lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{"):
        return False
    try:
        document = parse(bytes(data))
    except Misfit:
        return True
    return "torshc" in document or not document.keys() & {"irVersion", "ir_version", "opsetImport", "opset_import"}
