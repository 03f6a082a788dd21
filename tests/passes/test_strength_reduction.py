"""Cheaper operators that compute the same."""

from __future__ import annotations

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
