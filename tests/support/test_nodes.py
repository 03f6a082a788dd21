"""The helper compares results and not only shapes."""

from __future__ import annotations

import numpy as np

from tests.support.compare import reference
from tests.support.models import node_model
from tests.support.nodes import numbers


def test_reference_is_what_the_models_say() -> None:
    """The helper compares results and not only shapes."""
    x = numbers(3)
    np.testing.assert_array_equal(reference(node_model("Neg", [x]), {"x0": x})[0], -x)
