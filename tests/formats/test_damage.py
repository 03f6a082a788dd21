"""Damaged files: whatever bytes change, the answer is a graph or one of our errors, never another exception."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from torshc.base.errors import InternalError, TorshcError
from torshc.formats import load_graph

from .test_onnx_format import model, node

ROOT = Path(__file__).parents[2]


def sources() -> dict[str, bytes]:
    shaped = [
        node("Shape", "x", "s"),
        node("Reshape", "x,s", "r"),
        node("Softmax", "r", "t", axis=1),
        node("Add", "t,w"),
    ]
    return {
        "onnx": model(shaped, weights={"w": np.ones((2, 3), np.float32)}).SerializeToString(),
        "json": (ROOT / "samples" / "mlp.json").read_bytes(),
    }


@pytest.mark.parametrize("form", ["onnx", "json"])
def test_random_damage(form: str) -> None:
    rng = random.Random(7)
    whole = sources()[form]
    accepted = 0
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(len(data))
            match rng.randrange(3):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    del data[at : at + rng.randrange(1, 4)]
                case _:
                    data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 4)))
        try:
            load_graph(bytes(data))
            accepted += 1
        except TorshcError as e:
            assert not isinstance(e, InternalError), e
    assert accepted
