"""ONNX models (binary, text, protobuf-JSON): reading, and importing as a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ..graph import Graph
from ..ops import NONE, CustomOperators
from .build import build
from .onnx_reader import read_model

Pins = Mapping[str, Sequence[int | str | None]]


def import_model(
    path: str | Path | bytes,
    shapes: Pins | None = None,
    weights: Mapping[str, npt.NDArray[Any]] | None = None,
    loose: frozenset[str] = frozenset(),
    custom: CustomOperators = NONE,
    data: memoryview | None = None,
) -> Graph:
    """Import an ONNX model.

    Args:
        path: a file, or the bytes of one; binary, ONNX's text form or protobuf-JSON, told apart by content.
        shapes: dimensions that inputs are fixed to, e.g. ``{"x": (1, 3, 224, 224)}``.
        weights, loose, custom: see :func:`torshc.formats.load_graph`.
        data: the file's bytes, if they are at hand.

    Raises:
        ModelError: when the file is damaged or contradicts itself; names file and node.
        UnsupportedError: with all that torshc cannot do in this model.
        ConfigError: when `shapes` does not fit the model.
    """
    return build(read_model(path, data), shapes or {}, weights=weights, loose=loose, custom=custom)
