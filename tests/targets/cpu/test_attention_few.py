from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.kernels.machine import Machine
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.targets.cpu.attention_few import PART, POINTS, AttentionFewJoin, AttentionFewKernel
from torshc.targets.cpu.c import CTarget

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_kernel import Program, compilers, native_lanes
from .test_attention import DIMS, GUARDS, attention, check

RNG = seeded(12)
PARTS = [AttentionFewKernel, AttentionFewJoin]
CASES: list[tuple[list[Shape], list[type]]] = [
    ([(2, 8, 4, 64), (2, 8, 520, 64), (2, 8, 520, 64)], PARTS),
    ([(POINTS, 1, 16), (POINTS, 300, 16), (POINTS, 300, 24)], PARTS[:1]),
    ([(3, 8, 7), (3, PART, 7), (3, PART, 70)], PARTS[:1]),
    ([("b", 5, 33), ("b", "t", 33), ("b", "t", 1)], PARTS),
    ([(2, 3, 5), (2, 0, 5), (2, 0, 5)], PARTS[:1]),
]


@pytest.mark.parametrize("compiler", compilers())
@pytest.mark.parametrize(("shapes", "made"), CASES, ids=str)
def test_shapes(compiler: str, shapes: list[Shape], made: list[type]) -> None:
    program = check(shapes, compiler=compiler, scale=0.3)
    assert [type(k) for k in program.kernels] == made


@pytest.mark.parametrize("guard", GUARDS, ids=str)
def test_parts_of_keys_that_are_hidden(guard: dict[str, bool]) -> None:
    """Whole parts, all keys of a point, and keys of one query; a mask of each query, and one of all."""
    for own in (4, 1):
        mask = np.zeros((2, 1, own, 2 * PART + 9))
        mask[0, :, :, :PART] = -np.inf
        mask[1] = -np.inf
        mask[0, :, 0, ::2] = -np.inf
        given: list[Shape] = [(2, 3, 4, 8), (2, 3, mask.shape[-1], 8), (2, 3, mask.shape[-1], 8), mask.shape]
        program = check(given, {3: mask}, **guard)
        assert [type(k) for k in program.kernels] == PARTS


def test_scores_that_are_no_numbers() -> None:
    mask = np.zeros((4, 2 * PART))
    mask[1, 7], mask[2, -1], mask[3, 1] = np.nan, np.nan, np.inf
    check([(3, 4, 8), (3, 2 * PART, 8), (3, 2 * PART, 8), mask.shape], {3: mask})


@pytest.mark.parametrize(("form", "exact"), [({"causal": True}, False), ({}, True)], ids=str)
def test_others_are_left_to_panels(form: dict[str, Any], exact: bool) -> None:
    """Queries that see different keys, and bits that may not depend on the number of queries."""
    m = Maker()
    shapes: list[Shape] = [(3, 4, 8), (3, 300, 8), (3, 300, 8)]
    graph = m.output(attention(m, *[m.input(*s) for s in shapes], **form))
    program = Program(graph, DIMS, Machine(native_lanes(), exact_batches=exact))
    assert not any(isinstance(k, AttentionFewKernel) for k in program.kernels)
    program.run(*(random(RNG, sizes(s, DIMS)) for s in shapes))


@pytest.mark.parametrize(("lanes", "asked"), [(16, False), (8, True)])
def test_values_are_asked_for_with_their_keys(lanes: int, asked: bool) -> None:
    """By vectors of 8, whose processors foresee keys but not the values behind them."""
    m = Maker()
    shapes: list[Shape] = [(3, 4, 64), (3, 300, 64), (3, 300, 64)]
    graph = m.output(attention(m, *[m.input(*s) for s in shapes]))
    target, plan = CTarget(Machine(lanes)), make_plan(finalise(graph, Policy.of()))
    made = [target.render(k).source for group in plan.groups for k in target.lower(graph, group, plan.storage)]
    assert any("T_FETCH(v, row * V_ROW + n)" in source for source in made) is asked
