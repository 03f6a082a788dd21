"""Sizes as text, and back: signs, and text that nests deep or holds long numbers."""

from __future__ import annotations

import pytest

from torshc.expr import Expr, const, dim
from torshc.expr.text import parse_dim, parse_size, to_text

N, M = dim("n"), dim("m")


@pytest.mark.parametrize(
    ("e", "text"),
    [
        (N - 1, "n - 1"), (N - 2 * M - 3, "-2*m + n - 3"), (const(-1) * N, "-1*n"),
        (N - M * dim("a"), "-1*a*m + n"), (N - dim("z") * dim("z"), "n - z*z"),
        (N + dim("-x"), "-x + n"), (M + N * dim("-x"), "-x*n + m"), (dim("a") + dim("-x"), "-x + a"),
    ],
)  # fmt: skip
def test_signs(e: Expr, text: str) -> None:
    assert to_text(e) == text


def test_what_is_written_is_read() -> None:
    for e in (N - 1, N - 2 * M - 3, (N - 4) // 2 - 5 * M):
        assert parse_size(to_text(e)) is e


def test_sizes_that_nest_deep() -> None:
    e: Expr = N
    for _ in range(400):
        e = e // 2 + 1
    assert to_text(e, 1 << 16).startswith("(((") and "..." in to_text(e, 64)


@pytest.mark.parametrize(
    "text", ["+".join(["a"] * 950), "*".join(["99"] * 3000), "9" * 4500, "*".join(["9" * 900] * 9)]
)
def test_text_that_is_too_much(text: str) -> None:
    """It is a name, or at least a size that can be shown."""
    assert to_text(parse_dim(text))


@pytest.mark.parametrize("text", ["-1", "2 - 3"])
def test_a_number_below_zero_is_a_name(text: str) -> None:
    assert parse_dim(text) is dim(text)
