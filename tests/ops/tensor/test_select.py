"""NonZero, Compress, Unique and NonMaxSuppression: their types, and their C functions against NumPy and onnx.

The C functions run under the sanitizers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx.reference.ops.op_non_max_suppression import NonMaxSuppression as Reference

from tests.support.seeded import seeded
from tests.templates.host_harness import BFLOAT, Array, Failed, Harness
from torshc.base.errors import ModelError
from torshc.expr import as_int
from torshc.formats import import_model
from torshc.graph import Graph

KINDS = ["f8", "f4", "f2", "bf16", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "bool", "O"]
SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 4), (1, 1, 1, 5), (40, 3)]
RNG = seeded(5)


@pytest.fixture(scope="module")
def host() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    assert harness.close() == 0


def test_gcc_compiles_them_without_warnings() -> None:
    assert Harness("gcc", sanitize=False).close() == 0


def some(kind: str, shape: tuple[int, ...]) -> Array:
    """Random elements, few different ones, with the ends of the type, NaN, infinities and both zeros."""
    if kind == "O":
        return RNG.choice(np.array(["", "a", "ab", "b", "\u00e9", "\U0001f600", "\uffff", "a\0"], object), shape)
    if kind == "bool":
        return RNG.random(shape) < 0.5
    dtype = BFLOAT if kind == "bf16" else np.dtype(kind)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return RNG.choice(np.array([0, 1, 2, ends.min, ends.max, ends.max - 1], dtype), shape)
    big = float(ml_dtypes.finfo(dtype).max)
    nan = np.array([np.nan, -np.nan, 0.0, -0.0, 1.0, -1.0, 1.5, -1.5, big, -big, np.inf, -np.inf, 2.0**-14]).astype(
        dtype
    )
    return RNG.choice(nan, shape)


def same(got: Array, want: Array) -> None:
    """Equal with the signs of zeros and with dtype and shape."""
    want = np.asarray(want)
    assert got.shape == want.shape
    if want.dtype == object:
        assert got.tolist() == want.tolist()
        return
    assert got.dtype == want.dtype
    a, b = (x.astype(np.float64) if x.dtype == BFLOAT else x for x in (got, want))
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        known = ~np.isnan(b)
        np.testing.assert_array_equal(np.signbit(a[known]), np.signbit(b[known]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_nonzero(host: Harness, kind: str, shape: tuple[int, ...]) -> None:
    x = some(kind, shape)
    set_ = np.asarray(x != ("" if kind == "O" else 0))
    want = np.stack(np.nonzero(set_)) if shape else np.zeros((0, int(set_)))
    same(host("t_op_nonzero", [x])[0], want.astype(np.int64))


@pytest.mark.parametrize("kind", ["f4", "bf16", "u1", "O"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_compress(host: Harness, kind: str, shape: tuple[int, ...]) -> None:
    x = some(kind, shape)
    for axis in (None, *range(len(shape))):
        length = x.size if axis is None else shape[axis]
        for given in (0, length // 2, length, length + 3):
            condition = RNG.random(given) < 0.6
            condition[length:] = False
            want = np.compress(condition[:length], x, axis)
            same(host("t_op_compress", [x, condition], [-1 if axis is None else axis])[0], want)


def test_a_condition_out_of_range_ends_a_run(host: Harness) -> None:
    with pytest.raises(Failed, match="holds at index 3 of a dimension of 3"):
        host("t_op_compress", [np.zeros(3, "f4"), np.ones(4, bool)], [0])


def unique(x: Array, axis: int | None, ascending: bool) -> list[Array]:
    """What Unique gives, by comparing all slices with all: slow, and as the operator's docstring says it."""
    rows = (
        x.reshape(-1, 1)
        if axis is None
        else np.moveaxis(x, axis, 0).reshape(x.shape[axis], math.prod(np.delete(x.shape, axis)))
    )

    def key(v: object) -> tuple[object, ...]:
        if isinstance(v, str):
            return (0, v)
        return (1, 0.0) if v != v else (0, v if isinstance(v, int) else float(v) + 0.0)

    keys = [tuple(key(v) for v in row) for row in rows.tolist()]
    first = {k: i for i, k in reversed(list(enumerate(keys)))}
    groups = sorted(first) if ascending else sorted(first, key=lambda k: first[k])
    number = {k: i for i, k in enumerate(groups)}
    places = np.array([first[k] for k in groups], np.int64)
    inverse = np.array([number[k] for k in keys], np.int64)
    counts = np.array([keys.count(k) for k in groups], np.int64)
    return [x.reshape(-1)[places] if axis is None else np.take(x, places, axis), places, inverse, counts]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [*SHAPES, (33, 2, 1)], ids=str)
def test_unique(host: Harness, kind: str, shape: tuple[int, ...]) -> None:
    x = some(kind, shape)
    for axis in (None, *range(len(shape))):
        for ascending in (True, False):
            n = [-1 if axis is None else axis, int(ascending)]
            for got, want in zip(host("t_op_unique", [x], n, 4), unique(x, axis, ascending), strict=True):
                same(got, want)
    same(host("t_op_unique", [x], [-1, 1])[0], unique(x, None, True)[0])


@pytest.mark.parametrize("kind", ["f4", "i8"])
def test_unique_of_many_as_numpy(host: Harness, kind: str) -> None:
    x = (RNG.standard_normal(50000) * 1000).astype(kind)
    for got, want in zip(host("t_op_unique", [x], [-1, 1], 4), np.unique(x, True, True, True), strict=True):
        np.testing.assert_array_equal(got, want)


def suppressed(*operands: Array | None, center: int = 0) -> Array:
    """onnx's reference."""
    boxes, scores, limit, ratio, least = operands
    limit, ratio = (np.zeros(0, k) if v is None else v for v, k in ((limit, "i8"), (ratio, "f4")))
    found: Array = Reference._run(Reference.__new__(Reference), boxes, scores, limit, ratio, least, center)[0]
    return found


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("counts", [(1, 1, 1), (2, 3, 20), (1, 2, 150), (0, 2, 3), (2, 0, 3), (2, 2, 0)], ids=str)
def test_non_max_suppression(host: Harness, center: int, counts: tuple[int, int, int]) -> None:
    batches, classes, count = counts
    boxes = RNG.integers(0, 12, (batches, count, 4)).astype("f4") / 4  # many that are equal, empty, at the threshold
    scores = RNG.integers(0, 9, (batches, classes, count)).astype("f4") / 8
    for limit in (1, 5, 1000):
        for ratio in (None, 0.0, 1 / 3, 0.5, 0.75, 1.0):
            for least in (None, 0.25, 2.0):
                operands = [boxes, scores, np.array([limit]), *(
                    None if v is None else np.array([v], "f4") for v in (ratio, least)
                )]  # fmt: skip
                same(host("t_op_non_max_suppression", operands, [center])[0], suppressed(*operands, center=center))


def test_suppression_without_a_limit_or_with_nan(host: Harness) -> None:
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, np.nan], [0, 0, 1, 1], [0, 0, np.inf, np.inf]]], "f4")
    scores = np.array([[[0.5, 0.9, np.nan, 0.1]]], "f4")
    for limit in (None, np.array(0), np.array(-3), np.zeros(0, "i8")):
        same(host("t_op_non_max_suppression", [boxes, scores, limit, None, None], [0])[0], np.zeros((0, 3), "i8"))
    got = host("t_op_non_max_suppression", [boxes, scores, np.array(9), np.array(0.5, "f4"), None], [0])[0]
    assert got.tolist() == [[0, 0, 1], [0, 0, 0], [0, 0, 3]]
    with pytest.raises(Failed, match="do not fit"):
        host("t_op_non_max_suppression", [boxes, scores[:, :, :2], np.array(9), None, None], [0])


def imported(op: str, *shapes: tuple[str, str], outputs: str = "y", attributes: str = "") -> Graph:
    """The graph of a node on inputs of these types and shapes."""
    names = [f"x{k}" for k in range(len(shapes))]
    inputs = ", ".join(f"{kind}[{dims}] {n}" for n, (kind, dims) in zip(names, shapes, strict=True))
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float y) {{'
    text += f"{outputs} = {op} {attributes} ({', '.join(names)}) }}"
    model = onnx.parser.parse_model(text)
    model.graph.output[0].ClearField("type")
    return import_model(model.SerializeToString())


def test_types() -> None:
    def shape(graph: Graph, k: int = 0) -> list[str]:
        out = graph.nodes[-1].outputs[k]
        return [str(as_int(d)) if as_int(d) is not None else "?" for d in out.shape]

    assert shape(imported("NonZero", ("float", "N, 4"))) == ["2", "?"]
    assert shape(imported("Compress", ("float", "5, 4"), ("bool", "4"), attributes="<axis=-1>")) == ["5", "?"]
    assert shape(imported("Compress", ("float", "5, 4"), ("bool", "4"))) == ["?"]
    graph = imported("Unique", ("float", "5, 4"), outputs="y, i, j, k", attributes="<axis=1>")
    assert [shape(graph, k) for k in range(4)] == [["5", "?"], ["?"], ["4"], ["?"]]
    graph = imported("Unique", ("float", "5, N"), outputs="y, i, j")
    assert graph.nodes[-1].outputs[2].shape[0] is graph.inputs[0].type.size
    assert shape(imported("NonMaxSuppression", ("float", "B, N, 4"), ("float", "B, C, N"))) == ["?", "3"]


def test_what_does_not_fit() -> None:
    with pytest.raises(ModelError, match="numbers of a box"):
        imported("NonMaxSuppression", ("float", "1, 2, 3"), ("float", "1, 1, 2"))
    with pytest.raises(ModelError, match="boxes of NonMaxSuppression"):
        imported("NonMaxSuppression", ("float", "1, 2, 4"), ("float", "1, 1, 3"))
    with pytest.raises(ModelError, match="out of range"):
        imported("Unique", ("float", "2"), attributes="<axis=1>")
    with pytest.raises(ModelError, match="by a condition"):
        imported("Compress", ("float", "2"), ("bool", "1, 2"))
