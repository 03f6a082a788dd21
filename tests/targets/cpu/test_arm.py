"""Products of narrow types by Arm's instructions, run by qemu: those of bytes are exact whatever multiplies them."""

from __future__ import annotations

import functools
import signal
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from torshc.base.options import CompileOptions
from torshc.expr import BF16, U8, const
from torshc.formats import import_model
from torshc.graph import Graph
from torshc.kernels.machine import Machine
from torshc.ops.math.linalg import MatMul
from torshc.ops.nn.conv import Conv
from torshc.ops.quant.integer import IntegerConv, IntegerMatMul
from torshc.passes import optimise
from torshc.targets.cpu.c import CTarget
from torshc.targets.isa import resolve

from ...conformance import cases as conformance
from ...support.kernels import Maker
from ...support.models import model, node
from ...support.run_emulated import TRIPLE, Emulated
from ...support.run_kernel import Array, Program, compilers, kind_of, native_lanes
from .test_dot import LAST, Case, convolved

BYTES = [  # a processor to compile for, one that runs it, and one that lacks its instructions
    ("armv8.2-a-bf16", "max", "neoverse-n1"),
    ("armv8.2-a-dotprod", "neoverse-n1", "cortex-a72"),
]
PRODUCTS = [(13, 37, 19), (1, 64, 100), (2, 21, 9)]
CONVOLUTIONS = [
    Case((1, 8, 9, 7), (20, 8, 3, 3), pads=(1, 1, 1, 1)),
    Case((2, 10, 9, 7), (22, 5, 3, 2), strides=(2, 1), pads=(0, 1, 2, 0), group=2),
    Case((2, 37, 9, 8), (37, 1, 3, 3), "depthwise_int8", pads=(1, 1, 1, 1), group=37),
]


def unsigned(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, shape).astype(np.uint8)


def signed(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).integers(-128, 128, shape).astype(np.int8)


@pytest.mark.parametrize(("mcpu", "on", "lacking"), BYTES, ids=str)
def test_bytes(mcpu: str, on: str, lacking: str) -> None:
    """Whatever is left over of rows, columns and terms, and where all numbers are the largest."""
    m = Maker()
    left = [unsigned(i, rows, depth) for i, (rows, depth, _) in enumerate(PRODUCTS)]
    right = [signed(i, depth, columns) for i, (_, depth, columns) in enumerate(PRODUCTS)]
    left[0][5], right[0][:, 3] = 255, -128
    inputs = [m.input(*x.shape, dtype=U8) for x in left]
    made = [m.builder.one(IntegerMatMul(), x, m.constant(w)) for x, w in zip(inputs, right, strict=True)]
    emulated = Emulated(m.output(*made), mcpu)
    found = emulated.run(*left, on=on)
    for x, w, y in zip(left, right, found, strict=True):
        np.testing.assert_array_equal(y, x.astype(np.int32) @ w.astype(np.int32))
    assert emulated.status(lacking) == -signal.SIGILL


@pytest.mark.parametrize(("mcpu", "on", "lacking"), BYTES, ids=str)
def test_convolutions_of_bytes(mcpu: str, on: str, lacking: str) -> None:
    """Of whole and several groups, and of a channel to a group, with a margin."""
    m, outputs, data = Maker(), [], []
    margin = np.asarray(77, np.uint8)
    edge = m.input(dtype=U8)
    for i, case in enumerate(CONVOLUTIONS):
        fields: Any = (case.strides, tuple(map(const, case.pads)), case.dilations, case.group)
        data.append((unsigned(i, *case.x), signed(i, *case.w)))
        x = m.input(*case.x, dtype=U8, layout=LAST)
        (y,) = m.builder.add(IntegerConv(*fields), [x, m.constant(data[-1][1]), edge])
        y.layout = LAST
        outputs.append(y)
    made = Emulated(m.output(*outputs), mcpu)
    assert [k.template for k in made.kernels] == [f"{case.template}.c.j2" for case in CONVOLUTIONS]
    found = made.run(margin, *(x for x, _ in data), on=on)
    for case, (x, w), y in zip(CONVOLUTIONS, data, found, strict=True):
        np.testing.assert_array_equal(y, convolved(case, x, w, int(margin)))
    assert made.status(lacking) == -signal.SIGILL


HALVES = [(13, 37, 19), (1, 64, 100), (6, 7, 9), (31, 70, 40), (3, 2051, 9)]
WINDOWS = [
    Case((1, 32, 9, 11), (20, 32, 3, 3), pads=(1, 1, 1, 1)),
    Case((2, 10, 8, 7), (17, 10, 3, 2), strides=(2, 1), pads=(1, 0, 0, 1)),
]


def halves(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16.numpy)


LEFT = [halves(i, rows, depth) for i, (rows, depth, _) in enumerate(HALVES)]
RIGHT = [halves(10 + i, depth, columns) for i, (_, depth, columns) in enumerate(HALVES)]
LEFT[0][4] *= np.float32(2.0**-126)  # products and sums of these are below the normal numbers, and some factors
LEFT[3][2, 5], LEFT[3][3, 7], LEFT[3][4, 6:8] = np.inf, np.nan, (np.inf, -np.inf)
IMAGES = [(halves(20 + i, *case.x), halves(30 + i, *case.w)) for i, case in enumerate(WINDOWS)]


def products_of_halves() -> Graph:
    """Products and convolutions, each with an output in f32."""
    m, outputs = Maker(), []
    for x, w in zip(LEFT, RIGHT, strict=True):
        outputs.append(m.builder.one(MatMul(out="f32"), m.input(*x.shape, dtype=BF16), m.constant(w)))
    for case, (x, w) in zip(WINDOWS, IMAGES, strict=True):
        fields: Any = {"strides": case.strides, "dilations": case.dilations, "pads": tuple(map(const, case.pads))}
        image = m.input(*x.shape, dtype=BF16)
        outputs.append(m.builder.one(Conv(out="f32", **fields), image, m.constant(w)))
    return m.output(*outputs)


def plain() -> Program:
    """The same in C for this machine."""
    machine = Machine(native_lanes(), kind_of(compilers()[0]), extras=("bf16",))
    return Program(products_of_halves(), None, machine, compilers()[0])


def flushed(x: Array) -> Array:
    """Numbers below 2^-126 as zeros."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def added_to_odd(x: Array, y: Array) -> Array:
    """Sums of f32 in f32; what is not exact is cut, and its last bit made 1."""
    exact = x.astype(np.longdouble) + y.astype(np.longdouble)
    near = exact.astype(np.float32)
    cut = np.where(np.abs(near) > np.abs(exact), np.nextafter(near, np.float32(0)), near).astype(np.float32)
    return flushed(np.where(near == exact, near, (cut.view(np.uint32) | 1).view(np.float32)))


def test_halves_in_plain_c() -> None:
    """Every machine has the sums of Arm's instructions: pairs of products first, all of them rounded to odd.

    Sums of 1,024 terms are then added up.
    """
    made = plain()
    assert {k.template for k in made.kernels} >= {"gemm_bf16_mmla.c.j2"}
    found = made.run(*LEFT, *(x for x, _ in IMAGES))
    for x, w, y in zip(LEFT, RIGHT, found, strict=False):
        left, right = (flushed(v.astype(np.float32)) for v in (x, w))
        terms = flushed(left[:, :, None] * right)  # exact: 8 bits by 8
        terms = np.concatenate([terms, np.zeros_like(terms[:, : terms.shape[1] % 2])], 1)
        sums = []
        with np.errstate(invalid="ignore"):
            for k in range(0, terms.shape[1], 2):
                sums += [np.zeros_like(y)] if k % 1024 == 0 else []
                sums[-1] = added_to_odd(sums[-1], added_to_odd(terms[:, k], terms[:, k + 1]))
            np.testing.assert_array_equal(y, functools.reduce(np.add, sums))


def test_halves() -> None:
    """The instructions give what plain C gives, bit for bit, and what ONNX's reference gives within their rounding.

    A sum of K terms is rounded K times, each by less than 2^-23 of what is added so far, and that is at most the sum of
    the terms' magnitudes; the reference rounds as often.
    """
    emulated, inputs = Emulated(products_of_halves(), "armv8.2-a-bf16"), [*LEFT, *(x for x, _ in IMAGES)]
    found = emulated.run(*inputs)
    for y, z in zip(found, plain().run(*inputs), strict=True):
        np.testing.assert_array_equal(y, z)
    for case, (x, w), y in zip(WINDOWS, IMAGES, found[len(LEFT) :], strict=True):
        wide = [v.astype(np.float32) for v in (x, w)]
        expected, most = (convolution(case, a, b) for a, b in (wide, [np.abs(v) for v in wide]))
        assert (np.abs(y - expected) <= most * (w[0].size * 2.0**-23 * 2)).all()
    assert emulated.status("neoverse-n1") == -signal.SIGILL


def test_weights_of_bf16_without_instructions() -> None:
    """They are made floats, and rows of f32 are read where they lie, nothing behind their end."""
    m, rows = Maker(), [x.astype(np.float32) for x in LEFT]
    outputs = [
        m.builder.one(MatMul(out="f32"), m.input(*x.shape), m.constant(w)) for x, w in zip(rows, RIGHT, strict=True)
    ]
    for x, w, y in zip(rows, RIGHT, Emulated(m.output(*outputs), "armv8-a").run(*rows, on="cortex-a72"), strict=True):
        wide = w.astype(np.float64)
        with np.errstate(invalid="ignore"):
            expected, most = x.astype(np.float64) @ wide, np.abs(x.astype(np.float64)) @ np.abs(wide)
        known = np.isfinite(expected)
        np.testing.assert_array_equal(np.isfinite(y), known)
        assert (np.abs(y[known] - expected[known]) <= most[known] * (len(w) * 2.0**-24) + 1e-37).all()


def convolution(case: Case, x: Array, w: Array) -> Array:
    """By ONNX's reference, in f32."""
    made = model(
        [node("Conv", "x w", "y", strides=[*case.strides], pads=[*case.pads])], {"x": x.shape}, ["y"], {"w": w}
    )
    (y,) = ReferenceEvaluator(made).run(None, {"x": x})
    return np.asarray(y)


ARM = resolve("armv8.2-a-bf16", TRIPLE)
OPERATORS = ("Conv", "ConvInteger", "Gemm", "MatMul", "MatMulInteger", "QLinearConv", "QLinearMatMul")


def weights_as_constants(case: conformance.Case) -> bytes:
    """A case's model whose inputs but the first are constants: what kernels of narrow types have."""
    made = onnx.ModelProto()
    made.CopyFrom(case.model)
    first, *others = case.feeds(0).items()
    kept = [v for v in made.graph.input if v.name == first[0]]
    made.graph.ClearField("input")
    made.graph.input.extend(kept)
    known = {t.name for t in made.graph.initializer}
    made.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in others if name not in known)
    return made.SerializeToString()


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "tolerance"), [("f32", 1e-5), ("bf16", 2.0**-7)])
def test_conformance(precision: str, tolerance: float) -> None:
    """ONNX's own cases of products and convolutions.

    bf16 rounds both factors of a term, each by 2^-9 of it at the most, which makes 2^-8 of the terms' magnitudes. These
    add up to less than twice the largest result: the cases' numbers lie in [0, 1], or are few integers.
    """
    templates = set()
    for case in (c for c in conformance.all_cases() if c.operator in OPERATORS):
        graph = import_model(weights_as_constants(case))
        optimise(graph, CompileOptions.create(precision=precision), CTarget.features_on((), ARM.extras))
        emulated = Emulated(graph, ARM.name)
        (found, *_), (wanted, *_) = emulated.run(next(iter(case.feeds(0).values()))), case.data_sets[0][1]
        if np.issubdtype(found.dtype, np.integer):
            np.testing.assert_array_equal(found, wanted, case.name)
        else:
            error = np.abs(found - wanted).max() / np.abs(wanted).max()
            assert error <= tolerance, (case.name, error)
        templates |= {k.template for k in emulated.kernels}
    assert ("gemm_bf16_mmla.c.j2" in templates) == (precision == "bf16")
