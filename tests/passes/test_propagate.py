"""Shape arithmetic that is known."""

from __future__ import annotations

from ..support.pass_graphs import Model, dims, lines, run_pass


def test_propagate_knows_shape_arithmetic() -> None:
    m = Model()
    x = m.input("batch", 4)
    shape = m("Shape", x)
    last = m("Slice", shape, starts=dims(1), sizes=dims(1), steps=(1,))
    assert run_pass("propagate", m.done(m("Mul", last, m.const([3], "i64")))) == lines("""
        in   %0 f32[batch, 4]
        out  [12]
    """)
