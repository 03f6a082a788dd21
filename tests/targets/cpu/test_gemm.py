from __future__ import annotations

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import BF16, F16, F32, F64, I32, DType, as_int, const, dim
from torshc.kernels.machine import Machine
from torshc.targets.cpu.pack import panels
from torshc.targets.cpu.tiles import choose_blocks, choose_tile

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_kernel import Program, close, compilers, kind_of, kinds, native_lanes, sources

RNG = seeded(7)
DIMS = {"b": 3, "s": 17, "k": 21, "n": 19}
LANES = sorted({native_lanes(), 4 if native_lanes() >= 4 else 1, 1})

# Shapes of a and b, whether b is a constant, templates that are expected.
CASES: list[tuple[Shape, Shape, bool, list[str]]] = [
    ((13, 21), (21, 19), True, ["gemm"]),
    ((13, 21), (21, 19), False, ["pack", "gemm"]),
    ((1, 64), (64, 100), True, ["gemm"]),
    ((3, 64), (64, 48), True, ["gemm"]),
    ((100, 40), (40, 24), True, ["gemm"]),
    ((100, 40), (40, 5), True, ["gemm"]),
    ((7, 1), (1, 9), True, ["gemm"]),
    ((200, 3000), (3000, 20), True, ["gemm"]),
    ((64, 64), (64, 64), True, ["gemm"]),
    ((21,), (21, 19), True, ["gemm"]),
    ((13, 21), (21,), True, ["row"]),
    ((21,), (21,), False, ["row"]),
    ((13, 21), (21, 1), False, ["row"]),
    ((2, 21), (21, 19), False, ["row"]),
    ((2, 5, 21), (21, 19), True, ["gemm"]),
    ((2, 5, 21), (2, 21, 19), False, ["pack", "gemm"]),
    ((2, 5, 21), (2, 21, 19), True, ["gemm"]),
    ((3, 1, 5, 21), (2, 21, 19), False, ["pack", "gemm"]),
    ((3, 1, 5, 21), (1, 2, 21, 19), True, ["gemm"]),
    ((5, 21), (2, 21, 19), False, ["pack", "gemm"]),
    ((2, 4, 21), (21,), False, ["row"]),
    ((21,), (3, 21, 19), False, ["row"]),
    (("b", "s", 21), (21, 19), True, ["gemm"]),
    (("b", "s", 21), ("b", 21, "n"), False, ["pack", "gemm"]),
    (("b", "s", "k"), ("k", "n"), False, ["pack", "gemm"]),
    (("s", "k"), ("k", 19), False, ["pack", "gemm"]),
    ((0, 21), (21, 19), True, []),
    ((13, 21), (21, 0), True, []),
    ((13, 0), (0, 19), True, ["row"]),
    (("b", "k"), ("k", "n"), False, ["pack", "gemm"]),
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize(("a", "b", "constant", "templates"), CASES, ids=str)
def test_product(compiler: str, a: Shape, b: Shape, constant: bool, templates: list[str]) -> None:
    m = Maker()
    left, right = random(RNG, sizes(a, DIMS)), random(RNG, sizes(b, DIMS))
    x = m.input(*a)
    y = m.constant(right) if constant else m.input(*b)
    program = Program(m.output(m.add("MatMul", x, y)), DIMS, compiler=compiler)
    assert kinds(program) == templates
    if templates:
        (found,) = program.run(left, *([] if constant else [right]))
        close(found, np.matmul(left, right))


def test_long_sums_are_added_from_sums_of_blocks() -> None:
    """As the gradient of what gives a language model its words: one chain of 40,000 terms is 3e-6 off."""
    m = Maker()
    left, right = random(RNG, (8, 40000)), random(RNG, (40000, 16))
    program = Program(m.output(m.add("MatMul", m.input(8, 40000), m.constant(right))))
    wanted = left.astype(np.float64) @ right.astype(np.float64)
    assert np.linalg.norm(program.run(left)[0] - wanted) < 1e-6 * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    "dims", [{"b": 0, "s": 5, "k": 4, "n": 3}, {"b": 2, "s": 5, "k": 0, "n": 3}, {"b": 1, "s": 1, "k": 1, "n": 1}]
)
def test_symbolic_sizes_of_zero_and_one(dims: dict[str, int]) -> None:
    m = Maker()
    a, b = ("b", "s", "k"), ("b", "k", "n")
    program = Program(m.output(m.add("MatMul", m.input(*a), m.input(*b))), dims)
    left, right = random(RNG, sizes(a, dims)), random(RNG, sizes(b, dims))
    close(program.run(left, right)[0], np.matmul(left, right))


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("long", [False, True])
def test_epilogue(compiler: str, lanes: int, long: bool) -> None:
    """Bias, residual, activation and two outputs; a long epilogue becomes one function for all tiles."""
    m = Maker()
    weights, bias = random(RNG, (40, 37)), random(RNG, (37,))
    x, r = m.input("s", 40), m.input("s", 37)
    y = m.add("Add", m.add("MatMul", x, m.constant(weights)), m.constant(bias))
    z = m.add("Relu", m.add("Add", y, r))
    z = m.add("Tanh", m.add("Erf", z)) if long else z
    graph = m.output(y, z)
    program = Program(graph, {"s": 29}, Machine(lanes, kind_of(compiler)), compiler)
    assert kinds(program) == ["gemm"]
    left, residual = random(RNG, (29, 40)), random(RNG, (29, 37))
    first, second = program.run(left, residual)
    expected = left @ weights + bias
    close(first, expected)
    expected = np.maximum(expected + residual, 0)
    if long:
        import math

        expected = np.tanh(np.vectorize(math.erf)(expected))
    close(second, expected)


@pytest.mark.parametrize("constant", [True, False])
def test_operands_behind_views(constant: bool) -> None:
    """A transposed right operand is read in place: no copy, and no kernel for the view."""
    m = Maker()
    right = random(RNG, (19, 21))
    y = m.constant(right) if constant else m.input(19, 21)
    x = m.input(2, 3, 7, 21)
    program = Program(m.output(m.add("MatMul", x, m.add("Transpose", y, perm=(1, 0)))))
    assert kinds(program) == (["gemm"] if constant else ["pack", "gemm"])
    left = random(RNG, (2, 3, 7, 21))
    close(
        program.run(*([left] if constant else [right, left]))[0] if constant else program.run(right, left)[0],
        left @ right.T,
    )


@pytest.mark.parametrize(("depth", "columns", "asked"), [(256, 300, True), (64, 64, False)])
def test_memory_is_asked_for_weights_that_no_cache_of_a_core_keeps(depth: int, columns: int, asked: bool) -> None:
    weights = random(RNG, (depth, columns)) / np.float32(depth**0.5)
    for rows in (5, 29):  # a tile, and several
        m = Maker()
        program = Program(m.output(m.add("MatMul", m.input("s", depth), m.constant(weights))), {"s": rows})
        assert all(("s.ahead = t_tile_ahead(" in text) == asked for text in sources(program))
        left = random(RNG, (rows, depth))
        close(program.run(left)[0], left @ weights)


@pytest.mark.parametrize(("rows", "columns", "asked"), [(8190, 24, True), (8190, 100, True), (96, 24, False)])
def test_memory_is_asked_for_rows_that_no_cache_of_a_core_keeps(rows: int, columns: int, asked: bool) -> None:
    m = Maker()
    right = random(RNG, (144, columns)) / np.float32(12)
    program = Program(m.output(m.add("MatMul", m.input(rows, 144), m.constant(right))))
    assert all(("s.ahead.behind = " in text) == asked for text in sources(program))
    left = random(RNG, (rows, 144))
    close(program.run(left)[0], left @ right)


def test_heads() -> None:
    """Scores of attention: both operands are views of [batch, sequence, heads * size]."""
    m = Maker()
    q, k = m.input("b", "s", 32), m.input("b", "s", 32)

    def heads(v: object, last: tuple[int, ...]) -> object:
        from torshc.expr import dim

        split = m.add("Reshape", v, shape=(dim("b"), dim("s"), const(4), const(8)))  # type: ignore[arg-type]
        return m.add("Transpose", split, perm=last)

    scores = m.add("MatMul", heads(q, (0, 2, 1, 3)), heads(k, (0, 2, 3, 1)))  # type: ignore[arg-type]
    program = Program(m.output(scores), DIMS)
    assert kinds(program) == ["pack", "gemm"]
    x, y = random(RNG, (3, 17, 32)), random(RNG, (3, 17, 32))
    split = [v.reshape(3, 17, 4, 8).transpose(0, 2, 1, 3) for v in (x, y)]
    close(program.run(x, y)[0], split[0] @ split[1].swapaxes(-1, -2))


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize(("dtype", "depth"), [(F32, 64), (F64, 37), (I32, 64)], ids=str)
def test_one_column_is_summed_along_rows(compiler: str, dtype: DType, depth: int) -> None:
    """Both operands lie side by side there; vectors of rows would gather each element."""
    rng, m = np.random.default_rng(6), Maker()
    program = Program(
        m.output(m.add("MatMul", m.input("s", depth, dtype=dtype), m.input(depth, 1, dtype=dtype))),
        {"s": 37},
        compiler=compiler,
    )
    left, right = (random(rng, shape, dtype.numpy) for shape in ((37, depth), (depth, 1)))
    close(program.run(left, right)[0], left @ right, 1e-5 if dtype is F32 else 1e-13)
    assert kinds(program) == ["row"] and "gather" not in program.launches[0].source


def test_left_operand_in_another_order() -> None:
    """k must be innermost in the left operand; otherwise it is copied first."""
    m = Maker()
    right = random(RNG, (21, 19))
    x = m.input(5, 7, 21, layout=(2, 0, 1))
    program = Program(m.output(m.add("MatMul", x, m.constant(right))))
    assert kinds(program) == ["map", "gemm"]
    left = random(RNG, (5, 7, 21))
    close(program.run(left)[0], left @ right)


DOUBLES: list[tuple[Shape, Shape, bool, list[str]]] = [
    ((13, 21), (21, 70), True, ["gemm"]),
    ((200, 2000), (2000, 20), True, ["gemm"]),
    ((2, 5, 21), (2, 21, 40), False, ["pack", "gemm"]),
    (("b", "s", "k"), ("k", "n"), False, ["pack", "gemm"]),
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize(("a", "b", "constant", "templates"), DOUBLES, ids=str)
def test_doubles(compiler: str, lanes: int, a: Shape, b: Shape, constant: bool, templates: list[str]) -> None:
    """Products of f64 with an epilogue, whose right operand is also read transposed."""
    rng, m = np.random.default_rng(3), Maker()
    left, right = (random(rng, sizes(s, DIMS), np.float64) for s in (a, b))
    x = m.input(*a, dtype=F64)
    operands = [left]
    if constant:
        y = m.constant(right)
    elif len(b) == 2:
        y = m.input(*b, dtype=F64)
        operands.append(right)
    else:
        y = m.add("Transpose", m.input(b[0], b[2], b[1], dtype=F64), perm=(0, 2, 1))
        operands.append(np.ascontiguousarray(right.swapaxes(1, 2)))
    product = m.add("MatMul", x, y)
    program = Program(m.output(m.add("Relu", product)), DIMS, Machine(lanes, kind_of(compiler)), compiler)
    assert kinds(program) == templates
    close(program.run(*operands)[0], np.maximum(left @ right, 0), 1e-13)


@pytest.mark.parametrize("dtype", [I32, F16, BF16])
def test_other_types(dtype: DType) -> None:
    m = Maker()
    a, b = m.input(2, 9, 21, dtype=dtype), m.input(21, 19, dtype=dtype)
    program = Program(m.output(m.add("MatMul", a, b)))
    assert kinds(program) == ["row"]
    left, right = random(RNG, (2, 9, 21), np.float64 if dtype.is_float else np.int32), random(RNG, (21, 19))
    left, right = left.astype(dtype.numpy), (right * 4).astype(dtype.numpy)
    tolerance = {"i32": 0.0, "f16": 1e-3, "bf16": 8e-3}[dtype.name]
    found = program.run(left, right)[0]
    wide = np.float64 if dtype.is_float else np.int64
    close(found.astype(wide), left.astype(wide) @ right.astype(wide), tolerance)


def test_flops_and_bytes() -> None:
    m = Maker()
    program = Program(m.output(m.add("MatMul", m.input(8, 16), m.constant(random(RNG, (16, 32))))))
    (kernel,) = program.kernels
    assert as_int(kernel.flops) == 2 * 8 * 16 * 32
    assert as_int(kernel.nbytes) == 4 * (8 * 16 + 16 * 32 + 8 * 32)


@pytest.mark.parametrize(("lanes", "compiler", "shape", "tile"), [
    (8, "clang", (384, 384, 384), (6, 2)), (8, "gcc", (1, 768, 768), (6, 2)), (8, "clang", (1, 768, 768), (4, 3)),
    (8, "clang", (128, 3072, 768), (4, 3)), (8, "clang", (3136, 24, 96), (4, 3)), (8, "clang", (3136, 5, 96), (8, 1)),
    (16, "clang", (3136, 64, 64), (6, 4)), (16, "clang", (384, 768, 768), (8, 3)), (4, "clang", (9, 9, 9), (6, 2)),
    (16, "clang", (16, 768, 768), (8, 3)), (16, "clang", (16, 1024, 1024), (12, 2)),
    (8, "clang", ("rows", 3072, 768), (4, 3)), (8, "clang", ("rows", 384, 384), (6, 2)),
])  # fmt: skip
def test_tile(lanes: int, compiler: str, shape: tuple[int | str, int, int], tile: tuple[int, int]) -> None:
    rows, *sizes = shape
    m = const(rows) if isinstance(rows, int) else dim(rows)
    chosen = choose_tile(Machine(lanes, compiler), m, *map(const, sizes))
    assert (chosen.rows, chosen.vectors) == tile


def test_blocks_give_threads_enough_tasks() -> None:
    machine = Machine(8, "clang", 8)
    tile = choose_tile(machine, const(128), const(3072), const(768))
    blocks = choose_blocks(machine, tile, const(128), tile.panels(const(3072)), const(2 * 128 * 3072 * 768), const(1))
    assert 16 <= (as_int(blocks.m) or 0) * (as_int(blocks.n) or 0) <= 64


def test_two_threads_have_as_many_tasks() -> None:
    """256 rows by the one panel of 64 columns are four blocks, and not three of about 96 rows."""
    machine, rows, columns, depth = Machine(16, "clang", 8), const(256), const(64), const(192)
    tile = choose_tile(machine, rows, columns, depth)
    blocks = choose_blocks(machine, tile, rows, tile.panels(columns), 2 * rows * columns * depth, const(1))
    assert (as_int(blocks.m), as_int(blocks.n)) == (4, 1)


def test_few_panels_have_tasks_of_fewer_rows() -> None:
    """49 x 320 x 960, of MobileNetV2: five panels are three and two for two threads; bits are those of one task."""
    m = Maker()
    left, right = random(RNG, (49, 960)), random(RNG, (960, 320))
    program = Program(m.output(m.add("MatMul", m.input(49, 960), m.constant(right))))
    found = program.run(left)[0]
    (launch,) = program.launches
    assert launch.tasks > 16
    launch.run()
    np.testing.assert_array_equal(program.read(program.graph.results[0]), found)
    close(found, left @ right)


def test_panels() -> None:
    packed = panels(np.arange(30, dtype=np.float32).reshape(2, 3, 5), 4)
    assert packed.shape == (2, 2, 3, 4)
    assert packed[1, 1, 2].tolist() == [29, 0, 0, 0]
    for columns in (8, 20):
        for matrix in (np.arange(60).reshape(3, 20), np.arange(60).reshape(20, 3).T, np.arange(63).reshape(21, 3).T):
            found = panels(matrix, columns).swapaxes(0, 1).reshape(3, -1)
            np.testing.assert_array_equal(found[:, : matrix.shape[1]], matrix)
            assert not found[:, matrix.shape[1] :].any()


def test_values_of_f32_edges() -> None:
    """NaN and infinities come through, and a sum of nothing is 0."""
    m = Maker()
    weights = np.eye(16, dtype=np.float32)
    program = Program(m.output(m.add("MatMul", m.input(8, 16), m.constant(weights))))
    left = np.zeros((8, 16), np.float32)
    left[2, 3], left[4, 5] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(np.isnan(program.run(left)[0]), np.isnan(left @ weights))
    assert F32.size == 4
