from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import torshc
from tests.support.seeded import seeded
from torshc.expr import as_int, const
from torshc.kernels.machine import Machine

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_kernel import Array, Program, close, compilers, kind_of, kinds, native_lanes

RNG = seeded(11)
LAST, LAST_1D, VOLUME = (0, 2, 3, 1), (0, 2, 1), (0, 2, 3, 4, 1)
DIMS = {"b": 2, "h": 9, "w": 7}
LANES = sorted({native_lanes(), 4 if native_lanes() >= 4 else 1, 1})


@dataclass(frozen=True)
class Case:
    """A convolution: shapes of input and weights, attributes, layouts, and the templates that are expected."""

    x: Shape
    w: tuple[int, ...]
    templates: str
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    group: int = 1
    extra: tuple[int, ...] | None = None
    layout: tuple[int, ...] | None = LAST
    out: tuple[int, ...] | None = LAST
    residual: bool = False
    activation: str = "Relu"
    packed: bool = field(default=True)

    def attributes(self) -> dict[str, object]:
        rank = len(self.w) - 2
        found: dict[str, object] = {
            "strides": self.strides or (1,) * rank,
            "pads": self.pads or (0,) * 2 * rank,
            "dilations": self.dilations or (1,) * rank,
            "group": self.group,
        }
        return found if self.extra is None else {**found, "output_padding": self.extra}

    @property
    def op(self) -> str:
        return "Conv" if self.extra is None else "ConvTranspose"

    def __str__(self) -> str:
        shape = "x".join(map(str, self.x)) + "-" + "x".join(map(str, self.w))
        return f"{shape}-s{self.strides}-p{self.pads}-d{self.dilations}-g{self.group}-{self.templates}"


CONV = [
    Case((1, 16, 7, 7), (24, 16, 3, 3), "conv", pads=(1, 1, 1, 1)),
    Case((2, 16, 4, 4), (32, 16, 3, 3), "conv", pads=(1, 1, 1, 1)),
    Case((1, 16, 3, 14), (48, 16, 5, 5), "conv", pads=(4, 2, 4, 2)),
    Case((2, 32, 8, 8), (64, 16, 3, 3), "conv", pads=(2, 2, 2, 2), dilations=(2, 2), group=2),
    Case((2, 5, 9, 8), (7, 5, 3, 3), "conv", (2, 2), (1, 1, 1, 1), residual=True),
    Case((1, 12, 11, 9), (20, 6, 3, 5), "conv", pads=(2, 1, 2, 1), dilations=(2, 2), group=2, residual=True),
    Case((1, 16, 7, 7), (32, 16, 3, 3), "conv", pads=(1, 0, 2, 1), activation="Tanh"),
    Case((1, 700, 5, 6), (10, 700, 3, 3), "conv", pads=(1, 1, 1, 1)),
    Case((1, 1700, 4, 4), (10, 1700, 2, 2), "conv"),
    Case((2, 16, 9, 8), (27, 16, 1, 1), "conv", (2, 2)),
    Case((2, 16, 9, 8), (27, 16, 3, 3), "conv", out=None),
    Case((2, 16, 9, 8), (27, 16, 3, 3), "map conv", layout=None),
    Case((2, 16, 9, 8), (27, 16, 1, 1), "map gemm", layout=None),
    Case((2, 16, 9, 8), (27, 16, 1, 1), "gemm"),
    Case((2, 16, 9, 8), (27, 16, 1, 1), "gemm", out=None, residual=True),
    Case((1, 16, 1, 1), (27, 16, 1, 1), "gemm"),
    Case((1, 1700, 3, 3), (10, 1700, 1, 1), "gemm"),
    Case((2, 24, 9, 8), (36, 8, 1, 1), "gemm", group=3),
    Case((1, 16, 9, 8), (1, 16, 1, 1), "gemm"),
    Case((1, 16, 9, 8), (1, 16, 3, 3), "conv"),
    Case((1, 12, 9, 8), (24, 1, 3, 3), "conv", group=12, pads=(1, 1, 1, 1)),
    Case((1, 32, 6, 6), (32, 4, 3, 3), "conv", group=8, pads=(1, 1, 1, 1)),
    Case((1, 16, 2, 2), (8, 16, 2, 2), "conv"),
    Case((1, 3, 15, 13), (10, 3, 7, 7), "conv_first", (2, 2), (3, 3, 3, 3), layout=None),
    Case((2, 3, 15, 13), (10, 3, 3, 3), "conv_first", (2, 1), (1, 0, 0, 1), residual=True),
    Case((2, 1, 15, 13), (16, 1, 5, 5), "conv_first", layout=None, out=None),
    Case((1, 4, 7, 7), (33, 4, 3, 3), "conv_first", pads=(2, 2, 2, 2), dilations=(2, 2), activation="Tanh"),
    Case((1, 3, 2, 2), (4, 3, 3, 3), "conv_first", pads=(2, 2, 2, 2), layout=None),
    Case((2, 19, 9, 11), (19, 1, 3, 3), "depthwise", pads=(1, 1, 1, 1), group=19, residual=True),
    Case((1, 19, 9, 11), (19, 1, 5, 5), "depthwise", (2, 2), (2, 2, 2, 2), group=19),
    Case((1, 16, 9, 25), (16, 1, 7, 7), "depthwise", pads=(3, 3, 3, 3), dilations=(1, 3), group=16),
    Case((1, 16, 2, 2), (16, 1, 5, 5), "depthwise", pads=(2, 2, 2, 2), group=16),
    Case((1, 130, 12, 12), (130, 1, 3, 3), "depthwise", (2, 1), (0, 0, 1, 1), group=130, out=None),
    Case((1, 16, 8, 8), (16, 1, 3, 3), "map depthwise", pads=(1, 1, 1, 1), group=16, layout=None),
    Case((2, 16, 31), (24, 16, 3), "conv", (2,), (1, 1), layout=LAST_1D, out=LAST_1D),
    Case((2, 16, 31), (24, 16, 1), "map gemm", layout=None, out=None),
    Case((2, 16, 31), (16, 1, 3), "depthwise", pads=(1, 1), group=16, layout=LAST_1D, out=LAST_1D),
    Case((2, 3, 31), (16, 3, 3), "conv_first", pads=(1, 1), layout=None, out=None),
    Case((1, 4, 5, 6, 7), (6, 4, 3, 2, 3), "map conv", (1, 2, 1), (1,) * 6, layout=None, out=None),
    Case((2, 10, 5, 6, 7), (18, 5, 2, 3, 1), "conv", (2, 1, 1), (1, 0, 0, 0, 2, 1), (2, 1, 1), 2, None, VOLUME, VOLUME),
    Case((1, 20, 1, 4, 5), (7, 20, 1, 1, 1), "conv", layout=VOLUME, out=VOLUME, residual=True),
    Case(("b", 9, 4, "h", "w"), (12, 9, 3, 3, 3), "conv", pads=(1,) * 6, layout=VOLUME, out=VOLUME),
    Case((1, 16, 6, 7), (6, 16, 3, 3), "map conv", packed=False),
    Case((1, 16, 7, 7), (32, 16, 3, 3), "map conv", pads=(1, 0, 2, 1), packed=False, activation="Tanh"),
    Case((1, 12, 11, 9), (20, 6, 3, 5), "map conv", (2, 1), (2, 1, 2, 1), (2, 2), 2, packed=False, residual=True),
    Case((1, 3, 15, 13), (10, 3, 7, 7), "map map conv", (2, 2), (3, 3, 3, 3), layout=None, packed=False),
    Case((2, 16, 9, 8), (27, 16, 1, 1), "pack gemm", packed=False),
    Case((2, 16, 31), (24, 16, 3), "map conv", (2,), (1, 1), layout=LAST_1D, out=LAST_1D, packed=False),
    Case(("b", 9, 4, "h", "w"), (12, 9, 3, 2, 3), "map conv", pads=(1,) * 6, layout=VOLUME, out=VOLUME, packed=False),
    Case(("b", 16, "h", "w"), (24, 16, 3, 3), "map conv", pads=(1, 1, 1, 1), packed=False),
    Case((2, 19, 9, 11), (19, 1, 3, 3), "map depthwise", pads=(1, 1, 1, 1), group=19, packed=False),
    Case(("b", 16, "h", "w"), (24, 16, 3, 3), "conv", pads=(1, 1, 1, 1)),
    Case(("b", 16, "h", "w"), (24, 16, 3, 3), "conv", (2, 1), (1, 1, 1, 1), out=None),
    Case(("b", 16, "h", "w"), (24, 16, 1, 1), "gemm"),
    Case(("b", 16, "h", "w"), (24, 16, 1, 1), "gemm", out=None),
    Case(("b", 3, "h", "w"), (24, 3, 3, 3), "conv_first", (2, 2), (1, 1, 1, 1), layout=None),
    Case(("b", 16, "h", "w"), (16, 1, 3, 3), "depthwise", pads=(1, 1, 1, 1), group=16),
]  # fmt: skip

TRANSPOSED = [
    Case((1, 8, 4, 4), (8, 12, 2, 2), "conv", (2, 2), extra=(0, 0)),
    Case((2, 5, 4, 3), (5, 7, 3, 3), "conv", (2, 2), (1, 1, 1, 1), extra=(1, 1), residual=True),
    Case((1, 6, 3, 3), (6, 9, 4, 4), "conv", (2, 2), (1, 1, 1, 1), extra=(0, 0)),
    Case((1, 4, 3, 3), (4, 5, 1, 1), "conv", (3, 3), extra=(1, 1)),
    Case((1, 4, 3, 3), (4, 5, 5, 5), "conv", (3, 3), (2, 2, 2, 2), extra=(0, 0)),
    Case((1, 4, 3, 5), (4, 5, 3, 3), "conv", pads=(1, 1, 1, 1), extra=(0, 0)),
    Case((2, 12, 5, 3), (12, 5, 3, 3), "conv", (2, 1), (1, 1, 0, 1), (1, 2), 3, extra=(0, 0)),
    Case((1, 700, 3, 3), (700, 8, 3, 3), "map conv", (2, 2), (1, 1, 1, 1), extra=(0, 0), out=None, layout=None),
    Case((1, 6, 9), (6, 9, 4), "conv", (2,), (1, 1), extra=(0,), out=LAST_1D, layout=LAST_1D),
    Case(("b", 6, "h", "w"), (6, 9, 3, 3), "conv", (2, 2), (1, 1, 1, 1), extra=(1, 0), activation="Tanh"),
    Case((1, 4, 2, 3, 3), (4, 5, 2, 2, 2), "row", (2, 2, 1), extra=(0, 0, 0), out=None, layout=None),
    Case((1, 6, 3, 3), (6, 9, 3, 3), "map conv", (2, 2), extra=(0, 0), packed=False),
    Case((2, 33, 5, 4), (33, 7, 5, 3), "map conv", (3, 2), (2, 1, 0, 1), (2, 1), extra=(1, 0), packed=False),
    Case((1, 12, 5, 9), (12, 5, 3, 3), "map conv", (2, 2), (1, 1, 1, 1), group=3, extra=(1, 1), packed=False),
    Case((1, 600, 5, 9), (600, 40, 3, 3), "map conv", (2, 2), (1, 1, 1, 1), extra=(1, 1), packed=False, residual=True),
    Case((2, 40, 5, 4), (40, 50, 1, 1), "map conv", (2, 2), extra=(1, 0), packed=False),
    Case((1, 6, 9), (6, 9, 4), "map conv", (2,), (1, 1), extra=(0,), out=LAST_1D, layout=LAST_1D, packed=False),
    Case(("b", 6, "h", "w"), (6, 9, 3, 3), "map conv", (2, 2), (1, 1, 1, 1), extra=(1, 0), packed=False),
    Case((1, 16, 4, 4), (16, 32, 3, 3), "map conv", pads=(0, 1, 1, 0), extra=(0, 0), packed=False),
    Case((1, 6, 3, 3), (6, 1, 3, 3), "row", group=6, extra=(0, 0), packed=False),
]  # fmt: skip


@pytest.mark.parametrize("w", [(4, 1, 3, 3), (6, 4, 3, 3), (12, 1, 3)], ids=str)
@pytest.mark.parametrize("target", ["c", "llvm"])
@pytest.mark.parametrize("known", [True, False])
def test_infinite_weights_meet_the_zeros_of_the_margin(known: bool, w: tuple[int, ...], target: str) -> None:
    """Depthwise kernels and those of many channels leave margins out, but not where they make NaN."""
    channels, spatial = 4, w[2:]
    weight, x = random(RNG, w), random(RNG, (1, channels, *(5 for _ in spatial)))
    weight[(1, 0, *(0 for _ in spatial))] = -np.inf
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * (2 * len(spatial)), group=channels // w[1])
    entry = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)
    exit_ = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    given = helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, w)
    weights = [numpy_helper.from_array(weight, "w")] if known else []
    graph = helper.make_graph([node], "g", [entry] if known else [entry, given], [exit_], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    inputs = {"x": x} if known else {"x": x, "w": weight}
    with np.errstate(invalid="ignore"):
        (expected,) = ReferenceEvaluator(model).run(None, inputs)  # ONNX Runtime leaves some margins out
    (found,) = torshc.compile(model, target=target).run(inputs).values()
    assert np.isnan(expected).any()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def reference(case: Case, x: Array, w: Array, bias: Array) -> Array:
    """The convolution by ONNX Runtime."""
    node = helper.make_node(case.op, ["x", "w", "b"], ["y"], **case.attributes())
    weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(bias, "b")]
    entry = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(x.shape))
    exit_ = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [entry], [exit_], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: Array = session.run(None, {"x": x})[0]
    return found


def run(case: Case, compiler: str, lanes: int | None = None, slack: int | None = None) -> list[str]:
    """Compares with ONNX Runtime; the templates that were used."""
    m = Maker()
    w = random(RNG, case.w) / np.float32(np.prod(case.w[1:]) ** 0.5)
    bias = random(RNG, (case.w[0] if case.extra is None else case.w[1] * case.group,))
    source = m.input(*case.x, layout=case.layout)
    weights = m.constant(w) if case.packed else m.input(*case.w)
    attributes = {**case.attributes(), "pads": tuple(const(p) for p in case.attributes()["pads"])}  # type: ignore[attr-defined]
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
    machine = Machine(lanes or native_lanes(), kind_of(compiler), slack=slack)
    program = Program(m.output(y), DIMS, machine, compiler)
    close(program.run(*arrays)[0], np.maximum(expected, 0) if case.activation == "Relu" else np.tanh(expected))
    return kinds(program)


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("case", [*CONV, *TRANSPOSED], ids=str)
def test_against_onnx_runtime(case: Case, compiler: str) -> None:
    assert " ".join(run(case, compiler)) == case.templates


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("case", [CONV[0], CONV[1], CONV[11], CONV[20], CONV[24], TRANSPOSED[1]], ids=str)
def test_narrow_vectors(case: Case, lanes: int) -> None:
    assert " ".join(run(case, compilers()[0], lanes)) == case.templates


FAR = Case((2, 96, 9, 9), (96, 96, 3, 3), "conv", (2, 2), (1, 1, 1, 1))  # 332 kB of weights, which tiles ask memory for


@pytest.mark.parametrize("compiler", compilers())
def test_many_weights(compiler: str) -> None:
    assert " ".join(run(FAR, compiler)) == FAR.templates


WINOGRAD = [
    Case((1, 16, 14, 14), (24, 16, 3, 3), "winograd", pads=(1, 1, 1, 1), residual=True),
    Case((2, 16, 17, 23), (40, 16, 3, 3), "winograd", pads=(0, 2, 1, 0), activation="Tanh"),
    Case((1, 8, 60, 60), (136, 8, 3, 3), "winograd", pads=(1, 1, 1, 1), out=None),
    Case((1, 64, 15, 15), (72, 64, 3, 3), "winograd", pads=(1, 1, 1, 1)),  # tiles ask memory for weights
    Case((1, 128, 15, 13), (136, 128, 3, 3), "winograd_inputs gemm winograd_outputs", pads=(1, 1, 1, 1), residual=True),
    Case((2, 128, 9, 9), (136, 128, 3, 3), "map winograd_inputs gemm winograd_outputs", layout=None, activation="Tanh"),
    Case((1, 16, 20, 20), (16, 16, 3, 3), "map winograd", layout=None),
    Case((1, 16, 20, 21), (40, 16, 3, 3), "map winograd", pads=(1, 1, 1, 0), packed=False, residual=True),
    Case((2, 128, 15, 13), (136, 128, 3, 3), "map winograd_inputs gemm winograd_outputs", packed=False),
    Case((1, 16, 1, 1), (24, 16, 3, 3), "conv", pads=(1, 1, 1, 1)),
    Case((1, 16, 14, 14), (24, 16, 3, 3), "conv", (2, 2), (1, 1, 1, 1)),
    Case((1, 12, 14, 14), (24, 12, 3, 3), "conv", pads=(1, 1, 1, 1)),
    Case(("b", 16, 14, 14), (24, 16, 3, 3), "winograd", pads=(1, 1, 1, 1), residual=True),
    Case((1, 16, "h", 14), (24, 16, 3, 3), "conv", pads=(1, 1, 1, 1)),
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize("slack", [0, 1_000_000], ids=["F(2)", "F(4)"])
@pytest.mark.parametrize("case", WINOGRAD, ids=str)
def test_winograd(case: Case, slack: int, compiler: str) -> None:
    lanes = 8 if native_lanes() >= 8 else native_lanes()
    found = " ".join(run(case, compiler, lanes, slack))
    assert found == case.templates or lanes < 8


def test_a_concatenation_is_written_in_place() -> None:
    """Two convolutions store into their parts of one channels-last result, and a third reads it."""
    m = Maker()
    x = m.input(1, 16, 6, 6, layout=LAST)
    weights = [random(RNG, s) / 10 for s in ((24, 16, 3, 3), (20, 16, 1, 1), (8, 44, 3, 3))]
    plain = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    wide, narrow = (const(1),) * 4, (const(0),) * 4
    a = m.add("Conv", x, m.constant(weights[0]), pads=wide, layout=LAST, **plain)
    b = m.add("Conv", x, m.constant(weights[1]), pads=narrow, layout=LAST, **plain)
    both = m.add("Concat", a, b, axis=1, layout=LAST)
    program = Program(m.output(m.add("Conv", both, m.constant(weights[2]), pads=narrow, layout=LAST, **plain)))
    assert kinds(program) == ["conv", "gemm", "conv"]
    image = random(RNG, (1, 16, 6, 6))
    parts = [
        reference(Case((), w.shape, "", pads=p), image, w, np.zeros(len(w), np.float32))
        for w, p in ((weights[0], (1, 1, 1, 1)), (weights[1], (0, 0, 0, 0)))
    ]
    joined = np.concatenate(parts, 1)
    close(program.run(image)[0], reference(Case((), weights[2].shape, ""), joined, weights[2], np.zeros(8, np.float32)))


def test_equal_layers_are_equal_kernels() -> None:
    """Text and packing depend on shapes alone, so that repeated layers share one object file."""
    m = Maker()
    x = m.input(1, 16, 6, 6, layout=LAST)
    plain = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "pads": (const(1),) * 4}
    for _ in range(3):
        x = m.add("Conv", x, m.constant(random(RNG, (16, 16, 3, 3))), layout=LAST, **plain)
    program = Program(m.output(x))
    assert len({launch.source for launch in program.launches}) == 1


def test_flops() -> None:
    m = Maker()
    # 96 filters fill the panels of every tile, whatever the lanes of this machine.
    w = m.constant(random(RNG, (96, 16, 3, 3)))
    attributes = {"strides": (1, 1), "dilations": (1, 1), "group": 1, "pads": (const(1),) * 4}
    program = Program(m.output(m.add("Conv", m.input(1, 16, 6, 6, layout=LAST), w, layout=LAST, **attributes)))
    (kernel,) = program.kernels
    assert as_int(kernel.flops) == 2 * 96 * 36 * 16 * 9
    assert as_int(kernel.nbytes) == 4 * (16 * 36 + 96 * 16 * 9 + 96 * 36)
