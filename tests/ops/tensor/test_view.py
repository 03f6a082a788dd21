"""Views against the reference evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.support.nodes import F32, I64, check, numbers, refused
from torshc.base.errors import RunError


def test_views() -> None:
    x = numbers(2, 3, 4)
    ints = lambda *v: np.array(v, I64)  # noqa: E731  # a local shorthand
    check("Reshape", x, ints(0, -1), fixed=(1,))
    check("Reshape", x, ints(4, 1, 6), fixed=(1,))
    check("Reshape", np.zeros((0, 3), F32), ints(3, 0), fixed=(1,), allowzero=1)
    check("Transpose", x, perm=[2, 0, 1])
    check("Transpose", x)
    check("Squeeze", numbers(1, 3, 1), ints(0), fixed=(1,))
    check("Squeeze", numbers(1, 3, 1))
    check("Squeeze", numbers(1, 3, 1), opset=11, axes=[-1])
    check("Unsqueeze", x, ints(0, -1), fixed=(1,))
    check("Unsqueeze", x, opset=11, axes=[1])
    for axis in (0, 1, 3, -1):
        check("Flatten", x, axis=axis)
    check("Expand", numbers(3, 1), ints(2, 1, 4), fixed=(1,))
    check("Tile", x, ints(2, 1, 3), fixed=(1,))
    check("Concat", x, numbers(2, 5, 4, seed=1), numbers(2, 0, 4), axis=1)
    check("Concat", x, x, axis=-1)
    check("Split", numbers(7, 2), ints(3, 4), fixed=(1,), outputs=2)
    check("Split", numbers(7, 2), num_outputs=3, outputs=3)
    check("Split", numbers(2, 6), opset=11, axis=1, split=[1, 5], outputs=2)


def test_repeats_below_zero() -> None:
    refused("Tile", numbers(2, 3), np.array([2, -1], I64), fixed=(1,), match=r"'it' .*repeats \[2, -1\]")


def test_squeeze_of_what_may_be_one(tmp_path: Path) -> None:
    """The rank of a result is known, so a run in which another dimension could go is refused."""
    made = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n,1,m] x) => (float[n,m] y) { y = Squeeze(x) }""")
    onnx.save(made, tmp_path / "m.onnx")
    with torshc.compile(tmp_path / "m.onnx", threads=1) as model:
        x = numbers(3, 1, 2)
        np.testing.assert_array_equal(model.run({"x": x})["y"], x[:, 0])
        with pytest.raises(RunError, match="do not fit together: n != 1 does not hold; n is dimension 0 of input 'x'"):
            model.run({"x": x[:1]})


def test_squeeze_of_what_must_be_one(tmp_path: Path) -> None:
    """Where the rank that the model states has no place for a size that may be 1, it is 1."""
    made = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[n,1,m] x) => (float[k] y) <int64[1] last = {-1}, int64[1] end = {9}, int64[1] first = {0}> {
            row = Slice(x, last, end, first)
            pair = Concat<axis = 2>(row, row)
            y = Squeeze(pair)
        }""")
    onnx.save(made, tmp_path / "m.onnx")
    with torshc.compile(tmp_path / "m.onnx", threads=1) as model:
        x = numbers(3, 1, 4)
        np.testing.assert_array_equal(model.run({"x": x})["y"], np.tile(x[2, 0], 2))
        with pytest.raises(RunError, match="do not fit together"):
            model.run({"x": x[:0]})
