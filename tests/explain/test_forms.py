"""Numbers, tables and escapes of the renderings."""

from __future__ import annotations

import pytest

from torshc.base.columns import Column, broken, table
from torshc.base.escaping import printable, shortened
from torshc.base.quantities import bytes_text, short


@pytest.mark.parametrize("value", [0, 1e-9, 0.00051, 0.5, 9.994, 9.996, 99.96, 123456.7, 9999999.4, 1.5e12])
def test_numbers_are_short(value: float) -> None:
    assert len(short(value)) <= 8


def test_a_small_number_is_not_shown_as_nothing() -> None:
    assert short(1e-9) == "<0.001" and short(0) == "0"


def test_bytes_are_exact_below_a_thousand() -> None:
    assert bytes_text(999) == "999 B" and bytes_text(1000) == "1.00 kB"


@pytest.mark.parametrize("text", ["", "short", "A+" * 40, "x" * 100, "a b " * 30, "aaaa+" + "b" * 50])
@pytest.mark.parametrize("width", [1, 7, 20])
def test_broken_lines_fit_and_lose_nothing_but_spaces(text: str, width: int) -> None:
    lines = broken(text, width)
    assert max(map(len, lines)) <= width
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_a_table_continues_long_cells_below() -> None:
    lines = list(table([Column("n", 3, right=True), Column("ops", 6)], [["1", "Conv+Relu"], ["2", "Add"]]))
    assert lines == ["  n ops", "  1 Conv+", "    Relu", "  2 Add"]


def test_printable_leaves_letters_of_all_kinds() -> None:
    assert printable("Schicht/größe 層 ✓") == "Schicht/größe 層 ✓"
    assert printable("\u202e\ud800\u2028\x00") == "\\u202e\\ud800\\u2028\\x00"
    assert printable("a\nb", keep="\n") == "a\nb"


def test_shortened_keeps_the_end() -> None:
    assert shortened("abc", 3) == "abc"
    assert len(shortened("/" + "a" * 99 + "/end", 20)) <= 20 and shortened("/" + "a" * 99 + "/end", 20).endswith("/end")
