"""Products of bf16 with weights: every form of kernel on every machine, in C where instructions are missing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import torshc
from torshc.expr import BF16, F32, I32, DType, const
from torshc.graph import Graph, Value
from torshc.kernels.base import Packed
from torshc.kernels.machine import Machine
from torshc.ops.math.linalg import MatMul
from torshc.ops.nn.conv import Conv
from torshc.targets.cpu.bf16 import FORMS, AmxKernel, Bf16GemmKernel, DotKernel, MmlaKernel, choose_form
from torshc.targets.cpu.conv_bf16 import ImageKernel
from torshc.targets.cpu.depthwise import DepthwiseKernel
from torshc.targets.cpu.gemm import GemmKernel
from torshc.targets.isa import resolve

from ...support.kernels import Maker, Shape, random, sizes
from ...support.models import model, node
from ...support.run_kernel import Array, Program, close, compilers, kind_of, kinds, native_lanes, sources

WIDEST = max(native_lanes(), resolve().lanes)  # vectors of AVX-512 with the instructions, where this machine has them
LANES = sorted({WIDEST, native_lanes(), 4 if native_lanes() >= 4 else 1, 1})
DIMS = {"b": 2, "s": 37}
Form = type[Bf16GemmKernel] | None  # None where a processor multiplies rows of f32 by weights that are made floats
WINDOW_FORMS = [f for f in FORMS if f is not MmlaKernel]  # test_arm.py has that one's sizes and windows
WIDE_FORMS: list[Form] = [*WINDOW_FORMS, None]
ALL_FORMS: list[Form] = [*FORMS, None]


def halves(seed: int, *shape: int) -> Array:
    rng = np.random.default_rng(seed)
    return random(rng, shape).astype(BF16.numpy)


def floats(seed: int, *shape: int) -> Array:
    return random(np.random.default_rng(seed), shape)


def product(m: Maker, x: Value, w: Array) -> Value:
    return m.builder.one(MatMul(out="f32"), x, m.constant(w))


def program(graph: Graph, form: Form, lanes: int = 0, compiler: str = "") -> Program:
    compiler = compiler or compilers()[0]
    extras = form.needs if form else ()
    return Program(graph, DIMS, Machine(lanes or WIDEST, kind_of(compiler), extras=extras), compiler)


def name(form: Form) -> str:
    return (form or GemmKernel).template.removesuffix(".c.j2")


def rows_of(form: Form) -> DType:
    """The type of what weights are multiplied with."""
    return BF16 if form else F32


def take(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile for a processor that is fastest with a form, whatever this one is."""
    for module in ("bf16", "gemm"):
        monkeypatch.setattr(f"torshc.targets.cpu.{module}.choose_form", lambda extras, rows=None: form)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("form", WIDE_FORMS, ids=name)
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((35, 33), (33, 50)), ((1, 64), (64, 100)), ((4, 31), (31, 130)), ((16, 1), (1, 9)), ((17, 2), (2, 16)),
        ((64, 96), (96, 64)), (("s", 40), (40, 37)), (("b", "s", 40), (40, 33)), ((2, 5, 21), (2, 21, 19)),
        ((33,), (33, 19)), ((700, 8), (8, 16)), ((35, 24), (24, 50)), ((70, 48), (48, 33)), ((2, 8256), (8256, 40)),
        ((70, 448), (448, 65)), ((33, 461), (461, 33)), ((3, 49, 1000), (1000, 40)), (("s", 1024), (1024, 17)),
        ((2, 40, 1024), (1024, 770)),
    ],
    ids=str,
)  # fmt: skip
def test_product(a: Shape, b: tuple[int, ...], form: Form, lanes: int, compiler: str) -> None:
    """No partial sum is rounded to bf16, whatever the rows, columns and terms that are left over."""
    m = Maker()
    left, right = halves(1, *sizes(a, DIMS)), halves(2, *b)
    made = program(m.output(product(m, m.input(*a, dtype=rows_of(form)), right)), form, lanes, compiler)
    assert kinds(made) == [name(form)]
    expected = np.matmul(left.astype(np.float64), right.astype(np.float64))
    close(made.run(left.astype(rows_of(form).numpy))[0], expected, 2e-6)


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("form", FORMS, ids=name)
def test_long_sums_are_no_long_chains(form: type[Bf16GemmKernel], rows: int) -> None:
    """Whose roundings would be as many as their terms: 16,384 in a chain leave an error of 2e-6 to 4e-6."""
    m = Maker()
    left, right = halves(1, rows, 16_384), halves(2, 16_384, 50)
    made = program(m.output(product(m, m.input(rows, 16_384, dtype=BF16), right)), form)
    close(made.run(left)[0], left.astype(np.float64) @ right.astype(np.float64), 1e-6)


@pytest.mark.parametrize("form", ALL_FORMS, ids=name)
def test_epilogue(form: Form) -> None:
    """Bias, activation and residual, and a result in bf16 beside one in f32."""
    m = Maker()
    weights, bias = halves(3, 40, 37), random(np.random.default_rng(4), (37,))
    x, r = m.input("s", 40, dtype=rows_of(form)), m.input("s", 37)
    y = m.add("Relu", m.add("Add", product(m, x, weights), m.constant(bias)))
    z = m.add("Add", y, r)
    made = program(m.output(m.add("Cast", y, to=BF16), z), form)
    assert kinds(made) == [name(form)]
    left, residual = halves(5, 37, 40), random(np.random.default_rng(6), (37, 37))
    first, second = made.run(left.astype(rows_of(form).numpy), residual)
    expected = np.maximum(left.astype(np.float32) @ weights.astype(np.float32) + bias, 0)
    close(first.astype(np.float32), expected, 2**-8)
    close(second, expected + residual, 2e-6)


@pytest.mark.parametrize("form", ALL_FORMS, ids=name)
def test_an_activation_that_is_kept_as_a_half(form: Form) -> None:
    """It is computed to a half's accuracy, and rounded within 9/16 of its last bit."""
    m = Maker()
    weights, x = halves(3, 40, 37), m.input("s", 40, dtype=rows_of(form))
    y = product(m, x, weights)
    made = program(m.output(m.add("Cast", m.add("Gelu", y), to=BF16)), form)
    assert kinds(made) == [name(form)]
    assert "t_near_normal_bf16_f32(" in made.launches[0].source and "t_erf_f32(" not in made.launches[0].source
    left = halves(5, 37, 40).astype(rows_of(form).numpy)
    sums = left.astype(np.float64) @ weights.astype(np.float64)
    expected = np.vectorize(lambda v: v * 0.5 * math.erfc(-v * math.sqrt(0.5)))(sums)
    np.testing.assert_allclose(made.run(left)[0].astype(np.float64), expected, 2**-8 * 9 / 8, 1e-6)


@pytest.mark.parametrize("compiler", compilers())
def test_rounding_by_the_instruction(compiler: str) -> None:
    """It is that of bf16 by definition, for subnormal numbers too, which the instruction alone takes for zeros."""
    m = Maker()
    graph = m.output(m.add("Cast", m.input(4, 4096), to=BF16))
    bits = np.random.default_rng(15).integers(0, 1 << 32, 4 * 4096, np.uint32)
    bits[::3] &= 0x807FFFFF  # subnormal, of either sign
    bits[:4] = 0x7F7FFFFF, 0x7F800001, 0xFF800000, 0x3F808000
    x = bits.view(np.float32).reshape(4, 4096)
    found = Program(graph, DIMS, Machine(WIDEST, kind_of(compiler), extras=("avx512bf16",)), compiler).run(x)[0]
    with np.errstate(invalid="ignore", over="ignore"):
        expected = x.astype(BF16.numpy)
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), np.isnan(x))
    numbers = ~np.isnan(x)
    np.testing.assert_array_equal(found.view(np.uint16)[numbers], expected.view(np.uint16)[numbers])


@pytest.mark.parametrize("form", ALL_FORMS, ids=name)
def test_rows_that_do_not_lie_along_the_sum(form: Form) -> None:
    m = Maker()
    weights = halves(7, 19, 40)
    x = m.add("Transpose", m.input(40, 21, dtype=rows_of(form)), perm=(1, 0))
    made = program(m.output(m.builder.one(MatMul(out="f32"), x, m.constant(weights.T.copy()))), form)
    assert kinds(made)[-1] == name(form)
    left = halves(8, 40, 21).astype(rows_of(form).numpy)
    close(made.run(left)[0], left.T.astype(np.float64) @ weights.T.astype(np.float64), 2e-6)


@pytest.mark.parametrize("form", ALL_FORMS, ids=name)
def test_numbers_that_are_not_finite(form: Form) -> None:
    """They stay in their rows and columns: what is padded multiplies none of them."""
    m = Maker()
    left, right = halves(9, 19, 33), halves(10, 33, 21)
    left[3, 32], left[7, 0], right[5, 20] = np.nan, np.inf, -np.inf
    x = m.input(19, 33, dtype=rows_of(form))
    found = program(m.output(product(m, x, right)), form).run(left.astype(rows_of(form).numpy))[0]
    with np.errstate(invalid="ignore"):
        expected = left.astype(np.float32) @ right.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(expected))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(expected))


@pytest.mark.parametrize("depth", [100, 96, 48, 24])
@pytest.mark.parametrize("form", ALL_FORMS, ids=name)
def test_a_row_has_the_same_bits_among_any_number_of_rows(form: Form, depth: int) -> None:
    """Whether tiles read them where they lie, or packed."""
    right, left = halves(11, depth, 50), halves(12, 37, depth).astype(rows_of(form).numpy)
    found = []
    for rows in (1, 3, 18, 37):
        m = Maker()
        made = program(m.output(product(m, m.input(rows, depth, dtype=rows_of(form)), right)), form)
        found.append(made.run(left[:rows])[0])
    for rows in found[:-1]:
        np.testing.assert_array_equal(rows, found[-1][: len(rows)])


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", sorted({native_lanes(), WIDEST}))
def test_tiles_add_even_and_odd_terms_apart(lanes: int, compiler: str) -> None:
    """The order of sums of TDPBF16PS: a step of 32 terms by itself, those of even k joined with those of odd k."""
    if native_lanes() < 8:
        pytest.skip("the stand-in has no fused multiply-add here")
    left, right = halves(13, 16, 96), halves(14, 96, 16)
    m = Maker()
    made = program(m.output(product(m, m.input(16, 96, dtype=BF16), right)), FORMS[0], lanes, compiler)
    expected = np.zeros((16, 16), np.float32)
    for step in range(0, 96, 32):
        apart = np.zeros((2, 16, 16), np.float32)
        for k in range(step, step + 32):
            term = np.outer(left[:, k].astype(np.float64), right[k].astype(np.float64))
            apart[k % 2] = (apart[k % 2] + term).astype(np.float32)
        expected = expected + (apart[0] + apart[1])
    np.testing.assert_array_equal(made.run(left)[0], expected)


@pytest.mark.parametrize("lanes", sorted({native_lanes(), WIDEST}))
def test_tiles_flush_what_is_below_the_normal_numbers(lanes: int) -> None:
    """As the instructions do: a factor or a sum below 2^-126 is a zero."""
    m = Maker()
    right = np.zeros((32, 16), BF16.numpy)
    right[0] = 1
    left = np.zeros((3, 32), BF16.numpy)
    left[:, 0] = [2.0**-126, 2.0**-127, -(2.0**-130)]
    found = program(m.output(product(m, m.input(3, 32, dtype=BF16), right)), FORMS[0], lanes).run(left)[0]
    np.testing.assert_array_equal(found[:, 0], np.array([2.0**-126, 0, 0], np.float32))


@pytest.mark.parametrize(
    ("extras", "wanted"),
    [
        ((), "gemm"), (("avxvnni", "avx512bf16"), "gemm_bf16_dot"), (("dotprod",), "gemm"),
        (("dotprod", "i8mm", "bf16"), "gemm_bf16_mmla"), (("avx512bf16", "avx512fp16"), "gemm"),
        (("avx512bf16", "avx512fp16", "amx-tile", "amx-bf16"), "gemm_bf16_amx"), (("amx-tile",), "gemm"),
    ],
)  # fmt: skip
def test_a_processor_takes_the_form_that_it_is_fastest_with(extras: tuple[str, ...], wanted: str) -> None:
    assert name(choose_form(extras)) == wanted


def test_few_rows_take_vectors_where_there_are_tiles() -> None:
    """They only wait for their weights, which are packed alike."""
    extras = ("avx512bf16", "avx512fp16", "amx-tile", "amx-bf16")
    assert [name(choose_form(extras, rows)) for rows in (1, 4, 5, None)] == ["gemm_bf16_dot"] * 2 + [
        "gemm_bf16_amx"
    ] * 2
    assert name(choose_form(("amx-tile", "amx-bf16"), 1)) == "gemm_bf16_amx"
    assert choose_form(("avx512bf16", "avx512fp16"), 1) is None  # whose other rows are f32


def test_forms_share_their_weights() -> None:
    """Versions of a library for different processors store them once."""
    packed = []
    for form in ALL_FORMS:
        m = Maker()
        made = program(m.output(product(m, m.input(5, 33, dtype=rows_of(form)), halves(15, 33, 50))), form)
        packed.append(made.kernels[0].buffers[1].operand)
    assert len({p.how for p in packed}) == 1  # type: ignore[union-attr]
    assert packed[0].nbytes == 4 * 64 * 16 * 2  # type: ignore[union-attr]  # bytes: two of an element


@pytest.mark.parametrize("form", ALL_FORMS, ids=name)
def test_a_whole_model(form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Activations between products are halves in memory, but where an instruction multiplies none.

    The result keeps to the tolerance that the model states.
    """
    take(form, monkeypatch)
    rng = np.random.default_rng(16)
    sizes = {"w": (60, 200), "b": (200,), "v": (200, 50)}
    weights = {n: (rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32) for n, s in sizes.items()}
    nodes = [node("MatMul", "x w", "p"), node("Add", "p b", "s"), node("Relu", "s", "r"), node("MatMul", "r v", "y")]
    made = model(nodes, {"x": ["n", 60]}, ["y"], weights)
    done = torshc.compile(made, tmp_path / "m.tsc", precision="bf16")
    kernels = [k for u in done.units for k in u.kernels]
    assert [k.template for k in kernels] == ["map.c.j2"] * bool(form) + [f"{name(form)}.c.j2"] * 2
    assert [b.dtype for b in kernels[-2].buffers if b.written] == [rows_of(form)]
    packed = [b.operand for k in kernels[-2:] for b in k.buffers if isinstance(b.operand, Packed)]
    assert [w.nbytes for w in packed] == [2 * 64 * 208, 2 * 224 * 64]  # two bytes of an element
    x = rng.standard_normal((37, 60)).astype(np.float32)
    with torshc.load(tmp_path / "m.tsc", threads=2) as loaded:
        found = loaded.run({"x": x})["y"]
    expected = np.maximum(x @ weights["w"] + weights["b"], 0) @ weights["v"]
    close(found, expected, 2**-6)


@pytest.mark.parametrize("form", WIDE_FORMS, ids=name)
@pytest.mark.parametrize("cut", [False, True])
def test_pixels_by_weights(cut: bool, form: Form, tmp_path: Path, monkeypatch: Any) -> None:
    """A 1x1 convolution, of a part of an image too, whose rows do not follow each other."""
    take(form, monkeypatch)
    rng = np.random.default_rng(17)
    weights = {n: rng.integers(-3, 4, s).astype(np.float32) for n, s in {"w": (20, 24, 1, 1), "b": (20,)}.items()}
    more = {"begin": np.array([1, 1]), "end": np.array([6, 9]), "axes": np.array([2, 3])}
    nodes = [node("Relu", "x", "r"), node("Slice", "r begin end axes", "part"), node("Conv", "part w b", "y")]
    nodes = nodes if cut else [node("Relu", "x", "part"), nodes[2]]
    made = model(nodes, {"x": [2, 24, 7, 9]}, ["y"], weights | (more if cut else {}))
    x = rng.integers(-3, 4, (2, 24, 7, 9)).astype(np.float32)
    done = torshc.compile(made, tmp_path / "m.tsc", precision="bf16")
    (kernel,) = (k for u in done.units for k in u.kernels if k.template == f"{name(form)}.c.j2")
    assert isinstance(kernel, form or GemmKernel) and [b.dtype for b in kernel.buffers][:2] == [rows_of(form), I32]
    with torshc.load(tmp_path / "m.tsc") as loaded:
        found = loaded.run({"x": x})["y"]
    part = np.maximum(x, 0)[:, :, 1:6, 1:9] if cut else np.maximum(x, 0)
    expected = np.einsum("nchw,oc->nohw", part, weights["w"][:, :, 0, 0]) + weights["b"][:, None, None]
    np.testing.assert_array_equal(found, expected)


@dataclass(frozen=True)
class Windows:
    """A convolution: input and kernel, and its fields where they are not the plain ones."""

    x: Shape
    w: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    dilations: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)


WINDOWS = [
    Windows((1, 32, 9, 11), (20, 32, 3, 3), pads=(1, 1, 1, 1)),
    Windows((2, 10, 8, 7), (17, 10, 3, 2), strides=(2, 1), pads=(1, 0, 0, 1)),
    Windows((1, 8, 12, 12), (33, 8, 3, 3), dilations=(2, 3)),
    Windows(("b", 24, 13, "s"), (16, 24, 1, 1), strides=(2, 2)),
    Windows((2, 16, "s"), (40, 16, 5), strides=(2,), dilations=(1,), pads=(2, 2)),
    Windows((1, 64, 30, 30), (8, 64, 3, 3), pads=(1, 1, 1, 1)),
    Windows((2, 64, 8, 7), (17, 64, 3, 2), strides=(2, 1), pads=(1, 0, 0, 1)),
    Windows(("b", 32, 12, 12), (33, 32, 3, 3), dilations=(2, 3)),
    Windows((2, 32, "s"), (40, 32, 5), strides=(2,), dilations=(1,), pads=(2, 2)),
    Windows((2, 64, 37), (40, 64, 5), strides=(3,), dilations=(2,), pads=(3, 1)),
    Windows((3, 32, 5, 14), (40, 32, 3, 3), pads=(1, 1, 1, 1)),  # an odd number of tiles, which rows of output are
    Windows((2, 32, 9, 56), (20, 32, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
]
PICTURES = [
    Windows((2, 3, 23, 21), (40, 3, 7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    Windows(("b", 4, 23, 21), (17, 4, 11, 5), strides=(4, 1), pads=(3, 2, 0, 1)),
    Windows((1, 3, 32, 48), (17, 3, 16, 16), strides=(16, 16)),
    Windows((2, 3, 9, 21), (40, 3, 3, 11), strides=(1, 4), dilations=(2, 1), pads=(1, 1, 2, 1)),
]
BLOCKS = Windows((2, 32, 65, 64), (16, 32, 5, 3), strides=(2, 3), pads=(2, 1, 0, 3))  # which tasks share


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("form", WINDOW_FORMS, ids=name)
@pytest.mark.parametrize("case", WINDOWS, ids=str)
def test_windows(case: Windows, form: type[Bf16GemmKernel], lanes: int, compiler: str) -> None:
    """What the taps of a pixel read is a row of a product, with zeros in the margin."""
    m = Maker()
    bias = random(np.random.default_rng(20), (case.w[0],))
    left, right = halves(18, *sizes(case.x, DIMS)), halves(19, *case.w)
    fields = {"strides": case.strides, "dilations": case.dilations, "pads": tuple(map(const, case.pads))}
    x, w, b = m.input(*case.x, dtype=BF16), m.constant(right), m.constant(bias)
    y = m.add("Relu", m.builder.one(Conv(out="f32", **fields), x, w, b))
    made = program(m.output(y), form, lanes, compiler)
    known = "s" not in case.x[2:]  # an image whose sizes a run decides is packed pixel by pixel
    by_planes = form is AmxKernel and known and (case.w[1] % 32 == 0 or case in PICTURES)
    assert kinds(made)[-1] == ("conv_bf16_amx" if by_planes else name(form))
    nodes = [node("Conv", "x w b", "y", **{f: list(getattr(case, f)) for f in fields}), node("Relu", "y", "z")]
    reference = ReferenceEvaluator(model(nodes, {"x": left.shape}, ["z"], {"w": right.astype(np.float32), "b": bias}))
    (expected,) = reference.run(None, {"x": left.astype(np.float32)})
    close(made.run(left)[0], expected, 4e-6)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("case", PICTURES, ids=str)
def test_pictures_by_tiles(case: Windows, lanes: int) -> None:
    """Of few channels a tap is a row of the kernel."""
    test_windows(case, AmxKernel, lanes, compilers()[0])


def test_a_pixel_that_is_no_number_reaches_its_windows_alone() -> None:
    """Tiles read no pixels beyond a row of the kernel, whose weights would be zeros."""
    m = Maker()
    fields = {"strides": (2, 2), "dilations": (1, 1), "pads": tuple(map(const, (3, 3, 3, 3)))}
    y = m.builder.one(Conv(out="f32", **fields), m.input(1, 3, 23, 21, dtype=BF16), m.constant(halves(30, 20, 3, 7, 7)))
    x = halves(31, 1, 3, 23, 21)
    x[0, 1, 10, 9] = np.nan
    found = np.isnan(program(m.output(y), AmxKernel).run(x)[0]).any((0, 1))
    reach = [np.abs(2 * np.arange(n) - place) <= 3 for n, place in ((12, 10), (11, 9))]
    np.testing.assert_array_equal(found, np.outer(*reach))


def test_rows_of_images_that_several_tasks_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbouring blocks both copy what lies between them, whatever the bytes of a block."""
    monkeypatch.setattr("torshc.targets.cpu.bf16.BLOCK_BYTES", 64 * 1024)
    test_windows(BLOCKS, AmxKernel, WIDEST, compilers()[0])


@pytest.mark.parametrize("rows_first", [False, True])
@pytest.mark.parametrize("image", [False, True])
def test_tasks_of_a_call_share_what_it_has_copied(
    image: bool, rows_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever tasks follow each other: parts of an image in turns with columns, or rows that fill no tile."""
    monkeypatch.setattr("torshc.targets.cpu.bf16.TILES_FLOPS", 40_000)
    monkeypatch.setattr("torshc.targets.cpu.bf16.FEW_BYTES", 1 << 20 if rows_first else 0)
    monkeypatch.setattr("torshc.targets.cpu.conv_bf16.STAY_BYTES", 1 << 20 if rows_first else 0)
    left, right = (
        (halves(1, 2, 32, 13, 11), halves(2, 96, 32, 3, 3)) if image else (halves(3, 2, 70, 160), halves(4, 2, 160, 96))
    )
    fields = {"strides": (1, 1), "dilations": (1, 1), "pads": tuple(map(const, (1, 1, 1, 1)))}
    m = Maker()
    x = m.input(*left.shape, dtype=BF16)
    y = m.builder.one(Conv(out="f32", **fields), x, m.constant(right)) if image else product(m, x, right)
    made = program(m.output(y), AmxKernel)
    (expected,), launch = made.run(left), made.launches[-1]
    kernel = launch.kernel
    assert isinstance(kernel, AmxKernel) and kernel.rows_first == rows_first and launch.tasks > 16
    assert isinstance(kernel, ImageKernel) == image
    assert not isinstance(kernel, ImageKernel) or kernel.images == (1 if rows_first else 2)
    for tasks in (2, 3, 5, launch.tasks):
        made.memory[made.graph.outputs[0]].array[...] = np.nan
        for begin in range(0, launch.tasks, tasks):
            launch.run(begin, min(begin + tasks, launch.tasks))
        np.testing.assert_array_equal(made.read(made.graph.outputs[0]), expected)


@pytest.mark.parametrize("batch", [5, "b"])
def test_small_images_share_a_block(batch: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that stay in no cache are read once for several images; these have the bits that each has alone."""
    monkeypatch.setattr("torshc.targets.cpu.bf16.FEW_BYTES", 0)
    monkeypatch.setattr("torshc.targets.cpu.conv_bf16.STAY_BYTES", 0)
    monkeypatch.setitem(DIMS, "b", 5)
    x, w = halves(5, 5, 64, 7, 9), halves(6, 40, 64, 3, 3)
    # A copy has 9 rows of 11 pixels and 32 more, 64 halves and 32 each, and 64 behind: 25,280 bytes.
    monkeypatch.setattr("torshc.targets.cpu.conv_bf16.MOST_BYTES", 2 * 25_280)
    fields = {"strides": (1, 1), "dilations": (1, 1), "pads": tuple(map(const, (1, 1, 1, 1)))}

    def run(size: int | str, images: np.ndarray[Any, Any]) -> tuple[Any, np.ndarray[Any, Any]]:
        m = Maker()
        y = m.builder.one(Conv(out="f32", **fields), m.input(size, 64, 7, 9, dtype=BF16), m.constant(w))
        made = program(m.output(y), AmxKernel)
        return made.kernels[-1], made.run(images)[0]

    kernel, found = run(batch, x)
    assert kernel.images == 2
    for i in range(5):
        np.testing.assert_array_equal(found[i : i + 1], run(1, x[i : i + 1])[1])


@pytest.mark.parametrize(
    "size, rows, exact, pairs",
    [(14, 14, True, 7), (28, 16, False, 27), (56, 16, False, 102), (112, 16, True, 392), (7, 16, False, 2)],
)
def test_tiles_fill_rows_of_output(size: int, rows: int, exact: bool, pairs: int) -> None:
    """There are as few pairs of tiles as can be, of few rows: 7 of 28 pixels for 14 x 14, not 7 of 32 with margins."""
    m = Maker()
    fields = {"strides": (1, 1), "dilations": (1, 1), "pads": tuple(map(const, (1, 1, 1, 1)))}
    x = m.input(1, 32, size, size, dtype=BF16)
    made = program(
        m.output(m.builder.one(Conv(out="f32", **fields), x, m.constant(halves(6, 32, 32, 3, 3)))), AmxKernel
    )
    kernel = next(k for k in made.kernels if isinstance(k, ImageKernel))
    kernel = ImageKernel.of(kernel, rows=size)
    assert (kernel.tile_rows, kernel.exact, kernel.pixel_tiles) == (rows, exact, pairs)


@pytest.mark.parametrize("image", [False, True])
def test_weights_that_are_read_once(image: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns come before rows, and those of the next group are asked for: no bit is another."""
    found = []
    left, right = (
        (halves(1, 1, 64, 9, 11), halves(2, 40, 64, 3, 3)) if image else (halves(3, 70, 160), halves(4, 160, 50))
    )
    fields = {"strides": (1, 1), "dilations": (1, 1), "pads": tuple(map(const, (1, 1, 1, 1)))}
    for rows_first in (True, False):
        m = Maker()
        x = m.input(*left.shape, dtype=BF16)
        y = m.builder.one(Conv(out="f32", **fields), x, m.constant(right)) if image else product(m, x, right)
        made = program(m.output(y), AmxKernel)
        kernel = made.kernels[-1]
        assert isinstance(kernel, AmxKernel) and kernel.rows_first == rows_first
        found.append(made.run(left)[0])
        monkeypatch.setattr("torshc.targets.cpu.bf16.FEW_BYTES", 0)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("rows", [33, 70, "s"])
def test_rows_that_share_sets_of_a_cache_are_packed(rows: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their sums are made in blocks of terms: no bit is another."""
    found = []
    monkeypatch.setattr("torshc.targets.cpu.bf16.FEW_BYTES", 0)
    for columns in (32, 64):
        monkeypatch.setattr("torshc.targets.cpu.bf16.PACKED_COLUMNS", columns)
        m = Maker()
        y = product(m, m.input(rows, 1024, dtype=BF16), halves(8, 1024, 50))
        made = program(m.output(y), AmxKernel)
        kernel = made.kernels[-1]
        assert isinstance(kernel, AmxKernel) and kernel.blocked == (columns == 32) == (not kernel.direct)
        found.append(made.run(halves(7, *sizes((rows, 1024), DIMS)))[0])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("depth", "columns", "keeps"), [(256, 64, "rows"), (512, 192, "weights"), (1536, 64, "")], ids=str
)
def test_a_factor_that_is_read_again_stays_in_the_first_cache(depth: int, columns: int, keeps: str) -> None:
    """Where it has room: 32 rows or columns of up to 512 terms."""
    m = Maker()
    made = program(m.output(product(m, m.input(70, depth, dtype=BF16), halves(4, depth, columns))), AmxKernel)
    kernel = made.kernels[-1]
    assert isinstance(kernel, AmxKernel) and kernel.keeps == keeps


def test_many_results_are_written_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """More columns than terms: the first rows wait for all weights, as far as these stay in L2."""
    monkeypatch.setattr("torshc.targets.cpu.bf16.FEW_BYTES", 0)
    found = []
    left, right = halves(3, 70, 64), halves(4, 64, 160)
    for rows_first in (True, False):
        m = Maker()
        made = program(m.output(product(m, m.input(*left.shape, dtype=BF16), right)), AmxKernel)
        kernel = made.kernels[-1]
        assert isinstance(kernel, AmxKernel) and kernel.rows_first == rows_first
        found.append(made.run(left)[0])
        monkeypatch.setattr("torshc.targets.cpu.bf16.STAY_BYTES", 0)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(
    ("limit", "cases"),
    [("MANY_ROWS", [(1 << 20, 1), (128, 4)]), ("RESULT_BYTES", [(150 * 230 * 4 + 1, 1), (150 * 230 * 4, 4)])],
)
def test_many_rows_or_results_take_columns_in_chunks(
    limit: str, cases: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever tasks follow each other, of the same chunk or the next: no bit is another."""
    monkeypatch.setattr("torshc.targets.cpu.bf16.TILES_FLOPS", 100_000)
    monkeypatch.setattr("torshc.targets.cpu.bf16.STAY_BYTES", 0)
    monkeypatch.setattr("torshc.targets.cpu.bf16.FEW_BYTES", 0)
    monkeypatch.setattr("torshc.targets.cpu.bf16.CHUNK_BYTES", 64 * 64 * 2)
    monkeypatch.setattr("torshc.targets.cpu.bf16.SHORT_CHUNK_BYTES", 64 * 64 * 2)
    left, right = halves(3, 2, 150, 64), halves(4, 2, 64, 230)
    found = []
    for least, chunks in cases:
        monkeypatch.setattr(f"torshc.targets.cpu.bf16.{limit}", least)
        m = Maker()
        made = program(m.output(product(m, m.input(*left.shape, dtype=BF16), right)), AmxKernel)
        kernel, launch = made.kernels[-1], made.launches[-1]
        assert isinstance(kernel, AmxKernel) and (kernel.rows_first, kernel.chunks) == (chunks > 1, chunks)
        for tasks in (1, 3, 7, launch.tasks):
            made.run(left)
            made.memory[made.graph.outputs[0]].array[...] = np.nan
            for begin in range(0, launch.tasks, tasks):
                launch.run(begin, min(begin + tasks, launch.tasks))
            found.append(made.read(made.graph.outputs[0]).copy())
    assert launch.tasks > 8
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("rows", [1, 2])
def test_rows_that_are_few_take_two_panels_at_a_time(rows: int) -> None:
    """By vectors of 8, to the bits that they have among more rows; the last panel has none beside it."""
    left, right = floats(5, 9, 75), halves(6, 75, 39)
    found = []
    for count in (rows, 9):
        m = Maker()
        made = program(m.output(product(m, m.input(count, 75), right)), None, 8)
        kernel = made.kernels[-1]
        assert isinstance(kernel, GemmKernel) and kernel.tile.vectors == (4 if count == rows else 3)
        found.append(made.run(left[:count])[0][:rows] if native_lanes() >= 8 else None)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize(("rows", "wide"), [(70, True), (3, False), ("s", None)], ids=str)
def test_floats_that_many_rows_read_stay_in_the_first_cache(
    rows: int | str, wide: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first tile makes them; long sums are made in pieces of terms, and blocks of these: no bit is another."""
    left, right, found = floats(7, *sizes((rows, 135), DIMS)), halves(8, 135, 53), []
    for room, block, (k_blocks, chunk) in ((1 << 20, 1024, (1, 136)), (1, 1024, (1, 2)), (1 << 20, 45, (3, 46))):
        monkeypatch.setattr("torshc.targets.cpu.gemm.FLOAT_BYTES", room)
        monkeypatch.setattr("torshc.targets.cpu.tiles.BLOCK_K", block)
        m = Maker()
        made = program(m.output(m.add("Relu", product(m, m.input(rows, 135), right))), None)
        kernel = made.kernels[-1]
        assert isinstance(kernel, GemmKernel)
        assert (kernel.wide, kernel.k_blocks, kernel.chunk) == ((False, 1, 0) if rows == 3 else (wide, k_blocks, chunk))
        found.append(made.run(left)[0])
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("rows", [1, 3])
def test_large_weights_of_few_rows_are_read_in_one_piece(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One panel after the other in place of four beside each other: no bit is another."""
    found = []
    left, right = halves(5, rows, 75), halves(6, 75, 150)
    for vectors in (4, 1):
        m = Maker()
        made = program(m.output(product(m, m.input(*left.shape, dtype=BF16), right)), DotKernel, 16)
        kernel = made.kernels[-1]
        assert isinstance(kernel, DotKernel) and kernel.tile.vectors == vectors
        found.append(made.run(left)[0] if WIDEST >= 16 else None)  # others cannot run vectors of 16
        monkeypatch.setattr("torshc.targets.cpu.bf16.STREAM_BYTES", 0)
    np.testing.assert_array_equal(*found)


def test_images_are_stored_once_as_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Residuals and convolutions of one channel each read them too, and compute in f32; small integers are exact."""
    monkeypatch.setattr("torshc.targets.cpu.conv_bf16.choose_form", lambda extras, rows=None: FORMS[0])
    monkeypatch.setattr("torshc.targets.cpu.gemm.choose_form", lambda extras, rows=None: FORMS[0])
    monkeypatch.setattr("torshc.targets.cpu.bf16.choose_form", lambda extras, rows=None: FORMS[0])
    rng = np.random.default_rng(23)
    shapes = {"w": (37, 16, 1, 1), "d": (37, 1, 3, 3), "v": (16, 37, 1, 1), "u": (16, 16, 1, 1)}
    weights = {n: rng.integers(-1, 2, s).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        node("Relu", "x", "r"), node("Conv", "r w", "a"), node("Relu", "a", "b"),
        node("Conv", "b d", "c", group=37, pads=[1, 0, 1, 2], strides=[2, 1]), node("Relu", "c", "e"),
        node("Conv", "e v", "f"), node("Conv", "f u", "g"), node("Relu", "g", "h"), node("Add", "f h", "s"),
        node("Conv", "s u", "y"),
    ]  # fmt: skip
    made = model(nodes, {"x": [2, 16, 7, 9]}, ["y"], weights)
    x = rng.integers(-2, 3, (2, 16, 7, 9)).astype(np.float32)
    done = torshc.compile(made, tmp_path / "m.tsc", precision="bf16")
    kernels = [(k.kind, [b.dtype.name for b in k.buffers]) for u in done.units for k in u.kernels]
    assert ("depthwise", ["bf16", "f32", "bf16"]) in kernels
    (deep,) = (k for u in done.units for k in u.kernels if isinstance(k, DepthwiseKernel))
    assert deep.columns == (8 if deep.lanes == 16 else 4)  # of halves more share what a tile makes floats
    products = sorted(types for kind, types in kernels if kind == "gemm")
    assert products == [["bf16", "i32", "bf16"]] * 3 + [["bf16", "i32", "f32"]]
    with torshc.load(tmp_path / "m.tsc") as loaded:
        found = loaded.run({"x": x})["y"]
    (expected,) = ReferenceEvaluator(made).run(None, {"x": x})
    assert np.abs(expected).max() > 0
    close(found, expected, 2**-7)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("blocks", ["whole", "small", "shared"])
@pytest.mark.parametrize("size", [(28, 28), (6, 12), (10, 32)])
def test_the_largest_of_four_sums_is_a_result(
    size: tuple[int, int], blocks: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever blocks, with the bits of a pool behind, which NaN wins."""
    monkeypatch.setattr("torshc.targets.cpu.bf16.TILES_FLOPS", 40_000)
    if blocks == "small":
        monkeypatch.setattr("torshc.targets.cpu.conv_bf16.BLOCK_BYTES", 24 * 1024)
    if blocks == "shared":
        monkeypatch.setattr("torshc.targets.cpu.conv_bf16.STAY_BYTES", 0)
    x, w, b = halves(40, 5, 32, *size), halves(41, 37, 32, 3, 3), random(np.random.default_rng(42), (37,))
    x[1, 7, 3, 5] = np.nan
    found = []
    for windows in ((), (2, 2)):
        m = Maker()
        conv = Conv((1, 1), tuple(map(const, (1, 1, 1, 1))), (1, 1), 1, "f32", windows)
        y = m.builder.one(conv, m.input(*x.shape, dtype=BF16), m.constant(w), m.constant(b))
        y = m.add("Cast", m.add("Relu", y), to=BF16)
        y = y if windows else m.add("MaxPool", y, kernel=(2, 2), strides=(2, 2), pads=(const(0),) * 4, dilations=(1, 1))
        made = program(m.output(y), AmxKernel, lanes)
        found.append(made.run(x)[0].astype(np.float32))
    kernel = made.kernels[-1]
    assert isinstance(kernel, ImageKernel) and kernel.pooled and (kernel.images > 1) == (blocks == "shared")
    np.testing.assert_array_equal(*found)
    assert 0 < np.isnan(found[0]).sum() < found[0].size // 5


def test_a_pool_behind_a_convolution_is_a_part_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a whole model, with the bits of two kernels."""
    for module in ("conv_bf16", "gemm", "bf16"):
        monkeypatch.setattr(f"torshc.targets.cpu.{module}.choose_form", lambda extras, rows=None: FORMS[0])
    rng = np.random.default_rng(43)
    shapes = {"w": (32, 3, 3, 3), "v": (40, 32, 3, 3), "b": (40,), "u": (9, 40, 3, 3)}
    weights = {n: (rng.standard_normal(s) / 8).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        node("Conv", "x w", "a", pads=[1] * 4), node("Relu", "a", "c"), node("Conv", "c v b", "d", pads=[1] * 4),
        node("Relu", "d", "e"), node("MaxPool", "e", "f", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "f u", "y"),
    ]  # fmt: skip
    made = model(nodes, {"x": [2, 3, 28, 28]}, ["y"], weights)
    x, found = rng.standard_normal((2, 3, 28, 28)).astype(np.float32), []
    for wanted in (True, False):
        out = tmp_path / f"{wanted}.tsc"
        done = torshc.compile(made, out, precision="bf16", passes={"pool_sums": wanted})
        assert ("row.c.j2" in [k.template for u in done.units for k in u.kernels]) != wanted
        with torshc.load(out, threads=2) as loaded:
            found.append(loaded.run({"x": x})["y"])
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("shape", [(2, 70, 64), (33, 64), ("b", "s", 64)], ids=str)
def test_a_call_of_many_columns_packs_its_rows(shape: Shape, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a fourth of all tasks does, one of fewer reads rows where they lie: no bit is another."""
    limits = {"LONG_ROWS_COLUMNS": 128, "ROW_STEPS": 2, "FEW_BYTES": 0, "STAY_BYTES": 0, "TILES_FLOPS": 100_000}
    for limit, value in limits.items():
        monkeypatch.setattr(f"torshc.targets.cpu.bf16.{limit}", value)
    m = Maker()
    made = program(m.output(product(m, m.input(*shape, dtype=BF16), halves(4, 64, 230))), AmxKernel)
    kernel, launch = made.kernels[-1], made.launches[-1]
    assert isinstance(kernel, AmxKernel) and kernel.packs_long_rows and kernel.direct
    left, found = halves(3, *sizes(shape, DIMS)), []
    for tasks in (1, launch.tasks // 4 + 1, launch.tasks):
        made.run(left)
        made.memory[made.graph.outputs[0]].array[...] = np.nan
        for begin in range(0, launch.tasks, tasks):
            launch.run(begin, min(begin + tasks, launch.tasks))
        found.append(made.read(made.graph.outputs[0]).copy())
    assert launch.tasks >= 8
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])
    close(found[0], left.astype(np.float32) @ halves(4, 64, 230).astype(np.float32), 1e-6)


@pytest.mark.parametrize(("depth", "columns", "asks"), [(128, 64, True), (128, 300, True), (32, 64, False)])
def test_a_tile_asks_for_the_rows_of_the_next_one(
    depth: int, columns: int, asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no cache holds them, and they are too long for the processor to ask for by itself."""
    left, right = halves(3, 150, depth), halves(4, depth, columns)
    found = []
    for least in (0, 1 << 30):
        monkeypatch.setattr("torshc.targets.cpu.bf16.FAR_ROWS_BYTES", least)
        m = Maker()
        made = program(m.output(product(m, m.input(*left.shape, dtype=BF16), right)), AmxKernel)
        kernel = made.kernels[-1]
        assert isinstance(kernel, AmxKernel) and kernel.asks_for_rows == (asks and not least)
        found.append(made.run(left)[0])
    np.testing.assert_array_equal(*found)


def test_an_epilogue_asks_for_operands_that_lie_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their lines come a tile ahead; no bit is another."""
    left, right = halves(3, 70, 64), halves(4, 64, 96)
    residual, bias = halves(5, 70, 96), random(np.random.default_rng(6), (96,))
    found = []
    for far in (0, 1 << 30):
        monkeypatch.setattr("torshc.targets.cpu.c.FAR_BYTES", far)
        m = Maker()
        x, r = m.input(*left.shape, dtype=BF16), m.input(*residual.shape, dtype=BF16)
        y = m.add("Add", m.add("Add", product(m, x, right), m.constant(bias)), m.add("Cast", r, to=F32))
        made = program(m.output(y), AmxKernel)
        assert sources(made)[-1].count("T_FETCH((const uint16_t *)c->buf") == (not far)
        found.append(made.run(left, residual)[0])
    np.testing.assert_array_equal(*found)
