"""Each pass by what it makes of a small graph: the text before and after, and equal results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes import PASSES
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, dims, lines, names, random_inputs, text


def run(name: str, graph: Graph, times: int = 1, clean: bool = True) -> str:
    """The graph's text after a pass, having checked that it computes the same as before."""
    inputs = random_inputs(graph)
    static = all(v.type.static_shape is not None for v in graph.inputs)
    before = run_graph(graph, inputs) if static else []
    for _ in range(times):
        PASSES[name](graph, OPTIONS)
    if clean:
        PASSES["dead_code"](graph, OPTIONS)
    verify(graph, name)
    after = run_graph(graph, inputs) if static else []
    for b, a in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    return text(graph)


def test_dead_code() -> None:
    m = Model()
    x = m.input(2)
    m("Exp", x)
    assert run("dead_code", m.done(m("Neg", x))) == lines("""
        in   %0 f32[2]
        %1 = Neg(%0) : f32[2]
        out  %1
    """)


def test_settle_outputs() -> None:
    m = Model()
    x = m.input(2)
    y = m("Neg", x)
    assert run("settle_outputs", m.done(x, y, y, m.const([1.0]))) == lines("""
        in   %0 f32[2]
        %1 = Neg(%0) : f32[2]
        %2 = Identity(%0) : f32[2]
        %3 = Identity(%1) : f32[2]
        %4 = Identity([1.0]) : f32[1]
        out  %2
        out  %1
        out  %3
        out  %4
    """)


def test_propagate_knows_shape_arithmetic() -> None:
    m = Model()
    x = m.input("batch", 4)
    shape = m("Shape", x)
    last = m("Slice", shape, starts=dims(1), sizes=dims(1), steps=(1,))
    assert run("propagate", m.done(m("Mul", last, m.const([3], "i64")))) == lines("""
        in   %0 f32[batch, 4]
        out  [12]
    """)


def test_common_subexpressions() -> None:
    m = Model()
    x = m.input(2)
    a, b = m("Add", x, m.const([1.0, 2.0])), m("Add", x, m.const([1.0, 2.0]))
    c = m("Add", x, m.const([1.0, 3.0]))
    assert run("common_subexpressions", m.done(m("Mul", m("Mul", a, b), c))) == lines("""
        in   %0 f32[2]
        %1 = Add(%0, [1.0, 2.0]) : f32[2]
        %2 = Add(%0, [1.0, 3.0]) : f32[2]
        %3 = Mul(%1, %1) : f32[2]
        %4 = Mul(%3, %2) : f32[2]
        out  %4
    """)


def test_common_subexpressions_tells_signed_zeros_apart() -> None:
    m = Model()
    x = m.input(2)
    graph = m.done(m("Add", x, m.const([0.0, 0.0])), m("Add", x, m.const([-0.0, -0.0])))
    assert not PASSES["common_subexpressions"](graph, OPTIONS)


def test_decompose_takes_apart_what_a_decomposition_makes() -> None:
    m = Model()
    x = m.input(1, 6, 4)
    vector = m.const(np.arange(6) + 1)
    graph = m.done(m("InstanceNormalization", x, vector, vector))
    run("decompose", graph)
    assert not [n for n in graph.nodes if n.op.family == "composite"]


def test_fold_constants_leaves_large_broadcasts_alone() -> None:
    m = Model()
    graph = m.done(
        m("Expand", m.const([[1.0]]), shape=dims(1024, 1024)), m("Transpose", m.const(np.ones((600, 600))), perm=(1, 0))
    )
    PASSES["fold_constants"](graph, OPTIONS)
    assert names(graph) == ["Expand"]


def test_fold_constants_has_a_budget() -> None:
    m = Model()
    x = m.const(np.ones((1, 1)))
    graph = m.done(m("Expand", x, shape=dims(1 << 21, 1 << 21)))
    assert not PASSES["fold_constants"](graph, OPTIONS)


CANONICAL: dict[str, tuple[Callable[[Model], Graph], str]] = {
    "views that change nothing": (
        lambda m: m.done(
            m(
                "Reshape",
                m(
                    "Slice",
                    m("Transpose", m.input(2, 3), perm=(0, 1)),
                    starts=dims(0, 0),
                    sizes=dims(2, 3),
                    steps=(1, 1),
                ),
                shape=dims(2, 3),
            ),
        ),
        """
        in   %0 f32[2, 3]
        out  %0
        """,
    ),
    "views of views": (
        lambda m: m.done(
            m("Reshape", m("Reshape", m.input(2, 6), shape=dims(3, 4)), shape=dims(4, 3)),
            m("Transpose", m("Transpose", m.input(2, 3, 4), perm=(1, 2, 0)), perm=(1, 2, 0)),
        ),
        """
        in   %0 f32[2, 6]
        in   %1 f32[2, 3, 4]
        %2 = Reshape[shape=(4, 3)](%0) : f32[4, 3]
        %3 = Transpose[perm=(2, 0, 1)](%1) : f32[4, 2, 3]
        out  %2
        out  %3
        """,
    ),
    "a transpose of dimensions of one": (
        lambda m: m.done(m("Transpose", m.input(1, 3, 1, 4), perm=(1, 0, 3, 2))),
        """
        in   %0 f32[1, 3, 1, 4]
        %1 = Reshape[shape=(3, 1, 4, 1)](%0) : f32[3, 1, 4, 1]
        out  %1
        """,
    ),
    "keys transposed through matrices": (
        lambda m: m.done(
            m(
                "Reshape",
                m("Transpose", m("Reshape", m.input("b", 2, 5, 3), shape=dims("2*b", 5, 3)), perm=(0, 2, 1)),
                shape=dims("b", 2, 3, 5),
            )
        ),
        """
        in   %0 f32[b, 2, 5, 3]
        %1 = Transpose[perm=(0, 1, 3, 2)](%0) : f32[b, 2, 3, 5]
        out  %1
        """,
    ),
    "constants to the right": (
        lambda m: m.done(m("Sub", m("Add", m.const([1.0]), m.input(2)), m.const([2.0]))),
        """
        in   %0 f32[2]
        %1 = Add(%0, [1.0]) : f32[2]
        %2 = Add(%1, [-2.0]) : f32[2]
        out  %2
        """,
    ),
    "sums": (
        lambda m: m.done(m("Sum", m("Sum", m.input(2)), m.input(2))),
        """
        in   %0 f32[2]
        in   %1 f32[2]
        %2 = Add(%0, %1) : f32[2]
        out  %2
        """,
    ),
    "concatenations": (
        lambda m: m.done(m("Concat", m("Concat", m.input(2), m.input(3), axis=0), m.input(0), m.input(1), axis=-1)),
        """
        in   %0 f32[2]
        in   %1 f32[3]
        in   %2 f32[0]
        in   %3 f32[1]
        %4 = Concat[axis=-1](%0, %1, %3) : f32[6]
        out  %4
        """,
    ),
    "an expand that the reader does itself": (
        lambda m: m.done(m("Add", m("Expand", m.input(1, 3), shape=dims(2, 3)), m.input(2, 3))),
        """
        in   %0 f32[1, 3]
        in   %1 f32[2, 3]
        %2 = Add(%0, %1) : f32[2, 3]
        out  %2
        """,
    ),
    "an expand that makes the shape": (
        lambda m: m.done(m("Mul", m("Expand", m("Expand", m.input(3), shape=dims(1, 3)), shape=dims(2, 3)), 2.0)),
        """
        in   %0 f32[3]
        %1 = Mul(%0, 2.0) : f32[3]
        %2 = Expand[shape=(2, 3)](%1) : f32[2, 3]
        out  %2
        """,
    ),
    "a gather at repeated indices": (
        lambda m: m.done(m("Gather", m.input(4, 5), m("Expand", m.const(2, "i64"), shape=dims(2, 3)))),
        """
        in   %0 f32[4, 5]
        %1 = Reshape[shape=(1, 1)](2) : i64[1, 1]
        %2 = Gather(%0, %1) : f32[1, 1, 5]
        %3 = Expand[shape=(2, 3, 5)](%2) : f32[2, 3, 5]
        out  %3
        """,
    ),
    "a reduction of one": (
        lambda m: m.done(m("ReduceMean", m.input(2, 1), axes=(1,), keepdims=False)),
        """
        in   %0 f32[2, 1]
        %1 = Reshape[shape=(2,)](%0) : f32[2]
        out  %1
        """,
    ),
    "a matrix product of a matrix made for it": (
        lambda m: m.done(
            m(
                "Reshape",
                m("MatMul", m("Reshape", m.input(2, 3, 4), shape=dims(6, 4)), m.const(np.ones((4, 5)))),
                shape=dims(2, 3, 5),
            )
        ),
        """
        in   %0 f32[2, 3, 4]
        %2 = MatMul(%0, @1:f32[4, 5]) : f32[2, 3, 5]
        out  %2
        """,
    ),
    "dropout": (
        lambda m: m.done(m.all("Dropout", m.input(2))[0]),
        """
        in   %0 f32[2]
        out  %0
        """,
    ),
}


@pytest.mark.parametrize("case", CANONICAL)
def test_canonicalise(case: str) -> None:
    make, expected = CANONICAL[case]
    assert run("canonicalise", make(Model()), times=4) == lines(expected)


def test_casts_merge_only_when_the_middle_holds_every_value() -> None:
    from torshc.expr import F16, F32, F64

    m = Model()
    x = m.input(2)
    up = m("Cast", m("Cast", x, to=F64), to=F32)
    down = m("Cast", m("Cast", x, to=F16), to=F32)
    assert run("canonicalise", m.done(up, down), times=2) == lines("""
        in   %0 f32[2]
        %1 = Cast[to=f16](%0) : f16[2]
        %2 = Cast(%1) : f32[2]
        out  %0
        out  %2
    """)


def test_strength_reduction() -> None:
    m = Model()
    x = m.input(2)
    graph = m.done(m("Div", m("Pow", x, 2.0), 8.0), m("Div", x, 3.0), m("Div", m.const([1.0]), x))
    assert run("strength_reduction", graph) == lines("""
        in   %0 f32[2]
        %1 = Mul(%0, %0) : f32[2]
        %2 = Mul(%1, 0.125) : f32[2]
        %3 = Div(%0, 3.0) : f32[2]
        %4 = Reciprocal(%0) : f32[2]
        out  %2
        out  %3
        out  %4
    """)


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
    run("fold_batch_norm", graph, times=3)
    assert names(graph) == ["Conv", "Relu"]


def test_fold_batch_norm_into_a_transposed_convolution() -> None:
    m = Model()
    w = m.const(np.random.default_rng(0).standard_normal((4, 3, 2, 2)))
    shape = {"strides": (2, 2), "pads": dims(0, 0, 0, 0), "dilations": (1, 1), "group": 2, "output_padding": (0, 0)}
    y = m("ConvTranspose", m.input(1, 4, 3, 3), w, **shape)
    graph = m.done(m("Add", m("Mul", y, channel(m, 6, 1)), channel(m, 6, 2)))
    run("fold_batch_norm", graph, times=2)
    assert names(graph) == ["ConvTranspose"]


def test_fold_batch_norm_merges_chains() -> None:
    m = Model()
    y = m("Add", m("Mul", m.input(1, 3, 2, 2), channel(m, 3, 1)), channel(m, 3, 2))
    graph = m.done(m("Relu", m("Add", m("Mul", y, channel(m, 3, 3)), channel(m, 3, 4))))
    run("fold_batch_norm", graph, times=3)
    assert names(graph) == ["Mul", "Add", "Relu"]


def test_fold_batch_norm_leaves_what_others_read() -> None:
    m = Model()
    w = m.const(np.ones((3, 3, 1, 1)))
    y = m("Conv", m.input(1, 3, 2, 2), w, strides=(1, 1), pads=dims(0, 0, 0, 0), dilations=(1, 1))
    assert not PASSES["fold_batch_norm"](m.done(m("Mul", y, channel(m, 3, 1)), y), OPTIONS)


def test_choose_layout() -> None:
    m = Model()
    x = m.input(1, 5, 4, 4)
    w = m.const(np.random.default_rng(0).standard_normal((5, 5, 1, 1)))
    shape = {"strides": (1, 1), "pads": dims(0, 0, 0, 0), "dilations": (1, 1)}
    y = m("Relu", m("Conv", x, w, **shape))
    graph = m.done(m("Add", y, m("Conv", y, w, **shape)), m("ReduceMean", y, axes=(2, 3)))
    assert run("choose_layout", graph) == lines("""
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
    text = run("choose_layout", m.done(m("Conv", x, w, **shape)))
    assert text.count("Identity") == 1 and "(%0, " in text  # only the output is copied back


def test_resolve_indices_of_an_exported_mask() -> None:
    m = Model()
    mask = m.input("batch", "seq", dtype="bool")
    b = m("Reshape", m("Range", start=dims(0)[0], step=dims(1)[0], count=dims("batch")[0]), shape=dims("batch", 1, 1))
    s = m("Reshape", m("Range", start=dims(0)[0], step=dims(1)[0], count=dims("seq")[0]), shape=dims(1, 1, "seq"))
    parts = [
        m("Reshape", m("Expand", x, shape=dims("batch", 1, "seq")), shape=dims("batch", 1, "seq", 1)) for x in (b, s)
    ]
    taken = m("GatherND", mask, m("Concat", *parts, axis=-1), depth=2)
    causal = m("GreaterOrEqual", m("Reshape", s, shape=dims(1, "seq", 1)), m.const(0, "i64"))
    graph = m.done(m("And", causal, taken))
    assert run("resolve_indices", graph) == lines("""
        in   %0 bool[batch, seq]
        %1 = Transpose[perm=(0, 1)](%0) : bool[batch, seq]
        %2 = Reshape[shape=(batch, 1, seq)](%1) : bool[batch, 1, seq]
        %3 = Expand[shape=(batch, seq, seq)](%2) : bool[batch, seq, seq]
        out  %3
    """)


def test_resolve_indices_of_a_uniform_table() -> None:
    m = Model()
    at = m.input(3, dtype="i64")
    graph = m.done(m("Gather", m.const(np.full(8, 7), "i64"), at), m("Gather", m.input(8), at))
    run("resolve_indices", graph)
    assert names(graph) == ["Expand", "Gather"]
