from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.base.errors import UnsupportedError
from torshc.expr import BF16, F32, F64, const, dim
from torshc.graph import Graph, Value
from torshc.kernels.machine import Machine
from torshc.targets.cpu.attention import AttentionKernel, AttentionTilesKernel
from torshc.targets.cpu.bf16 import AmxKernel
from torshc.targets.isa import resolve

from ...support.kernels import Maker, Shape, op, random, sizes
from ...support.run_kernel import Array, Program, close, compilers, kind_of, kinds, native_lanes

RNG = seeded(11)
LANES = sorted({native_lanes(), 4 if native_lanes() >= 4 else 1, 1})
DIMS = {"b": 2, "s": 37, "t": 300, "h": 3}
GUARDS: list[dict[str, bool]] = [{}, {"safe": True}, {"masked": True}]
LOWEST = float(np.finfo(np.float32).min)


def expected(q: Array, k: Array, v: Array, mask: Array | None = None, **form: Any) -> Array:
    """Attention in float64, as its decomposition says it."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) * form.get("scale", 1.0)
    if mask is not None:
        scores = scores + mask.astype(np.float64)
    if form.get("causal"):
        seen = np.arange(scores.shape[-1]) <= np.arange(scores.shape[-2])[:, None]
        scores = np.where(seen, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(-1, keepdims=True, initial=-np.inf))
        weights = e / e.sum(-1, keepdims=True)
    if form.get("safe"):
        weights = np.where(np.isnan(weights), 0, weights)
    if form.get("masked"):
        weights = np.where(scores.max(-1, keepdims=True, initial=-np.inf) == -np.inf, 0, weights)
    return weights @ v


def attention(m: Maker, *inputs: Value | None, **form: Any) -> Value:
    return m.builder.add(op("Attention", "torshc", **form), list(inputs))[0]


def check(shapes: list[Shape], arrays: dict[int, Array] | None = None, compiler: str = "", **form: Any) -> Program:
    """Runs attention over operands of these shapes (given arrays or random ones) and compares."""
    m = Maker()
    values = [random(RNG, sizes(s, DIMS)) for s in shapes]
    for k, array in (arrays or {}).items():
        values[k] = array.astype(np.float32)
    graph = m.output(attention(m, *[m.input(*s) for s in shapes], **form))
    program = Program(graph, DIMS, compiler=compiler or None)
    (got,) = program.run(*values)
    close_or_nan(got, expected(*values, **form))
    return program


def close_or_nan(got: Array, wanted: Array) -> None:
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    close(np.nan_to_num(got), np.nan_to_num(wanted), 1e-5)


SHAPES: list[list[Shape]] = [
    [(2, 3, 128, 64), (2, 3, 128, 64), (2, 3, 128, 64)],
    [(2, 3, 37, 20), (2, 3, 53, 20), (2, 3, 53, 13)],
    [(5, 7), (9, 7), (9, 3)],
    [(3, 1, 64), (3, 300, 64), (3, 300, 64)],
    [(3, 4, 1), (3, 6, 1), (3, 6, 1)],
    [(1, 1), (1, 1), (1, 1)],
    [(2, 70, 8), (2, 1, 8), (2, 1, 40)],
    [(4, 1, 30, 8), (1, 5, 270, 8), (270, 16)],
    [(2, 3, 4, 9, 8), (2, 3, 1, 11, 8), (2, 3, 1, 11, 8)],
    [(40, 3, 197, 16), (40, 3, 197, 16), (40, 3, 197, 24)],
    [("b", "h", "s", 20), ("b", "h", "t", 20), ("b", "h", "t", 33)],
    [("b", "h", "s", 16), ("h", "t", 16), ("t", 16)],
    [(2, 3, 0), (2, 4, 0), (2, 4, 5)],
    [(2, 3, 5), (2, 0, 5), (2, 0, 5)],
    [(2, 0, 5), (2, 3, 5), (2, 3, 5)],
    [(0, 3, 5), (0, 3, 5), (0, 3, 5)],
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(compiler: str, shapes: list[Shape]) -> None:
    check(shapes, compiler=compiler, scale=0.3)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("causal", [False, True])
def test_every_vector_width(lanes: int, causal: bool) -> None:
    m, form = Maker(), {"scale": 0.25, "causal": causal}
    shapes = [(2, 3, 45, 19), (2, 3, 290, 19), (2, 3, 290, 21), (2, 1, 45, 290)]
    values = [random(RNG, s) for s in shapes]
    graph = m.output(attention(m, *[m.input(*s) for s in shapes], **form))
    compiler = compilers()[0]
    program = Program(graph, DIMS, Machine(lanes, kind_of(compiler)), compiler)
    close(program.run(*values)[0], expected(*values, **form), 1e-5)


MASKS: list[Shape] = [
    (), (1,), ("t",), (1, "t"), ("s", 1), ("s", "t"), ("b", 1, 1, "t"), ("b", 1, "s", "t"), ("b", "h", "s", "t"),
    (1, "h", 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_masks(mask: Shape) -> None:
    check([("b", "h", "s", 20), ("b", "h", "t", 20), ("b", "h", "t", 8), mask], scale=0.2)


@pytest.mark.parametrize(("s", "t"), [(1, 1), (300, 300), (64, 64), (40, 300), (300, 40), (5, 0), (17, 1)])
def test_causal(s: int, t: int) -> None:
    check([(3, s, 8), (3, t, 8), (3, t, 16)], causal=True, scale=0.5)


@pytest.mark.parametrize("guard", GUARDS, ids=str)
@pytest.mark.parametrize("own_rows", [False, True])
def test_rows_that_see_nothing(guard: dict[str, bool], own_rows: bool) -> None:
    mask = np.where(RNG.random((2, 1, 37 if own_rows else 1, 300)) < 0.5, -np.inf, 0.0)
    mask[1, :, ::3] = -np.inf
    mask[:, :, :, :270] = -np.inf
    check([(2, 3, 37, 8), (2, 3, 300, 8), (2, 3, 300, 8), mask.shape], {3: mask}, **guard)


@pytest.mark.parametrize("low", [LOWEST, -10000.0])
def test_rows_hidden_by_a_low_number_are_averages(low: float) -> None:
    mask = np.where(RNG.random((2, 1, 1, 300)) < 0.5, low, 0.0)
    mask[1] = LOWEST
    check([(2, 3, 37, 8), (2, 3, 300, 8), (2, 3, 300, 8), mask.shape], {3: mask})


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_scores_that_are_no_numbers(guard: dict[str, bool]) -> None:
    mask = np.zeros((37, 300))
    mask[3, 7], mask[4, 280], mask[5, 1] = np.nan, np.nan, np.inf
    check([(3, 37, 8), (3, 300, 8), (3, 300, 8), mask.shape], {3: mask}, **guard)


@pytest.mark.parametrize("scale", [1000.0, -30.0])
def test_large_scores(scale: float) -> None:
    shapes: list[Shape] = [(3, 37, 8), (3, 300, 8), (3, 300, 8)]
    whole = {k: np.rint(2 * random(RNG, sizes(shapes[k], DIMS))) for k in range(2)}  # so that scores are exact
    check(shapes, whole, scale=scale)


def heads(m: Maker, x: Value, count: int) -> Value:
    """[B, S, H * D] as [B, H, S, D]."""
    b, s, width = x.shape
    split = m.add("Reshape", x, shape=(b, s, const(count), width // count))
    return m.add("Transpose", split, perm=(0, 2, 1, 3))


def from_packed(symbolic: bool) -> tuple[Graph, int]:
    """q, k and v are parts of one projection, and heads are joined again: nothing is copied."""
    m = Maker()
    x = m.input("b", "s", 3 * 4 * 10) if symbolic else m.input(2, 37, 3 * 4 * 10)
    parts = m.builder.add(op("Split", axis=2, sizes=(const(40),) * 3), [x])
    out = attention(m, *[heads(m, v, 4) for v in parts], scale=0.3)
    turned = m.add("Transpose", out, perm=(0, 2, 1, 3))
    batch, rows = x.shape[:2]
    return m.output(m.add("Reshape", turned, shape=(batch, rows, const(40)))), 1


@pytest.mark.parametrize("symbolic", [False, True])
def test_views_before_and_behind_are_read_and_stored_through(symbolic: bool) -> None:
    graph, launches = from_packed(symbolic)
    program = Program(graph, DIMS)
    x = random(RNG, (2, 37, 120))
    (got,) = program.run(x)
    q, k, v = (p.reshape(2, 37, 4, 10).transpose(0, 2, 1, 3) for p in np.split(x, 3, axis=2))
    wanted = expected(q, k, v, scale=0.3).transpose(0, 2, 1, 3).reshape(2, 37, 40)
    close(got, wanted, 1e-5)
    assert kinds(program) == ["attention"] * launches


def test_repeated_heads_are_not_copied() -> None:
    m = Maker()
    q, k, v = m.input(2, 6, 9, 8), m.input(2, 3, 11, 8), m.input(2, 3, 11, 8)
    dims = tuple(const(d) for d in (2, 3, 2, 11, 8))
    wide = []
    for x in (k, v):
        one = m.add("Reshape", x, shape=(*x.shape[:2], const(1), *x.shape[2:]))
        wide.append(m.add("Reshape", m.add("Expand", one, shape=dims), shape=tuple(const(d) for d in (2, 6, 11, 8))))
    program = Program(m.output(attention(m, q, *wide)), DIMS)
    arrays = [random(RNG, s) for s in ((2, 6, 9, 8), (2, 3, 11, 8), (2, 3, 11, 8))]
    close(program.run(*arrays)[0], expected(arrays[0], *(np.repeat(a, 2, axis=1) for a in arrays[1:])), 1e-5)
    assert kinds(program)[-1] == "attention"


def test_operands_in_any_layout() -> None:
    m = Maker()
    values = [m.input(2, 19, 12, layout=(0, 2, 1)) for _ in range(3)]
    program = Program(m.output(attention(m, *values)), DIMS)
    arrays = [random(RNG, (2, 19, 12)) for _ in range(3)]
    close(program.run(*arrays)[0], expected(*arrays), 1e-5)


def test_constant_operands() -> None:
    m = Maker()
    k, v = random(RNG, (5, 8)), random(RNG, (5, 1))
    q = random(RNG, (2, 9, 8))
    program = Program(m.output(attention(m, m.input(2, 9, 8), m.constant(k), m.constant(v))), DIMS)
    close(program.run(q)[0], expected(q, k, v), 1e-5)


def test_epilogue() -> None:
    m = Maker()
    shape = ("b", "s", 24)
    values = [m.input(*shape) for _ in range(3)]
    residual, bias = m.input(*shape), m.constant(random(RNG, (24,)))
    total = m.add("Add", m.add("Tanh", m.add("Add", attention(m, *values), bias)), residual)
    program = Program(m.output(total), DIMS)
    arrays = [random(RNG, sizes(shape, DIMS)) for _ in range(4)]
    assert bias.const is not None
    close(program.run(*arrays)[0], np.tanh(expected(*arrays[:3]) + bias.const) + arrays[3], 1e-5)
    assert kinds(program) == ["attention"]


def test_equal_kernels_have_equal_text() -> None:
    def text() -> str:
        m = Maker()
        m.input(4)
        program = Program(m.output(attention(m, *[m.input("b", "s", 24) for _ in range(3)])), DIMS)
        return program.launches[0].source

    assert text() == text()


def test_what_it_cannot_do_is_said() -> None:
    m = Maker()
    with pytest.raises(UnsupportedError, match="f64"):
        Program(m.output(attention(m, *[m.input(2, 3, 4, dtype=F64) for _ in range(3)])), DIMS)
    m = Maker()
    with pytest.raises(UnsupportedError, match="depth"):
        Program(m.output(attention(m, *[m.input(2, 3, "s") for _ in range(3)])), DIMS)
    assert dim("s") is m.graph.inputs[0].shape[-1]


def test_one_query_among_many() -> None:
    """Where the last query is summed in another order, the kernel says so, and does not where bits must be equal."""
    q, k, v = (random(RNG, shape) for shape in ((5, 32), (300, 32), (300, 24)))

    def run(count: int, exact: bool) -> tuple[str, Array]:
        m = Maker()
        graph = m.output(attention(m, *[m.input(*shape) for shape in (("s", 32), (300, 32), (300, 24))]))
        program = Program(graph, {"s": count}, Machine(native_lanes(), exact_batches=exact))
        (kernel,) = [k for k in program.kernels if isinstance(k, AttentionKernel)]
        return kernel.threshold, program.run(q[:count], k, v)[0]

    (told, usual), (exactly, alone) = run(1, exact=False), run(1, exact=True)
    assert "in another order" in told and not exactly
    assert alone.tobytes() == run(5, exact=True)[1][:1].tobytes()
    close(usual, alone)


TILES = [
    *SHAPES[1:6],
    SHAPES[7],
    SHAPES[10],
    SHAPES[13],
    [("b", "h", "s", 20), ("b", "h", "t", 20), ("t", 8), (1, "t")],
]


Where = tuple[int, str]  # lanes and compiler; neither stands for what is here


def by_tiles(
    values: list[Array], shapes: list[Shape], where: Where = (0, ""), more: tuple[str, ...] = (), **form: Any
) -> tuple[Program, Array]:
    """Attention of bf16, whose mask is of f32, on a processor with tiles of sums and `more`, and its result."""
    m, lanes, compiler = Maker(), where[0] or native_lanes(), where[1] or compilers()[0]
    inputs = [m.input(*s, dtype=BF16 if k < 3 else F32) for k, s in enumerate(shapes)]
    graph = m.output(attention(m, *inputs, out="f32", **form))
    program = Program(graph, DIMS, Machine(lanes, kind_of(compiler), extras=(*AmxKernel.needs, *more)), compiler)
    return program, program.run(*values)[0]


def of_halves(shapes: list[Shape]) -> list[Array]:
    values = [random(RNG, sizes(s, DIMS)) for s in shapes]
    return [v.astype(BF16.numpy) for v in values[:3]] + values[3:]


def check_tiles(shapes: list[Shape], values: list[Array] | None = None, where: Where = (0, ""), **form: Any) -> None:
    """Weights are rounded to 2^-9 of each; half of that again is for sums, exponentials and the quotient."""
    values = of_halves(shapes) if values is None else values
    program, got = by_tiles(values, shapes, where, **form)
    assert kinds(program) == ["attention_bf16_amx"]
    assert program.kernels[0].needs == AmxKernel.needs  # or nobody asks Linux for tiles
    wanted = expected(*(v.astype(np.float32) for v in values), **form)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    close(np.nan_to_num(got), np.nan_to_num(wanted), 3 * 2**-10)


@pytest.mark.parametrize("form", [{"scale": 0.3}, {"causal": True}], ids=str)
@pytest.mark.parametrize("shapes", TILES, ids=str)
def test_tiles(shapes: list[Shape], form: dict[str, Any]) -> None:
    check_tiles(shapes, **form)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
def test_tiles_in_vectors_of_every_width(lanes: int, compiler: str) -> None:
    check_tiles(
        [(3, 45, 19), (3, 290, 19), (3, 290, 21), (1, 45, 290)], None, (lanes, compiler), causal=True, scale=0.25
    )


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_tiles_of_rows_that_see_nothing(guard: dict[str, bool]) -> None:
    shapes: list[Shape] = [(2, 37, 8), (2, 300, 8), (2, 300, 8), (2, 37, 300)]
    values = of_halves(shapes)
    mask = np.where(RNG.random((2, 37, 300)) < 0.5, -np.inf, 0.0)
    mask[1, :9], mask[0, 3, 7] = -np.inf, np.nan
    check_tiles(shapes, [*values[:3], mask.astype(np.float32)], (0, ""), **guard)


@pytest.mark.parametrize("mask_rows", [1, 37])
def test_tiles_of_rows_that_the_lowest_number_masks(mask_rows: int) -> None:
    """Such a mask adds to scores, and hides none of them: where all keys have it, all weigh the same."""
    shapes: list[Shape] = [(2, 37, 8), (2, 300, 8), (2, 300, 8), (2, mask_rows, 300)]
    values = of_halves(shapes)
    mask = np.zeros((2, mask_rows, 300), np.float32)
    mask[0] = mask[1, :, :200] = np.finfo(np.float32).min
    check_tiles(shapes, [*values[:3], mask])


def test_the_instruction_rounds_weights_of_tiles_alike() -> None:
    """Also those of scores so far below the largest that they are zeros, and of NaN."""
    shapes: list[Shape] = [(2, 37, 8), (2, 300, 8), (2, 300, 8)]
    q, k, v = of_halves(shapes)
    q[0, 5, 3] = np.nan
    k[1] *= 300
    widest = (resolve().lanes, "")
    usual, by_instruction = (by_tiles([q, k, v], shapes, widest, more)[1] for more in ((), ("avx512bf16",)))
    np.testing.assert_array_equal(usual, by_instruction)


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_weights_of_tiles_are_what_is_summed(guard: dict[str, bool]) -> None:
    """Weighted sums of equal values are that value, though each weight is rounded."""
    shapes: list[Shape] = [(2, 37, 8), (2, 300, 8), (2, 300, 8)]
    q, k, v = of_halves(shapes)
    close(
        by_tiles([q, k, np.full_like(v, 1.5)], shapes, (0, ""), **guard)[1], np.full((2, 37, 8), 1.5, np.float32), 1e-6
    )


def test_a_query_has_the_same_bits_among_any_number_of_queries_on_tiles() -> None:
    q, k, v = of_halves([(2, 300, 24), (2, 90, 24), (2, 90, 40)])
    found = [by_tiles([q[:, :n], k, v], [(2, n, 24), k.shape, v.shape])[1] for n in (1, 20, 33, 300)]
    for part in found[:-1]:
        np.testing.assert_array_equal(part, found[-1][:, : part.shape[1]])


def test_tiles_read_heads_of_one_projection_and_rows_that_lie_otherwise() -> None:
    m = Maker()
    x, k = m.input(2, 37, 40, dtype=BF16), m.input(2, 4, 10, 53, dtype=BF16)
    keys = m.add("Transpose", k, perm=(0, 1, 3, 2))
    graph = m.output(attention(m, heads(m, x, 4), keys, m.input(2, 4, 53, 10, dtype=BF16), out="f32"))
    program = Program(graph, DIMS, Machine(native_lanes(), extras=AmxKernel.needs))
    assert isinstance(program.kernels[-1], AttentionTilesKernel)
    q, turned, v = of_halves([(2, 37, 40), (2, 4, 10, 53), (2, 4, 53, 10)])
    wanted = expected(
        q.astype(np.float32).reshape(2, 37, 4, 10).transpose(0, 2, 1, 3),
        turned.astype(np.float32).swapaxes(-1, -2), v.astype(np.float32),
    )  # fmt: skip
    close(program.run(q, turned, v)[0], wanted, 3 * 2**-10)
