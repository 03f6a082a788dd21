"""Cheaper operators that compute the same."""

from __future__ import annotations

from torshc.expr import const

from ..support.pass_graphs import Model, lines, run_pass


def test_strength_reduction() -> None:
    m = Model()
    x = m.input(2)
    graph = m.done(m("Div", m("Pow", x, 2.0), 8.0), m("Div", x, 3.0), m("Div", m.const([1.0]), x))
    assert run_pass("strength_reduction", graph) == lines("""
        in   %0 f32[2]
        %1 = Mul(%0, %0) : f32[2]
        %2 = Mul(%1, 0.125) : f32[2]
        %3 = Div(%0, 3.0) : f32[2]
        %4 = Reciprocal(%0) : f32[2]
        out  %2
        out  %3
        out  %4
    """)


def test_large_maxima_go_by_dimension() -> None:
    """Three dimensions take two steps; small windows and those with large strides stay."""
    m = Model()
    x = m.input(1, 2, 9, 9)
    pools = [m("MaxPool", x, kernel=(k, k), strides=(s, s), pads=(const(k // 2),) * 4, dilations=(1, 1))
             for k, s in ((5, 1), (3, 1), (5, 2))]  # fmt: skip
    graph = m.done(*pools)
    run_pass("strength_reduction", graph)
    assert [n.op.kernel for n in graph.nodes] == [(1, 5), (5, 1), (3, 3), (5, 5)]
    assert [n.output.shape for n in graph.nodes[1:]] == [p.shape for p in pools]
