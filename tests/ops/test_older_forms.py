"""Forms of older opsets, which today's operators take at import."""

from __future__ import annotations

import numpy as np

from tests.support.evaluate import run
from tests.support.nodes import check, model_of, numbers
from torshc.formats import import_model


def test_older_forms() -> None:
    x = numbers(3, 4)
    check("Clip", x, opset=6 + 1, min=-0.5, max=0.5)
    check("Dropout", x, opset=7, ratio=0.3)
    assert check("Dropout", x, opset=13, outputs=2)[1].all()
    old = model_of("Pad", {"x": x}, {}, ["x"], 10, pads=[1, 0, 0, 2], value=1.5)
    wanted = np.pad(x, ((1, 0), (0, 2)), constant_values=1.5)
    np.testing.assert_array_equal(run(import_model(old.SerializeToString()), {"x": x})[0], wanted)
