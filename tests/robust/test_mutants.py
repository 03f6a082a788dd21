"""Mutants of models: compiled or refused, within bounds of time and memory, without a traceback or a signal."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest

from tests.support.mutate import mutant, origins
from tests.support.slow import SLOW

from .mutants import GOOD, SECONDS, outcomes, smaller

COUNT = 40  # a seed; `make mutants` takes more


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As many as ``--mutants`` says, in parts that processes share; else one part, and two slow ones."""
    if "seed" in metafunc.fixturenames:
        asked = metafunc.config.getoption("--mutants")
        usual = [0, pytest.param(10**6, marks=SLOW), pytest.param(2 * 10**6, marks=SLOW)]
        metafunc.parametrize("seed", range(0, asked, COUNT) if asked else usual)


def test_mutants(seed: int, record_property: Callable[[str, object], None]) -> None:
    found = list(outcomes(mutant(seed + k) for k in range(COUNT)))
    assert len(found) == COUNT
    seconds, mib = (max(getattr(o, what) for _, o in found) for what in ("seconds", "mib"))
    assert seconds < SECONDS and mib < 1024
    for what, value in (("mutants", COUNT), ("at most seconds", seconds), ("at most MiB", mib)):
        record_property(what, round(value, 1))
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
