"""Recurrent networks in WGSL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets.cpu.test_recurrent import Feeds, model_of, operands
from tests.targets.gpu.webgpu.test_target import check


def dynamic(kind: str, feeds: Feeds, attributes: Mapping[str, Any]) -> bytes:
    """A network of any number of steps and rows."""
    model = model_of(kind, feeds, attributes)
    for port in model.graph.input:
        dims = port.type.tensor_type.shape.dim
        places = {"X": {0: "t", 1: "n"}, "initial_h": {1: "n"}, "initial_c": {1: "n"}, "sequence_lens": {0: "n"}}
        for k, name in places.get(port.name, {}).items():
            dims[k].dim_param = name
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("kind", "reset", "hidden", "more"),
    [
        ("LSTM", 0, 5, ("B", "P")),
        ("LSTM", 0, 5, ("initial_h", "initial_c")),
        ("LSTM", 0, 5, ("P", "initial_h", "initial_c")),  # nine operands, of which a kernel may have eight
        ("GRU", 0, 70, ("B", "initial_h")),
        ("GRU", 1, 5, ("B", "initial_h")),
        ("RNN", 0, 1, ("B", "initial_h")),
        # states that workgroup memory does not hold
        ("LSTM", 0, 1366, ("B", "initial_h", "initial_c")),
        ("GRU", 0, 1025, ("B", "initial_h")),
        ("RNN", 0, 2050, ("initial_h",)),
    ],
)
def test_dynamic_networks(kind: str, reset: int, hidden: int, more: Sequence[str], tmp_path: Path) -> None:
    lengths = None if more[-1] == "P" else [3, 1, 2]  # few steps: Mesa ends a thread's loops after 65,535 rounds
    feeds = operands(kind, 3, hidden=hidden, direction="bidirectional", more=more, lengths=lengths)
    feeds["R"] /= np.float32(hidden) ** 0.5  # else a large network makes more of each rounding in every step
    attributes = {"hidden_size": hidden, "direction": "bidirectional", **({"linear_before_reset": 1} if reset else {})}
    check(dynamic(kind, feeds, attributes), feeds, tmp_path, 1e-5)
