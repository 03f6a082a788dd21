"""Pools that keep the largest of a convolution's sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.base.features import Feature
from torshc.graph import Graph, Value
from torshc.graph.verify import verify
from torshc.passes import PASSES

from ..support.pass_graphs import FEATURES, OPTIONS, Model, dims, text

ONES = {"strides": (1, 1), "pads": dims(1, 1, 1, 1), "dilations": (1, 1)}
POOL = {"kernel": (2, 2), "strides": (2, 2), "pads": dims(0, 0, 0, 0), "dilations": (1, 1)}


def pooled(graph: Graph, without: frozenset[Feature] = frozenset()) -> bool:
    return PASSES["pool_sums"](graph, OPTIONS, features=FEATURES - without)


def weights(m: Model, *shape: int) -> Value:
    return m.const(np.ones(shape), "bf16")


def test_the_pool_is_a_part_of_the_convolution() -> None:
    """Wherever its results are made by tiles, and what comes between keeps the order of numbers."""
    m = Model()
    x, bias = m.input(1, 32, 14, 14, dtype="bf16"), m.const(np.ones(9))
    y = m("Relu", m("Conv", x, weights(m, 9, 32, 3, 3), bias, out="f32", **ONES))
    graph = m.done(m("MaxPool", m("Cast", y, to=x.dtype), **POOL))
    assert not pooled(graph, frozenset({Feature.BF16_TILES}))
    assert pooled(graph)
    verify(graph, "pool_sums")
    made = text(graph).splitlines()
    assert made[1].endswith("out='f32', windows=(2, 2)](%0, @1:bf16[9, 32, 3, 3], @2:f32[9]) : f32[1, 9, 7, 7]")
    assert made[2:] == ["%4 = Relu(%3) : f32[1, 9, 7, 7]", "%5 = Cast[to=bf16](%4) : bf16[1, 9, 7, 7]", "out  %5"]


@pytest.mark.parametrize(
    ("conv", "pool", "x", "w"),
    [
        ({"strides": (2, 2)}, {}, (1, 32, 28, 28), (9, 32, 3, 3)),
        ({}, {"kernel": (3, 3)}, (1, 32, 14, 14), (9, 32, 3, 3)),
        ({}, {"pads": dims(1, 1, 1, 1)}, (1, 32, 14, 14), (9, 32, 3, 3)),
        ({}, {}, (1, 32, 14, 15), (9, 32, 3, 3)),
        ({}, {}, (1, 32, 15, 14), (9, 32, 3, 3)),
        ({}, {}, (1, 32, 14, "s"), (9, 32, 3, 3)),
        ({}, {}, (1, 24, 14, 14), (9, 24, 3, 3)),
        ({"group": 2}, {}, (1, 64, 14, 14), (10, 32, 3, 3)),
        ({"pads": dims(0, 0, 0, 0)}, {}, (1, 32, 14, 14), (9, 32, 1, 1)),
        ({"pads": dims(3, 3, 3, 3)}, {}, (1, 960, 64, 64), (9, 960, 7, 7)),
    ],
)
def test_other_kernels_are_not_pooled(conv: dict[str, Any], pool: dict[str, Any], x: Any, w: tuple[int, ...]) -> None:
    m = Model()
    y = m("Conv", m.input(*x, dtype="bf16"), weights(m, *w), **{"out": "f32", **ONES, **conv})
    graph = m.done(m("MaxPool", y, **{**POOL, **pool}))
    assert not pooled(graph)


@pytest.mark.parametrize("kind", ["two readers", "Neg", "a bias of infinity", "a bias of a run", "f32"])
def test_what_does_not_keep_the_largest_stays(kind: str) -> None:
    m = Model()
    bias = m.input(9) if kind.endswith("run") else m.const(np.full(9, np.inf if kind.endswith("infinity") else 1))
    dtype = "f32" if kind == "f32" else "bf16"
    y = m("Conv", m.input(1, 32, 14, 14, dtype=dtype), m.const(np.ones((9, 32, 3, 3)), dtype), bias, out="f32", **ONES)
    y = m("Neg", y) if kind == "Neg" else y
    graph = m.done(m("MaxPool", y, **POOL), *([y] if kind == "two readers" else []))
    assert not pooled(graph)
