from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.base.errors import UnsupportedError
from torshc.expr import BF16, F16, F32, F64, DType, const
from torshc.graph import Graph, Value
from torshc.kernels.machine import Device, Machine
from torshc.targets.gpu import attention as lowering
from torshc.targets.gpu.attention import TILES, GridAttention
from torshc.targets.gpu.attention_row import GridAttentionRow
from torshc.targets.gpu.cuda.attention_group import GroupAttention, suits_groups
from torshc.targets.gpu.cuda.attention_mma import MmaAttention
from torshc.targets.gpu.cuda.target import CudaTarget

from ...support.kernels import Maker, Shape, op, random, sizes
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import Array, close
from ..cpu.test_attention import DIMS, GUARDS, LOWEST, MASKS, SHAPES, attention, close_or_nan, expected, heads

RNG = seeded(12)
pytestmark = needs_emulator
# Operands whose queries are tiles of several, and one query each.
FORMS: list[list[Shape]] = [
    [(2, 3, 37, 8), (2, 3, 300, 8), (2, 3, 300, 8)],
    [(2, 3, 2, 8), (2, 3, 300, 8), (2, 3, 300, 8)],
]


def check(shapes: list[Shape], arrays: dict[int, Array] | None = None, **form: Any) -> GridProgram:
    """Runs attention over operands of these shapes (given arrays or random ones) and compares."""
    m = Maker()
    values = [random(RNG, sizes(s, DIMS)) for s in shapes]
    for k, array in (arrays or {}).items():
        values[k] = array.astype(np.float32)
    program = GridProgram(m.output(attention(m, *[m.input(*s) for s in shapes], **form)), DIMS)
    (got,) = program.run(*values)
    close_or_nan(got, expected(*values, **form))
    return program


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_shapes(shapes: list[Shape]) -> None:
    check(shapes, scale=0.3)


def test_no_keys() -> None:
    """Kernels of one query and of tiles of them compile without warnings, and their results are 0."""
    for rows in (1, 3, 70):
        check([(2, rows, 5), (2, 0, 5), (2, 0, 5)], scale=0.3)


@pytest.mark.parametrize("rows", [1, 4, 5, 16, 70])
@pytest.mark.parametrize("depth", [0, 1, 7, 32, 64, 80, 130, 256])
def test_depths(rows: int, depth: int) -> None:
    """Every depth has tiles that fit, and columns of the values that are no multiple of anything."""
    for width in {max(depth, 1), 5}:
        check([(2, rows, depth), (2, 70, depth), (2, 70, width)], scale=0.3)


def test_depths_beyond_shared_memory_are_taken_row_by_row() -> None:
    program = check([(2, 17, 600), (2, 9, 600), (2, 9, 300)], scale=0.1)
    assert isinstance(program.kernels[0], GridAttentionRow)
    check([(2, 3), (5, 3), (5, 2000)])
    with pytest.raises(UnsupportedError, match="columns"):
        check([(2, 3), (5, 3), (5, 20000)])


def test_tiles_follow_the_work() -> None:
    """Blocks enough for a large device where there is work enough."""
    few = check([(12, 128, 64)] * 3).kernels[0]
    many = check([(300, 20, 64)] * 3).kernels[0]
    one = check([(12, 1, 64), (12, 40, 64), (12, 40, 64)]).kernels[0]
    assert isinstance(few, GridAttention) and isinstance(many, GridAttention)
    assert (few.tile.rows, many.tile, one.template) == (16, TILES[0], "attention_row.j2")


@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_masks(mask: Shape) -> None:
    check([("b", "h", "s", 20), ("b", "h", "t", 20), ("b", "h", "t", 8), mask], scale=0.2)
    few = tuple(3 if d == "s" else d for d in mask)
    check([("b", "h", 3, 20), ("b", "h", "t", 20), ("b", "h", "t", 8), few], scale=0.2)


def test_a_mask_of_zeros_is_none() -> None:
    m, values = Maker(), [random(RNG, (2, 9, 8)) for _ in range(3)]
    zeros = m.constant(np.zeros((1, 1, 1), np.float32))
    program = GridProgram(m.output(attention(m, *[m.input(2, 9, 8) for _ in values], zeros)), DIMS)
    close(program.run(*values)[0], expected(*values), 1e-5)
    assert isinstance(program.kernels[-1], GridAttention) and program.kernels[-1].mask is None


CAUSAL = [(1, 1), (300, 300), (64, 64), (40, 300), (300, 40), (5, 0), (17, 1), (3, 300), (4, 2)]


@pytest.mark.parametrize(("s", "t"), CAUSAL)
def test_causal(s: int, t: int) -> None:
    check([(3, s, 8), (3, t, 8), (3, t, 16)], causal=True, scale=0.5)


@pytest.mark.parametrize("guard", GUARDS, ids=str)
@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("shapes", FORMS, ids=str)
def test_rows_that_see_nothing(shapes: list[Shape], guard: dict[str, bool], own_rows: bool) -> None:
    rows = int(shapes[0][2]) if own_rows else 1
    mask = np.where(RNG.random((2, 1, rows, 300)) < 0.5, -np.inf, 0.0)
    mask[1, :, ::3] = -np.inf
    mask[:, :, :, :270] = -np.inf
    check([*shapes, mask.shape], {3: mask}, **guard)


@pytest.mark.parametrize("low", [LOWEST, -10000.0])
@pytest.mark.parametrize("shapes", FORMS, ids=str)
def test_rows_hidden_by_a_low_number_are_averages(shapes: list[Shape], low: float) -> None:
    mask = np.where(RNG.random((2, 1, 1, 300)) < 0.5, low, 0.0)
    mask[1] = LOWEST
    check([*shapes, mask.shape], {3: mask})


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_scores_that_are_no_numbers(guard: dict[str, bool]) -> None:
    for rows in (37, 3):
        mask = np.zeros((rows, 300))
        mask[0, 7], mask[1, 280], mask[2, 1] = np.nan, np.nan, np.inf
        check([(3, rows, 8), (3, 300, 8), (3, 300, 8), mask.shape], {3: mask}, **guard)


@pytest.mark.parametrize("scale", [1000.0, -30.0])
@pytest.mark.parametrize("rows", [37, 3])
def test_large_scores(rows: int, scale: float) -> None:
    shapes: list[Shape] = [(3, rows, 8), (3, 300, 8), (3, 300, 8)]
    whole = {k: np.rint(2 * random(RNG, sizes(shapes[k], DIMS))) for k in range(2)}  # so that scores are exact
    check(shapes, whole, scale=scale)


# Weights of the values are rounded to the operands' type, to 11 and 8 bits; their sums are not.
ROUNDED = {F16: 2**-10, BF16: 2**-7}


def check_halves(
    shapes: list[Shape],
    dtype: DType = F16,
    arrays: dict[int, Array] | None = None,
    target: CudaTarget | None = None,
    **form: Any,
) -> GridProgram:
    """As :func:`check` with q, k and v of halves; the mask and the result are f32."""
    m = Maker()
    values = [m.input(*s, dtype=dtype if k < 3 else F32) for k, s in enumerate(shapes)]
    program = GridProgram(m.output(attention(m, *values, out="f32", **form)), DIMS, target)
    given = [random(RNG, sizes(s, DIMS)).astype(v.dtype.numpy) for s, v in zip(shapes, values, strict=True)]
    for k, array in (arrays or {}).items():
        given[k] = array.astype(values[k].dtype.numpy)
    (got,) = program.run(*given)
    wanted = expected(*given, **form)
    assert got.dtype == np.float32 and len(program.kernels) == 1
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    exact = not isinstance(program.kernels[0], MmaAttention)
    close(np.nan_to_num(got), np.nan_to_num(wanted), 1e-5 if exact else ROUNDED[dtype])
    return program


@pytest.mark.parametrize("dtype", [F16, BF16], ids=repr)
@pytest.mark.parametrize(
    ("rows", "depth", "template"), [(37, 8, "attention_mma"), (2, 8, "attention_row"), (37, 5, "attention")]
)
def test_halves(dtype: DType, rows: int, depth: int, template: str) -> None:
    """Tensor cores where there are several queries and rows are whole packets."""
    shapes: list[Shape] = [(3, rows, depth), (3, 40, depth), (3, 40, depth), (rows, 40)]
    assert templates(check_halves(shapes, dtype, scale=0.3)) == [template]


# Shapes of q, k, v and the mask; queries of a block.
MMA_SHAPES: list[tuple[list[Shape], int]] = [
    ([(2, 3, 100, 64), (2, 3, 100, 64), (2, 3, 100, 64)], 16),
    ([(150, 100, 16), (150, 70, 16), (150, 70, 24)], 128),
    ([(140, 33, 8), (140, 1, 8), (1, 1, 40)], 64),
    ([(2, 9, 128), (2, 190, 128), (2, 190, 128), (190,)], 16),
    ([(140, 20, 72), (140, 65, 72), (140, 65, 8), (20, 65)], 32),
    ([("b", "h", "s", 40), ("h", "t", 40), ("t", 128), ("b", 1, "s", "t")], 64),
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("shapes", "rows"), MMA_SHAPES, ids=str)
def test_shapes_on_tensor_cores(shapes: list[Shape], rows: int, causal: bool) -> None:
    (kernel,) = check_halves(shapes, scale=0.3, causal=causal).kernels
    assert isinstance(kernel, MmaAttention) and kernel.tile.rows == rows


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_rows_that_see_nothing_on_tensor_cores(guard: dict[str, bool]) -> None:
    mask = np.where(RNG.random((2, 1, 37, 300)) < 0.5, -np.inf, 0.0)
    mask[1, :, ::3], mask[:, :, :, :270] = -np.inf, -np.inf
    mask[0, 0, 5, 280] = np.nan
    check_halves([*FORMS[0], mask.shape], arrays={3: mask}, **guard, scale=-0.5)


def test_what_stands_around_attention_of_halves() -> None:
    """Heads are taken apart, joined, added to and rounded in the kernel; the order of threads does not show."""
    m = Maker()
    x, w = m.input(2, 37, 12 * 16, dtype=F16), m.input(16)
    parts = m.builder.add(op("Split", axis=2, sizes=(const(64),) * 3), [x])
    total = m.add("Add", attention(m, *[heads(m, v, 4) for v in parts], scale=0.3, out="f32"), w)
    turned = m.add("Transpose", m.add("Cast", total, to=F16), perm=(0, 2, 1, 3))
    program = GridProgram(m.output(m.add("Reshape", turned, shape=(const(2), const(37), const(64)))), DIMS)
    assert templates(program) == ["attention_mma"] and "t_write4" in program.launches[0].source
    given, bias = random(RNG, (2, 37, 192)).astype(np.float16), random(RNG, (16,))
    q, k, v = (p.reshape(2, 37, 4, 16).transpose(0, 2, 1, 3) for p in np.split(given, 3, axis=2))
    wanted = (expected(q, k, v, scale=0.3) + bias).transpose(0, 2, 1, 3).reshape(2, 37, 64)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for order in ("forward", "reverse", "random:3"):
            patch.setenv("T_EMULATE_ORDER", order)
            found += program.run(given, bias)
    close(found[0], wanted, 2**-9)
    assert all((f == found[0]).all() for f in found)


HOPPER = CudaTarget(Machine(archs=("sm_90a",)))
GROUP_SHAPES: list[list[Shape]] = [
    [(2, 150, 64), (2, 300, 64), (2, 300, 64)],
    [(130, 128), (129, 128), (129, 128), (130, 129)],
    [(2, 3, 70, 40), (2, 1, 65, 40), (3, 65, 24), (65,)],
    [(2, "s", 72), (2, "t", 72), (2, "t", 8), ("s", "t")],
]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention is given to groups of four warps, though there is little of it; two blocks share the bands."""
    monkeypatch.setattr(lowering, "suits_groups", lambda *_: const(True))
    monkeypatch.setattr(GroupAttention, "blocks", 2)


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("dtype", [F16, BF16], ids=repr)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shapes", GROUP_SHAPES, ids=str)
def test_shapes_by_groups(shapes: list[Shape], causal: bool, dtype: DType) -> None:
    assert templates(check_halves(shapes, dtype, target=HOPPER, scale=0.3, causal=causal)) == ["attention_group"]


@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_rows_that_see_nothing_by_groups(guard: dict[str, bool]) -> None:
    mask = np.where(RNG.random((2, 1, 37, 300)) < 0.5, -np.inf, 0.0)
    mask[1, :, ::3], mask[:, :, :, :270] = -np.inf, -np.inf
    mask[0, 0, 5, 280] = np.nan
    check_halves([*FORMS[0], mask.shape], arrays={3: mask}, target=HOPPER, **guard, scale=-0.5)


@pytest.mark.usefixtures("groups")
def test_packed_heads_by_groups() -> None:
    """q, k and v are read out of one projection by the card's copies."""
    m = Maker()
    x = m.input(2, 137, 3 * 4 * 16, dtype=F16)
    parts = m.builder.add(op("Split", axis=2, sizes=(const(64),) * 3), [x])
    total = m.add("Transpose", attention(m, *[heads(m, v, 4) for v in parts], scale=0.3), perm=(0, 2, 1, 3))
    program = GridProgram(m.output(m.add("Reshape", total, shape=(const(2), const(137), const(64)))), {}, HOPPER)
    assert templates(program) == ["attention_group"]
    given = random(RNG, (2, 137, 192)).astype(np.float16)
    q, k, v = (p.reshape(2, 137, 4, 16).transpose(0, 2, 1, 3) for p in np.split(given, 3, axis=2))
    wanted = expected(q, k, v, scale=0.3).transpose(0, 2, 1, 3).reshape(2, 137, 64)
    close(program.run(given)[0], wanted, 2**-9)


def test_results_of_halves_leave_in_whole_sectors() -> None:
    """Four threads that share rows exchange columns by eights; of 40 columns eight are left, which go by fours."""
    shape = (2, 3, 130, 40)
    m = Maker()
    program = GridProgram(
        m.output(attention(m, *[m.input(*shape, dtype=F16) for _ in range(3)], scale=0.3)), {}, HOPPER
    )
    assert templates(program) == ["attention_mma"]
    assert all(program.launches[0].source.count(f"t_write{n}_f16(b3") == 1 for n in (8, 4))
    given = [random(RNG, shape).astype(np.float16) for _ in range(3)]
    close(program.run(*given)[0].astype(np.float32), expected(*given, scale=0.3), 2**-9)


def test_sizes_of_a_run_choose_bands() -> None:
    """Each length has one kernel: groups of warps where they fill the card, else bands of fewer queries."""
    target, taken = CudaTarget(Machine(archs=("sm_90a",))), dict[int, str]()
    target.machine = replace(target.machine, device=replace(target.machine.device, units=8))
    for length in (0, 1, 2, 7, 40, 129, 250):
        m, shape = Maker(), (2, length, 64)
        values = [m.input("b", "s", 64, dtype=F16) for _ in range(3)]
        program = GridProgram(m.output(attention(m, *values, scale=0.3)), {"b": 2, "s": length}, target)
        (launched,) = (x for x in program.launches if x.library is not None)
        taken[length] = f"{launched.kernel.template} {launched.kernel.tile.rows}"  # type: ignore[attr-defined]  # of GridAttention
        given = [random(RNG, shape).astype(np.float16) for _ in range(3)]
        close(program.run(*given)[0].astype(np.float32), expected(*given, scale=0.3), 2**-9)
    assert (
        taken[250] == "attention_group.j2 128" and taken[7] == "attention_mma.j2 16" and len(set(taken.values())) >= 3
    )


@pytest.mark.parametrize(
    ("shape", "units", "wanted"),
    [((8, 128, 64), 16, True), ((8, 128, 64), 17, False), ((8, 70, 64), 4, False), ((8, 128, 20), 4, False)],
)
def test_when_groups_are_worth_it(shape: Shape, units: int, wanted: bool) -> None:
    """Bands of 128 queries are filled, half of the card has one, and rows lie as the card's copies need them."""
    m = Maker()
    values = [m.input(*shape, dtype=F16) for _ in range(3)]
    target = CudaTarget(Machine(archs=("sm_90a",)))
    target.machine = replace(target.machine, device=Device(units, tensor=True, groups=True))
    program = GridProgram(m.output(attention(m, *values, out="f32")), DIMS, target)
    assert ("attention_group" in templates(program)) is wanted
    (kernel,) = program.kernels
    assert not isinstance(kernel, MmaAttention) or suits_groups(kernel, target.machine.device) is const(wanted)


def from_packed(m: Maker, x: Value) -> Graph:
    """q, k and v are parts of one projection, and heads are joined again: nothing is copied."""
    width = x.shape[2] // 3
    parts = m.builder.add(op("Split", axis=2, sizes=(width,) * 3), [x])
    out = attention(m, *[heads(m, v, 4) for v in parts], scale=0.3)
    turned = m.add("Transpose", out, perm=(0, 2, 1, 3))
    return m.output(m.add("Reshape", turned, shape=(*x.shape[:2], width)))


@pytest.mark.parametrize("depth", [10, 16])
@pytest.mark.parametrize("shape", [("b", "s"), (2, 37), (2, 1)], ids=str)
def test_views_before_and_behind_are_read_and_stored_through(shape: Shape, depth: int) -> None:
    m = Maker()
    program = GridProgram(from_packed(m, m.input(*shape, 12 * depth)), DIMS)
    batch, rows = sizes(shape, DIMS)
    x = random(RNG, (batch, rows, 12 * depth))
    q, k, v = (p.reshape(batch, rows, 4, depth).transpose(0, 2, 1, 3) for p in np.split(x, 3, axis=2))
    close(program.run(x)[0], expected(q, k, v, scale=0.3).transpose(0, 2, 1, 3).reshape(batch, rows, -1), 1e-5)
    assert all(isinstance(k, GridAttention) for k in program.kernels)  # several where a run's size chooses one


def test_packets_only_where_they_are_whole() -> None:
    def source(width: int) -> str:
        m = Maker()
        return GridProgram(from_packed(m, m.input(2, 37, 12 * width)), DIMS).launches[0].source

    assert source(16).count("t_read4") == 3 and "t_write4" in source(16)
    assert "t_read4" not in source(10)


def test_operands_in_any_layout() -> None:
    m = Maker()
    values = [m.input(2, 19, 12, layout=(0, 2, 1)) for _ in range(3)]
    program = GridProgram(m.output(attention(m, *values)), DIMS)
    arrays = [random(RNG, (2, 19, 12)) for _ in range(3)]
    close(program.run(*arrays)[0], expected(*arrays), 1e-5)


def test_constant_operands() -> None:
    m = Maker()
    k, v = random(RNG, (5, 8)), random(RNG, (5, 1))
    q = random(RNG, (2, 9, 8))
    program = GridProgram(m.output(attention(m, m.input(2, 9, 8), m.constant(k), m.constant(v))), DIMS)
    close(program.run(q)[0], expected(q, k, v), 1e-5)


@pytest.mark.parametrize("rows", ["s", 2])
@pytest.mark.parametrize("width", [24, 9])
def test_epilogue(rows: str | int, width: int) -> None:
    m = Maker()
    shape = ("b", rows, width)
    values = [m.input(*shape) for _ in range(3)]
    residual, bias = m.input(*shape), m.constant(random(RNG, (width,)))
    total = m.add("Add", m.add("Tanh", m.add("Add", attention(m, *values), bias)), residual)
    program = GridProgram(m.output(total), DIMS)
    arrays = [random(RNG, sizes(shape, DIMS)) for _ in range(4)]
    assert bias.const is not None
    close(program.run(*arrays)[0], np.tanh(expected(*arrays[:3]) + bias.const) + arrays[3], 1e-5)
    assert all(isinstance(k, GridAttention) for k in program.kernels)


def test_epilogue_that_is_wanted_whole_and_in_halves() -> None:
    m = Maker()
    values = [m.input(2, 19, 12) for _ in range(3)]
    out = attention(m, *values)
    program = GridProgram(m.output(out, m.add("Cast", out, to=F16)), DIMS)
    arrays = [random(RNG, (2, 19, 12)) for _ in range(3)]
    whole, half = program.run(*arrays)
    close(whole, expected(*arrays), 1e-5)
    np.testing.assert_array_equal(half, whole.astype(np.float16))
    assert templates(program) == ["attention"]


@pytest.mark.parametrize("order", ["reverse", "random:3"])
@pytest.mark.parametrize("shapes", FORMS, ids=str)
def test_no_order_of_threads_shows(monkeypatch: pytest.MonkeyPatch, shapes: list[Shape], order: str) -> None:
    arrays = {k: random(RNG, sizes(s, DIMS)) for k, s in enumerate(shapes)}

    def run() -> Array:
        m = Maker()
        program = GridProgram(m.output(attention(m, *[m.input(*s) for s in shapes])), DIMS)
        return program.run(*arrays.values())[0]

    forward = run()
    monkeypatch.setenv("T_EMULATE_ORDER", order)
    np.testing.assert_array_equal(run(), forward)


def test_what_it_cannot_do_is_said() -> None:
    for shape, dtype, what in (((2, 3, 4), F64, "f64"), ((2, 3, "s"), F32, "depth")):
        m = Maker()
        with pytest.raises(UnsupportedError, match=what):
            GridProgram(m.output(attention(m, *[m.input(*shape, dtype=dtype) for _ in range(3)])), DIMS)


def test_equal_kernels_have_equal_text() -> None:
    def text() -> str:
        m = Maker()
        m.input(4)
        return GridProgram(m.output(attention(m, *[m.input("b", "s", 24) for _ in range(3)])), DIMS).launches[0].source

    assert text() == text() and const(0) is const(0)


def test_blocks_share_the_keys_of_few_queries() -> None:
    """Known numbers of keys, and those of a cache, where some blocks have none; masks, NaN and all keys hidden."""
    many = [(2, 3, 1, 20), (2, 3, 1300, 20), (2, 3, 1300, 12)]
    values = [random(RNG, s) for s in many]
    m = Maker()
    mask = np.where(RNG.random((2, 1, 1, 1300)) < 0.5, -np.inf, 0).astype(np.float32)
    mask[1] = -np.inf
    operands = [m.input(*s) for s in (*many, mask.shape)]
    program = GridProgram(m.output(attention(m, *operands, scale=0.3)))
    assert templates(program) == ["attention_row", "attention_join"]
    (got,) = program.run(*values, mask)
    close_or_nan(got, expected(*values, mask, scale=0.3))
    for keys in (1, 2, 45, 1300):
        m = Maker()
        some = [values[0], *(np.ascontiguousarray(v[:, :, :keys]) for v in values[1:])]
        some[1][0, 1, keys // 2] = np.nan
        shapes: list[Shape] = [(2, 3, 1, 20), (2, 3, "t", 20), (2, 3, "t", 12)]
        bias = m.input(12)
        total = m.add("Tanh", m.add("Add", attention(m, *[m.input(*s) for s in shapes], scale=0.3), bias))
        program = GridProgram(m.output(total), {"t": keys})
        assert templates(program) == ["attention_row", "attention_join"]
        b = random(RNG, (12,))
        (got,) = program.run(b, *some)
        close_or_nan(got, np.tanh(expected(*some, scale=0.3) + b))


@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=str)
@pytest.mark.parametrize(("keys", "depth"), [(1300, 24), (70, 24), (1300, 20), (70, 264)])
def test_queries_that_share_keys_share_a_block(dtype: DType, keys: int, depth: int) -> None:
    """Each with a mask of its own; one sees nothing, one an infinite score; whole rows of halves are read in words."""
    shapes: list[Shape] = [(2, 3, 4, depth), (2, 3, keys, depth), (2, 3, keys, 40)]
    values = [random(RNG, sizes(s, DIMS)).astype(dtype.numpy) for s in shapes]
    mask = np.where(RNG.random((2, 1, 4, keys)) < 0.5, -np.inf, 0).astype(np.float32)
    mask[1, 0, 2] = -np.inf
    mask[0, 0, 1, keys // 2] = np.inf
    m = Maker()
    operands = [m.input(*s, dtype=dtype) for s in shapes]
    program = GridProgram(m.output(attention(m, *operands, m.input(*mask.shape), scale=0.3, out="f32")))
    assert templates(program)[0] == "attention_row"
    first = program.kernels[0]
    assert isinstance(first, GridAttentionRow) and first.height == (4 if depth < 264 else 1)
    assert first.pack == (8 if dtype is not F32 and depth % 8 == 0 else 4)
    (got,) = program.run(*values, mask)
    with np.errstate(invalid="ignore"):
        close_or_nan(got, expected(*values, mask, scale=0.3))


@pytest.mark.parametrize(
    ("queries", "keys", "splits"),
    [(32, 4096, 8), (40, 4096, 13), (8, 4096, 16), (132, 4096, 2), (300, 4096, 1), (8, 300, 1)],
)
def test_blocks_of_few_queries_end_together(queries: int, keys: int, splits: int) -> None:
    """Those of 32 queries are 256 for 132 multiprocessors, of 40 they are 520."""
    m = Maker()
    target = CudaTarget(Machine())
    target.machine = Machine(device=Device(units=132))
    operands = [m.input(queries, n, 8, dtype=F16) for n in (1, keys, keys)]
    kernel = GridProgram(m.output(attention(m, *operands, out="f32")), DIMS, target).kernels[0]
    assert isinstance(kernel, GridAttentionRow) and kernel.splits == splits


def test_causal_queries_have_a_block_each() -> None:
    kernel = check([(2, 3, 3, 8), (2, 3, 50, 8), (2, 3, 50, 8)], causal=True).kernels[0]
    assert isinstance(kernel, GridAttentionRow) and kernel.height == 1


def test_few_keys_and_many_queries_have_a_block_each() -> None:
    assert templates(check([(2, 3, 1, 8), (2, 3, 300, 8), (2, 3, 300, 8)])) == ["attention_row"]
    assert templates(check([(300, 1, 8), (300, 600, 8), (300, 600, 8)])) == ["attention_row"]
