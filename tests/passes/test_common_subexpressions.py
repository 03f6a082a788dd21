"""Equal nodes become one."""

from __future__ import annotations

from torshc.passes import PASSES

from ..support.pass_graphs import OPTIONS, Model, lines, run_pass


def test_common_subexpressions() -> None:
    m = Model()
    x = m.input(2)
    a, b = m("Add", x, m.const([1.0, 2.0])), m("Add", x, m.const([1.0, 2.0]))
    c = m("Add", x, m.const([1.0, 3.0]))
    assert run_pass("common_subexpressions", m.done(m("Mul", m("Mul", a, b), c))) == lines("""
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
