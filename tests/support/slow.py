"""What `make test` leaves to `make test-all`: the marker `slow`, and lists of which only a part has it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest

SLOW = pytest.mark.slow


def some(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases, of which only one of ``every`` runs by default; the first is among them."""
    return [case if k % every == 0 else pytest.param(case, marks=SLOW) for k, case in enumerate(cases)]


def some_pairs(often: Iterable[Any], seldom: Iterable[Any], every: int) -> list[Any]:
    """Pairs of both, for parametrize: by default all with the first of ``seldom``, one of ``every`` with the rest."""
    first, *rest = seldom
    all_ = list(often)
    pairs = [pytest.param(a, first) for a in all_]
    other = [(k, a, b) for b, (k, a) in product(rest, enumerate(all_))]
    return pairs + [pytest.param(a, b, marks=() if k % every == 0 else SLOW) for k, a, b in other]
