"""A decoder's attention with what makes its cache longer, and with rotary positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.base.options import CompileOptions
from torshc.graph import Graph, Value
from torshc.graph.verify import verify
from torshc.passes import PASSES
from torshc.passes.interpret import run_graph

from ..support.pass_graphs import OPTIONS, Model, dims, names, run_one

RNG = seeded(4)
HOPPER = CompileOptions(target="cuda", arch="sm_90a")


def joined(graph: Graph, options: CompileOptions = HOPPER) -> list[str]:
    """The operators after the pass, of which the results are what they were."""
    fed = {v: RNG.standard_normal([int(str(d)) for d in v.shape]).astype(np.float16) for v in graph.inputs}
    before = run_graph(graph, fed)
    run_one("join_cache", graph, options)
    PASSES["dead_code"](graph, OPTIONS)
    verify(graph, "join_cache")
    for got, wanted in zip(run_graph(graph, fed), before, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-2, atol=2e-2)
    return names(graph)


def step(
    m: Model,
    *,
    queries: int = 2,
    apart: bool = False,
    appended: bool = False,
    turned: bool = True,
    other: bool = False,
    mask: Value | None = None,
    **attention: Any,
) -> Graph:
    """Heads of queries over two of keys, 8 wide; with `other`, queries are turned by other angles than keys."""
    pasts = [m.input(1, 2, 5, 8, dtype="f16") for _ in range(2)]
    q, k, v = (m.input(1, n, 1, 8, dtype="f16") for n in (2 * queries, 2, 2))
    if turned:
        angles = [m.const(RNG.uniform(-1, 1, (1, 1, 4)), "f16") for _ in range(4)]
        q = m("Rotated", q, *angles[2 if other else 0 :][:2], domain="torshc")
        k = m("Rotated", k, *(m.const(a.const, "f16") for a in angles[:2]), domain="torshc")
    if appended:
        at = m.const(np.array([3]), "i64")
        whole = [
            m("Appended", p, x, at, domain="torshc", length=pasts[0].shape[2])
            for p, x in zip(pasts, (k, v), strict=True)
        ]
    else:
        whole = [m("Concat", p, x, axis=2) for p, x in zip(pasts, (k, v), strict=True)]
    shape = dims(1, 2, queries, 1, 8) if apart else dims(1, 2, queries, 8)
    q = m("Reshape", q, shape=shape)
    seen = [m("Reshape", x, shape=dims(1, 2, 1, 6 - appended, 8)) for x in whole] if apart else whole
    y = m("Attention", q, *seen, *([mask] if mask else []), domain="torshc", scale=0.4, **attention)
    return m.done(y, *whole)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("appended", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_a_step_is_one_operator(apart: bool, appended: bool, turned: bool) -> None:
    found = joined(step(Model(), apart=apart, appended=appended, turned=turned))
    assert found.count("CachedAttention") == 1 and not {"Attention", "Concat", "Appended", "Rotated"} & {*found}


def test_other_angles_stay_outside() -> None:
    found = joined(step(Model(), other=True))
    assert found.count("CachedAttention") == 1 and found.count("Rotated") == 2


@pytest.mark.parametrize("hidden", [0.0, -np.inf])
def test_masks_that_hide_nothing(hidden: float) -> None:
    m = Model()
    mask = m.const([[0, 0, hidden, 0, 0, 0]], "f16")
    assert ("CachedAttention" in joined(step(m, mask=mask))) is (hidden == 0)


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ({"queries": 9}, HOPPER),
        ({"out": "f32"}, HOPPER),
        ({"safe": True}, HOPPER),
        ({}, CompileOptions(target="cuda", arch="sm_80,sm_90a")),
        ({}, CompileOptions(target="cuda")),
        ({}, CompileOptions(target="c")),
    ],
)
def test_what_the_kernel_does_not_take(form: dict[str, Any], options: CompileOptions) -> None:
    """Many queries, results of another type, guarded rows; cards without clusters."""
    assert "CachedAttention" not in joined(step(Model(), **form), options)


def test_a_cache_that_is_computed() -> None:
    """It may lie anywhere."""
    m = Model()
    past = m("Relu", m.input(1, 2, 5, 8, dtype="f16"))
    new, q = (m.input(1, 2, 1, 8, dtype="f16") for _ in range(2))
    whole = m("Concat", past, new, axis=2)
    assert "CachedAttention" not in joined(m.done(m("Attention", q, whole, whole, domain="torshc")))
