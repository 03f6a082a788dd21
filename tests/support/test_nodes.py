"""The helper compares results and not only shapes."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.support.nodes import model_of, numbers


def test_reference_is_what_the_models_say() -> None:
    """The helper compares results and not only shapes."""
    x = numbers(3)
    model = model_of("Neg", {"x": x}, {}, ["x"], 20)
    np.testing.assert_array_equal(ReferenceEvaluator(model).run(None, {"x": x})[0], -x)
    assert isinstance(model, onnx.ModelProto) and numpy_helper.from_array(x).dims == [3]
