"""Tables from labels to labels."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from tests.support.models import ML
from tests.support.nodes import refused


def test_a_default_without_an_element() -> None:
    tensors = {"keys_tensor": np.arange(3), "values_tensor": np.arange(3), "default_tensor": np.zeros(0, np.int64)}
    form = {name: numpy_helper.from_array(a) for name, a in tensors.items()}
    message = r"'it' .*default_tensor has no element"
    refused("LabelEncoder", np.arange(4), domain=ML, opset={ML: 4}, **form, match=message)
