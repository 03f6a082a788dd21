"""Reductions to one element in parts: values, special numbers, bits with several threads, and what stays whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import torshc
from tests.support.compare import reference
from tests.support.kernels import Maker
from tests.support.models import model, node
from tests.support.run_kernel import Program
from tests.support.seeded import seeded
from torshc.expr import DTYPES

RNG = seeded(13)
SIZES = [(64, 1024), (5, 3, 7, 1001), (1 << 17,)]
KINDS = {"ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod}


@pytest.fixture(scope="module")
def reduced() -> Any:
    nodes, inputs = [], {}
    for k, shape in enumerate(SIZES):
        inputs[f"x{k}"] = [*shape]
        nodes += [node(kind, f"x{k}", f"y{kind}{k}", keepdims=0) for kind in KINDS]
    made = model(nodes, inputs, [n.output[0] for n in nodes])
    with torshc.compile(made) as one, torshc.compile(made, threads=3) as three:
        yield one, three


@pytest.mark.parametrize("odd", [None, np.nan, -np.inf])
def test_values(odd: float | None, reduced: Any) -> None:
    feeds = {f"x{k}": RNG.uniform(0.999, 1.001, s).astype(np.float32) for k, s in enumerate(SIZES)}
    if odd is not None:
        for x in feeds.values():
            x.reshape(-1)[-2] = odd
    one, three = (loaded.run(feeds) for loaded in reduced)
    for k in range(len(SIZES)):
        for kind, function in KINDS.items():
            wanted = function(feeds[f"x{k}"].astype(np.float64))
            # Each factor rounds a product by up to 2^-24, in either direction: so many come to their root.
            rtol = 5 * feeds[f"x{k}"].size ** 0.5 * 2.0**-24 if kind == "ReduceProd" else 1e-5
            np.testing.assert_allclose(one[f"y{kind}{k}"], wanted, rtol=rtol)
            assert one[f"y{kind}{k}"].tobytes() == three[f"y{kind}{k}"].tobytes()


@pytest.mark.parametrize(("name", "shape", "tasks"), [
    ("f32", (64, 1024), [4, 1]),
    ("i64", (64, 1024), [4, 1]),
    ("f32", (64, 1023), [1]),  # 3 parts at most
    ("f32", (3, 1024), [1]),
    ("u8", (64, 1024), [1]),
    ("f32", ("n", 1024), [1]),
])  # fmt: skip
def test_parts(name: str, shape: tuple[Any, ...], tasks: list[int]) -> None:
    m = Maker()
    graph = m.output(m.add("ReduceMax", m.input(*shape, dtype=DTYPES[name]), axes=tuple(range(len(shape))), keepdims=0))
    assert [repr(k.tasks) for k in Program(graph, {"n": 64}).kernels] == [*map(str, tasks)]


@pytest.mark.parametrize("shape", [(4, 16384), (5, 3, 7, 1001)])
def test_what_follows_for_each_element(shape: tuple[int, ...]) -> None:
    """A third kernel, with what is the same for all elements from memory: bytes as ONNX's evaluator quantises them."""
    made = model([node("DynamicQuantizeLinear", "x", "y scale zero")], {"x": [*shape]}, ["y", "scale", "zero"])
    x = RNG.uniform(-3, 5, shape).astype(np.float32)
    wanted = dict(zip(["y", "scale", "zero"], reference(made, {"x": x}), strict=True))
    with torshc.compile(made) as one, torshc.compile(made, threads=3) as three:
        version = one._manifest.version
        assert version is not None and len(version.steps) == 3
        found, again = one.run({"x": x}), three.run({"x": x})
    for name, values in wanted.items():
        assert found[name].tobytes() == again[name].tobytes()
        # A number beside the middle of two bytes may go to either: x / scale is computed in another order there. The
        # scale is a difference and a quotient, two or three roundings of 6e-8.
        np.testing.assert_allclose(
            found[name].astype(np.float64), values.astype(np.float64), rtol=1e-6, atol=name == "y"
        )
        assert np.mean(found[name] != values) < 1e-3 or name == "scale"
