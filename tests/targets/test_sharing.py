"""What parts of an expression share is printed once, on every target: the text grows with its distinct parts.

Each case is a family of expressions whose paths double (or worse) with each step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support.compare import check
from tests.support.models import model, node
from torshc.expr import F32, I64, Expr, axis, call, cast, const, load, select, walk
from torshc.graph import Graph, TensorType
from torshc.kernels.base import Buffer, Store
from torshc.kernels.machine import Machine
from torshc.kernels.nest import MapKernel
from torshc.targets import find_target
from torshc.targets.gpu.grid import to_grid

ROW, COL = axis("i0", 64), axis("i1", 48)
TARGETS = ("c", "cuda", "metal")


def values(steps: int) -> Expr:
    x = load(0, (ROW * 48 + COL,), F32)
    for _ in range(steps):
        x = call("mul", call("exp", x), call("add", x, 0.5))
    return x


def walks(steps: int, start: Expr) -> Expr:
    """Walks down a tree: the next place from a comparison of what is read at this one."""
    place = load(1, (start,), I64)
    for _ in range(steps):
        goes = call("lt", load(0, (ROW * 48 + load(1, (place,), I64),), F32), load(0, (place,), F32))
        place = load(1, (place * 2 + cast(goes, I64),), I64)
    return cast(place, F32)


def arithmetic(steps: int) -> Expr:
    x = ROW * 48 + COL
    for k in range(steps):
        x = call("max", x % (1009 + k) * 3, x // 3)
    return load(0, (x,), F32)


def loads_in_values(steps: int) -> Expr:
    x = load(1, (COL,), I64)
    for k in range(steps):
        x = call("max", x // 3, load(1, (call("min", x, k),), I64))
    return cast(x, F32)


def both_sides(steps: int) -> Expr:
    x = load(0, (ROW * 48 + COL,), F32)
    for k in range(steps):
        x = select(call("lt", COL, ROW + k), call("exp", x), call("neg", x))
    return x


def one_side_each(steps: int) -> Expr:
    """As the two triangles of a matrix: what both read is looked at under one condition or under the other."""
    x = load(0, (ROW * 48 + COL,), F32)
    for k in range(steps):
        lower, upper = call("lt", COL, ROW + k), call("lt", ROW, 2 * COL + k)
        x = call("add", select(lower, x, const(0.0)), select(upper, call("neg", x), const(0.0)))
    return x


def choices_of_places(steps: int) -> Expr:
    x = ROW * 48 + COL
    for k in range(steps):
        x = select(call("lt", COL, ROW + k), load(1, (x,), I64), x // 3)
    return load(0, (x,), F32)


CASES: dict[str, Callable[[int], Expr]] = {
    "values": values,
    "walks over rows": lambda n: walks(n, COL),
    "walks of one place": lambda n: walks(n, const(0)),
    "index arithmetic": arithmetic,
    "loads in values": loads_in_values,
    "both sides of a choice": both_sides,
    "one side each of two": one_side_each,
    "choices of places": choices_of_places,
}


def printed(target: str, value: Expr, offset: Expr | None = None) -> str:
    graph = Graph("test")
    kinds = ((F32, False), (I64, False), (F32, True))
    data = [graph.new_value(TensorType(t, (const(64 * 48),))) for t, _ in kinds]
    kernel = MapKernel(
        buffers=tuple(Buffer(v, t, written) for v, (t, written) in zip(data, kinds, strict=True)),
        tasks=const(64),
        flops=const(0),
        nbytes=const(0),
        axes=(ROW, COL),
        stores=(Store(2, ROW * 48 + COL if offset is None else offset, value),),
        rows=1,
        chunk=64,
    )
    made = find_target(target)(Machine(8))
    return made.render(kernel if target == "c" else to_grid(kernel)).source


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_text_grows_with_distinct_parts(case: str, target: str) -> None:
    few, many = CASES[case](10), CASES[case](40)
    parts = len(list(walk(many))) - len(list(walk(few)))
    # C has the statements four times: whole and partial blocks. A part takes a name and a line or two.
    assert len(printed(target, many)) - len(printed(target, few)) < (4 if target == "c" else 1) * 120 * parts


@pytest.mark.parametrize("target", TARGETS)
def test_offsets_of_stores_share_too(target: str) -> None:
    place = call("min", arithmetic(40).args[0], 64 * 48 - 1)
    assert len(printed(target, load(0, (place,), F32), place)) < 40_000


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", ["values", "walks over rows", "walks of one place", "index arithmetic"])
def test_depth_is_no_depth_of_calls(case: str, target: str) -> None:
    assert len(printed(target, CASES[case](1100))) > 1100


@pytest.mark.parametrize("target", TARGETS)
def test_results(target: str, tmp_path: Path) -> None:
    """Triangles that are taken apart and put together again, and tables of tables."""
    nodes, last = [], "x"
    for k in range(5):
        nodes += [node("Trilu", last, f"l{k}", upper=0), node("Trilu", last, f"u{k}", upper=1)]
        nodes += [node("Add", f"l{k} u{k}", f"s{k}"), node("Concat", f"s{k} x", f"c{k}", axis=1)]
        nodes += [node("Slice", f"c{k} from to one", f"x{k}")]
        last = f"x{k}"
    nodes += [
        node("Gather", "table i", "first"),
        node("Gather", "table first", "second"),
        node("Gather", f"{last} second", "y"),
    ]
    x = np.arange(63, dtype=np.float32).reshape(7, 9)
    constants = {
        "from": np.array([2]),
        "to": np.array([11]),
        "one": np.array([1]),
        "table": np.array([3, 6, 0, 2, 5, 1, 4]),
    }
    made = model(nodes, {"x": [7, 9], "i": ("int64", [4])}, ["y", last], constants)
    feeds = {"x": x, "i": np.array([6, 0, -1, 2])}
    if target == "c":
        check(made, feeds, tmp_path)
        return
    with emulated_tools():
        check(made, feeds, tmp_path, target=target)


ANCHORS = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[h] a, float[w] b, int64[1] down, int64[1] right, float[4] t) => (float[r,4] y) {
        zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()
        column = Constant <value = int64[2] {-1, 1}> ()
        h = Shape(a)
        w = Shape(b)
        both = Concat <axis = 0> (h, w)
        rows = Squeeze(h)
        columns = Squeeze(w)
        i = Range(zero, rows, one)
        j = Range(zero, columns, one)
        below = Mul(i, down)
        beside = Mul(j, right)
        standing = Reshape(below, column)
        ys = Expand(standing, both)
        xs = Expand(beside, both)
        v = Reshape(ys, column)
        u = Reshape(xs, column)
        boxes = Concat <axis = 1> (u, v, u, v)
        moved = Cast <to = 1> (boxes)
        y = Add(moved, t)
    }"""


@pytest.mark.parametrize("target", ["c", "llvm"])
def test_a_load_that_several_sides_of_choices_share(target: str) -> None:
    """As torchvision anchors: two of four lanes read each step, under a condition that names a choice further in."""
    made = onnx.parser.parse_model(ANCHORS).SerializeToString()
    compiled = torshc.compile(made, target=target)
    for rows, columns in ((3, 5), (1, 1), (4, 0), (7, 16)):
        moves, steps = np.array([0.5, 1, 2, 3], np.float32), {"down": np.array([8]), "right": np.array([4])}
        feed = {"a": np.zeros(rows, np.float32), "b": np.zeros(columns, np.float32), "t": moves, **steps}
        down, right = np.meshgrid(np.arange(rows) * 8, np.arange(columns) * 4, indexing="ij")
        wanted = np.stack([right.ravel(), down.ravel()] * 2, 1).astype(np.float32) + moves
        np.testing.assert_array_equal(compiled.run(feed)["y"], wanted)
