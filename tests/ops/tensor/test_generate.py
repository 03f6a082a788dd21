"""Operators that make tensors from nothing, against the reference evaluator."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, numpy_helper

from tests.support.nodes import F32, I64, check, numbers


def test_generators() -> None:
    check("Range", np.asarray(2, I64), np.asarray(11, I64), np.asarray(3, I64), fixed=(0, 1, 2))
    check("Range", np.asarray(5, I64), np.asarray(0, I64), np.asarray(-2, I64), fixed=(0, 1, 2))
    check("Range", np.asarray(1, F32), np.asarray(2, F32), np.asarray(0.25, F32), fixed=(0, 1, 2))
    check("Range", np.asarray(3, I64), np.asarray(1, I64), np.asarray(1, I64), fixed=(0, 1, 2))
    check("EyeLike", numbers(3, 4), k=1)
    check("EyeLike", numbers(3, 4), k=-1, dtype=TensorProto.INT64)
    value = numpy_helper.from_array(np.array([3], np.int32))
    check("ConstantOfShape", np.array([2, 3], I64), fixed=(0,), value=value)
    check("ConstantOfShape", np.array([], I64), fixed=(0,))
    check("Shape", numbers(2, 3, 4), start=1)
    check("Shape", numbers(2, 3, 4), start=-2, end=-1)
    check("Size", numbers(2, 3))
