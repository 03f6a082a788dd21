"""Files and functions stay short: what grows beyond is a sign that something has no home yet."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE, FUNCTION = 500, 60  # lines
SOURCES = sorted(p for folder in ("torshc", "tests") for p in (ROOT / folder).rglob("*.py"))
TEMPLATES = sorted(p for p in (ROOT / "templates").rglob("*") if p.is_file() and p.suffix != ".md")


def test_no_file_is_long() -> None:
    long = {str(p.relative_to(ROOT)): n for p in (*SOURCES, *TEMPLATES) if (n := p.read_text().count("\n")) > FILE}
    assert not long


def test_no_function_is_long() -> None:
    long = {
        f"{p.relative_to(ROOT)}:{f.lineno} {f.name}": n
        for p in SOURCES
        for f in ast.walk(ast.parse(p.read_text()))
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
        and (n := (f.end_lineno or f.lineno) - f.lineno + 1) > FUNCTION
    }
    assert not long
