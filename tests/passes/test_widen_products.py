"""Products of halves on targets without kernels for them: where casts stand, and the numbers that come out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.compare import compiled
from tests.support.models import model, node
from tests.support.seeded import seeded
from torshc.base.options import CompileOptions
from torshc.base.resources import rules
from torshc.expr import DTYPES
from torshc.graph.verify import verify
from torshc.passes.manager import PASSES, read_pipeline
from torshc.targets.cpu.c import CTarget

from ..support.pass_graphs import Model, dims, lines, names, run_one, text

RNG = seeded(6)


def widened(m: Model, *outputs: Any, **options: Any) -> Any:
    graph = m.done(*outputs)
    run_one("widen_products", graph, CompileOptions(**options))
    verify(graph, "widen_products")
    return graph


def test_operands_are_cast_once_and_constants_here() -> None:
    m = Model()
    x, w = m.input(4, 16, dtype="f16"), m.const(np.ones((16, 9)), "f16")
    assert text(widened(m, m("MatMul", x, w), m("MatMul", x, w))) == lines("""
        in   %0 f16[4, 16]
        %1 = Cast(%0) : f32[4, 16]
        %3 = MatMul(%1, @2:f32[16, 9]) : f32[4, 9]
        %4 = Cast[to=f16](%3) : f16[4, 9]
        %5 = MatMul(%1, @2:f32[16, 9]) : f32[4, 9]
        %6 = Cast[to=f16](%5) : f16[4, 9]
        out  %4
        out  %6
    """)


def test_a_result_of_f32_is_not_rounded() -> None:
    m = Model()
    product = m("MatMul", m.input(4, 16, dtype="f16"), m.const(np.ones((16, 9)), "f16"), out="f32")
    assert names(widened(m, product)) == ["Cast", "MatMul"]


def test_weights_of_bf16_stay_halves_where_there_are_kernels_for_them() -> None:
    m = Model()
    x, w = m.input(4, 16, dtype="bf16"), m.const(np.ones((16, 9)), "bf16")
    graph = m.done(m("MatMul", x, w))
    PASSES["widen_products"](graph, CompileOptions(), features=CTarget.features_on((), ("avx512bf16",)))
    assert text(graph) == lines("""
        in   %0 bf16[4, 16]
        %2 = MatMul[out='f32'](%0, @1:bf16[16, 9]) : f32[4, 9]
        %3 = Cast[to=bf16](%2) : bf16[4, 9]
        out  %3
    """)
    m = Model()
    graph = m.done(m("MatMul", m.input(4, 16, dtype="bf16"), m.const(np.ones((16, 9)), "bf16"), out="f32"))
    PASSES["widen_products"](graph, CompileOptions(), features=CTarget.features_on((), ("avx512bf16",)))
    assert names(graph) == ["MatMul"]


@pytest.mark.parametrize(("target", "kept"), [("c", "bf16"), ("llvm", "f32")])
def test_weights_stay_halves_beside_rows_of_floats(target: str, kept: str) -> None:
    """Where no instruction multiplies halves."""
    m = Model()
    x, w = m.input(4, 16, dtype="bf16"), m.const(np.ones((16, 9)), "bf16")
    graph = widened(m, m("MatMul", x, w, out="f32"), target=target)
    (product,) = [n for n in graph.nodes if n.op.name == "MatMul"]
    assert names(graph) == ["Cast", "MatMul"] and [v.dtype.name for v in product.operands] == ["f32", kept]


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize(
    ("kernel", "more", "product"),
    [
        ((1, 1), {}, True), ((3, 3), {}, False), ((1, 1), {"strides": (2, 2)}, False),
        ((1, 1), {"pads": dims(1, 0, 0, 0)}, False), ((1, 1), {"group": 2}, None),
    ],
)  # fmt: skip
def test_convolutions_by_constants_keep_halves(
    kernel: tuple[int, int], more: dict[str, Any], product: bool | None, windows: bool
) -> None:
    """Those that are products on every processor, others where instructions multiply halves, none in groups.

    What they read stays halves where instructions multiply them.
    """
    m = Model()
    fields = {"strides": (1, 1), "dilations": (1, 1), "pads": dims(0, 0, 0, 0), "group": 1, **more}
    x, w = m.input(1, 16, 4, 4, dtype="bf16"), m.const(np.ones((6, 16 // fields["group"], *kernel)), "bf16")
    graph = m.done(m("Conv", x, w, out="f32", **fields))
    features = CTarget.features_on((), ("avx512bf16",) if windows else ())
    PASSES["widen_products"](graph, CompileOptions(), features=features)
    (conv,) = [n for n in graph.nodes if n.op.name == "Conv"]
    kept = "bf16" if product or (windows and product is not None) else "f32"
    rows = kept if windows else "f32"
    assert [v.dtype.name for v in conv.operands] == [rows, kept] and names(graph).count("Cast") == (rows == "f32")


@pytest.mark.parametrize(("extras", "kept"), [((), 0), (("avx512bf16",), 0), (("amx-tile", "amx-bf16"), 1)])
def test_attention_keeps_halves_where_there_are_tiles(extras: tuple[str, ...], kept: int) -> None:
    m = Model()
    graph = m.done(m("Attention", *(m.input(2, 9, 16, dtype="bf16") for _ in range(3)), domain="torshc", out="f32"))
    PASSES["widen_products"](graph, CompileOptions(), features=CTarget.features_on((), extras))
    assert names(graph) == (["Attention"] if kept else ["Cast", "Cast", "Cast", "Attention"])


@pytest.mark.parametrize(("depth", "columns"), [(4, 9), (16, 1)])
def test_products_too_small_for_matrix_units_are_widened(depth: int, columns: int) -> None:
    m = Model()
    x, w = m.input(4, depth, dtype="bf16"), m.const(np.ones((depth, columns)), "bf16")
    assert names(widened(m, m("MatMul", x, w, out="f32"))) == ["Cast", "MatMul"]


def test_the_bias_is_widened_too() -> None:
    m = Model()
    x, w, bias = m.input(1, 8, 4, 4, dtype="f16"), m.const(np.ones((6, 8, 1, 1)), "f16"), m.input(6, dtype="f16")
    pads = {"strides": (1, 1), "dilations": (1, 1), "pads": dims(0, 0, 0, 0)}
    graph = widened(m, m("Conv", x, w, bias, **pads))
    (conv,) = [n for n in graph.nodes if n.op.name == "Conv"]
    assert {v.dtype.name for v in (*conv.operands, conv.output)} == {"f32"}


def test_targets_with_kernels_for_halves_keep_them() -> None:
    m = Model()
    product = m("MatMul", m.input(4, 16, dtype="f16"), m.const(np.ones((16, 9)), "f16"))
    assert names(widened(m, product, target="cuda")) == ["MatMul"]


@pytest.mark.parametrize("level", range(4))
def test_every_pipeline_has_it(level: int) -> None:
    assert "widen_products" in read_pipeline(rules("pipelines") / f"O{level}.yaml").names()


def test_products_of_halves_use_the_kernel_of_floats(tmp_path: Path) -> None:
    """The sum of 40 products is exact to 2^-24 of it; what is left is the result's own rounding, 2^-11."""
    x, w = (RNG.standard_normal(s).astype(np.float16) for s in ((7, 40), (40, 33)))
    made = model([node("MatMul", "x w", "y")], {"x": ("float16", [7, 40])}, "y", {"w": w})
    found = compiled(made, {"x": x}, tmp_path)["y"]
    np.testing.assert_allclose(found.astype(float), x.astype(float) @ w.astype(float), rtol=2**-11, atol=1e-5)
    assert found.dtype == np.float16


@pytest.mark.parametrize("level", [0, 3])
def test_recurrent_cells_of_halves_run(level: int, tmp_path: Path) -> None:
    """States stay f32 between the steps, so only operands and results are rounded, to 2^-11."""
    steps, hidden = 5, 3
    w, r, x = (0.5 * RNG.standard_normal(s) for s in ((1, hidden, 4), (1, hidden, hidden), (steps, 2, 4)))
    w, r, x = (a.astype(np.float16) for a in (w, r, x))
    made = model(
        [node("RNN", "x w r", "y last", hidden_size=hidden)],
        {"x": x},
        "y last",
        {"w": w, "r": r},
    )
    found = compiled(made, {"x": x}, tmp_path, opt_level=level)
    state = np.zeros((2, hidden))
    for k in range(steps):
        state = np.tanh(x[k].astype(float) @ w[0].astype(float).T + state @ r[0].astype(float).T)
        np.testing.assert_allclose(found["y"][k, 0], state, atol=2**-11)
    assert found["last"].dtype == DTYPES["f16"].numpy
