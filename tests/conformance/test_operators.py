"""The table of operators in torshc/ops/README.md says what is so."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path

import onnx
import pytest

import torshc
from tests.emulation.emulated import emulated_tools
from torshc.expr.dtype import DTYPES, DType
from torshc.ops import REGISTRY

from . import operators
from .operators import OWN, RUNTIME, accepts, computed_as, feeds_of, retyped, row, templates_of

ROWS = 12  # lines that are found anew
COMPILED = {"c": 12, "cuda": 2, "metal": 2}  # pairs of operator and element type that a compiler sees
REMEDY = "python -m tests.conformance.operators --write"


def _order(key: tuple[str, ...]) -> bytes:
    return sha256(".".join(key).encode()).digest()


@lru_cache(maxsize=1)
def _stated() -> list[str]:
    return [line for line in operators.FILE.read_text().splitlines() if line.count("|") == 6 and line[2].isalpha()]


def _model_operators() -> list[tuple[str, str]]:
    return sorted(key for key in REGISTRY if key[0] not in (OWN, RUNTIME))


def test_every_operator_has_a_line() -> None:
    heads = [f"| {name} | {computed_as(REGISTRY[domain, name])} |" for domain, name in _model_operators()]
    stated = [line for line in _stated() if not line.startswith("| operator |")]
    assert [" | ".join(line.split(" | ")[:2]) + " |" for line in stated] == heads, REMEDY


def test_operators_of_onnx_runtime_are_listed() -> None:
    assert "\n".join(operators.contrib()) in operators.FILE.read_text(), REMEDY


def test_headings_count_operators() -> None:
    assert [operators.counted(n) for n in (1, 2)] == ["1 operator", "2 operators"]


def test_lines_are_found_again() -> None:
    for domain, name in sorted(_model_operators(), key=_order)[:ROWS]:
        assert row(domain, name) in _stated(), REMEDY


def _pairs(target: str) -> list[tuple[str, str, DType]]:
    """Some pairs that the target takes, in an order that is arbitrary but always the same."""
    keys = [(domain, name, t) for domain, name in _model_operators() for t in DTYPES if t != "string"]
    found = []
    for domain, name, t in sorted(keys, key=lambda key: _order((*key, target))):
        cases = templates_of(domain, name)
        if cases and accepts(cases[0], DTYPES[t], target):
            found.append((domain, name, DTYPES[t]))
        if len(found) == COMPILED[target]:
            break
    return found


def _compile(target: str, folder: Path) -> None:
    for domain, name, dtype in _pairs(target):
        case = templates_of(domain, name)[0]
        model = retyped(case, dtype.onnx)
        assert model is not None
        onnx.save(model, folder / "m.onnx")
        torshc.compile(folder / "m.onnx", folder / "m.tsc", target=target, opt_level=0, threads=1, fallback=False)
        with torshc.load(folder / "m.tsc", threads=1) as compiled:
            found = compiled.run(feeds_of(case, model))
        assert len(found) == len(model.graph.output)


def test_accepted_pairs_compile_and_run(tmp_path: Path) -> None:
    _compile("c", tmp_path)


@pytest.mark.parametrize("target", ["cuda", "metal"])
def test_accepted_pairs_compile_and_run_on_devices(target: str, tmp_path: Path) -> None:
    with emulated_tools():
        _compile(target, tmp_path)
