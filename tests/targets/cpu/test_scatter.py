"""Scatters as updates written one after the other: which axes run side by side, order, odd sizes, run-time sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import torshc
from tests.support.kernels import Maker
from tests.support.models import model, node, save
from tests.support.run_kernel import Program
from tests.support.seeded import seeded
from torshc.expr import F32, I64, const
from torshc.targets.cpu.scatter import ScatterKernel

RNG = seeded(11)
SHAPES: list[tuple[tuple[int, ...], int, tuple[int, ...]]] = [
    ((5,), 0, (9,)),
    ((4, 3), 1, (2, 5)),
    ((3, 4, 5), 1, (2, 6, 4)),
    ((6, 37), 0, (11, 37)),
    ((4, 3), 0, (0, 3)),
]


def expected(x: Any, places: Any, updates: Any, axis: int, add: bool) -> Any:
    out = x.copy()
    for p in np.ndindex(*places.shape):
        at = (*p[:axis], places[p], *p[axis + 1 :])
        out[at] = out[at] + updates[p] if add else updates[p]
    return out


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One model with all shapes, whose sizes only a run knows."""
    nodes, inputs, outputs = [], {}, []
    for k, (shape, axis, _) in enumerate(SHAPES):
        x, i = ([f"{n}{k}_{d}" for d in range(len(shape))] for n in "xi")
        inputs |= {f"x{k}": x, f"i{k}": ("int64", i), f"u{k}": i}
        for how in ("none", "add"):
            outputs.append(f"{how}{k}")
            nodes.append(node("ScatterElements", f"x{k} i{k} u{k}", outputs[-1], axis=axis, reduction=how))
    folder: Path = tmp_path_factory.mktemp("scatter")
    torshc.compile(save(model(nodes, inputs, outputs), folder), folder / "m.tsc")
    with torshc.load(folder / "m.tsc", threads=2) as loaded:
        yield loaded


def test_all_shapes(compiled: Any) -> None:
    """Whole numbers, whose sums are exact in f32; the last of several updates of an element wins."""
    feeds: dict[str, Any] = {}
    for k, (shape, axis, size) in enumerate(SHAPES):
        feeds[f"x{k}"] = RNG.integers(-9, 9, shape).astype(np.float32)
        feeds[f"u{k}"] = RNG.integers(-9, 9, size).astype(np.float32)
        feeds[f"i{k}"] = RNG.integers(-shape[axis], shape[axis], size)
    got = compiled.run(feeds)
    for k, (_, axis, _) in enumerate(SHAPES):
        x, u, i = (feeds[f"{n}{k}"] for n in "xui")
        np.testing.assert_array_equal(got[f"none{k}"], expected(x, i, u, axis, add=False))
        np.testing.assert_array_equal(got[f"add{k}"], expected(x, i, u, axis, add=True))


def test_nan_and_negative_zero_are_written_as_they_are(compiled: Any) -> None:
    feeds = {f"{n}{k}": np.zeros(s[0 if n == "x" else 2], np.float32) for k, s in enumerate(SHAPES) for n in "xu"}
    feeds |= {f"i{k}": np.zeros(s[2], np.int64) for k, s in enumerate(SHAPES)}
    feeds["u0"][-1] = -0.0
    assert np.signbit(compiled.run(feeds)["none0"][0])
    feeds["u0"][-1] = np.nan
    assert np.isnan(compiled.run(feeds)["none0"][0])


def test_halves_are_summed_in_f32(tmp_path: Path) -> None:
    """2,048 ones on 2048 in f16: one after the other each would be lost to rounding."""
    feeds = {"x": np.full(1, 2048, np.float16), "i": np.zeros(2048, np.int64), "u": np.ones(2048, np.float16)}
    made = model([node("ScatterElements", "x i u", "y", reduction="add")], feeds, "y")
    torshc.compile(save(made, tmp_path), tmp_path / "m.tsc")
    with torshc.load(tmp_path / "m.tsc") as loaded:
        assert loaded.run(feeds)["y"] == [4096]


@pytest.mark.parametrize("perm", [(1, 0), None], ids=str)
def test_results_that_lie_otherwise(perm: tuple[int, ...] | None) -> None:
    """A scatter fills its result and changes that in place; what turns it behind is no part of its kernel."""
    turn = node("Transpose", "s", "y", perm=perm) if perm else node("Flatten", "s", "y", axis=0)
    nodes = [node("ScatterND", "x i u", "s", reduction="add"), turn]
    shapes = {"x": ["n", 5], "i": ("int64", ["k", 1]), "u": ["k", 5]}
    x, u = (RNG.integers(-9, 9, s).astype(np.float32) for s in ((3, 5), (4, 5)))
    i = np.array([[0], [2], [0], [-1]])
    wanted = x.copy()
    np.add.at(wanted, i[:, 0], u)
    with torshc.compile(model(nodes, shapes, "y")) as loaded:
        got = loaded.run({"x": x, "i": i, "u": u})["y"]
    np.testing.assert_array_equal(got, wanted.T if perm else wanted.reshape(1, -1))


@pytest.mark.parametrize(("axis", "side_by_side"), [(1, False), (0, True)])
def test_indices_are_read_as_they_lie(axis: int, side_by_side: bool) -> None:
    """Along the innermost axis they follow each other; else those of a row are taken together."""
    m = Maker()
    x, u, i = (m.input(20, 30, dtype=d) for d in (F32, F32, I64))
    graph = m.output(m.add("ScatterElements", x, i, u, axis=axis))
    kernels = [k for k in Program(graph).kernels if isinstance(k, ScatterKernel)]
    assert [k.lane is not None for k in kernels] == [side_by_side]


def test_a_fill_of_one_number_is_not_read() -> None:
    m = Maker()
    zeros = m.add("Expand", m.constant(np.zeros((1, 1), np.float32)), shape=(const(20), const(30)))
    places, updates = m.input(20, 30, dtype=I64), m.input(20, 30)
    kernels = Program(m.output(m.add("ScatterElements", zeros, places, updates, axis=0))).kernels
    assert [len(k.buffers) for k in kernels] == [1, 3]


def test_a_fill_of_halves() -> None:
    fill = node("ConstantOfShape", "shape", "zeros", value=onnx.numpy_helper.from_array(np.full(1, 0.5, np.float16)))
    nodes = [fill, node("ScatterElements", "zeros i u", "y", axis=0)]
    inputs: dict[str, Any] = {"i": ("int64", [2, 200]), "u": ("float16", [2, 200])}
    made = model(nodes, inputs, "y", {"shape": np.array([200, 200])})
    feeds = {"i": RNG.integers(0, 200, (2, 200)), "u": np.ones((2, 200), np.float16)}
    wanted = expected(np.full((200, 200), 0.5, np.float16), feeds["i"], feeds["u"], 0, add=False)
    with torshc.compile(made) as loaded:
        np.testing.assert_array_equal(loaded.run(feeds)["y"], wanted)
