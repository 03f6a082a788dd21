"""Slices and pads against the reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx

from tests.support.evaluate import run
from tests.support.nodes import F32, I64, check, given, numbers
from torshc.expr import const, dim
from torshc.expr.text import to_text
from torshc.formats import import_model
from torshc.ops.tensor.parts import slice_extent


def test_slices() -> None:
    x = numbers(5, 6)
    ints = lambda *v: np.array(v, I64)  # noqa: E731  # a local shorthand
    for starts, ends, axes, steps in [
        ((1, 0), (4, -1), (0, 1), (1, 2)),
        ((-1,), (-100,), (1,), (-1,)),
        ((4,), (1,), (0,), (-2,)),
        ((3,), (1,), (0,), (1,)),
        ((-100, 2), (100, 1 << 62), (0, 1), (3, 1)),
    ]:
        check("Slice", x, ints(*starts), ints(*ends), ints(*axes), ints(*steps), fixed=(1, 2, 3, 4))
    check("Slice", x, opset=9, starts=[1, 2], ends=[3, -1])
    check("Slice", x, opset=9, starts=[1], ends=[100], axes=[1])


def test_pads() -> None:
    x = numbers(3, 4)
    pads = np.array([1, 2, 0, 1], I64)
    for mode in ("constant", "edge", "reflect", "wrap"):
        check("Pad", x, pads, fixed=(1,), mode=mode)
    check("Pad", x, pads, np.asarray(7, F32), fixed=(1,))
    (cut,) = given("Pad", x, np.array([-1, 1, 0, -2], I64), fixed=(1,))
    np.testing.assert_array_equal(cut, np.pad(x[1:, :-2], ((0, 0), (1, 0))))
    check("Pad", x, np.array([2, 1], I64), None, np.array([-1], I64), fixed=(1, 3))


def test_sizes_of_slices_are_short() -> None:
    """What is left of a dimension by the same rule is one expression, so that sizes behind it meet."""
    n, end = dim("n"), const(1 << 62)
    wanted = {(-1, end, 1): "min(1, n)", (0, const(3), 1): "min(3, n)", (1, end, 1): "max(n - 1, 0)"}
    wanted |= {(0, const(-1), 1): "max(n - 1, 0)", (-1, const(-(1 << 62)), -1): "n"}
    for (start, to, step), text in wanted.items():
        assert to_text(slice_extent(n, const(start), to, const(step))[1]) == text


def test_a_part_of_one_is_broadcast() -> None:
    """The first or the last of a dimension of any size, beside all of it; none of none."""
    made = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n,m] x, float[n] v) => (float[n,m] y, float[n] z) {
            zero = Constant <value = int64[1] {0}> ()
            one = Constant <value = int64[1] {1}> ()
            last = Constant <value = int64[1] {-1}> ()
            end = Constant <value = int64[1] {9223372036854775807}> ()
            l = Slice(x, last, end, zero)
            y = Div(x, l)
            f = Slice(v, zero, one, zero)
            z = Sub(f, v)
        }""")
    graph = import_model(made.SerializeToString())
    for rows in (4, 1, 0):
        x, v = numbers(rows, 3) + 9, numbers(rows)
        found = run(graph, {"x": x, "v": v})
        np.testing.assert_array_equal(found[0], x / x[-1:])
        np.testing.assert_array_equal(found[1], v[:1] - v)
