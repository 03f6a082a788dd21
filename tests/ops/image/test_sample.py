"""Sampling at computed places, and the columns of images."""

from __future__ import annotations

import itertools

import numpy as np
import onnx.parser
import pytest

from tests.support.nodes import F32, I64, check, given, numbers
from torshc import expr
from torshc.expr import axis, load, walk
from torshc.expr.bounds import of_data
from torshc.formats import import_model


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_grid_sample_far_outside(mode: str, corners: int, padding: str) -> None:
    grid = numbers(2, 3, 4, 2, low=-4, high=4)
    check("GridSample", numbers(2, 2, 4, 5), grid, mode=mode, padding_mode=padding, align_corners=corners)


def test_grid_sample_at_no_number() -> None:
    grid = np.array([np.nan, np.inf, -np.inf, 1e30], F32).reshape(1, 2, 1, 2)
    for mode in ("nearest", "linear", "cubic"):
        (out,) = given("GridSample", numbers(1, 1, 4, 5), grid, mode=mode, padding_mode="border")
        assert out.shape == (1, 1, 2, 1)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str) -> None:
    x, batches = numbers(2, 3, 8, 9), np.array([1, 0, 1], I64)
    rois = np.array([[0, 0, 7, 6], [-3, -2, 4, 20], [5, 5, 5.2, 5.1]], F32)
    for transform, sampling in itertools.product(("half_pixel", "output_half_pixel"), (0, 2)):
        check(
            "RoiAlign", x, rois, batches, mode=mode, output_height=3, output_width=2, sampling_ratio=sampling,
            spatial_scale=0.7, coordinate_transformation_mode=transform,
        )  # fmt: skip


def test_roi_align_of_regions_without_points() -> None:
    """As where a side is 0, turned round, or no number; a bin of the whole plane has as many points as there can be."""
    x, batches = numbers(1, 1, 4, 4), np.zeros(4, I64)
    rois = np.array([[1, 1, 1, 3], [3, 3, 1, 1], [np.nan, 0, 1, 1], [0, 0, 1e9, 1]], F32)
    (out,) = given("RoiAlign", x, rois, batches, output_height=1, output_width=1)
    assert out[:3].tolist() == [[[[0]]]] * 3 and out.shape == (4, 1, 1, 1)


def test_deform_conv() -> None:
    x, w = numbers(1, 4, 6, 5), numbers(6, 2, 3, 2, seed=1)
    offset, mask = numbers(1, 24, 3, 2, seed=2), numbers(1, 12, 3, 2, seed=3)
    common = {"group": 2, "offset_group": 2, "strides": [2, 3], "pads": [1, 1, 0, 1]}
    check("DeformConv", x, w, offset, numbers(6, seed=4), mask, **common)
    check("DeformConv", x, w, offset, None, mask, **common)
    check("DeformConv", x, w, offset, **common)


def test_col2im() -> None:
    x = numbers(2, 18, 16)
    sizes = np.array([7, 9], I64), np.array([2, 3], I64)
    check("Col2Im", x, *sizes, fixed=(1, 2), strides=[2, 3], pads=[1, 1, 0, 2], dilations=[1, 1])


def test_an_image_without_pixels_is_not_read() -> None:
    """Places that data decides are clamped into the image; whether there is one to read is asked of its sizes."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (float[1,2,n,m] x, float[1,3,2,2] grid) => (float[1,2,3,2] y) { y = GridSample(x, grid) }""")
    (node,) = import_model(model.SerializeToString()).nodes
    nest = node.op.nest(node, 0)
    assert nest is not None
    at = tuple(axis(f"i{k}", d) for k, d in enumerate(node.output.shape))
    body = nest.body(at, (), lambda k, index: load(node.operands[k], index, expr.F32))
    asked = {e.args[1] for e in walk(body) if e.op == "select" and not of_data(e.args[0])}
    assert {e for e in walk(body) if e.op == "load" and e.data is node.operands[0]} <= asked
