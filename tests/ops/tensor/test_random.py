"""Random operators: the generator's published answers, distributions, and the same numbers however computed."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import torshc
from tests.support.compare import evaluated
from tests.support.evaluate import Array, run
from tests.support.models import model, save
from tests.support.nodes import given
from torshc.expr import U32
from torshc.formats import import_model
from torshc.ops.core.scalar import element
from torshc.ops.tensor.random import below, threefry

F32, F64 = np.float32, np.float64
node = helper.make_node


def drawn(op: str, *inputs: Array, **form: Any) -> list[Array]:
    """A node's outputs by the interpreter; operands after the first are constants."""
    return given(op, *inputs, fixed=tuple(range(1, len(inputs))), **form)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry(key: tuple[int, int], counter: tuple[int, int], words: tuple[int, int]) -> None:
    made = threefry(key, (element(counter[0], U32), element(counter[1], U32)))
    assert tuple(x.number for x in made) == words


def distance(sample: Array, cumulative: Any) -> float:
    """Kolmogorov's: the largest difference of the sample's distribution from a cumulative one, times sqrt(n)."""
    x = np.sort(np.asarray(sample, F64).reshape(-1))
    n = x.size
    wanted = np.asarray([cumulative(v) for v in x])
    return float(max(np.max(wanted - np.arange(n) / n), np.max(np.arange(1, n + 1) / n - wanted)) * math.sqrt(n))


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_uniform(dtype: int) -> None:
    (y,) = drawn("RandomUniform", shape=[100, 200], low=-1.0, high=3.0, seed=7.0, dtype=dtype)
    assert y.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    assert y.min() >= -1 and y.max() < 3
    assert abs(y.mean() - 1) < 4 / math.sqrt(12 * y.size) * 4
    assert abs(y.var() - 16 / 12) < 0.05
    assert distance(y, lambda v: (v + 1) / 4) < 1.63  # the 1 % bound
    assert abs(np.corrcoef(y[:, :-1].reshape(-1), y[:, 1:].reshape(-1))[0, 1]) < 0.03


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_normal(dtype: int) -> None:
    (y,) = drawn("RandomNormal", shape=[20000], mean=2.0, scale=0.5, seed=3.0, dtype=dtype)
    assert abs(y.mean() - 2) < 0.02 and abs(y.std() - 0.5) < 0.02
    assert distance(y, lambda v: 0.5 * (1 + math.erf((v - 2) / 0.5 / math.sqrt(2)))) < 1.63


def test_half() -> None:
    """Rounding does not reach the upper end."""
    (y,) = drawn("RandomUniform", shape=[5000], low=1.0, high=2.0, seed=1.0, dtype=TensorProto.FLOAT16)
    assert y.dtype == np.float16 and y.min() >= 1 and y.max() == np.nextafter(np.float16(2), np.float16(0))
    assert below(1.0, torshc.expr.F32) == np.nextafter(F32(1), F32(0))


def test_like_and_streams() -> None:
    x = np.zeros((3, 5), np.float16)
    nodes = [
        node("RandomUniformLike", ["x"], ["y_a"]),
        node("RandomUniformLike", ["x"], ["y_b"]),
        node("RandomUniformLike", ["x"], ["y_c"], seed=1.0),
        node("RandomUniformLike", ["x"], ["y_d"], seed=1.0),
        node("RandomNormalLike", ["x"], ["y_e"], dtype=TensorProto.DOUBLE),
    ]
    data = model(nodes, {"x": x}).SerializeToString()
    a, b, c, d, e = run(import_model(data), {"x": x})
    assert a.dtype == np.float16 and e.dtype == F64 and e.shape == (3, 5)
    assert not np.array_equal(a, b) and not np.array_equal(a, c)
    np.testing.assert_array_equal(c, d)
    np.testing.assert_array_equal(run(import_model(data), {"x": x})[0], a)


def test_bernoulli() -> None:
    chance = np.repeat(np.array([0.0, 0.25, 1.0], F32), 4000).reshape(3, 4000)
    (y,) = drawn("Bernoulli", chance, dtype=TensorProto.INT32, seed=5.0)
    assert y.dtype == np.int32 and set(np.unique(y)) == {0, 1}
    assert not y[0].any() and y[2].all() and abs(y[1].mean() - 0.25) < 0.03


def test_multinomial() -> None:
    weights = np.array([[0.1, 0.0, 0.2, 0.7, 0.0], [0.0, 0.5, 0.0, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        x = np.log(weights).astype(F32) + 3
    (y,) = drawn("Multinomial", x, sample_size=4000, seed=2.0, dtype=TensorProto.INT64)
    assert y.dtype == np.int64 and y.shape == (2, 4000)
    for row, wanted in zip(y, weights, strict=True):
        found = np.bincount(row, minlength=5)
        assert not found[wanted == 0].any()
        likely = wanted > 0
        assert np.sum((found[likely] - 4000 * wanted[likely]) ** 2 / (4000 * wanted[likely])) < 9.21  # 1 %, 2 degrees


def test_dropout() -> None:
    x = np.random.default_rng(0).uniform(1, 2, (50, 100)).astype(F32)
    y, mask = drawn("Dropout", x, np.asarray(0.25, F32), np.asarray(True), outputs=2, seed=1)
    assert mask.dtype == np.bool_ and abs(mask.mean() - 0.75) < 0.03
    np.testing.assert_allclose(y, np.where(mask, x / 0.75, 0), rtol=1e-6)
    y, mask = drawn("Dropout", x, np.asarray(1, F32), np.asarray(True), outputs=2)
    assert not y.any() and not mask.any()
    y, mask = drawn("Dropout", x, np.asarray(0.5, F32), np.asarray(False), outputs=2)
    assert mask.all() and np.array_equal(x, y)
    y, mask = drawn("Dropout", x, outputs=2, opset=6, ratio=0.5)
    assert mask.dtype == F32 and abs(mask.mean() - 0.5) < 0.03


MIXED = [
    node("RandomNormalLike", ["x"], ["noise"], seed=4.0, scale=0.5),
    node("Add", ["x", "noise"], ["noisy"]),
    node("Dropout", ["noisy", "ratio", "training"], ["y_kept", "y_mask"], seed=9),
    node("Relu", ["y_kept"], ["y_relu"]),
    node("Sigmoid", ["x"], ["chance"]),
    node("Bernoulli", ["chance"], ["y_coin"]),
    node("Multinomial", ["x"], ["y_class"], sample_size=9),
    node("RandomUniformLike", ["x"], ["y_double"], dtype=TensorProto.DOUBLE, low=-3.0, high=0.7),
    node("RandomNormalLike", ["x"], ["y_wide"], dtype=TensorProto.DOUBLE),
]


def test_same_numbers_everywhere(tmp_path: Path) -> None:
    """Compiled with and without fusion, with one thread and two, and interpreted."""
    inputs = {
        "x": np.random.default_rng(1).standard_normal((37, 300)).astype(F32),
        "ratio": np.asarray(0.3, F32),
        "training": np.asarray(True),
    }
    made = model(MIXED, inputs)
    path = save(made, tmp_path)
    wanted = evaluated(made, inputs)
    first: list[Array] = []
    for level, threads in ((3, 1), (3, 2), (0, 2)):
        out = tmp_path / f"{level}.tsc"
        if not out.exists():
            torshc.compile(path, out, opt_level=level, threads=2, jobs=1)
        with torshc.load(out, threads=threads) as loaded:
            got = list(loaded.run(inputs).values())
            again = list(loaded.run(inputs).values())
        for a, b in zip(got, again, strict=True):
            np.testing.assert_array_equal(a, b)
        first = first or got
        for a, b in zip(got, first, strict=True):
            np.testing.assert_array_equal(a, b)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
