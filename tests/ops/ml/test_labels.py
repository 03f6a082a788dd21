"""Tables from labels to labels."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.support.nodes import model_of
from torshc.base.errors import ModelError
from torshc.formats import import_model


def test_a_default_without_an_element() -> None:
    tensors = {"keys_tensor": np.arange(3), "values_tensor": np.arange(3), "default_tensor": np.zeros(0, np.int64)}
    model = model_of("LabelEncoder", {"x": np.arange(4)}, {}, ["x"], 20, domain="ai.onnx.ml", **{
        name: numpy_helper.from_array(a) for name, a in tensors.items()
    })  # fmt: skip
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    with pytest.raises(ModelError, match=r"'it' .*default_tensor has no element"):
        import_model(model.SerializeToString())
