"""Halves as operands of heavy operators: what is cast, where, what is stored, and the numbers that come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.compare import compiled
from tests.support.models import model, node
from tests.support.seeded import seeded
from torshc.base.errors import ConfigError, ModelError
from torshc.base.features import Feature
from torshc.base.options import CompileOptions
from torshc.expr import DTYPES
from torshc.graph import Graph, Node
from torshc.graph.verify import verify
from torshc.passes import PASSES, pipeline_of
from torshc.passes.interpret import run_graph
from torshc.passes.policy import Policy
from torshc.pipeline.compilation import Compilation
from torshc.pipeline.compiler import prepare
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.targets.cpu.c import CTarget
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.isa import resolve

from ..support.pass_graphs import Model, dims, lines, names, random_inputs, text

Array = np.ndarray[Any, Any]
RNG = seeded(5)
F16 = CompileOptions(precision="f16")
ON_CARD = CompileOptions(precision="f16", target="cuda", arch="sm_80")  # which has kernels of halves
PADS: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": dims(0, 0, 0, 0)}


def halved(graph: Graph, precision: str = "f16") -> Graph:
    for name in ("half_products", "dead_code"):
        PASSES[name](graph, CompileOptions(precision=precision))
        verify(graph, name)
    return graph


def heavy(graph: Graph) -> Node:
    (found,) = [n for n in graph.nodes if n.op.family in ("gemm", "conv", "attention")]
    return found


def convolved(m: Model, x: Any, *kernel: int, **fields: Any) -> Any:
    return m("Conv", x, m.const(np.ones(kernel)), **{**PADS, "group": 1, **fields})


def test_what_convolutions_read_others_read_as_rounded() -> None:
    """Where instructions multiply halves; each reader has a cast of its own, and outputs stay whole."""
    m = Model()
    r = m("Relu", m.input(1, 16, 4, 4))
    y = m("Relu", m("Add", convolved(m, r, 16, 16, 1, 1), r))
    graph = m.done(m("Add", convolved(m, y, 16, 16, 1, 1), r), y)
    PASSES["half_products"](graph, CompileOptions(precision="bf16"), features=CTarget.features_on((), ("avx512bf16",)))
    verify(graph, "half_products")
    assert names(graph).count("Cast") == 4
    assert all(n.op.name != "Add" or r not in n.operands for n in graph.nodes)
    assert y in graph.outputs


def test_weights_alone_are_rounded_where_floats_are_multiplied() -> None:
    """Without instructions for halves; a product of two activations, and attention, are those of f32."""
    m = Model()
    x = m.input(2, 9, 16)
    y = m("MatMul", m("Relu", x), m.const(np.ones((16, 16))))
    z = m("MatMul", m("Attention", y, y, x, domain="torshc"), m("Transpose", y, perm=(0, 2, 1)))
    graph = m.done(z, convolved(m, m.input(1, 16, 4, 4), 6, 16, 3, 3))
    for name in ("half_products", "widen_products"):
        PASSES[name](graph, CompileOptions(precision="bf16"), features=CTarget.features_on(()))
        verify(graph, name)
    found = [(n.op.name, getattr(n.op, "out", ""), [v.dtype.name for v in n.operands]) for n in graph.nodes]
    assert ("MatMul", "f32", ["f32", "bf16"]) in found and "Cast" not in names(graph)
    assert [(out, types) for name, out, types in found if name in ("Attention", "Conv")] == [
        ("", ["f32"] * 3), ("", ["f32"] * 2),
    ]  # fmt: skip


def test_of_two_summands_the_first_is_rounded() -> None:
    """The other is not stored, as its kernel adds them."""
    m = Model()
    x = m.input(1, 16, 4, 4)
    one, two = convolved(m, x, 16, 16, 1, 1), convolved(m, x, 16, 16, 3, 3, pads=dims(1, 1, 1, 1))
    graph = m.done(m("Add", two, one))
    PASSES["half_products"](graph, CompileOptions(precision="bf16"), features=CTarget.features_on((), ("avx512bf16",)))
    (add,) = [n for n in graph.nodes if n.op.name == "Add"]
    assert add.operands[0] is two and [n.op.name for n in graph.nodes if n.output is add.operands[1]] == ["Cast"]
    groups = make_plan(finalise(graph, Policy.of())).groups
    assert sorted([n.op.name for n in g.nodes] for g in groups if g.anchor) == [
        ["Conv", "Cast"],
        ["Conv", "Cast", "Add"],
    ]


def test_images_of_a_step_are_stored_as_halves() -> None:
    """What kernels of convolutions and pools read and store."""
    m = Model()
    weights = m.input(16, 16, 1, 1)
    z = m("Conv", m("Relu", m.input(1, 16, 4, 4)), weights, **PADS, group=1)
    a = m("Relu", m("Mul", z, m("ReduceSum", z, axes=(0, 2, 3), keepdims=True)))
    pooled = m("MaxPool", a, kernel=(2, 2), strides=(2, 2), pads=dims(0, 0, 0, 0), dilations=(1, 1))
    graph = m.done(m("Conv", pooled, weights, **PADS, group=1), m("Abs", a))
    PASSES["half_products"](
        graph, replace(ON_CARD, precision="bf16", train=Path("step.yaml")), features=CudaTarget.features
    )
    verify(graph, "half_products")
    plan = make_plan(finalise(graph, Policy.of()))
    stored = [v for g in plan.groups for v in g.outputs if v not in graph.outputs and v.type.rank == 4]
    assert len(stored) >= 4 and {v.dtype.name for v in stored} == {"bf16"}


# -- the graph -----------------------------------------------------------------------------------------------------


def test_f32_leaves_a_graph_alone() -> None:
    m = Model()
    graph = m.done(m("MatMul", m.input(4, 16), m.const(np.ones((16, 3)))))
    assert not PASSES["half_products"](graph, CompileOptions())


def test_a_cast_stands_before_views_and_serves_all_readers() -> None:
    m = Model()
    x = m.input(16, 4)
    turned = m("Transpose", x, perm=(1, 0))
    one = m("MatMul", turned, m.const(np.ones((16, 9))))
    two = m("MatMul", m("Reshape", turned, shape=dims(2, 2, 16)), m.const(np.ones((16, 9))))
    assert text(halved(m.done(one, two))) == lines("""
        in   %0 f32[16, 4]
        %1 = Cast[to=f16](%0) : f16[16, 4]
        %2 = Transpose[perm=(1, 0)](%1) : f16[4, 16]
        %4 = MatMul[out='f32'](%2, @3:f16[16, 9]) : f32[4, 9]
        %5 = Reshape[shape=(2, 2, 16)](%2) : f16[2, 2, 16]
        %7 = MatMul[out='f32'](%5, @6:f16[16, 9]) : f32[2, 2, 9]
        out  %4
        out  %7
    """)


def test_a_slice_is_cast_alone_where_the_rest_is_wanted_whole() -> None:
    for whole in (False, True):
        m = Model()
        x = m("Exp", m.input(8, 16))
        first = m("Slice", x, starts=dims(0, 0), sizes=dims(1, 16), steps=(1, 1))
        y = m("MatMul", first, m.const(np.ones((16, 3))))
        graph = halved(m.done(y, m("Neg", x)) if whole else m.done(y))
        wanted = ["Exp", "Slice", "Cast", "MatMul", "Neg"] if whole else ["Exp", "Cast", "Slice", "MatMul"]
        assert names(graph) == wanted


def test_parts_of_a_concatenation_and_what_a_pool_reads_are_cast() -> None:
    m = Model()
    x, z = m.input(1, 3, 8, 8), m.input(1, 5, 8, 8)
    pool: dict[str, Any] = {"kernel": (2, 2), "strides": (2, 2), "dilations": (1, 1), "pads": dims(0, 0, 0, 0)}
    joined = m("MaxPool", m("Concat", m("Exp", x), m("Exp", z), axis=1), **pool)
    graph = halved(m.done(m("Conv", joined, m.const(RNG.standard_normal((4, 8, 1, 1))), **PADS)))
    assert sorted(names(graph)) == ["Cast", "Cast", "Concat", "Conv", "Exp", "Exp", "MaxPool"]
    assert [n.output.dtype.name for n in graph.nodes if n.op.name in ("Concat", "MaxPool")] == ["f16", "f16"]


def test_a_cast_from_halves_is_taken_back() -> None:
    m = Model()
    wide = m("Cast", m.input(4, 16, dtype="f16"), to=DTYPES["f32"])
    assert names(halved(m.done(m("MatMul", wide, m.const(np.ones((16, 3))))))) == ["MatMul"]


def test_bias_and_mask_stay_f32() -> None:
    m = Model()
    x, bias = m.input(1, 8, 4, 4), m.input(6)
    graph = halved(m.done(m("Conv", x, m.const(np.ones((6, 8, 1, 1))), bias, **PADS)))
    assert [v.dtype.name for v in heavy(graph).operands] == ["f16", "f16", "f32"]
    m = Model()
    q, k, v, mask = (m.input(2, 9, 8), m.input(2, 7, 8), m.input(2, 7, 8), m.input(9, 7))
    graph = halved(m.done(m("Attention", q, k, v, mask, domain="torshc")))
    assert [v.dtype.name for v in (*heavy(graph).operands, *heavy(graph).outputs)] == ["f16"] * 3 + ["f32"] * 2


def test_attention_of_few_queries_stays_f32() -> None:
    """A decoder's step reads its cache once, and a cast would read it and write another."""
    for queries, kept in ((1, True), (8, True), (9, False)):
        m = Model()
        q, k, v = m.input(2, queries, 8), m.input(2, 16, 8), m.input(2, 16, 8)
        graph = halved(m.done(m("Attention", q, k, v, domain="torshc", scale=0.3)), "bf16")
        assert (heavy(graph).operands[0].dtype.name == "f32") is kept


@pytest.mark.parametrize("shape", [(4, 1), (4, 7)])
def test_outer_products_stay_f32(shape: tuple[int, int]) -> None:
    """Positions times frequencies: an angle of 1000 radians cannot do with 11 bits."""
    m = Model()
    graph = m.done(m("MatMul", m.input(*shape), m.input(shape[1], 5)))
    before = text(graph)
    assert text(halved(graph)) == before


@pytest.mark.parametrize("precision", ["f16", "bf16"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64"])
def test_other_types_are_left_alone(dtype: str, precision: str) -> None:
    m = Model()
    x = m.input(4, 16, dtype=dtype)
    graph = m.done(m("MatMul", x, m.const(np.ones((16, 3)), dtype)))
    before = text(graph)
    assert not PASSES["half_products"](graph, CompileOptions(precision=precision))
    assert text(graph) == before


@pytest.mark.parametrize(("precision", "most"), [("f16", 65504.0), ("bf16", float(np.uint32(0x7F7F0000).view("f4")))])
def test_constants_saturate(precision: str, most: float) -> None:
    largest = float(np.finfo(np.float32).max)
    weights = np.zeros((16, 6), np.float32)
    weights[0] = [largest, -largest, np.inf, -np.inf, np.nan, 0.5]
    m = Model()
    graph = halved(m.done(m("MatMul", m.input(4, 16), m.const(weights))), precision)
    kept = heavy(graph).operands[1].const
    assert kept is not None and kept.dtype == DTYPES[precision].numpy
    np.testing.assert_array_equal(kept[0].astype(np.float32), [most, -most, np.inf, -np.inf, np.nan, 0.5])


def test_composites_of_products_are_opened() -> None:
    m = Model()
    x = m.input(4, 16)
    graph = halved(m.done(m("Softmax", m("Gemm", x, m.const(np.ones((3, 16))), m.const(np.ones(3)), trans_b=1))))
    assert names(graph) == ["Cast", "Transpose", "MatMul", "Add", "Softmax"]
    assert heavy(graph).operands[1].dtype.name == "f16"


def test_the_type_of_a_result_is_that_of_its_sum() -> None:
    m = Model()
    x, w = m.input(4, 16, dtype="f16"), m.const(np.full((16, 2), 60000), "f16")
    graph = m.done(m("MatMul", x, w, out="f32"))
    (got,) = run_graph(graph, {x: np.ones((4, 16), np.float16)})
    assert got.dtype == np.float32 and (got == 16 * float(np.float16(60000))).all()
    for wrong in ("f64", "bf16", "i32", "half"):
        with pytest.raises(ModelError, match="cannot give"):
            m("MatMul", x, w, out=wrong)


def test_attention_of_halves_decomposes_with_f32_scores() -> None:
    m = Model()
    q, k, v, mask = (*(m.input(2, 6, 16, dtype="f16") for _ in range(3)), m.input(6, 6))
    graph = m.done(m("Attention", q, k, v, mask, domain="torshc", scale=0.25, causal=True, out="f32"))
    inputs = random_inputs(graph)
    (got,) = run_graph(graph, inputs)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, attention([inputs[x] for x in (q, k, v)], inputs[mask], 0.25, True), atol=1e-6)


# -- the pipelines -------------------------------------------------------------------------------------------------


def test_a_pipeline_must_hold_the_pass(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\npasses:\n  - dead_code\n")
    pipeline_of(CompileOptions(pipeline=file))
    with pytest.raises(ConfigError, match="half_products is not in the pipeline mine"):
        pipeline_of(CompileOptions(pipeline=file, precision="f16"))


def test_precisions_are_checked() -> None:
    with pytest.raises(ConfigError, match="did you mean 'bf16'"):
        CompileOptions(precision="b16")


def stored(compilation: Compilation) -> list[tuple[str, str]]:
    """The heavy groups and the element types that they store."""
    groups = [g for g in compilation.plan.groups if g.anchor is not None]
    return [("+".join(n.op.name for n in g.nodes), " ".join(v.dtype.name for v in g.outputs)) for g in groups]


def test_what_only_heavy_operators_read_is_stored_as_halves() -> None:
    m = Model()
    x = m("Relu", m("MatMul", m.input(12, 16), m.const(RNG.standard_normal((16, 16)))))
    y = m("Add", m("MatMul", x, m.const(RNG.standard_normal((16, 16)))), m.const(RNG.standard_normal(16)))
    z = m("MatMul", m("Transpose", y, perm=(1, 0)), m.input(12, 8))
    assert stored(prepare(m.done(z), ON_CARD)) == [
        ("MatMul+Relu+Cast", "f16"), ("MatMul+Add+Cast+Transpose", "f16"), ("MatMul", "f32"),
    ]  # fmt: skip


def test_what_others_read_too_is_stored_twice_by_one_kernel() -> None:
    m = Model()
    x = m("Conv", m.input(1, 8, 6, 6), m.const(RNG.standard_normal((8, 8, 1, 1))), **PADS)
    r = m("Relu", x)
    y = m("Add", m("Conv", r, m.const(RNG.standard_normal((8, 8, 1, 1))), **PADS), r)
    compilation = prepare(m.done(y), ON_CARD)
    (first, types), second = stored(compilation)[0], stored(compilation)[1]
    assert first == "Conv+Relu+Cast" and sorted(types.split()) == ["f16", "f32"]
    assert second == ("Conv+Add", "f32")
    assert compilation.weights_bytes < 2 * 2 * 64 + 256  # the weights are halves


# -- the numbers, exact: whole numbers that f16 rounds and whose sums f32 holds ------------------------------------


def whole(*shape: int, most: int) -> Array:
    return RNG.integers(-most, most + 1, shape).astype(np.float32)


def half(x: Array) -> Array:
    return x.astype(np.float16).astype(np.float32)


def attention(operands: list[Array], mask: Array, scale: float, causal: bool = False) -> Array:
    q, k, v = (x.astype(np.float64) for x in operands)
    scores = q @ np.swapaxes(k, -1, -2) * scale + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    weighted: Array = e / e.sum(-1, keepdims=True) @ v
    return weighted


LEVELS = pytest.mark.parametrize("level", [0, 3])


@LEVELS
def test_a_chain_of_products(level: int, tmp_path: Path) -> None:
    x, w, v = whole(7, 33, most=3000), whole(33, 20, most=3), whole(20, 9, most=3)
    nodes = [
        node("MatMul", "x w", "a"),
        node("Mul", "a eighth", "b"),
        node("Relu", "b", "c"),
        node("MatMul", "c v", "y"),
    ]
    made = model(nodes, {"x": [7, 33]}, ["y"], {"w": w, "v": v, "eighth": np.array(0.125, np.float32)})
    got = compiled(made, {"x": x}, tmp_path, opt_level=level, precision="f16")["y"]
    np.testing.assert_array_equal(got, half(np.maximum(half(x) @ w / 8, 0)) @ v)
    assert not np.array_equal(got, np.maximum(x @ w / 8, 0) @ v)


@LEVELS
@pytest.mark.parametrize("turned", [{"transB": 1}, {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}, {}])
def test_gemm(turned: dict[str, float], level: int, tmp_path: Path) -> None:
    x, w, b = whole(7, 33, most=5000), whole(33, 50, most=3), whole(50, most=5000)
    stood = x.T if turned.get("transA") else x
    weights = {"w": np.ascontiguousarray(w.T) if turned.get("transB") else w, "b": b}
    made = model([node("Gemm", "x w b", "y", **turned)], {"x": list(stood.shape)}, ["y"], weights)
    got = compiled(made, {"x": np.ascontiguousarray(stood)}, tmp_path, opt_level=level, precision="f16")["y"]
    np.testing.assert_array_equal(got, half(x) @ w * turned.get("alpha", 1.0) + b * turned.get("beta", 1.0))


@LEVELS
def test_sums_beyond_f16_are_no_infinities(level: int, tmp_path: Path) -> None:
    x = np.full((2, 16), 4096, np.float32)
    made = model([node("MatMul", "x w", "y")], {"x": [2, 16]}, ["y"], {"w": np.full((16, 3), 32, np.float32)})
    got = compiled(made, {"x": x}, tmp_path, opt_level=level, precision="f16")["y"]
    np.testing.assert_array_equal(got, np.full((2, 3), 16 * 4096 * 32, np.float32))


@LEVELS
@pytest.mark.parametrize("group", [1, 8])
def test_a_residual_block(group: int, level: int, tmp_path: Path) -> None:
    """Conv, batch normalisation, Relu, Conv, Add: scales are powers of two, so that folding them is exact."""
    x, w, v = whole(2, 8, 5, 6, most=3000), whole(8, 8 // group, 1, 1, most=3), whole(8, 8, 1, 1, most=3)
    weights = {
        "w": w, "b": whole(8, most=3000), "v": v, "scale": np.full(8, 0.25, np.float32),
        "shift": whole(8, most=100), "mean": whole(8, most=100), "var": np.full(8, 4, np.float32),
    }  # fmt: skip
    nodes = [
        node("Conv", "x w b", "a", group=group),
        node("BatchNormalization", "a scale shift mean var", "n", epsilon=0.0),
        node("Relu", "n", "r"),
        node("Conv", "r v", "c"),
        node("Add", "c r", "y"),
    ]
    made = model(nodes, {"x": [2, 8, 5, 6]}, ["y"], weights)
    got = compiled(made, {"x": x}, tmp_path, opt_level=level, precision="f16")["y"]
    along = (slice(None), None, None)
    filters = w[:, :, 0, 0] if group == 1 else np.diag(w[:, 0, 0, 0])
    a = np.einsum("oi,nihw->nohw", filters, half(x)) + weights["b"][along]
    r = np.maximum((a - weights["mean"][along]) / 8 + weights["shift"][along], 0)
    np.testing.assert_array_equal(got, np.einsum("oi,nihw->nohw", v[:, :, 0, 0], half(r)) + r)


@LEVELS
def test_a_transposed_convolution(level: int, tmp_path: Path) -> None:
    x, w = whole(1, 8, 4, 5, most=3000), whole(8, 3, 2, 2, most=3)
    made = model([node("ConvTranspose", "x w", "y", strides=[2, 2])], {"x": [1, 8, 4, 5]}, ["y"], {"w": w})
    got = compiled(made, {"x": x}, tmp_path, opt_level=level, precision="f16")["y"]
    wanted = np.einsum("nihw,iorc->nohrwc", half(x), w).reshape(1, 3, 8, 10)
    np.testing.assert_array_equal(got, wanted)


@LEVELS
@pytest.mark.parametrize("precision", ["f16", "bf16"])
def test_attention_with_a_mask(precision: str, level: int, tmp_path: Path) -> None:
    """Whole at O3, where the weights stay f32; at O0 the weights are operands of a product and rounded too."""
    q, k, v = (RNG.standard_normal((2, 3, n, 16)).astype(np.float32) for n in (9, 7, 7))
    mask = np.where(RNG.random((9, 7)) < 0.3, np.finfo(np.float32).min, 0).astype(np.float32)
    mask[:, 0] = 0
    nodes = [
        node("Transpose", "k", "t", perm=[0, 1, 3, 2]),
        node("MatMul", "q t", "s"),
        node("Mul", "s scale", "u"),
        node("Add", "u mask", "m"),
        node("Softmax", "m", "p", axis=-1),
        node("MatMul", "p v", "y"),
    ]
    shapes: dict[str, Sequence[int | str]] = {
        n: list(a.shape) for n, a in (("q", q), ("k", k), ("v", v), ("mask", mask))
    }
    made = model(nodes, shapes, ["y"], {"scale": np.array(0.25, np.float32)})
    feeds = {"q": q, "k": k, "v": v, "mask": mask}
    got = compiled(made, feeds, tmp_path, opt_level=level, precision=precision)["y"]
    dtype = DTYPES[precision].numpy
    wanted = attention([x.astype(dtype) for x in (q, k, v)], mask, 0.25)
    step = {"f16": 2.0**-11, "bf16": 2.0**-8}[precision]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=4e-6 if level else 4 * step)
    floats = precision == "bf16" and Feature.BF16_PRODUCTS not in CTarget.features_on((), resolve().extras)
    assert (np.max(np.abs(got - attention([q, k, v], mask, 0.25))) > step / 8) != floats  # they were rounded


def test_a_value_in_another_order_is_cast_once(tmp_path: Path) -> None:
    """Heads of one projection, split, turned and multiplied; the projection is stored as halves alone."""
    x, w = whole(2, 6, 16, most=3000), whole(16, 32, most=1)
    nodes = [
        node("MatMul", "x w", "p"),
        node("Split", "p", "a b", axis=-1, num_outputs=2),
        node("Transpose", "b", "t", perm=[0, 2, 1]),
        node("MatMul", "a t", "s"),
    ]
    made = model(nodes, {"x": [2, 6, 16]}, ["s"], {"w": w})
    got = compiled(made, {"x": x / 64}, tmp_path, precision="f16")["s"]
    p = half(half(x / 64) @ w)
    assert np.max(np.abs(got - p[..., :16] @ np.swapaxes(p[..., 16:], 1, 2))) <= 2.0**-20 * np.max(np.abs(got))


@pytest.mark.parametrize(
    ("precision", "scale", "words"),
    [
        ("f16", 1.0, None),
        ("f16", 1e5, "--precision f16: numbers beyond 65504 become that in weights: 'w'; bf16 has the range of f32"),
        ("f16", 1e-9, "--precision f16: all numbers are below 6.1e-05 and lose digits in weights: 'w'; "),
        ("bf16", 1e5, None),
        ("bf16", 1e-9, None),
        ("bf16", 1e-42, "--precision bf16: all numbers are below 1.2e-38 and lose digits in weights: 'w'; "),
    ],
)
@pytest.mark.parametrize("dynamic", [False, True], ids=["", "segments"])
def test_weights_out_of_range_are_told(precision: str, scale: float, words: str | None, dynamic: bool) -> None:
    """In a model whose sizes only a run knows too, which is compiled in segments."""
    nodes = [node("MatMul", "x w", "y")]
    if dynamic:
        nodes = [node("NonZero", "x", "at"), node("Gather", "x at", "rows"), node("MatMul", "rows w", "y")]
    w = np.linspace(-scale, scale, 256, dtype=np.float32).reshape(16, 16)
    made = model(nodes, {"x": [16, 16]}, ["y"], {"w": w})
    warnings = prepare(made.SerializeToString(), CompileOptions(precision=precision)).warnings
    assert [text[: len(words or "")] for text in warnings] == ([words] if words else [])


@pytest.mark.parametrize(("dtype", "told"), [("f16", True), ("bf16", False), ("f8", False)])
def test_weights_that_are_stored_out_of_range_are_told(dtype: str, told: bool) -> None:
    made = model([node("MatMul", "x w", "y")], {"x": [16, 64]}, ["y"], {"w": np.full((64, 64), 1e6, np.float32)})
    found = prepare(made.SerializeToString(), CompileOptions(weights_dtype=dtype)).warnings
    wanted = "--weights-dtype f16: numbers beyond 65504 become that in weights: 'w'; bf16 has the range of f32"
    assert found == ((wanted,) if told else ())


def test_a_warning_names_some_weights_of_many() -> None:
    weights = {f"w{k}": np.full((16, 16), 1e6, np.float32) for k in range(5)}
    nodes = [node("MatMul", f"{'x' if k == 0 else f'y{k - 1}'} w{k}", f"y{k}") for k in range(5)]
    (text,) = prepare(model(nodes, {"x": [16, 16]}, ["y4"], weights).SerializeToString(), F16).warnings
    assert "weights: 'w0', 'w1', 'w2' and 2 more; " in text
