"""Sorts by digits on CUDA, on the emulator, against NumPy bit for bit; with small tiles, so that rows have several."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.expr import DTYPES, dim
from torshc.kernels.machine import Machine
from torshc.targets.gpu import topk
from torshc.targets.gpu.cuda import sort
from torshc.targets.gpu.cuda.target import CudaTarget

from ....support.kernels import Shape, op
from ....support.run_grid import GridProgram, needs_emulator, templates
from ...cpu.test_topk import DIMS, build, expected, hostile, same
from ..test_topk import check

pytestmark = needs_emulator

DIGIT = ["sort_count", "sort_starts", "sort_pass"]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """No row is short enough for other kernels, and a tile has 256 elements."""
    monkeypatch.setattr(topk, "MOST", 0)
    monkeypatch.setattr(topk, "WIDE", 0)
    monkeypatch.setattr(sort, "ITEMS", 1)
    monkeypatch.setattr(sort, "WIDE_ITEMS", 1)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "k", "axis", "tiles"),
    [((3, 20), 20, 1, 1), ((2, 1), 1, 1, 1), ((256,), 256, 0, 1), ((2, 257), 257, 1, 2), ((600, 2), 600, 0, 3),
     ((2, 700, 3), 5, 1, 3), (("a", "n"), 9, 1, 2), ((3, 512), 511, 1, 2)],
    ids=str,
)  # fmt: skip
def test_rows(shape: Shape, k: int, axis: int, tiles: int, largest: int) -> None:
    assert check(shape, k, axis, largest) == (["sort_pass"] if tiles == 1 else 4 * DIGIT)


@pytest.mark.parametrize(
    ("dtype", "digits"),
    [("f64", 8), ("f16", 2), ("bf16", 2), ("i64", 8), ("i32", 4), ("i16", 2), ("i8", 1), ("u64", 8), ("u32", 4),
     ("u8", 1)],
)  # fmt: skip
def test_types(dtype: str, digits: int) -> None:
    assert check((2, 300), 300, dtype=dtype) == check((2, 300), 300, largest=0, dtype=dtype) == digits * DIGIT
    assert check((2, 200), 200, dtype=dtype) == ["sort_pass"]


@pytest.mark.parametrize("n", [0, 1, 255, 256, 257, 1000])
def test_a_length_known_only_at_run_time(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DIMS, "n", n)
    assert check(("a", "n"), dim("n")) == 4 * DIGIT
    monkeypatch.setitem(DIMS, "k", n // 3)
    assert check((2, "n"), dim("k"), dtype="i8") == DIGIT


@pytest.mark.parametrize("number", [0.0, -0.0, np.nan, -np.inf, 2.5])
def test_equal_elements_stay_in_order(number: float) -> None:
    for largest in (0, 1):
        for size in (100, 600):
            program = GridProgram(build((1, size), size, 1, largest).graph)
            values, places = program.run(np.full((1, size), number, np.float32))
            same(values, np.full((1, size), number, np.float32))
            np.testing.assert_array_equal(places, [range(size)])


@pytest.mark.parametrize("items", [1, 2])
@pytest.mark.parametrize("order", ["reverse", "random:1", "random:2"])
def test_no_order_of_threads_shows(order: str, items: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    monkeypatch.setattr(sort, "ITEMS", items)
    check((2, 1200), 1200)
    check((1, 200), 200, dtype="i64")


@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("size", [200, 600])
def test_what_follows_is_stored_by_the_last_pass(size: int, output: int) -> None:
    """Only one of the results is read, by arithmetic."""
    m = build((2, size), size, 1, 1)
    node = m.graph.nodes[0]
    m.graph.outputs.clear()
    made = node.outputs[output]
    m.output(m.builder.one(op("Mul"), made, made))
    x = hostile([2, size])
    program = GridProgram(m.graph)
    assert templates(program) == (["sort_pass"] if size == 200 else 4 * DIGIT)
    wanted = expected(x, size)[output]
    np.testing.assert_array_equal(program.run(x)[0], wanted * wanted)


@pytest.mark.parametrize(("size", "dtype"), [(1500, "f32"), (4096, "f32"), (1000, "f64"), (2048, "f64")])
def test_rows_of_one_tile(size: int, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their threads have several elements, and their tiles fit what shared memory every block has."""
    monkeypatch.setattr(sort, "ITEMS", 16)
    monkeypatch.setattr(sort, "WIDE_ITEMS", 8)
    assert check((1, size), size, dtype=dtype) == ["sort_pass"]
    program = GridProgram(build((1, size + 4096), size, 1, 1, DTYPES[dtype]).graph)
    assert all(k.shared <= CudaTarget(Machine()).machine.device.shared for k in program.kernels)


def test_which_rows_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of which much is wanted."""
    monkeypatch.undo()
    assert check((1, 1000), 500) == check((1, 257), 257) == ["sort_pass"]
    assert check((1, 1000), 499) == check((1, 256), 256) == ["topk"]
    assert check((1, 200), 2, dtype="i64") == ["sort_pass"]
