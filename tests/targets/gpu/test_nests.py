"""Reductions on devices of blocks, on the emulator, against NumPy: along any axes, whole and in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import BOOL, F16, F32, F64, I32, DType, as_int, const, walk
from torshc.graph import Graph
from torshc.kernels.machine import Device, Machine
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.targets.gpu import nests
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.gpu.grid import GridColumns, GridMap, GridRow

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import close

pytestmark = needs_emulator
RNG = seeded(13)
EPSILON = np.array(1e-3, np.float32)
DIMS = {"b": 3, "s": 70, "c": 5}

# Shape, axes of the sum, templates that are expected.
SUMS: list[tuple[Shape, tuple[int, ...], str]] = [
    ((40, 64), (0,), "columns"),
    ((300, 3), (0,), "columns"),
    ((45, 1000), (0,), "columns"),
    ((3, 50, 36), (1,), "columns"),
    ((3, 7, 9, 5), (1, 2), "columns"),
    ((31, 64), (0,), "row"),
    (("b", "s", 20), (1,), "columns"),
    (("s", "c"), (0,), "columns"),
    ((2100, 64), (0,), "columns row"),
    ((3301, 5), (0,), "columns row"),
    ((2, 2700, 12), (1,), "columns row"),
    ((2100, 33), (0,), "columns row"),
    ((33000,), (0,), "row row"),
    ((2, 33001), (1,), "row row"),
    ((0, 64), (0,), "row"),
    ((64, 0), (0,), "columns"),
]


def target(units: int = 32) -> CudaTarget:
    """CUDA's, for a device of some multiprocessors."""
    made = CudaTarget(Machine())
    made.machine = Machine(device=Device(units=units))
    return made


@pytest.mark.parametrize(("shape", "axes", "expected"), SUMS, ids=str)
def test_sum(shape: Shape, axes: tuple[int, ...], expected: str) -> None:
    m = Maker()
    y = m.add("ReduceSum", m.input(*shape), axes=axes, keepdims=False)
    program = GridProgram(m.output(y), DIMS, target())
    assert " ".join(templates(program)) == expected
    x = random(RNG, sizes(shape, DIMS))
    (found,) = program.run(x)
    close(found, x.sum(axes, dtype=np.float64))


@pytest.mark.parametrize("dtype", [F16, F64, I32], ids=str)
@pytest.mark.parametrize("shape", [(300, 12), (6001, 3)], ids=str)
def test_sum_of_other_types(dtype: DType, shape: Shape) -> None:
    m = Maker()
    y = m.add("ReduceSum", m.input(*shape, dtype=dtype), axes=(0,), keepdims=False)
    x = random(RNG, sizes(shape, DIMS), np.int32 if dtype is I32 else np.float32).astype(dtype.numpy)
    (found,) = GridProgram(m.output(y), DIMS, target()).run(x)
    # A sum in f32 is rounded once to f16: half a unit in the last place of values below 256.
    np.testing.assert_allclose(
        found.astype(np.float64), x.astype(np.float64).sum(0), atol=0.07 if dtype is F16 else 1e-4
    )


@pytest.mark.parametrize("rows", [60, 3000])
def test_greatest_is_nan_where_there_is_one(rows: int) -> None:
    m = Maker()
    y = m.add("ReduceMax", m.input(rows, 6), axes=(0,), keepdims=True)
    x = random(RNG, (rows, 6))
    x[rows // 2, 1], x[:, 2] = np.nan, -np.inf
    (found,) = GridProgram(m.output(y), DIMS, target()).run(x)
    np.testing.assert_array_equal(found, x.max(0, keepdims=True))


def test_truth_values_in_pieces() -> None:
    m = Maker()
    y = m.add("ReduceMax", m.input(3000, 6, dtype=BOOL), axes=(0,), keepdims=False)
    x = np.zeros((3000, 6), bool)
    x[[3, 700, 2999], [0, 2, 5]] = True
    program = GridProgram(m.output(y), DIMS, target())
    assert templates(program) == ["columns", "row"]
    np.testing.assert_array_equal(program.run(x)[0], x.any(0))


def softmax(m: Maker, shape: Shape, axis: int) -> Graph:
    """Written out, as passes leave it."""
    x = m.input(*shape)
    above = m.add("Exp", m.add("Sub", x, m.add("ReduceMax", x, axes=(axis,), keepdims=True)))
    return m.output(m.add("Div", above, m.add("ReduceSum", above, axes=(axis,), keepdims=True)))


SOFTMAX: list[tuple[Shape, int, str]] = [
    ((50, 12), 0, "columns"),
    ((2, 40, 9), 1, "columns"),
    ((9000, 5), 0, "columns row columns row map"),
    ((40000,), 0, "row row row row map"),
]


@pytest.mark.parametrize(("shape", "axis", "expected"), SOFTMAX, ids=str)
def test_softmax(shape: Shape, axis: int, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nests, "LARGE", 1000)
    program = GridProgram(softmax(Maker(), shape, axis), DIMS, target())
    assert " ".join(templates(program)) == expected
    x = random(RNG, sizes(shape, DIMS))
    above = np.exp(x - x.max(axis, keepdims=True), dtype=np.float64)
    found = []
    for order in ("forward", "reverse", "random:1"):
        monkeypatch.setenv("T_EMULATE_ORDER", order)
        found += program.run(x)
    close(found[0], above / above.sum(axis, keepdims=True))
    assert all((f == found[0]).all() for f in found)


KEPT: list[tuple[Shape, int]] = [
    ((32, 4), 0),
    ((33, 65), 0),
    ((2, 40, 36), 1),
    (("b", 129, 36), 1),
    ((2, 100, 300), 1),
    ((1000, 64), 0),
    ((3, 1024, 7), 1),
    ((2048, 12), 0),
]


@pytest.mark.parametrize("dtype", [F32, F16], ids=str)
@pytest.mark.parametrize("elements", [False, True])
@pytest.mark.parametrize(("shape", "axis"), KEPT, ids=str)
def test_columns_that_are_needed_again_stay_in_registers(
    shape: Shape, axis: int, elements: bool, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each element is read once: what a variance, and a norm with a scale for each place, need of it later is kept."""
    m = Maker()
    row: Shape = tuple(d if k == axis else 1 for k, d in enumerate(shape))
    x, scale = m.input(*shape, dtype=dtype), m.input(*row)
    wide = m.add("Cast", x, to=F32) if dtype is F16 else x
    off = m.add("Sub", wide, m.add("ReduceMean", wide, axes=(axis,), keepdims=True))
    variance = m.add("ReduceMean", m.add("Mul", off, off), axes=(axis,), keepdims=True)
    norm = m.add("Mul", m.add("Div", off, m.add("Sqrt", variance)), scale)
    program = GridProgram(m.output(norm if elements else variance), DIMS, target())
    (kernel,) = program.kernels
    assert isinstance(kernel, GridColumns) and kernel.steps and kernel.kept
    a, s = random(RNG, sizes(shape, DIMS)).astype(dtype.numpy), random(RNG, sizes(row, DIMS))
    exact = a.astype(np.float64)
    wanted = exact.var(axis, keepdims=True)
    if elements:
        wanted = (exact - exact.mean(axis, keepdims=True)) / np.sqrt(wanted) * s
    for order in ("forward", "random:3"):
        monkeypatch.setenv("T_EMULATE_ORDER", order)
        close(program.run(a, s)[0], wanted)


@pytest.mark.parametrize(("shape", "axis", "template"), [((45, 12), 0, "columns"), ((12, 45), 1, "row")], ids=str)
def test_what_lies_outside_of_memory_is_not_kept(shape: Shape, axis: int, template: str) -> None:
    """Two choices by place share a load, which neither makes in the margin."""
    m = Maker()
    x, low = m.input(*shape), m.input()
    margins = {"before": (const(3), const(5)), "after": (const(2), const(3))}
    highest = m.add("ReduceMax", m.add("Pad", x, low, **margins), axes=(axis,), keepdims=True)
    program = GridProgram(m.output(m.add("Sub", m.add("Pad", x, **margins), highest)), DIMS, target())
    assert templates(program) == [template]
    a = random(RNG, sizes(shape, DIMS))
    wide = np.pad(a, ((3, 2), (5, 3)), constant_values=-9)
    (found,) = program.run(a, np.array(-9, np.float32))
    np.testing.assert_array_equal(found, np.pad(a, ((3, 2), (5, 3))) - wide.max(axis, keepdims=True))


def test_columns_of_infinities_and_nan() -> None:
    x = random(RNG, (70, 9))
    x[3, 1], x[:, 2], x[5, 3], x[69, 4] = np.nan, -np.inf, np.inf, -np.inf
    (found,) = GridProgram(softmax(Maker(), (70, 9), 0), DIMS, target()).run(x)
    with np.errstate(invalid="ignore"):
        above = np.exp(x - x.max(0))
        np.testing.assert_allclose(found, above / above.sum(0), 1e-5)


@pytest.mark.parametrize("shape", [("s", 12), (5000, 12)], ids=str)
def test_columns_that_do_not_fit_are_read_again(shape: Shape) -> None:
    program = GridProgram(softmax(Maker(), shape, 0), DIMS, target())
    (kernel,) = program.kernels
    assert isinstance(kernel, GridColumns) and not kernel.steps and not kernel.kept
    x = random(RNG, sizes(shape, DIMS))
    above = np.exp(x - x.max(0), dtype=np.float64)
    close(program.run(x)[0], above / above.sum(0))


def test_what_stands_around_a_sum_in_pieces() -> None:
    """Elements are computed before, several things of the sum after, one with an element for each of a row's."""
    m = Maker()
    x, w = m.input(9000, 6), m.input(6)
    total = m.add("ReduceSum", m.add("Mul", x, x), axes=(0,), keepdims=True)
    row = m.add("Sqrt", m.add("Add", total, w))
    program = GridProgram(m.output(row, m.add("Div", x, row)), DIMS, target())
    assert templates(program) == ["columns", "row", "map"]
    a, b = random(RNG, (9000, 6)), np.abs(random(RNG, (6,)))
    norm = np.sqrt((a.astype(np.float64) ** 2).sum(0, keepdims=True) + b)
    found = program.run(a, b)
    close(found[0], norm)
    close(found[1], a / norm)


def test_a_layout_with_channels_last_reads_rows_of_memory() -> None:
    m = Maker()
    x = m.input(1, 12, 76, 76, layout=(0, 2, 3, 1))
    program = GridProgram(m.output(m.add("ReduceMean", x, axes=(2, 3), keepdims=True)), DIMS, target())
    assert templates(program) == ["columns", "row"]
    a = random(RNG, (1, 12, 76, 76))
    close(program.run(a)[0], a.mean((2, 3), keepdims=True, dtype=np.float64))


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((2**20, 64), 0), ((2**26,), 0), ((16384, 4096), 0), ((32, 12544, 64), 1)],
    ids=str,
)
def test_large_sums_keep_a_large_device_busy(shape: tuple[int, ...], axis: int) -> None:
    """Every multiprocessor has blocks, all blocks as much work, and what joins pieces little beside it."""
    m = Maker()
    graph = m.output(m.add("ReduceSum", m.input(*shape), axes=(axis,), keepdims=False))
    first, second = planned(graph, units=132)
    assert isinstance(first, GridRow | GridColumns)
    blocks, count = number(first.tasks), number(first.piece.args[0])
    wanted = nests.SCARCE if isinstance(first, GridRow) else nests.COLUMN_BLOCKS
    assert blocks * 32 >= 132 * wanted * 31  # 16 whole rounds of a block's threads do what 15.5 would
    assert (count - 1) * first.length < shape[axis] <= count * first.length
    assert first.packet == 4 and number(second.flops) * 16 < np.prod(shape)


@pytest.mark.parametrize(("dtype", "count", "unroll"), [(F32, 1, 8), (F32, 2, 4), (F16, 2, 8)], ids=str)
def test_columns_of_few_bytes_are_read_further_ahead(dtype: DType, count: int, unroll: int) -> None:
    """Small images: pieces are as short as what is read at once, so that every multiprocessor has some."""
    m = Maker()
    x, *others = (m.input(3136, 960, dtype=dtype) for _ in range(count))
    x = m.add("Mul", x, *others) if others else x
    first, *_ = planned(m.output(m.add("ReduceSum", x, axes=(0,), keepdims=False)), units=132)
    assert isinstance(first, GridColumns) and (first.packet, first.unroll) == (4, unroll)
    assert unroll * first.turns <= first.length and number(first.tasks) >= 132 * 2


@pytest.mark.parametrize(("rows", "channels"), [(802816, 64), (50176, 128), (3136, 2048), (3136, 512), (96 * 9, 4096)])
def test_threads_of_columns_read_a_whole_number_of_times(rows: int, channels: int) -> None:
    """Each element of a rest is waited for alone; pieces have none, and columns that stay whole as few as may be."""
    m = Maker()
    graph = m.output(m.add("ReduceSum", m.input(rows, channels, dtype=F16), axes=(0,), keepdims=False))
    first, *_ = planned(graph, units=132)
    assert isinstance(first, GridColumns)
    each = (first.length or rows) // first.turns
    assert each % first.unroll == 0 and 3 <= first.unroll <= 8
    assert number(first.tasks) >= 132 // 2


@pytest.mark.parametrize(("shape", "axis"), [((5, 300), 1), ((300, 8), 0), ((300, 7), 0)])
def test_what_follows_sums_is_read_before_them(shape: tuple[int, int], axis: int) -> None:
    """So that both come together."""
    m = Maker()
    x, gain, shift = m.input(*shape), m.input(shape[1 - axis]), m.input(1)
    total = m.add("ReduceSum", x, axes=(axis,), keepdims=False)
    graph = m.output(m.add("Add", m.add("Mul", total, gain), shift))
    program = GridProgram(graph)
    (kernel,) = program.kernels
    source = program.target.render(kernel).source
    assert source.index("early1") < source.index("a0 = 0.0f") < source.rindex("early1")
    a, g, b = (random(RNG, s) for s in (shape, (shape[1 - axis],), (1,)))
    close(program.run(a, g, b)[0], a.sum(axis, dtype=np.float64) * g + b)


def planned(graph: Graph, units: int) -> list[Any]:
    plan = make_plan(finalise(graph, Policy.of()))
    return [k for g in plan.groups for k in target(units).lower(graph, g, plan.storage)]


def number(e: Any) -> int:
    known = as_int(e)
    assert known is not None
    return known


@pytest.mark.parametrize("shape", [(26000, 12), (2, 90000)], ids=str)
def test_what_depends_on_a_row_alone_is_computed_once(shape: Shape) -> None:
    """Of a normalisation whose sums are in pieces, elements take a factor and a summand."""
    m, axis = Maker(), 0 if shape[1] == 12 else 1
    columns = [1 if k == axis else d for k, d in enumerate(shape)]
    x, scale, bias = (m.input(*d) for d in (shape, columns, columns))
    mean, square = (m.add("ReduceMean", v, axes=(axis,), keepdims=True) for v in (x, m.add("Mul", x, x)))
    deviation = m.add("Sqrt", m.add("Add", m.add("Sub", square, m.add("Mul", mean, mean)), m.graph.constant(EPSILON)))
    factor = m.add("Div", scale, deviation)
    y = m.add("Add", m.add("Mul", x, factor), m.add("Sub", bias, m.add("Mul", mean, factor)))
    program = GridProgram(m.output(y), target=target())
    *_, elements = program.kernels
    assert isinstance(elements, GridMap) and len(elements.stores) == 1
    assert sorted(e.op for e in walk(elements.stores[0].value) if e.op not in ("axis", "const")).count("load") == 3
    assert not {"sqrt", "div"} & {e.op for e in walk(elements.stores[0].value)}
    given = [random(RNG, tuple(as_int(d) or 0 for d in v.shape)) for v in (x, scale, bias)]
    wide = given[0].astype(np.float64)
    normal = (wide - wide.mean(axis, keepdims=True)) / np.sqrt(wide.var(axis, keepdims=True) + 1e-3)
    close(program.run(*given)[0], normal * given[1] + given[2], 1e-4)
