"""TopK on devices of blocks, on the emulator, against NumPy bit for bit: NaN, ties, zeros of both signs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from torshc.expr import DTYPES, Expr, dim
from torshc.kernels.base import NoKernel
from torshc.kernels.machine import Machine
from torshc.targets.gpu import topk
from torshc.targets.gpu.cuda.target import CudaTarget

from ...support.kernels import Shape, sizes
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import number
from ..cpu.test_topk import DIMS, build, expected, hostile, same

pytestmark = needs_emulator


def check(shape: Shape, k: int | Expr, axis: int = -1, largest: int = 1, dtype: str = "f32") -> list[str]:
    x = hostile(sizes(shape, DIMS), DTYPES[dtype])
    program = GridProgram(build(shape, k, axis, largest, DTYPES[dtype]).graph, DIMS)
    values, places = program.run(x)
    wanted = expected(x, k if isinstance(k, int) else number(k, DIMS), axis, largest)
    same(values, wanted[0])
    np.testing.assert_array_equal(places, wanted[1])
    return templates(program)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "k", "axis"),
    [((3, 20), 4, 1), ((2, 5000), 7, 1), ((3, 130, 4), 130, 1), ((300, 2), 33, 0), (("a", "n"), 9, 1), ((5,), 1, 0)],
    ids=str,
)
def test_rows(shape: Shape, k: int, axis: int, largest: int) -> None:
    assert check(shape, k, axis, largest) == ["topk"]


@pytest.mark.parametrize("dtype", ["f16", "bf16", "i8", "u8", "i32", "u32"])
def test_types(dtype: str) -> None:
    assert check((2, 600), 33, dtype=dtype) == check((2, 600), 33, largest=0, dtype=dtype) == ["topk"]


def test_a_number_of_results_known_only_at_run_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check((2, 250), dim("k")) == ["topk"]
    assert check((2, 300), dim("k")) == ["sort_pass"]
    monkeypatch.setitem(DIMS, "k", 0)
    assert check((2, 250), dim("k")) == ["topk"]


@pytest.mark.parametrize("order", ["reverse", "random:1", "random:2"])
def test_no_order_of_threads_shows(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    check((3, 600), 40)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize(
    ("shape", "k", "axis"),
    [((3, 1000), 16, 1), ((1, 1000), 1, 1), ((1000,), 15, 0), ((2, 129, 3), 9, 1), ((2, 130), 10, 1)],
    ids=str,
)
def test_few_long_rows_are_searched_in_pieces(
    shape: Shape, k: int, axis: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pieces of 64 elements, the last of which has fewer than are wanted."""
    monkeypatch.setattr(topk, "PIECE", 64)
    assert check(shape, k, axis, largest) == ["topk", "topk"]
    check(shape, k, axis, largest, "i8")


def test_rows_that_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many rows, short ones, and those whose length or number is known only at run time."""
    monkeypatch.setattr(topk, "PIECE", 64)
    for shape in ((200, 300), (3, 127), (3, "n"), ("a", 300)):
        assert check(shape, 9) == ["topk"]


def test_what_counts() -> None:
    """Short rows of wide elements, and devices that do not count in shared memory; these not along long axes."""
    assert check((3, 20), 4, dtype="f64") == check((3, 20), 4, dtype="i64") == ["row", "row", "map"]
    plain = CudaTarget(Machine())
    plain.machine = replace(plain.machine, device=replace(plain.machine.device, counters=False))
    assert templates(GridProgram(build((3, 20), 4, 1, 1).graph, target=plain)) == ["row", "row", "map"]
    for size in (4097, "n"):
        with pytest.raises(NoKernel, match="TopK along"):
            GridProgram(build((2, size), 2, 1, 1).graph, DIMS, target=plain)
