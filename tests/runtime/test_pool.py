from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import torshc
from torshc.runtime.pool import KEPT, LARGE, MIDDLE, PAGE, PLACE, Pool

SHAPE = (LARGE // 4096, 1024)
F32 = np.dtype(np.float32)


def place(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


def test_memory_is_used_again_when_no_array_is_on_it() -> None:
    pool = Pool()
    x = pool.empty(SHAPE, F32)
    assert x.shape == SHAPE and x.dtype == F32 and x.flags.c_contiguous and x.flags.writeable and x.flags.aligned
    at, part = place(x), x[3:, 5].reshape(-1, 1)
    del x
    other = pool.empty(SHAPE, F32)
    assert place(other) != at, "a part of the array is there"
    del part
    assert place(pool.empty(SHAPE, F32)) == at
    assert place(pool.empty((SHAPE[0], 1000), np.dtype(np.int32))) != at, "too small to be kept in mind"


@pytest.mark.parametrize(("shape", "again"), [((SHAPE[0] * 2, 1024), True), ((SHAPE[0] * 3 // 4, 1024), False)])
def test_sizes_that_change(shape: tuple[int, int], again: bool) -> None:
    """A block serves half its size at the least; smaller arrays have memory of their own."""
    pool = Pool()
    at = place(pool.empty((SHAPE[0] * 2, 1024), F32))
    x = pool.empty(shape, F32)
    assert (place(x) == at) is again


def test_few_blocks_wait() -> None:
    pool = Pool()
    arrays = [pool.empty(SHAPE, F32) for _ in range(KEPT + 2)]
    places = [place(x.base) for x in arrays if x.base is not None]
    arrays.clear()
    assert len(pool._free) == KEPT and {place(b) for b in pool._free} <= {*places}
    pool.clear()
    assert not pool._free


def test_results_of_a_model(tmp_path: Path) -> None:
    """A result that is kept stays as it is; memory of one that is not serves the next run."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1024])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, list(SHAPE))
    shape = helper.make_tensor("s", TensorProto.INT64, [2], SHAPE)
    graph = helper.make_graph([helper.make_node("Expand", ["x", "s"], ["y"])], "g", [x], [y], [shape])
    model = torshc.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    assert isinstance(model, torshc.runtime.Model)
    kept = [model.run({"x": np.full((1, 1024), n, np.float32)})["y"] for n in range(3)]
    assert len({place(k) for k in kept}) == 3
    assert [float(k[5, 7]) for k in kept] == [0, 1, 2] and all(np.ptp(k) == 0 for k in kept)
    places = {place(k) for k in kept}
    kept.clear()
    gc.collect()
    assert place(model.run({"x": np.zeros((1, 1024), np.float32)})["y"]) in places


@pytest.mark.parametrize("dtype", ["u1", "f2", "f8"])
def test_arrays_of_some_size_begin_in_the_middle_of_a_page(dtype: str) -> None:
    pool, kind = Pool(), np.dtype(dtype)
    least = MIDDLE // 1000 // kind.itemsize
    for rows in range(least, least + 40):
        x, at = pool.maker((rows, 1000), kind)()
        assert x.shape == (rows, 1000) and x.dtype == kind and x.flags.writeable and x.flags.c_contiguous
        assert place(x) == at and (at % PAGE == PLACE or x.nbytes < MIDDLE)


@pytest.mark.parametrize("rows", [5, MIDDLE // 4096])
def test_memory_of_results_is_used_again_while_nobody_has_them(rows: int) -> None:
    make = Pool().maker((rows, 1024), F32)
    first, at = make()
    part = memoryview(first[3:, 5])
    del first
    second, other = make()
    assert place(second) == other != at, "a part of the first is there"
    del part
    assert make()[1] == at
    kept = [make() for _ in range(KEPT + 2)]
    assert len({place(x) for x, _ in kept}) == len(kept) and all(place(x) == at for x, at in kept)


@pytest.mark.parametrize("shape", [(), (0,), (LARGE // 4096, 1024)])
def test_places_of_results_of_any_size(shape: tuple[int, ...]) -> None:
    x, at = Pool().maker(shape, F32)()
    assert x.shape == shape and x.dtype == F32 and place(x) == at
