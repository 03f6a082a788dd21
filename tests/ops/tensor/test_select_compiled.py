"""Sizes and sequences known only at run time, compiled: between fused kernels, with nothing found, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import torshc
from tests.support.evaluate import Array
from tests.support.models import parsed, save
from tests.support.seeded import seeded
from torshc.base.errors import RunError
from torshc.runtime.model import Model

RNG = seeded(8)

FOUND = """
float[N, M] x, float[N] v => int64[2] y_shape, float[K] y_found, float[K] y_back, float[U] y_unique,
float[C, M] y_rows {
    one = Constant<value_ints=[-1]>()
    zero = Constant<value_float=0.0>()
    a = Relu(x)
    n = NonZero(a)
    again = NonZero(a)
    y_shape = Shape(again)
    t = Transpose(n)
    g = GatherND(x, t)
    h = Exp(g)
    s = ReduceSum<keepdims=0>(h)
    y_found = Div(h, s)
    u, first, inverse, counts = Unique<sorted=0>(v)
    y_unique = Neg(u)
    w = Gather(u, inverse)
    c = Greater(w, zero)
    rows = Compress<axis=0>(x, c)
    y_rows = Abs(rows)
    flat = Reshape(g, one)
    y_back = Sqrt(flat)
}"""
LISTS = """
float[N, M] x, int64[K] p, int64 i => seq(float[A, M]) y_all, float[L, M] y_at, float[B, M] y_back, int64 y_length {
    a = Neg(x)
    s = SplitToSequence(a, p)
    e = SequenceAt(s, i)
    y_at = Relu(e)
    t = SequenceErase(s, i)
    y_all = SequenceInsert(t, e, i)
    c = ConcatFromSequence<axis=0>(y_all)
    y_back = Neg(c)
    y_length = SequenceLength(t)
}"""


def compiled(text: str, folder: Path) -> tuple[onnx.ModelProto, Model]:
    inputs, rest = text.split("=>")
    outputs, body = rest.split("{", 1)
    model = parsed(f"({inputs}) => ({outputs}) {{ {body}")
    torshc.compile(save(model, folder), folder / "m.tsc", threads=1)
    return model, torshc.load(folder / "m.tsc", threads=2)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[onnx.ModelProto, Model]]:
    model, loaded = compiled(LISTS, tmp_path_factory.mktemp("lists"))
    with loaded:
        yield model, loaded


def same(model: onnx.ModelProto, loaded: Model, feeds: dict[str, Any]) -> None:
    """What a run gives is what the reference gives."""
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(model).run(None, feeds)
    for got, want in zip(loaded.run(feeds).values(), wanted, strict=True):
        pairs = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
        for g, w in pairs:
            assert g.shape == np.shape(w)
            np.testing.assert_allclose(g, w, rtol=1e-5)


def some(*shape: int) -> Array:
    return RNG.integers(-2, 3, shape).astype(np.float32)


def test_what_is_found(tmp_path: Path) -> None:
    model, loaded = compiled(FOUND, tmp_path)
    with loaded:
        for rows, columns in ((3, 4), (0, 4), (50, 7), (1, 1), (3, 4)):
            same(model, loaded, {"x": some(rows, columns), "v": some(rows)})


def test_lists(lists: tuple[onnx.ModelProto, Model]) -> None:
    for sizes, at in (([2, 5], 0), ([1, 2, 4], 1), ([0, 3, 4, 0], -2)):
        same(*lists, {"x": some(7, 3), "p": np.array(sizes), "i": np.array(at)})


@pytest.mark.parametrize(
    ("sizes", "at", "message"),
    [([2, 5], 2, "position 2 of a sequence of 2"), ([2, 4], 0, "add up to 6"), ([8, -1], 0, "a part has size -1")],
)
def test_places_that_do_not_exist(
    lists: tuple[onnx.ModelProto, Model], sizes: list[int], at: int, message: str
) -> None:
    with pytest.raises(RunError, match=message):
        lists[1].run({"x": some(7, 3), "p": np.array(sizes), "i": np.array(at)})
    same(*lists, {"x": some(7, 3), "p": np.array([4, 3]), "i": np.array(0)})  # and the next run is as ever


@pytest.mark.parametrize("named", [1, 2, 3, 4])
@pytest.mark.parametrize("axis", [None, 0])
def test_unique_with_results_left_out(named: int, axis: int | None, tmp_path: Path) -> None:
    names = ["y", "first", "inverse", "counts"][:named]
    attributes = {} if axis is None else {"axis": axis}
    node = helper.make_node("Unique", ["x"], names, **attributes)
    outputs = [helper.make_tensor_value_info(n, TensorProto.INT64, None) for n in names]
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, ["n", 2])]
    model = helper.make_model(
        helper.make_graph([node], "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    onnx.save(model, tmp_path / "m.onnx")
    torshc.compile(tmp_path / "m.onnx", tmp_path / "m.tsc")
    x = np.array([[1, 1], [0, 0], [1, 0], [1, 1]], np.int64)
    with torshc.load(tmp_path / "m.tsc") as loaded:
        got = loaded.run({"x": x})
    for name, wanted in zip(names, ReferenceEvaluator(model).run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(got[name], wanted)


def test_one_run_after_another() -> None:
    """Arrays as they lie and in other orders, lists, other sizes; between them what is refused."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 20]>
        g (int64[n, m] x, float[2] y) => (int64[2, k] found, float[2] z) { found = NonZero(x) z = Neg(y) }""")
    rng, y = np.random.default_rng(5), np.ones(2, np.float32)
    loaded = torshc.compile(model)
    for shape in ((3, 4), (1, 7), (0, 2), (3, 4)):
        x = rng.integers(0, 2, shape)
        for given in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2]):
            found = loaded.run({"x": given, "y": y})
            np.testing.assert_array_equal(found["found"], np.stack(np.nonzero(x)))
            found["found"][:] = found["z"][:] = 0  # an array of the caller's own
        with pytest.raises(RunError, match=r"shape|type"):
            loaded.run({"x": x.astype(np.float32) if shape[0] == 1 else x[0] if len(x) else x.reshape(-1), "y": y})
    np.testing.assert_array_equal(loaded.run({"x": x.tolist(), "y": y})["found"], np.stack(np.nonzero(x)))
    kept = loaded.run({"x": x, "y": y})["found"].copy(), loaded.run({"x": x, "y": y})["found"]
    loaded.run({"x": 1 - x, "y": y})
    np.testing.assert_array_equal(*kept)


SPREAD = 0x9E3779B97F4A7C15  # by which the library multiplies numbers to spread them over a table


@pytest.mark.parametrize("kind", ["INT64", "FLOAT"])
def test_unique_in_the_order_of_first_places(kind: str) -> None:
    """Few different numbers and many, none, and numbers of which all would come to the same place of the table."""
    model = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 20]>
        g ({kind.lower()}[n] x) => ({kind.lower()}[k] y, int64[k] first, int64[n] inverse,
        int64[k] counts) {{ y, first, inverse, counts = Unique<sorted=0>(x) }}""")
    dtype, rng = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, kind)), np.random.default_rng(3)
    given = [rng.integers(-9, 9, n).astype(dtype) for n in (0, 1, 2, 3, 1000)]
    given.append(rng.permutation(5000).astype(dtype))
    if kind == "INT64":
        keys = [pow(SPREAD, -1, 1 << 64) * k % (1 << 64) ^ (1 << 63) for k in range(3000)]
        given.append(np.array(keys, np.uint64).view(np.int64).repeat(2))
    else:
        given.append(np.array([np.nan, -0.0, 0.0, 1, np.nan, -np.nan, 1, np.inf], np.float32))
    loaded = torshc.compile(model)
    for x in given:
        y, first, inverse, counts = (loaded.run({"x": x})[name] for name in ("y", "first", "inverse", "counts"))
        _, places, which, many = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(places)
        np.testing.assert_array_equal(first, places[order])
        np.testing.assert_array_equal(counts, many[order])
        np.testing.assert_array_equal(inverse, np.argsort(order)[which])
        np.testing.assert_array_equal(y, x[first])
