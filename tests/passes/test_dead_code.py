"""Nodes that nobody reads go."""

from __future__ import annotations

from ..support.pass_graphs import Model, lines, run_pass


def test_dead_code() -> None:
    m = Model()
    x = m.input(2)
    m("Exp", x)
    assert run_pass("dead_code", m.done(m("Neg", x))) == lines("""
        in   %0 f32[2]
        %1 = Neg(%0) : f32[2]
        out  %1
    """)
