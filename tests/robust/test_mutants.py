"""Mutants of models: compiled or refused, within bounds of time and memory, without a traceback or a signal."""

from __future__ import annotations

import onnx
import pytest

from tests.support.mutate import mutant, origins
from tests.support.slow import SLOW

from .mutants import GOOD, outcomes, smaller

COUNT = 150  # a seed; `make mutants` takes more


@pytest.mark.parametrize("seed", [0, pytest.param(10**6, marks=SLOW), pytest.param(2 * 10**6, marks=SLOW)])
def test_mutants(seed: int) -> None:
    found = list(outcomes(mutant(seed + k) for k in range(COUNT)))
    assert len(found) == COUNT
    bad = [f"{name}\n    {outcome.cause}\n{outcome.detail}" for (name, _), outcome in found if outcome.kind not in GOOD]
    assert not bad, "\n".join(bad)
    kinds = [outcome.kind for _, outcome in found]
    assert kinds.count("fine") > COUNT // 4 and kinds.count("refused") > COUNT // 4


def test_a_seed_is_one_mutant() -> None:
    assert mutant(7) == mutant(7) != mutant(8)


def test_failures_are_made_smaller() -> None:
    """As long as a model has a Softmax, here."""
    (model,) = [o.model for o in origins() if o.name == "zoo: attention"]

    def fails(data: bytes) -> bool:
        return any(n.op_type == "Softmax" for n in onnx.ModelProto.FromString(data).graph.node)

    small = onnx.ModelProto.FromString(smaller(model.SerializeToString(), fails))
    assert [n.op_type for n in small.graph.node] == ["Softmax"] and not small.graph.initializer
