"""Kernels of rows and of points in C: what they ask for ahead, and what they compute ahead of their loops."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import DTYPES
from torshc.graph import Graph
from torshc.kernels.machine import Machine
from torshc.passes.policy import Policy
from torshc.targets.cpu import c
from torshc.targets.cpu.c import CTarget

from ...support.kernels import Maker, random
from ...support.run_kernel import Program, compilers, kind_of, kinds
from .test_picked import check, one
from .test_vector import MACHINES

RNG = seeded(3)
KINDS = ("points", "rows", "maxima", "columns")


def normalised(*shape: int | str, stages: int, dtype: str = "f32") -> Graph:
    """A row divided by its sum, or less its mean by the sum of what is left."""
    m = Maker()
    x = m.input(*shape, dtype=DTYPES[dtype])
    if stages == 2:
        x = m.add("Sub", x, m.add("ReduceMean", x, axes=(len(shape) - 1,)))
    return m.output(m.add("Div", x, m.add("ReduceL1", x, axes=(len(shape) - 1,))))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_a_row_asks_for_its_results_and_for_the_next_row(lanes: int, compiler: str, dtype: str) -> None:
    """Each line once, of the last row too, behind which memory must not be touched."""
    x = random(RNG, (2, 3, 256)).astype(DTYPES[dtype].numpy)
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    program = Program(normalised(2, 3, 256, stages=2, dtype=dtype), machine=machine, compiler=compiler)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    wanted = centred / np.abs(centred).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(program.run(x)[0], wanted, rtol=0, atol=1e-7 if dtype == "f32" else 3e-5)
    source = program.launches[0].source
    lines = max(4 * lanes * x.itemsize // 64, 1) if lanes > 1 else 0
    assert source.count("T_FETCH(") == source.count("T_FETCH_OUT(") == lines


@pytest.mark.parametrize(
    ("name", "dtype", "few"),
    [
        ("Exp", "f32", True), ("Sin", "f32", False), ("Mod", "f32", False), ("Mod", "i64", True), ("Mul", "i32", True),
        ("Mul", "f64", False), ("Mul", "f16", False), ("Mul", "u8", False),
    ],
)  # fmt: skip
def test_kernels_of_few_types_leave_out_the_functions_of_others(name: str, dtype: str, few: bool) -> None:
    m = Maker()
    x = m.input(9, 5, dtype=DTYPES[dtype])
    operands = [x] if name in ("Exp", "Sin") else [x, m.input(5, dtype=DTYPES[dtype])]
    options = {"fmod": 1} if (name, dtype) == ("Mod", "f32") else {}
    program = Program(
        m.output(m.add(name, *operands, **options)), machine=Machine(lanes=4, compiler=kind_of(compilers()[0]))
    )
    assert ("#define T_FEW_TYPES\n" in program.launches[0].source) == few


@pytest.mark.parametrize(
    ("row", "stages", "asks"), [(256, 2, True), (256, 1, False), (1 << 16, 2, False), ("n", 2, False)]
)
def test_rows_that_would_gain_nothing_ask_for_nothing(row: int | str, stages: int, asks: bool) -> None:
    machine = Machine(lanes=4, compiler=kind_of(compilers()[0]))
    program = Program(normalised(2, row, stages=stages), {"n": 256}, machine=machine)
    assert ("T_FETCH" in program.launches[0].source) == asks


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize(("rows", "row"), [(3, 20), (37, 16), (50, 70), (2, 300)])
def test_logarithms_of_sums_are_taken_of_several_rows_at_a_time(lanes: int, compiler: str, rows: int, row: int) -> None:
    x = random(np.random.default_rng(4), (rows, row))
    x[1] = -np.inf  # its sum is NaN, and no other row's
    m = Maker()
    less = m.add("Sub", v := m.input(rows, row), m.add("ReduceMax", v, axes=(1,)))
    graph = m.output(m.add("Sub", less, m.add("Log", m.add("ReduceSum", m.add("Exp", less), axes=(1,)))))
    program = Program(graph, machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
    with np.errstate(invalid="ignore"):
        wide = (x - x.max(axis=1, keepdims=True)).astype(np.float64)
    wanted = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(program.run(x)[0], wanted, rtol=0, atol=1e-6)
    assert ("all_f0" in program.launches[0].source) == (lanes > 1 and row <= 256)


def test_sums_that_only_round_are_taken_row_by_row() -> None:
    x = random(np.random.default_rng(5), (37, 16))
    m = Maker()
    v = m.input(37, 16)
    half = m.add("Cast", m.add("ReduceSum", v, axes=(1,)), to=DTYPES["f16"])
    program = Program(m.output(m.add("Sub", v, m.add("Cast", half, to=DTYPES["f32"]))), machine=Machine(lanes=8))
    wanted = x - x.sum(axis=1, keepdims=True).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(program.run(x)[0], wanted, rtol=0, atol=2.0**-7)  # from one half below 16 to the next
    assert "all_f0" not in program.launches[0].source


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "u8"])
@pytest.mark.parametrize(("outer", "row", "added"), [(1, 70, [4, 1]), (3, 24, [4]), (3, 70, [1]), (3, "n", [1])])
def test_sums_of_columns_take_many_in_one_pass(
    lanes: int, compiler: str, dtype: str, outer: int, row: int | str, added: list[int]
) -> None:
    """Sums lie in a part of the nearest cache, or in half of the registers; what is left is less than a vector.

    A chain of sums ends with its last row, so that rows of several axes are added one by one unless they fill it.
    """
    kind, length = DTYPES[dtype], 70 if row == "n" else int(row)
    narrow = min((16 if lanes == 16 else 8) * 4 // max(kind.size, 4) * lanes + lanes // 2, 250)
    for width in (1100 * 4 // kind.size + 3, narrow):
        x = random(RNG, (outer, 2, length, width), np.int8).astype(kind.numpy)
        if kind.is_float:
            x += random(RNG, x.shape, kind.numpy)
        x[..., -1] = x[..., 0]
        m = Maker()
        graph = m.output(m.add("ReduceSum", m.input(outer, 2, row, width, dtype=kind), axes=(0, 2), keepdims=False))
        machine = Machine(lanes=lanes, compiler=kind_of(compiler))
        program = Program(graph, {"n": length}, machine=machine, compiler=compiler)
        found, wanted = program.run(x)[0], x.sum(axis=(0, 2), dtype=x.dtype)
        # Terms are below 128. Two roundings of the largest sum: those of smaller ones go up and down.
        lost = 128 * outer * length * float(np.finfo(kind.numpy).eps) if kind.is_float else 0
        np.testing.assert_allclose(found, wanted, rtol=0, atol=lost)
        np.testing.assert_array_equal(found[:, 0], found[:, -1])
        passes = [int(n) for n in re.findall(r"for \(; r\d \+ (\d) <=", program.launches[0].source)]
        without_chains = [4] if row == 24 else [4, 1]
        assert passes == ([1] if width == narrow else added if dtype == "f32" else without_chains)


@pytest.mark.parametrize(("mode", "tasks"), [("nearest", 1), ("linear", 4)])
def test_elements_made_of_several_that_are_looked_up_have_smaller_tasks(mode: str, tasks: int) -> None:
    m = Maker()
    x, grid = m.input(1, 16, 32, 32), m.input(1, 32, 32, 2)
    sampled = m.add("GridSample", x, grid, mode=mode)
    (launch,) = Program(m.output(sampled)).launches
    assert launch.tasks == tasks


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_places_are_divided_ahead_of_the_loops(mode: str, lanes: int, compiler: str) -> None:
    """By sizes of a run, as align_corners does; over several tasks, which begin within rows of pixels."""
    graph = one(("n", "c", "h", "w"), (1, 2, 2, 1), mode=mode, transform="align_corners")
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    program = check(graph, machine, compiler, dims={"n": 2, "c": 9, "h": 37, "w": 40})
    (launch,) = program.launches
    assert launch.tasks > 2 and "t_idiv(" in launch.source
    innermost = launch.source[launch.source.index("for (; i3 ") :]
    assert "t_idiv(" not in innermost and "t_imod(" not in innermost


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize(("rows", "row"), [((3, 19), 9), ((2, 8), 64), ((37,), 70), (("n",), 33), ((2, "n"), 256)])
def test_short_rows_beside_each_other_are_summed_together(
    lanes: int, compiler: str, rows: tuple[int | str, ...], row: int
) -> None:
    """Whole numbers, so that sums are exact; a row that is not a number, and the same bits among fewer rows."""

    def graph() -> Graph:
        m = Maker()
        x, z, bias = m.input(*rows, row), m.input(row), m.input(rows[-1])
        d = m.add("Sub", x, z)
        total = m.add("ReduceSum", m.add("Mul", d, d), axes=(len(rows),), keepdims=False)
        return m.output(m.add("Add", m.add("Sqrt", total), bias))

    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    for n in (1, 21):
        program = Program(graph(), {"n": n}, machine=machine, compiler=compiler)
        assert ("t_hadd_rows_f32" in program.launches[0].source) == (lanes > 1 and rows[-1] not in range(lanes))
        shape = [n if d == "n" else int(d) for d in rows]
        a, b, c = (random(RNG, s, np.int8).astype(np.float32) for s in ([*shape, row], [row], shape[-1:]))
        a[-1, ..., 0] = np.nan
        wanted = np.sqrt(np.square(a - b).sum(axis=-1)) + c
        np.testing.assert_array_equal(program.run(a, b, c)[0], wanted)


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("points", [(40, 19), (3, 600), (70, 32), ("n", 33)])
def test_rows_that_all_points_read_stay_near(lanes: int, compiler: str, points: tuple[int | str, int]) -> None:
    """Distances of all from all: tasks begin and end within a point's rows, and hold several points."""
    m = Maker()
    apart = m.add("Sub", m.input(points[0], 1, 64), m.input(points[1], 64))
    graph = m.output(m.add("ReduceSum", m.add("Mul", apart, apart), axes=(2,), keepdims=False))
    program = Program(graph, {"n": 29}, machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
    a, b = (
        random(RNG, (n, 64), np.int8).astype(np.float32) for n in (29 if points[0] == "n" else points[0], points[1])
    )
    for shuffled in (False, True):
        found = program.run(a[:, None], b, shuffled=shuffled)[0]
        np.testing.assert_array_equal(found, np.square(a[:, None] - b).sum(axis=2))
    assert ("plane < high" in program.launches[0].source) == (lanes > 1)


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_of_short_rows_are_found_together(op: str, lanes: int, compiler: str) -> None:
    """Rows shorter and longer than a vector, numbers of both signs, infinities and what is not a number."""
    machine, find = Machine(lanes=lanes, compiler=kind_of(compiler)), getattr(np, op.removeprefix("Reduce").lower())
    for row in (9, 16, 33):
        m = Maker()
        program = Program(m.output(m.add(op, m.input(37, row), axes=(1,))), machine=machine, compiler=compiler)
        assert ("_rows_f32" in program.launches[0].source) == (lanes > 1)
        x = random(RNG, (37, row)) + RNG.choice([-9, 9], (37, 1)).astype(np.float32)
        x[3, -1], x[5, 1], x[6, 0] = np.nan, np.inf, -np.inf
        np.testing.assert_array_equal(program.run(x)[0], find(x, axis=1, keepdims=True))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("taps", [9, 33])
def test_rows_that_lie_side_by_side_are_summed_by_vectors_over_them(taps: int, lanes: int, compiler: str) -> None:
    """As gradients of a convolution's weights: taps lie apart in sums of parts, and beside each other in the result."""
    m = Maker()
    parts, moment = m.input(5, taps, 3, "n"), m.input(3, "n", taps)
    turned = m.add("Transpose", parts, perm=(0, 2, 3, 1))
    total = m.add("Sqrt", m.add("ReduceSum", turned, axes=(0,), keepdims=False))
    graph = m.output(m.add("Add", total, moment))
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    program = Program(graph, {"n": 37}, machine=machine, compiler=compiler)
    (launch,) = program.launches
    assert (" of_0[" in launch.source) == (lanes > 1)
    a, b = (RNG.integers(0, 99, s).astype(np.float32) for s in ((5, taps, 3, 37), (3, 37, taps)))
    np.testing.assert_array_equal(program.run(a, b)[0], np.sqrt(a.sum(axis=0).transpose(1, 2, 0)) + b)


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
def test_bits_of_a_row_do_not_depend_on_its_neighbours(lanes: int, compiler: str) -> None:
    def norms(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        m = Maker()
        graph = m.output(m.add("ReduceL2", m.input("n", 77), axes=(1,)))
        return Program(graph, {"n": len(a)}, machine=machine, compiler=compiler).run(a)[0]

    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    a = random(RNG, (45, 77))
    for first, last in ((0, 1), (7, 18), (30, 45)):
        np.testing.assert_array_equal(norms(a[first:last].copy()), norms(a)[first:last])


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize(
    "kind, size", [(k, n) for k in KINDS for n in (0, 1, 13, 16, 20, 64, 70, 80, 96) if n or k in KINDS[:3]]
)
def test_known_sizes_have_no_loop_that_never_runs(kind: str, size: int, lanes: int, compiler: str) -> None:
    """Whole vectors have a loop where the size holds one, and what is left a branch where it is no multiple of them."""
    m = Maker()
    x = random(RNG, (size, 3) if kind == "columns" else (3, size))
    v, axis = m.input(*x.shape), 1
    if kind == "points":
        graph, wanted = m.output(m.add("Abs", v)), np.abs(x)
    elif kind == "columns":
        graph, wanted = m.output(m.add("ReduceMax", m.add("Transpose", v, perm=(1, 0)), axes=(0,))), x.max(1)[None]
    elif kind == "maxima":
        graph = m.output(m.add("ReduceMax", v, axes=(axis,)))
        wanted = x.max(axis, keepdims=True, initial=-np.inf)
    else:
        graph, wanted = normalised(*x.shape, stages=1), x / np.abs(x).sum(axis, keepdims=True)
    program = Program(graph, machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
    np.testing.assert_allclose(program.run(x)[0], wanted, rtol=1e-5)
    source = program.launches[0].source if program.launches else ""
    if size and lanes > 1 and kind in ("rows", "maxima"):
        assert ("if (left > 0)" in source) == (size % lanes > 0)
        rest = size % (4 * lanes) if size >= 4 * lanes else size
        assert (f"r0 + {lanes} <= size" in source) == (rest >= lanes or (kind == "rows" and size >= lanes))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("columns", [32, 96, 144, 150, 272, 576])
def test_two_sums_of_columns_read_them_once(lanes: int, compiler: str, columns: int) -> None:
    """Several vectors of columns in a pass over long rows, whatever their number; what is left comes after them."""
    m, x = Maker(), random(RNG, (2, 40, columns))
    v, scale, factors = m.input(2, 40, columns), m.input(1, 1, columns), random(RNG, (1, 1, columns))
    scaled = m.add("Mul", m.add("Sub", m.add("Mul", v, scale), scale), v)
    sums = [m.add("ReduceSum", e, axes=(1,), keepdims=True) for e in (v, scaled)]
    limits = dataclasses.replace(Policy.of(), shared_rows=CTarget.shared_rows)
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    program = Program(m.output(*sums), machine=machine, compiler=compiler, limits=limits)
    assert kinds(program) == ["row"]
    source, vectors = program.launches[0].source, columns // lanes
    assert ("[u]" in source) == (lanes > 1 and vectors > 1)
    wide = x.astype(np.float64)
    for found, terms in zip(program.run(x, factors), (wide, (wide * factors - factors) * wide), strict=True):
        # A term is rounded three times, and forty sums of them are, each by 2^-24 of what they may come to.
        most = np.abs(terms).sum(axis=1).max() * 43 * 2.0**-24
        np.testing.assert_allclose(found, terms.sum(axis=1, keepdims=True), rtol=0, atol=most)


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("width", [3, 70])
def test_a_long_sum_of_columns_is_no_chain(lanes: int, compiler: str, width: int) -> None:
    """A chain of 9999 terms of one sign would be off by some 3e-6, as each is added to thousands."""
    m, x = Maker(), RNG.uniform(0, 1, (9999, width)).astype(np.float32)
    graph = m.output(m.add("ReduceSum", m.input("n", width), axes=(0,)))
    program = Program(graph, {"n": 9999}, machine=Machine(lanes=lanes, compiler=kind_of(compiler)), compiler=compiler)
    wanted = x.sum(0, dtype=np.float64)
    assert abs(program.run(x)[0].reshape(-1) / wanted - 1).max() < 1e-6


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("width", [19, 24, 48])
def test_results_that_no_cache_holds_go_past_it(
    lanes: int, compiler: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of maps and products, wherever rows begin; but not of a map whose result may take the place of what it reads."""
    monkeypatch.setattr(c, "PAST_CACHES", 1)
    monkeypatch.setattr(c, "FAR_BYTES", 1)
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    a, b, more = random(RNG, (21, 8)), random(RNG, (8, width)), random(RNG, (21, width))
    m = Maker()
    x, w, y = (m.input(*v.shape) for v in (a, b, more))
    product = Program(m.output(m.add("Add", m.add("MatMul", x, w), y)), machine=machine, compiler=compiler)
    # Eight products of f32, of which each rounds by 6e-8.
    np.testing.assert_allclose(product.run(a, b, more)[0], a @ b + more, rtol=1e-5, atol=1e-6)
    source = product.launches[-1].source
    assert "t_stream_f32(" in source and "T_STREAMED;" in source and "fetch(c, m + rows + r" in source
    m = Maker()
    x = m.input(21, width)
    mapped = Program(m.output(m.add("Relu", x)), machine=machine, compiler=compiler)
    np.testing.assert_array_equal(mapped.run(more)[0], np.maximum(more, 0))
    kernel = mapped.launches[0].kernel
    buffers = tuple(dataclasses.replace(b, last=not b.written) for b in kernel.buffers)
    replaced = CTarget(machine).render(dataclasses.replace(kernel, buffers=buffers)).source
    assert "t_stream_f32(" in mapped.launches[0].source and "t_stream_f32(" not in replaced
