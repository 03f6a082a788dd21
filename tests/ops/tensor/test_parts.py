"""Slices and pads against the reference evaluator."""

from __future__ import annotations

import numpy as np

from tests.support.evaluate import run
from tests.support.nodes import F32, I64, check, model_of, numbers
from torshc.formats import import_model


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
    cut = model_of("Pad", {"x": x}, {"pads": np.array([-1, 1, 0, -2], I64)}, ["x", "pads"], 20)
    wanted = np.pad(x[1:, :-2], ((0, 0), (1, 0)))
    np.testing.assert_array_equal(run(import_model(cut.SerializeToString()), {"x": x})[0], wanted)
    check("Pad", x, np.array([2, 1], I64), None, np.array([-1], I64), fixed=(1, 3))
