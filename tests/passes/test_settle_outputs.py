"""Each output of a model is a value of its own."""

from __future__ import annotations

from ..support.pass_graphs import Model, lines, run_pass


def test_settle_outputs() -> None:
    m = Model()
    x = m.input(2)
    y = m("Neg", x)
    assert run_pass("settle_outputs", m.done(x, y, y, m.const([1.0]))) == lines("""
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
