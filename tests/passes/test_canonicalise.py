"""One form for each of many ways to write the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from torshc.expr import F16, F32, F64
from torshc.graph import Graph
from torshc.ops.image.taps import ResizeAxis

from ..support.pass_graphs import Model, dims, lines, run_pass

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
            m("Resize", m.input(2, 3), axes=(ResizeAxis(*dims(2, 1, 1)), ResizeAxis(*dims(3, 3, 3))), mode="linear"),
        ),
        """
        in   %0 f32[2, 3]
        in   %1 f32[2, 3]
        out  %0
        out  %1
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
    "rows that become an image, and an image that becomes rows": (
        lambda m: m.done(
            m(
                "Gelu",
                m(
                    "Transpose",
                    m(
                        "Reshape",
                        m(
                            "Conv",
                            m("Reshape", m("Transpose", m.input("b", 6, 4), perm=(0, 2, 1)), shape=dims("b", 4, 2, 3)),
                            m.input(4, 1, 1, 1),
                            strides=(1, 1),
                            pads=dims(0, 0, 0, 0),
                            dilations=(1, 1),
                            group=4,
                        ),
                        shape=dims("b", 4, 6),
                    ),
                    perm=(0, 2, 1),
                ),
            )
        ),
        """
        in   %0 f32[b, 6, 4]
        in   %1 f32[4, 1, 1, 1]
        %2 = Reshape[shape=(b, 2, 3, 4)](%0) : f32[b, 2, 3, 4]
        %3 = Transpose[perm=(0, 3, 1, 2)](%2) : f32[b, 4, 2, 3]
        %4 = Conv[strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=4](%3, %1) : f32[b, 4, 2, 3]
        %5 = Gelu(%4) : f32[b, 4, 2, 3]
        %6 = Reshape[shape=(b, 4, 6)](%5) : f32[b, 4, 6]
        %7 = Transpose[perm=(0, 2, 1)](%6) : f32[b, 6, 4]
        out  %7
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
    "a concatenation whose size an empty operand told": (
        lambda m: m.done(m("Concat", m.input(6, 0), m.input("n", 2), axis=1)),
        """
        in   %0 f32[6, 0]
        in   %1 f32[n, 2]
        %2 = Reshape[shape=(6, 2)](%1) : f32[6, 2]
        out  %2
        """,
    ),
    "a choice known before, of sizes known to be equal": (
        lambda m: m.done(m("Where", np.array([False]), m.input("n"), m.input("m"))),
        """
        in   %0 f32[n]
        in   %1 f32[m]
        %2 = Stretch[shape=(n,)](%1) : f32[n]
        out  %2
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
    "a gather at one constant place": (
        lambda m: m.done(
            m("Gather", m.input(3, 4, 5), m.const(1, "i64")), m("Gather", m.input(4, 5), m.const(-1, "i64"), axis=1)
        ),
        """
        in   %0 f32[3, 4, 5]
        in   %1 f32[4, 5]
        %2 = Slice[starts=(1, 0, 0), sizes=(1, 4, 5), steps=(1, 1, 1)](%0) : f32[1, 4, 5]
        %3 = Reshape[shape=(4, 5)](%2) : f32[4, 5]
        %4 = Slice[starts=(0, 4), sizes=(4, 1), steps=(1, 1)](%1) : f32[4, 1]
        %5 = Reshape[shape=(4,)](%4) : f32[4]
        out  %3
        out  %5
        """,
    ),
    "a gather at constant places that step evenly": (
        lambda m: m.done(m("Gather", m.input(4, 9), m.const([[7, 5], [3, 1]], "i64"), axis=1)),
        """
        in   %0 f32[4, 9]
        %1 = Slice[starts=(0, 7), sizes=(4, 4), steps=(1, -2)](%0) : f32[4, 4]
        %2 = Reshape[shape=(4, 2, 2)](%1) : f32[4, 2, 2]
        out  %2
        """,
    ),
    "a gather at other places, or in what may be shorter": (
        lambda m: m.done(
            m("Gather", m.input(4), m.const([0, 1, 3], "i64")), m("Gather", m.input("n"), m.const(0, "i64"))
        ),
        """
        in   %0 f32[4]
        in   %1 f32[n]
        %2 = Gather(%0, [0, 1, 3]) : f32[3]
        %3 = Gather(%1, 0) : f32[]
        out  %2
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
    "views and bounds of a number that is repeated": (
        lambda m: (
            lambda seen: m.done(
                m("Reshape", seen, shape=dims(3, 1, 1, 5)),
                m("OutOfRange", seen, domain="torshc", sizes=dims(2)),
                m("OutOfRange", seen, domain="torshc", sizes=dims(1)),
            )
        )(m("Expand", m.const(np.ones((1, 1))), shape=dims(3, 5))),
        """
        %0 = Expand[shape=(3, 5)]([1.0]) : f32[3, 5]
        %1 = Reshape[shape=(1, 1, 1, 1)]([1.0]) : f32[1, 1, 1, 1]
        %2 = Expand[shape=(3, 1, 1, 5)](%1) : f32[3, 1, 1, 5]
        %3 = OutOfRange[sizes=(1,)](%0) : bool[]
        out  %2
        out  false
        out  %3
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
    assert run_pass("canonicalise", make(Model()), times=4) == lines(expected)


def test_casts_merge_only_when_the_middle_holds_every_value() -> None:
    m = Model()
    x = m.input(2)
    up = m("Cast", m("Cast", x, to=F64), to=F32)
    down = m("Cast", m("Cast", x, to=F16), to=F32)
    assert run_pass("canonicalise", m.done(up, down), times=2) == lines("""
        in   %0 f32[2]
        %1 = Cast[to=f16](%0) : f16[2]
        %2 = Cast(%1) : f32[2]
        out  %0
        out  %2
    """)
