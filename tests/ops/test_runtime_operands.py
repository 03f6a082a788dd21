"""Shape operands known only at run time: random values against ONNX's reference evaluator, and wrong values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torshc
from tests.support.evaluate import Array, run
from tests.support.models import feeds_of, node_model, save
from tests.support.nodes import F32, I64, check, numbers
from tests.support.seeded import seeded
from torshc.base.errors import TorshcError
from torshc.formats import import_model
from torshc.graph import Graph
from torshc.runtime import Model

RNG = seeded(7)
ROUNDS = range(6)


def ints(*values: int) -> Array:
    return np.array(values, I64)


def some_axes(rank: int, count: int) -> Array:
    """Distinct axes in any order, some of them negative."""
    axes = RNG.permutation(rank)[:count]
    return np.where(RNG.random(count) < 0.5, axes, axes - rank).astype(I64)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceProd", "ReduceL2", "ReduceLogSumExp"])
def test_reductions(op: str, keepdims: int) -> None:
    x = numbers(2, 3, 1, 4)
    for count in (1, 2, 4):
        check(op, x, some_axes(4, count), keepdims=keepdims)
    check(op, x, np.zeros(0, I64), keepdims=keepdims, noop_with_empty_axes=0)


def test_reshapes() -> None:
    x = numbers(2, 3, 4)
    for shape in ((4, 6), (-1, 2), (0, -1), (8, 3), (0, 12), (-1, 4)):
        check("Reshape", x, ints(*shape))
    check("Reshape", numbers(0, 3), ints(3, 0), allowzero=1)
    for axes in ((0,), (2,), (-1,), (0, -1), (2, 0)):
        check("Squeeze", numbers(1, 3, 1), ints(*axes))
    for axes in ((0,), (2,), (-1,), (0, -1), (3, 1)):
        check("Unsqueeze", x[0], ints(*axes))
    for wide in (ints(3, 4), ints(2, 1, 4), ints(1), ints(3, 1)):
        check("Expand", numbers(3, 1), wide)
    for repeats in ((1, 2, 3), (0, 1, 1), (2, 1, 1)):
        check("Tile", x, ints(*repeats))


def test_slices() -> None:
    x = numbers(5, 3, 7)
    for _ in range(20):
        check("Slice", x, some_starts(), some_ends(), some_axes(3, 2), RNG.choice([-3, -2, -1, 1, 2, 5], 2))
    far = np.iinfo(I64)
    check("Slice", x, ints(0), ints(far.max))
    check("Slice", x, ints(far.max), ints(far.min), ints(-1), ints(-1))
    check("Slice", x, ints(-2), ints(far.max), ints(2), ints(far.max))


@pytest.mark.parametrize("align_corners", [0, 1])
def test_grids(align_corners: int) -> None:
    for theta, size in (
        (numbers(2, 2, 3), (2, 5, 3, 4)),
        (numbers(1, 3, 4), (1, 2, 3, 2, 5)),
        (numbers(0, 2, 3), (0, 1, 2, 2)),
    ):
        check("AffineGrid", theta, ints(*size), align_corners=align_corners)


def test_splits() -> None:
    for sizes in ((2, 3, 1), (0, 6, 0), (6, 0, 0)):
        check("Split", numbers(2, 6), ints(*sizes), axis=1, outputs=3)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_margins(mode: str) -> None:
    x = numbers(3, 4)
    for _ in ROUNDS:
        check("Pad", x, RNG.integers(0, 3, 4), mode=mode)
        check("Pad", x, RNG.integers(0, 3, 2), np.array(9, F32), some_axes(2, 1), mode=mode)
    for wide in (5, 13):  # folded more than once
        check("Pad", x, ints(wide, 0, 1, wide), mode=mode)
    if mode == "constant":
        (got,) = run(imported("Pad", [x, ints(-1, 2, -1, -3)]), feeds_of([x, ints(-1, 2, -1, -3)]))
        np.testing.assert_array_equal(got, np.pad(x[1:2, :1], ((0, 0), (2, 0))))


def test_searches() -> None:
    x = numbers(3, 5)
    for k in (0, 1, 4, 5):
        check("TopK", x, ints(k), outputs=2)
    for k in (-7, -1, 0, 2, 9):
        check("Trilu", x, np.array(k, I64), upper=1)
        check("Trilu", x, np.array(k, I64), upper=0)
    for axis in (-2, -1, 0, 1):
        check("CumSum", x, np.array(axis, np.int32), exclusive=1, reverse=1)
    for depth in (np.array(4, I64), np.array(3.0, F32), np.array(6, np.int32)):
        check("OneHot", ints(0, 3, -1), depth, numbers(2))


def test_ranges() -> None:
    for bounds in ((0, 10, 3), (5, -4, -2), (3, 3, 1), (0, -5, 1)):
        check("Range", *(np.array(b, I64) for b in bounds))
        check("Range", *(np.array(b, F32) for b in bounds))
    check("Range", *(np.array(b, np.float64) for b in (1.0, 2.05, 0.1)))
    check("ConstantOfShape", ints(2, 0, 3))


def test_signals() -> None:
    for size in (1, 2, 10):
        for op in ("HannWindow", "BlackmanWindow"):
            check(op, np.array(size, I64), periodic=size % 2)
    x = numbers(2, 8, 5, 1)
    for axis in (1, 2, -2):
        for inverse in (0, 1):
            check("DFT", x, np.array(6, I64), np.array(axis, I64), inverse=inverse)
        check("DFT", x, None, np.array(axis, I64), onesided=1)
    for step in (1, 3):
        check("STFT", numbers(1, 16, 1), np.array(step, I64), numbers(6), np.array(6, I64))


def test_columns_to_images() -> None:
    check("Col2Im", numbers(1, 4, 9), ints(4, 4), ints(2, 2))
    check("Col2Im", numbers(1, 3, 16), ints(4, 6), ints(1, 3))


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resizes(mode: str) -> None:
    x = numbers(1, 2, 5, 6)
    for scale in (0.6, 1.0, 2.0, 1.7):
        check("Resize", x, None, np.array([1, 1, scale, 2], F32), mode=mode)
    for transform in ("align_corners", "asymmetric", "half_pixel"):
        check("Resize", x, None, None, ints(1, 2, 3, 9), mode=mode, coordinate_transformation_mode=transform)
        check("Resize", x, None, None, ints(1, 2, 1, 6), mode=mode, coordinate_transformation_mode=transform)
    for policy in ("not_larger", "not_smaller"):
        options: dict[str, Any] = {"mode": mode, "axes": [2, 3], "keep_aspect_ratio_policy": policy}
        check("Resize", x, None, None, ints(7, 8), **options)
    roi = np.array([0.2, 0.31, 0.7, 0.92], F32)
    crop: dict[str, Any] = {"mode": mode, "axes": [2, 3], "coordinate_transformation_mode": "tf_crop_and_resize"}
    check("Resize", x, roi, None, ints(4, 3), **crop)
    if mode != "nearest":
        check("Resize", x, None, np.array([1, 1, 0.6, 0.4], F32), mode=mode, antialias=1)
        check("Resize", x, None, None, ints(1, 2, 3, 6), mode=mode, antialias=1)


BAD: list[tuple[str, list[Array], dict[str, Any]]] = [
    ("ReduceSum", [numbers(2, 3), ints(2)], {}),
    ("ReduceSum", [numbers(2, 3), ints(0, -2)], {"keepdims": 0}),
    ("Reshape", [numbers(2, 3), ints(4, 2)], {}),
    ("Reshape", [numbers(2, 3), ints(-2, -3)], {}),
    ("Reshape", [numbers(2, 3), ints(-1, -1)], {}),
    ("Squeeze", [numbers(1, 3), ints(1)], {}),
    ("Unsqueeze", [numbers(3), ints(0, -3)], {}),
    ("Expand", [numbers(2, 3), ints(2, 2)], {}),
    ("Expand", [numbers(2, 1), ints(2, -1)], {}),
    ("Slice", [numbers(5), ints(0), ints(3), ints(0), ints(0)], {}),
    ("Slice", [numbers(5), ints(0), ints(3), ints(1)], {}),
    ("Split", [numbers(4), ints(-1, 5)], {"outputs": 2}),
    ("Split", [numbers(4), ints(1, 2)], {"outputs": 2}),
    ("Pad", [numbers(4), ints(-3, -2)], {}),
    ("Tile", [numbers(4), ints(-1)], {}),
    ("TopK", [numbers(4), ints(5)], {"outputs": 2}),
    ("TopK", [numbers(4), ints(-1)], {"outputs": 2}),
    ("CumSum", [numbers(4), ints(1)], {}),
    ("ConstantOfShape", [ints(2, -1)], {}),
    ("ConstantOfShape", [ints(1 << 40)], {}),
    ("Range", [np.array(b, I64) for b in (0, 5, 0)], {}),
    ("DFT", [numbers(1, 4, 1), np.array(4, I64), np.array(2, I64)], {}),
    ("STFT", [numbers(1, 8, 1), np.array(0, I64), numbers(4)], {}),
    ("Col2Im", [numbers(1, 4, 9), ints(4, 4), ints(3, 2)], {}),
]


def imported(op: str, operands: list[Array], **attributes: Any) -> Graph:
    return import_model(node_model(op, operands, **attributes).SerializeToString())


@pytest.mark.parametrize(("op", "operands", "attributes"), BAD)
def test_wrong_values_are_refused(op: str, operands: list[Array], attributes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"is not|shape|extent|element"):
        run(imported(op, operands, **attributes), feeds_of(operands))


def compiled(op: str, operands: list[Array], level: int, folder: Path, **attributes: Any) -> Model:
    torshc.compile(
        save(node_model(op, operands, **attributes), folder), folder / "m.tsc", opt_level=level, threads=1, jobs=1
    )
    return torshc.load(folder / "m.tsc", threads=1)


X = numbers(5, 3, 7)
RANGE = 8  # of the ends of a Slice


def some_starts() -> Array:
    """A start below the first element is clamped, where NumPy takes nothing when it walks down; none of these is."""
    return RNG.integers(-3, RANGE + 1, 2)


def some_ends() -> Array:
    return RNG.integers(-RANGE, RANGE + 1, 2)


GOOD: list[tuple[str, Callable[[int], list[Array]], dict[str, Any]]] = [
    ("ReduceSum", lambda _: [X, some_axes(3, 2)], {"keepdims": 0}),
    ("Slice", lambda _: [X, some_starts(), some_ends(), some_axes(3, 2), RNG.choice([-2, 1, 3], 2)], {}),
    ("Pad", lambda _: [X, RNG.integers(0, 9, 6)], {"mode": "reflect"}),
    ("Reshape", lambda k: [X, [ints(-1, 7), ints(0, 21), ints(35, -1)][k % 3]], {}),
    ("CumSum", lambda k: [X, np.array(k % 6 - 3, I64)], {}),
    ("TopK", lambda k: [X, ints(k % 8)], {"outputs": 2}),
]


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize(("op", "make", "attributes"), GOOD)
def test_compiled(
    op: str, make: Callable[[int], list[Array]], attributes: dict[str, Any], level: int, tmp_path: Path
) -> None:
    with compiled(op, make(0), level, tmp_path, **attributes) as model:
        for k in range(10):
            operands = make(k)
            wanted = check(op, *operands, **attributes)
            for got, want in zip(model.run(feeds_of(operands)).values(), wanted, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("op", "operands", "attributes"), [BAD[k] for k in (0, 4, 9, 11, 15, 20)])
def test_compiled_refuses_wrong_values(
    op: str, operands: list[Array], attributes: dict[str, Any], tmp_path: Path
) -> None:
    with (
        compiled(op, operands, 0, tmp_path, **attributes) as model,
        pytest.raises(TorshcError, match=r"shape|dimension"),
    ):
        model.run(feeds_of(operands))
