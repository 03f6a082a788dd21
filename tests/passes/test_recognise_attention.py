"""Attention in the ways in which exporters write it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from torshc.base.options import CompileOptions
from torshc.explain import explain
from torshc.formats import load_graph
from torshc.graph import Graph, Value
from torshc.graph.verify import verify
from torshc.passes.interpret import run_graph
from torshc.pipeline.compiler import prepare

from ..support.compare import compiled
from ..support.pass_graphs import OPTIONS, Model, dims, names, random_inputs, run_one

B, H, S, D = 1, 4, 5, 8


def recognised(graph: Graph, tolerance: float = 1e-5) -> Graph:
    inputs = random_inputs(graph)
    before = run_graph(graph, inputs)
    for name in ("canonicalise", "canonicalise", "canonicalise", "recognise_attention", "canonicalise", "dead_code"):
        run_one(name, graph, OPTIONS)
        verify(graph, name)
    for a, b in zip(run_graph(graph, inputs), before, strict=True):
        # In f32 the largest sum has some 100 terms, added in another order.
        np.testing.assert_allclose(a.astype(np.float32), b.astype(np.float32), rtol=tolerance, atol=tolerance / 10)
    return graph


def attention(graph: Graph) -> object:
    (node,) = [n for n in graph.nodes if n.op.name == "Attention"]
    return node.op


def softmax(m: Model, scores: Value, guarded: bool) -> Value:
    p = m("Softmax", scores, axis=-1)
    return m("Where", m("IsNaN", p), m.const(0.0), p) if guarded else p


def test_the_plain_form() -> None:
    m = Model()
    q, k, v = (m.input(B, H, S, D) for _ in range(3))
    scores = m("Div", m("MatMul", q, m("Transpose", k, perm=(0, 1, 3, 2))), 4.0)
    graph = recognised(m.done(m("MatMul", softmax(m, scores, False), v)))
    assert names(graph) == ["Attention"]
    assert str(attention(graph)) == "Attention[scale=0.25, safe=False, masked=False, causal=False, out='']"


@pytest.mark.parametrize("mask_shape", [(S, S), (B, 1, S, S), (B, 1, 1, S)])
def test_the_form_of_torch_exports(mask_shape: tuple[int, ...]) -> None:
    m = Model()
    q, k, v = (m.input(B, H, S, D) for _ in range(3))
    mask = m.input(*mask_shape)
    flat = m("Transpose", m("Reshape", k, shape=dims(B * H, S, D)), perm=(0, 2, 1))
    turned = m("Reshape", flat, shape=dims(B, H, D, S))
    scores = m("Add", m("MatMul", m("Mul", q, 0.5), m("Mul", turned, 0.5)), mask)
    graph = recognised(m.done(m("MatMul", softmax(m, scores, True), v)))
    assert names(graph) == ["Attention"]
    assert str(attention(graph)) == "Attention[scale=0.25, safe=True, masked=False, causal=False, out='']"
    assert len(graph.nodes[0].inputs) == 4


def test_a_constant_triangle_is_causal() -> None:
    m = Model()
    q, k, v = (m.input(B, H, S, D) for _ in range(3))
    mask = m.const(np.triu(np.full((1, 1, S, S), -3.4e38), 1))
    scores = m("Add", m("MatMul", q, m("Transpose", k, perm=(0, 1, 3, 2))), mask)
    graph = recognised(m.done(m("MatMul", softmax(m, scores, True), v)))
    assert str(attention(graph)) == "Attention[scale=1.0, safe=True, masked=False, causal=True, out='']"
    assert len(graph.nodes[0].inputs) == 3


@pytest.mark.parametrize("upper", [0, 1])
def test_a_triangle_cut_of_ones_is_causal(upper: int) -> None:
    """As PyTorch writes it; for long sequences it is too large to be kept as a constant."""
    m = Model()
    q, k, v = (m.input(4, 6, 8) for _ in range(3))
    ones = m("Expand", m.const(np.array(True), "bool"), shape=dims(6, 6))
    mask = m("Where", m("Trilu", ones, upper=upper), m.const(0.0), m.const(-np.inf))
    scores = m("Add", m("MatMul", q, m("Transpose", k, perm=(0, 2, 1))), mask)
    graph = recognised(m.done(m("MatMul", m("Softmax", scores, axis=2), v)))
    assert f"causal={not upper}" in str(attention(graph))


@pytest.mark.parametrize(("shift", "causal"), [(0, True), (1, False)])
def test_a_triangle_of_compared_ranges_is_causal(shift: int, causal: bool) -> None:
    """As exporters of static shapes write it, for each item of a batch; it is too large to be kept as a constant."""
    m = Model()
    q, k, v = (m.input(2, H, S, D) for _ in range(3))
    keys, rows = (m.const(np.arange(S).reshape(s) + np.zeros((2, 1, 1, 1)), "i64") for s in ((S,), (S, 1)))
    keep = m("LessOrEqual", m("Add", keys, m.const(shift, "i64")), rows)
    scores = m("MatMul", q, m("Transpose", k, perm=(0, 1, 3, 2)))
    mask = m("Where", keep, m.const(0.0), m.const(-3.4e38))
    graph = recognised(m.done(m("MatMul", softmax(m, m("Add", scores, mask), True), v)))
    assert f"causal={causal}" in str(attention(graph))


@pytest.mark.parametrize(("shift", "upper", "causal"), [(0, False, True), (1, False, False), (1, True, True)])
def test_a_triangle_of_symbolic_sizes_is_causal(shift: int, upper: bool, causal: bool) -> None:
    """As exporters of symbolic shapes write it: what is kept, or what is hidden."""
    m = Model()
    q, k, v = (m.input("b", H, "s", D) for _ in range(3))
    at = m("Range", start=dims(0)[0], step=dims(1)[0], count=dims("s")[0])
    keys, rows = (m("Reshape", at, shape=dims(*shape)) for shape in ((1, 1, 1, "s"), (1, 1, "s", 1)))
    shifted = m("Add", rows, m.const(shift, "i64"))
    keep = m("LessOrEqual", shifted, keys) if upper else m("LessOrEqual", m("Add", keys, m.const(shift, "i64")), rows)
    zero, low = m.const(0.0), m.const(-3.4e38)
    mask = m("Where", keep, *((low, zero) if upper else (zero, low)))
    scores = m("Add", m("MatMul", q, m("Transpose", k, perm=(0, 1, 3, 2))), mask)
    graph = m.done(m("MatMul", softmax(m, scores, True), v))
    run_one("recognise_attention", graph, OPTIONS)
    assert f"causal={causal}" in str(attention(graph))


@pytest.mark.parametrize(("low", "found"), [(-np.inf, True), (-3.4e38, True), (-10000.0, False)])
def test_scores_chosen_by_a_condition(low: float, found: bool) -> None:
    m = Model()
    q, k, v = (m.input(B, H, S, D) for _ in range(3))
    keep = m.input(B, 1, S, S, dtype="bool")
    scores = m("Where", keep, m("MatMul", q, m("Transpose", k, perm=(0, 1, 3, 2))), m.const(low))
    graph = recognised(m.done(m("MatMul", softmax(m, scores, True), v)))
    assert ("Attention" in names(graph)) is found


@pytest.mark.parametrize(("dtype", "low"), [("f16", -65504.0), ("f16", -1000.0), ("bf16", -3e38)])
def test_halves(dtype: str, low: float) -> None:
    """Scores below the lowest f16 do not occur; what hides less than that may show."""
    m = Model()
    q, k, v = (m.input(B, H, S, D, dtype=dtype) for _ in range(3))
    mask = m.const(np.triu(np.full((S, S), low), 1), dtype)
    product = m("Mul", m("MatMul", q, m("Transpose", k, perm=(0, 1, 3, 2))), 0.25)
    # The model rounds scores, weights and sums to 11 or 8 bits each.
    graph = recognised(
        m.done(m("MatMul", softmax(m, m("Add", product, mask), False), v)), 0.01 if dtype == "f16" else 0.1
    )
    assert f"causal={low < -60000}" in str(attention(graph)) and graph.outputs[0].dtype.name == dtype


def test_heads_that_are_repeated_are_not_copied() -> None:
    m = Model()
    q, k, v = m.input(B, H, S, D), m.input(B, 2, S, D), m.input(B, 2, S, D)
    wide = [
        m("Reshape", m("Expand", m("Reshape", x, shape=dims(B, 2, 1, S, D)), shape=dims(B, 2, 2, S, D)), shape=q.shape)
        for x in (k, v)
    ]
    scores = m("MatMul", q, m("Transpose", wide[0], perm=(0, 1, 3, 2)))
    graph = recognised(m.done(m("MatMul", softmax(m, scores, False), wide[1])))
    assert "Expand" not in names(graph)
    (node,) = [n for n in graph.nodes if n.op.name == "Attention"]
    assert [v.type.static_shape for v in node.operands] == [(B, 2, 2, S, D), (B, 2, 1, S, D), (B, 2, 1, S, D)]


def test_weights_that_are_an_output_stay() -> None:
    m = Model()
    q, k, v = (m.input(B, H, S, D) for _ in range(3))
    p = m("Softmax", m("MatMul", q, k if S == D else m("Transpose", k, perm=(0, 1, 3, 2))), axis=-1)
    assert "Attention" not in names(recognised(m.done(m("MatMul", p, v), p)))


def test_a_softmax_over_another_axis_is_something_else() -> None:
    m = Model()
    q, k, v = (m.input(B, H, S, D) for _ in range(3))
    p = m("Softmax", m("MatMul", q, m("Transpose", k, perm=(0, 1, 3, 2))), axis=2)
    assert "Attention" not in names(recognised(m.done(m("MatMul", p, v))))


PACKED = """<ir_version: 10, opset_import: ["" : 17]>
one (float[9,2,48] x) => (float[9,2,48] y)
<int64[4] parts = {9, 2, 3, 48}, int64[1] first = {0}, int64[1] third = {3},
 int64[3] heads = {9, 6, 16}, int64[4] split = {2, 3, 9, 16}, int64[2] rows = {18, 48}, int64[3] whole = {9, 2, 48},
 int64 zero = {0}, int64 one = {1}, int64 two = {2}, float scale = {0.5}> {
    product = MatMul(x, w)
    sum = Add(b, product)
    cut = Reshape(sum, parts)
    raised = Unsqueeze(cut, first)
    turned = Transpose<perm=[3, 1, 2, 0, 4]>(raised)
    packed = Squeeze(turned, third)
    q0 = Gather<axis=0>(packed, zero)
    k0 = Gather<axis=0>(packed, one)
    v0 = Gather<axis=0>(packed, two)
    q1 = Reshape(q0, heads)
    k1 = Reshape(k0, heads)
    v1 = Reshape(v0, heads)
    q2 = Transpose<perm=[1, 0, 2]>(q1)
    k2 = Transpose<perm=[1, 0, 2]>(k1)
    v2 = Transpose<perm=[1, 0, 2]>(v1)
    q3 = Reshape(q2, split)
    k3 = Reshape(k2, split)
    v3 = Reshape(v2, split)
    k4 = Transpose<perm=[0, 1, 3, 2]>(k3)
    q4 = Mul(q3, scale)
    k5 = Mul(k4, scale)
    scores = MatMul(q4, k5)
    shares = Softmax<axis=-1>(scores)
    mixed = MatMul(shares, v3)
    back = Transpose<perm=[2, 0, 1, 3]>(mixed)
    flat = Reshape(back, rows)
    out = Gemm(flat, o, c)
    y = Reshape(out, whole)
}"""


def test_one_product_for_q_k_and_v_is_read_where_it_lies(tmp_path: Path) -> None:
    """PyTorch's MultiheadAttention picks q, k and v from one product; none is copied."""
    model = onnx.parser.parse_model(PACKED)
    rng = np.random.default_rng(3)
    for name, shape in {"w": (48, 144), "b": (144,), "o": (48, 48), "c": (48,)}.items():
        array = rng.standard_normal(shape).astype(np.float32) * 0.3
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    feeds = {"x": rng.standard_normal((9, 2, 48)).astype(np.float32)}
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(compiled(model, feeds, tmp_path)["y"], wanted, rtol=1e-4, atol=1e-5)
    prepared = prepare(load_graph(model.SerializeToString()), CompileOptions.create())
    assert [g.kind for g in explain(prepared).groups] == ["gemm", "attention", "gemm"]


@pytest.mark.parametrize(("shapes", "mask"), [(((1, 2, 5, D), (1, 2, 1, D), (1, 2, 6, D)), (5, 6)),
                                              (((1, 1, S, D),) * 3, (3, H, S, S))])  # fmt: skip
def test_a_mask_that_broadcasts_the_scores_is_left(shapes: tuple[tuple[int, ...], ...], mask: tuple[int, ...]) -> None:
    """Attention has as many keys as values, and its mask is no larger than the scores."""
    m = Model()
    q, k, v = (m.input(*shape) for shape in shapes)
    scores = m("Add", m("MatMul", q, m("Transpose", k, perm=(0, 1, 3, 2))), m.input(*mask))
    graph = recognised(m.done(m("MatMul", softmax(m, scores, False), v)))
    assert "Attention" not in names(graph) and not graph.constraints
