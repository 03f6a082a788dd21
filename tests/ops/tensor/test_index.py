"""Operators that take elements at indices, against the reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.support.nodes import F32, I64, check, given, numbers
from torshc.expr.text import condition_text
from torshc.formats import import_model


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg(op: str) -> None:
    x = np.array([[3, 1, 3], [2, 2, 1], [0, 0, 0]], F32)
    for axis in (0, 1, -1):
        for last in (0, 1):
            for keepdims in (0, 1):
                check(op, x, axis=axis, select_last_index=last, keepdims=keepdims)
    nan = np.array([[1, np.nan, 2, np.nan]], F32)
    assert np.asarray(check(op, nan, axis=1)[0]).item() == 1


def test_indexing() -> None:
    x = numbers(4, 3, 5)
    index = np.array([[0, -1], [3, 2]], I64)
    for axis in (0, 1, -1):
        check("Gather", x, np.clip(index, -3, 2), axis=axis)
    check("Gather", x, np.asarray(-2, np.int32))
    check("GatherElements", numbers(3, 3), np.array([[1, -1, 0], [2, 0, 1]], I64), axis=0)
    check("GatherND", x, np.array([[0, 1], [-1, 2]], I64))
    check("GatherND", x, np.array([[1], [0], [2], [2]], I64), batch_dims=1)
    check("OneHot", np.array([0, 2, -1, 9], I64), np.asarray(4, I64), np.array([0.5, 2], F32), fixed=(1,))
    check("ReverseSequence", numbers(4, 3), np.array([2, 4, 1], I64))
    check("Trilu", numbers(3, 5), np.asarray(1, I64), fixed=(1,))
    check("Trilu", numbers(2, 3, 5), upper=0)
    for reverse in (0, 1):
        for exclusive in (0, 1):
            check("CumSum", numbers(3, 5), np.asarray(1, I64), fixed=(1,), reverse=reverse, exclusive=exclusive)


def test_indices_out_of_range_stay_inside() -> None:
    x = numbers(4, 3)
    for op, index in (("Gather", np.array([9, -9], I64)), ("GatherND", np.array([[9, -7]], I64))):
        given(op, x, index)  # the evaluator refuses a wild read


def test_an_index_that_a_size_must_exceed_is_a_condition_in_words() -> None:
    """Indices that are known or computed from sizes, into a dimension of any size, are checked before a run."""
    made = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 18]>
        g (float[n] x, float[m] v) => (float[3] y, float[1] z) {
            i = Constant <value = int64[3] {1, 2, 5}> ()
            y = Gather(x, i)
            m = Shape(v)
            z = Gather(x, m)
        }""")
    found = {condition_text(left, right) for left, right in import_model(made.SerializeToString()).constraints}
    assert found == {"1 < n", "5 < n", "m < n"}
