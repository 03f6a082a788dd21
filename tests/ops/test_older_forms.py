"""Forms of older opsets, which today's operators take at import."""

from __future__ import annotations

import numpy as np

from tests.support.nodes import check, given, numbers


def test_older_forms() -> None:
    x = numbers(3, 4)
    check("Clip", x, opset=6 + 1, min=-0.5, max=0.5)
    check("Dropout", x, opset=7, ratio=0.3)
    assert check("Dropout", x, opset=13, outputs=2)[1].all()
    (got,) = given("Pad", x, opset=10, pads=[1, 0, 0, 2], value=1.5)
    np.testing.assert_array_equal(got, np.pad(x, ((1, 0), (0, 2)), constant_values=1.5))
