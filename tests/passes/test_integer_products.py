"""Quantised graphs: which products become those of bytes, what scales become, and how near the numbers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto
from onnx.reference import ReferenceEvaluator

from tests.support.compare import compiled
from tests.support.models import model, node
from tests.support.seeded import seeded
from torshc.base.options import CompileOptions
from torshc.graph import Graph
from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph
from torshc.pipeline.compilation import Compilation
from torshc.pipeline.compiler import prepare

from ..support.pass_graphs import OPTIONS, Model, dims, lines, names, run_one, text

Array = np.ndarray[Any, Any]
RNG = seeded(3)
F32 = np.float32
PADS: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": dims(1, 1, 1, 1)}


def integers(graph: Graph) -> Graph:
    for name in ("integer_products", "dead_code"):
        run_one(name, graph, OPTIONS)
        verify(graph, name)
    return graph


def weights(*shape: int, dtype: Any = np.int8) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def product(m: Model, x: Any, w: Array, kind: str = "i8", **fields: Any) -> Any:
    left = m("DequantizeLinear", x, m.const(0.5), m.const(3, x.dtype.name))
    right = m("DequantizeLinear", m.const(w, kind), m.const(0.25))
    return m("MatMul", left, right, **fields)


# -- the graph -----------------------------------------------------------------------------------------------------


def test_scales_become_one_factor() -> None:
    m = Model()
    y = product(m, m.input(4, 16, dtype="u8"), weights(16, 9))
    graph = integers(m.done(m("QuantizeLinear", m("Relu", y), m.const(2.0), m.const(7, "u8"))))
    assert text(graph) == lines("""
        in   %0 u8[4, 16]
        %2 = IntegerMatMul(%0, @1:i8[16, 9]) : i32[4, 9]
        %4 = Mul(3, @3:i32[1, 9]) : i32[1, 9]
        %5 = Sub(%2, %4) : i32[4, 9]
        %6 = Cast(%5) : f32[4, 9]
        %7 = Mul(%6, 0.0625) : f32[4, 9]
        %8 = Relu(%7) : f32[4, 9]
        %9 = QuantizeLinear(%8, 1.0, 7) : u8[4, 9]
        out  %9
    """)


def test_bytes_of_a_sign_are_shifted() -> None:
    m = Model()
    graph = integers(m.done(product(m, m.input(4, 16, dtype="i8"), weights(16, 9, dtype=np.uint8), "u8")))
    found = next(n for n in graph.nodes if n.op.name == "IntegerMatMul")
    assert [v.dtype.name for v in found.operands] == ["u8", "i8"]
    assert "ReduceSum" in names(graph)  # the weights have a zero point of 0, -128 when they are i8


def test_moves_of_bytes() -> None:
    m = Model()
    x = m.input(1, 2, 4, 4, dtype="u8")
    scale, zero = m.const(0.1), m.const(9, "u8")
    wide = m("DequantizeLinear", x, scale, zero)
    pooled = m("MaxPool", wide, kernel=(2, 2), strides=(2, 2), dilations=(1, 1), pads=dims(0, 0, 0, 0))
    flat = m("Reshape", pooled, shape=dims(1, 8))
    graph = integers(m.done(m("QuantizeLinear", flat, scale, zero)))
    assert names(graph) == ["MaxPool", "Reshape"] and graph.nodes[0].output.dtype.name == "u8"


def test_another_scale_is_no_move() -> None:
    m = Model()
    wide = m("DequantizeLinear", m.input(4, dtype="u8"), m.const(0.1), m.const(9, "u8"))
    graph = integers(m.done(m("QuantizeLinear", wide, m.const(0.2), m.const(9, "u8"))))
    assert names(graph) == ["DequantizeLinear", "QuantizeLinear"]


def test_a_sum_is_quantised_by_a_factor() -> None:
    """Dequantised bytes that are added: a product in place of the division."""
    m = Model()
    left, right = (m("DequantizeLinear", m.input(4, dtype="u8"), m.const(scale)) for scale in (0.1, 0.2))
    graph = integers(m.done(m("QuantizeLinear", m("Add", left, right), m.const(0.25), m.const(9, "u8"))))
    assert names(graph) == ["DequantizeLinear", "DequantizeLinear", "Add", "Mul", "QuantizeLinear"]
    assert graph.nodes[3].operands[1].const == 4


def test_few_channels_are_bytes_too() -> None:
    m = Model()
    x = m("DequantizeLinear", m.input(1, 3, 8, 8, dtype="u8"), m.const(0.5))
    w = m("DequantizeLinear", m.const(weights(4, 3, 3, 3), "i8"), m.const(0.5))
    assert names(integers(m.done(m("Conv", x, w, **PADS))))[0] == "IntegerConv"


@pytest.mark.parametrize("zero", [0, 3])
def test_transposed_convolutions(zero: int) -> None:
    """Those of zero points of 0: of others a sum would depend on the taps that reach an element."""
    m = Model()
    x = m("DequantizeLinear", m.input(1, 6, 5, 4, dtype="u8"), m.const(0.5), m.const(zero, "u8"))
    w = m("DequantizeLinear", m.const(weights(6, 4, 3, 3), "i8"), m.const([0.5, 0.25, 1.0, 2.0]), axis=1)
    bias = m("DequantizeLinear", m.const([7, -100, 3000, 0], "i32"), m.const([0.25, 0.125, 0.5, 1.0]), axis=0)
    fields: dict[str, Any] = {
        "strides": (2, 2),
        "dilations": (1, 1),
        "pads": dims(1, 1, 0, 0),
        "output_padding": (0, 0),
    }
    graph = m.done(m("ConvTranspose", x, w, bias, **fields))
    data = RNG.integers(0, 255, (1, 6, 5, 4), np.uint8)
    (before,) = run_graph(graph, {graph.inputs[0]: data})
    assert ("IntegerConvTranspose" in names(integers(graph))) == (zero == 0)
    (after,) = run_graph(graph, {graph.inputs[0]: data})
    np.testing.assert_allclose(after, before, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("case", ["run-time weights", "scales of rows", "long sums", "device"])
def test_floats_stay(case: str) -> None:
    m = Model()
    depth = 20000 if case == "long sums" else 8
    rows = case == "scales of rows"
    x = m("DequantizeLinear", m.input(4, depth, dtype="u8"), m.const([0.5] * 4 if rows else 0.5), axis=0)
    data = m.input(depth, 9, dtype="i8") if case == "run-time weights" else m.const(weights(depth, 9), "i8")
    y = m("MatMul", x, m("DequantizeLinear", data, m.const(0.5)))
    options = CompileOptions(target="cuda") if case == "device" else OPTIONS
    assert not run_one("integer_products", m.done(y), options)


# -- the numbers ---------------------------------------------------------------------------------------------------


def quantised(x: str, y: str, scale: str, zero: str) -> list[NodeProto]:
    return [
        node("QuantizeLinear", f"{x} {scale} {zero}", f"{y}_q"),
        node("DequantizeLinear", f"{y}_q {scale} {zero}", y),
    ]


def network(kind: Any, bias: str) -> tuple[Any, dict[str, Array]]:
    """A strided and a plain convolution, pooling, a product: per-channel weights, asymmetric activations."""
    zero = np.asarray(-5 if kind is np.int8 else 110, kind)
    constants: dict[str, Array] = {
        "s": np.asarray(0.03, F32), "z": zero, "sy": np.asarray(0.31, F32), "k": weights(12, 5, 3, 3),
        "ks": RNG.uniform(0.001, 0.02, 12).astype(F32), "kz": np.zeros(12, np.int8), "v": weights(12, 12, 1, 1),
        "b_q": RNG.integers(-3000, 3000, 12, np.int32), "g": weights(7, 48), "gs": np.asarray(0.01, F32),
        "gz": np.asarray(4, np.int8),
    }  # fmt: skip
    constants["bs"] = constants["ks"] * constants["s"] if bias == "in units" else constants["ks"]
    nodes = [
        *quantised("x", "a", "s", "z"),
        node("DequantizeLinear", "k ks kz", "kd", axis=0),
        node("DequantizeLinear", "b_q bs", "bd", axis=0),
        node("Conv", "a kd bd", "c", strides=[2, 1], pads=[1, 1, 1, 0]),
        node("Relu", "c", "r"),
        *quantised("r", "rd", "sy", "z"),
        node("DequantizeLinear", "v ks kz", "vd", axis=0),
        node("Conv", "rd vd", "e"),
        *quantised("e", "ed", "sy", "z"),
        node("GlobalAveragePool", "ed", "p"),
        node("MaxPool", "ed", "m", kernel_shape=[2, 2], strides=[2, 2]),
        *quantised("m", "md", "sy", "z"),
        node("Flatten", "md", "f"),
        *quantised("f", "fd", "sy", "z"),
        node("DequantizeLinear", "g gs gz", "gd"),
        node("Gemm", "fd gd", "y", transB=1),
    ]
    made = model(nodes, {"x": (2, 5, 9, 6)}, ["c", "md_q", "y", "p"], constants, opset=19)
    return made, {"x": (RNG.standard_normal((2, 5, 9, 6)) * 3).astype(F32)}


def compiled_by(made: Any, folder: Path, **options: Any) -> Compilation:
    return prepare(folder / "m.onnx", CompileOptions(**options))


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("bias", ["in units", "in others"])
def test_network(kind: Any, bias: str, tmp_path: Path) -> None:
    made, feeds = network(kind, bias)
    got = compiled(made, feeds, tmp_path, jobs=1)
    wanted: Any = dict(zip(("c", "md_q", "y", "p"), ReferenceEvaluator(made).run(None, feeds), strict=True))
    np.testing.assert_allclose(got["c"], wanted["c"], rtol=1e-4, atol=1e-5)
    quanta = np.abs(got["md_q"].astype(int) - wanted["md_q"].astype(int))
    assert quanta.max() <= 1 and quanta.mean() < 0.02
    found = [n.op.name for n in compiled_by(made, tmp_path).graph.nodes]
    assert found.count("IntegerConv") == 2 and found.count("IntegerMatMul") == 1 and "Conv" not in found


@pytest.mark.parametrize("lanes", ["x86-64-v2", "x86-64-v3"])
def test_narrower_vectors(lanes: str, tmp_path: Path) -> None:
    made, feeds = network(np.uint8, "in units")
    narrow, wide = (compiled(made, feeds, tmp_path, jobs=1, mcpu=mcpu) for mcpu in (lanes, "native"))
    for name, array in wide.items():
        np.testing.assert_allclose(narrow[name], array, rtol=1e-5, err_msg=name)


def test_the_pass_changes_no_sum() -> None:
    m = Model()
    graph = m.done(product(m, m.input(3, 40, dtype="u8"), weights(40, 5)))
    x = RNG.integers(0, 255, (3, 40), np.uint8)
    (before,) = run_graph(graph, {graph.inputs[0]: x})
    (after,) = run_graph(integers(graph), {graph.inputs[0]: x})
    np.testing.assert_allclose(after, before, rtol=1e-6)
