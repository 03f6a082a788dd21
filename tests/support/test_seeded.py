"""Tests' numbers do not depend on other tests, and no module holds a generator that they could."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from .seeded import seeded

TESTS = Path(__file__).resolve().parents[1]
RNG = seeded(3)
# What holds a state that one test would leave to the next.
GENERATORS = ("np.random.default_rng", "np.random.RandomState", "np.random.Generator", "random.Random")


def test_numbers_follow_from_the_test() -> None:
    first, second = RNG.integers(1 << 60, size=2)
    assert first != second
    (again,) = seeded(3).integers(1 << 60, size=1)
    (other,) = seeded(4).integers(1 << 60, size=1)
    assert first == again != other


@pytest.mark.parametrize("k", [0, 1])
def test_parameters_give_other_numbers(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    here = RNG.integers(1 << 60)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_x.py::test_y (call)")
    there = RNG.integers(1 << 60)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_x.py::test_y (setup)")
    assert here != there != RNG.integers(1 << 60)


def kept(tree: ast.Module) -> Iterator[int]:
    """Lines that keep a generator for a module or a class."""
    scopes = [tree, *(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef))]
    values = [n.value for s in scopes for n in s.body if isinstance(n, ast.Assign | ast.AnnAssign)]
    yield from (v.lineno for v in values if isinstance(v, ast.Call) and ast.unparse(v.func) in GENERATORS)


def test_generators_that_are_kept_are_found() -> None:
    text = "R = np.random.default_rng(0)\nX = np.random.default_rng(0).random(3)\n"
    assert [*kept(ast.parse(text))] == [1]


@pytest.mark.parametrize("folder", sorted(p.name for p in TESTS.iterdir() if p.is_dir()))
def test_no_module_keeps_a_generator(folder: str) -> None:
    """Make it with seeded(), or in the test."""
    files = sorted((TESTS / folder).rglob("*.py"))
    found = [f"{path}:{line}" for path in files for line in kept(ast.parse(path.read_text()))]
    assert not found
