"""Chains of convolutions get the channels last."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.ops.image.taps import ResizeAxis
from torshc.passes import PASSES
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan

from ..support.pass_graphs import OPTIONS, Model, dims, lines, names, run_pass


def test_choose_layout() -> None:
    m = Model()
    x = m.input(1, 5, 4, 4)
    w = m.const(np.random.default_rng(0).standard_normal((5, 5, 1, 1)))
    shape = {"strides": (1, 1), "pads": dims(0, 0, 0, 0), "dilations": (1, 1)}
    y = m("Relu", m("Conv", x, w, **shape))
    graph = m.done(m("Add", y, m("Conv", y, w, **shape)), m("ReduceMean", y, axes=(2, 3)))
    assert run_pass("choose_layout", graph) == lines("""
        in   %0 f32[1, 5, 4, 4]
        %1 = Identity(%0) : f32[1, 5, 4, 4] in (0, 2, 3, 1)
        %3 = Conv[strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)](%1, @2:f32[5, 5, 1, 1]) : f32[1, 5, 4, 4] in (0, 2, 3, 1)
        %4 = Relu(%3) : f32[1, 5, 4, 4] in (0, 2, 3, 1)
        %5 = Conv[strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1)](%4, @2:f32[5, 5, 1, 1]) : f32[1, 5, 4, 4] in (0, 2, 3, 1)
        %6 = Add(%4, %5) : f32[1, 5, 4, 4] in (0, 2, 3, 1)
        %7 = ReduceMean[axes=(2, 3)](%4) : f32[1, 5, 1, 1]
        %8 = Identity(%6) : f32[1, 5, 4, 4]
        out  %8
        out  %7
    """)  # noqa: E501  # a line of the text form is not to be broken
    assert not PASSES["choose_layout"](graph, OPTIONS)
    PASSES["canonicalise"](graph, OPTIONS)
    assert names(graph).count("Identity") == 2, "a copy into another layout is no no-op"


def test_an_image_is_read_as_it_is() -> None:
    m = Model()
    x = m.input(1, 3, 4, 4)
    w = m.const(np.ones((8, 3, 1, 1)))
    shape = {"strides": (1, 1), "pads": dims(0, 0, 0, 0), "dilations": (1, 1)}
    made = run_pass("choose_layout", m.done(m("Conv", x, w, **shape)))
    assert made.count("Identity") == 1 and "(%0, " in made  # only the output is copied back


def test_a_transposed_image_is_its_memory() -> None:
    """Exporters of frameworks that keep channels innermost put a Transpose before and behind convolutions."""
    m = Model()
    x = m.input(2, 4, 5, 8)
    w = m.const(np.ones((8, 8, 1, 1)))
    shape = {"strides": (1, 1), "pads": dims(0, 0, 0, 0), "dilations": (1, 1)}
    image = m("Transpose", x, perm=(0, 3, 1, 2))
    graph = m.done(m("Transpose", m("Conv", image, w, **shape), perm=(0, 2, 3, 1)))
    made = run_pass("choose_layout", graph)
    assert "Identity" not in made and made.count("in (0, 2, 3, 1)") == 2
    plan = make_plan(finalise(graph, Policy.of()))
    assert [n.op.name for g in plan.groups for n in g.nodes] == ["Conv"]
    assert {place.root for place in plan.storage.values()} == {graph.inputs[0], graph.nodes[1].output}


@pytest.mark.parametrize(("channels", "last", "copies"), [(16, True, 2), (16, False, 1), (8, True, 3)])
def test_a_resize_keeps_vectors_of_channels_where_they_lie(channels: int, last: bool, copies: int) -> None:
    """Not before the model's output, which has none, nor fewer channels than a vector has."""
    m = Model()
    w = m.const(np.ones((channels, channels, 1, 1)))
    shape = {"strides": (1, 1), "pads": dims(0, 0, 0, 0), "dilations": (1, 1)}
    axes = tuple(ResizeAxis(*dims(*sizes)) for sizes in ((2, 1, 1), (channels, 1, 1), (10, 10, 5), (12, 12, 6)))
    y = m("Resize", m("Conv", m.input(2, channels, 5, 6), w, **shape), axes=axes, mode="linear")
    made = run_pass("choose_layout", m.done(m("Conv", y, w, **shape) if last else m("Neg", y)))
    assert made.count("Identity") == copies


def test_a_pool_between_transposes_reads_the_channels_where_they_lie() -> None:
    m = Model()
    image = m("Transpose", m.input(2, 6, 5, 8), perm=(0, 3, 1, 2))
    pooled = m("MaxPool", image, kernel=(2, 2), strides=(2, 2), pads=dims(0, 0, 0, 0), dilations=(1, 1))
    graph = m.done(m("Transpose", pooled, perm=(0, 2, 3, 1)))
    made = run_pass("choose_layout", graph)
    assert "Identity" not in made and made.count("in (0, 2, 3, 1)") == 2
    plan = make_plan(finalise(graph, Policy.of()))
    assert [n.op.name for g in plan.groups for n in g.nodes] == ["MaxPool"]


@pytest.mark.parametrize(
    ("shape", "copies"),
    [((1, 2, 64), 1), ((1, 2, 4, 4, 4), 0), ((1, 8, 16), 0), ((1, 8, 2, 8), 0), ((128,), 1), ((1, 4, 32), 1)],
)
def test_a_reshape_across_channels_and_places_reads_a_copy(shape: tuple[int, ...], copies: int) -> None:
    """A kernel of sums would gather its elements one by one; what has a stride for each dimension needs no copy."""
    m = Model()
    x = m.input(1, 8, 4, 4)
    w = m.const(np.ones((8, 8, 1, 1)))
    attributes = {"strides": (1, 1), "pads": dims(0, 0, 0, 0), "dilations": (1, 1)}
    y = m("Conv", x, w, **attributes)
    parts = [m("Reshape", m("Neg", y) if k else y, shape=dims(*shape)) for k in range(2)]
    graph = m.done(*(m("ReduceMean", p, axes=(len(shape) - 1,)) for p in (*parts, parts[0])))
    made = run_pass("choose_layout", graph)
    assert made.count("Identity") == 1 + 2 * copies  # the first is the convolution's operand
    plan = make_plan(finalise(graph, Policy.of()))
    stored = [n for g in plan.groups for n in g.nodes if n.op.name == "Identity"]
    assert len(stored) == 1 + 2 * copies
