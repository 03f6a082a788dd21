"""Scales and offsets of channels go into the weights of a convolution."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.passes import PASSES

from ..support.pass_graphs import OPTIONS, Model, dims, names, run_pass


def channel(m: Model, count: int, seed: int) -> object:
    return m.const(np.random.default_rng(seed).uniform(0.5, 2, (count, 1, 1)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_fold_batch_norm_into_convolutions(bias: bool, group: int) -> None:
    m = Model()
    x = m.input(1, 4, 5, 5)
    rng = np.random.default_rng(0)
    weights = [m.const(rng.standard_normal((6, 4 // group, 3, 3)))] + (
        [m.const(rng.standard_normal(6))] if bias else []
    )
    shape = {"strides": (1, 1), "pads": dims(1, 1, 1, 1), "dilations": (1, 1), "group": group}
    y = m("Conv", x, *weights, **shape)
    y = m(
        "Add", m("Mul", m("Add", m("Mul", y, channel(m, 6, 1)), channel(m, 6, 2)), channel(m, 6, 3)), channel(m, 6, 4)
    )
    graph = m.done(m("Relu", y))
    run_pass("fold_batch_norm", graph, times=3)
    assert names(graph) == ["Conv", "Relu"]


def test_fold_batch_norm_into_a_transposed_convolution() -> None:
    m = Model()
    w = m.const(np.random.default_rng(0).standard_normal((4, 3, 2, 2)))
    shape = {"strides": (2, 2), "pads": dims(0, 0, 0, 0), "dilations": (1, 1), "group": 2, "output_padding": (0, 0)}
    y = m("ConvTranspose", m.input(1, 4, 3, 3), w, **shape)
    graph = m.done(m("Add", m("Mul", y, channel(m, 6, 1)), channel(m, 6, 2)))
    run_pass("fold_batch_norm", graph, times=2)
    assert names(graph) == ["ConvTranspose"]


def test_fold_batch_norm_merges_chains() -> None:
    m = Model()
    y = m("Add", m("Mul", m.input(1, 3, 2, 2), channel(m, 3, 1)), channel(m, 3, 2))
    graph = m.done(m("Relu", m("Add", m("Mul", y, channel(m, 3, 3)), channel(m, 3, 4))))
    run_pass("fold_batch_norm", graph, times=3)
    assert names(graph) == ["Mul", "Add", "Relu"]


def test_fold_batch_norm_leaves_what_others_read() -> None:
    m = Model()
    w = m.const(np.ones((3, 3, 1, 1)))
    y = m("Conv", m.input(1, 3, 2, 2), w, strides=(1, 1), pads=dims(0, 0, 0, 0), dilations=(1, 1))
    assert not PASSES["fold_batch_norm"](m.done(m("Mul", y, channel(m, 3, 1)), y), OPTIONS)
