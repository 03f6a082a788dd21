"""Products and convolutions on devices of blocks: one kernel, on the emulator, against NumPy and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from torshc.expr import const

from .make import Maker, Shape, random, sizes
from .run_grid import GridProgram, needs_emulator, templates
from .run_kernel import close
from .test_conv import CONV, TRANSPOSED, Case, reference

pytestmark = needs_emulator
RNG = np.random.default_rng(12)
DIMS = {"b": 2, "h": 9, "w": 7, "s": 17, "k": 21, "n": 19}

# Shapes of a and b, whether b is a constant, templates that are expected.
PRODUCTS: list[tuple[Shape, Shape, bool, str]] = [
    ((13, 21), (21, 19), True, "contraction"),
    ((13, 21), (21, 19), False, "contraction"),
    ((65, 64), (64, 130), True, "contraction"),
    ((129, 40), (40, 24), False, "contraction"),
    ((64, 1024), (1024, 64), True, "contraction map"),
    ((9, 1001), (1001, 13), False, "contraction map"),
    ((200, 5), (5, 200), True, "contraction"),
    ((1, 64), (64, 100), True, "row"),
    ((1, 64), (64, 100), False, "row"),
    ((3, 64), (64, 48), True, "row"),
    ((7, 1), (1, 9), True, "row"),
    ((21,), (21, 19), True, "row"),
    ((13, 21), (21,), True, "row"),
    ((21,), (21,), False, "row"),
    ((2, 5, 21), (21, 19), True, "contraction"),
    ((2, 5, 21), (2, 21, 19), False, "contraction"),
    ((2, 5, 21), (2, 21, 19), True, "contraction"),
    ((3, 1, 5, 21), (2, 21, 20), False, "contraction"),
    ((5, 21), (2, 21, 19), False, "contraction"),
    (("b", "s", 21), (21, 20), True, "contraction"),
    (("b", "s", "k"), ("b", "k", "n"), False, "contraction"),
    (("s", "k"), ("k", 20), False, "contraction"),
    ((0, 21), (21, 19), True, ""),
    ((13, 0), (0, 19), True, "map"),
]


@pytest.mark.parametrize(("a", "b", "constant", "expected"), PRODUCTS, ids=str)
def test_product(a: Shape, b: Shape, constant: bool, expected: str) -> None:
    m = Maker()
    left, right = random(RNG, sizes(a, DIMS)), random(RNG, sizes(b, DIMS))
    x = m.input(*a)
    y = m.constant(right) if constant else m.input(*b)
    program = GridProgram(m.output(m.add("MatMul", x, y)), DIMS)
    assert " ".join(templates(program)) == expected
    if expected:
        (found,) = program.run(left, *([] if constant else [right]))
        close(found, np.matmul(left, right))


def convolve(case: Case) -> list[str]:
    """Compares a convolution with ONNX Runtime; the templates that were used."""
    m = Maker()
    w = random(RNG, case.w) / np.float32(np.prod(case.w[1:]) ** 0.5)
    bias = random(RNG, (case.w[0] if case.extra is None else case.w[1] * case.group,))
    source = m.input(*case.x, layout=case.layout)
    weights = m.constant(w) if case.packed else m.input(*case.w)
    attributes = {**case.attributes(), "pads": tuple(const(p) for p in case.pads or (0,) * 2 * (len(case.w) - 2))}
    y = m.add(case.op, source, weights, m.constant(bias), layout=case.out, **attributes)
    x = random(RNG, sizes(case.x, DIMS))
    arrays, expected = [x] if case.packed else [x, w], reference(case, x, w, bias)
    if case.residual:
        r = m.graph.new_value(y.type, "r")
        r.layout = case.out
        m.graph.inputs.append(r)
        y = m.add("Add", y, r, layout=case.out)
        arrays.append(random(RNG, expected.shape))
        expected = expected + arrays[-1]
    y = m.add(case.activation, y, layout=case.out)
    program = GridProgram(m.output(y), DIMS)
    close(program.run(*arrays)[0], np.maximum(expected, 0) if case.activation == "Relu" else np.tanh(expected))
    return templates(program)


@pytest.mark.parametrize("case", [*CONV, *TRANSPOSED], ids=str)
def test_convolution(case: Case) -> None:
    """Grouped ones of few channels, and those of one output pixel or channel, are rows; all others have tiles."""
    single = case.w[0] == 1 or (case.extra is None and case.x[2:] == case.w[2:])
    assert convolve(case)[-1] in (["row"] if single else ["contraction", "map"] + ["row"] * (case.group > 1))
