"""The choice of mutants of the source, what stands in their place, and the tests that are to notice them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .source_mutants import ROOT as CHECKOUT
from .source_mutants import SECONDS, Mutant, Notes, draw, mirror_of, mutants, with_switches

SOURCE = """
def place(x: int, most: int = 3) -> int:
    '''Of text like "1 + 1" nothing changes.'''
    match x:
        case 7:
            return most
    if x < most and not x % 2:
        return x + 1
    raise ValueError(f"{x + 1} is beyond {most}")
"""


def test_a_switch_chooses_between_an_expression_and_its_change(tmp_path: Path) -> None:
    file = tmp_path / "place.py"
    file.write_text(SOURCE)
    found = draw([*mutants(file)], 100, seed=0)
    assert all(not (a.begin < b.end and b.begin < a.end) for a in found for b in found if a is not b)
    assert {m.before for m in found} <= {
        "3", "x < most and not x % 2", "x < most", "not x % 2", "x % 2", "2", "0", "x + 1", "1",
    }  # fmt: skip
    switched = with_switches(file.read_bytes(), [*enumerate(found)]).decode()
    for force, m in enumerate([None, *found], -1):
        own: dict[str, Any] = {"torshc_mutant": lambda k, force=force: k == force}
        plain: dict[str, Any] = {}
        exec(switched, own)
        changed = SOURCE if m is None else f"{SOURCE[: m.begin]}({m.after}){SOURCE[m.end :]}"
        exec(changed, plain)
        for x in (0, 1, 2, 7, 9):
            assert _outcome(own, x) == _outcome(plain, x), (m, x)


def _outcome(module: dict[str, Any], x: int) -> object:
    try:
        return module["place"](x)
    except (ValueError, ArithmeticError) as e:
        return str(e)


def test_each_function_has_its_quickest_case_first(tmp_path: Path) -> None:
    mutant = Mutant(CHECKOUT / "torshc/expr/affine.py", 1, 0, 1, "1", "2")
    mirror = mirror_of(mutant.file)
    assert mirror == "tests/expr/test_affine.py"
    lines = [
        ("", 0.0, [1]), (f"{mirror}::test_b[slow]", 5.0, [0]), (f"{mirror}::test_b[quick]", 1.0, [0]),
        ("tests/expr/test_index.py::test_a", 0.5, [0]), (f"{mirror}::test_c", SECONDS, [0]),
        (f"{mirror}::test_d", 2.0, []),
    ]  # fmt: skip
    file = tmp_path / "notes"
    file.write_text("".join(json.dumps({"test": t, "seconds": s, "met": m}) + "\n" for t, s, m in lines))
    notes = Notes.read(file)
    assert notes.choose(0, mutant) == [lines[2][0], lines[3][0], lines[1][0]]  # test_c would be too long
    assert notes.choose(1, mutant) == [lines[2][0], lines[5][0], lines[1][0]]  # by its mirror
    assert notes.choose(2, mutant) == []


@pytest.mark.parametrize("part", ["expr/affine.py", "ops/tensor/parts.py"])
def test_sources_with_all_switches_compile(part: str) -> None:
    file = CHECKOUT / "torshc" / part
    found = draw([*mutants(file)], 1000, seed=1)
    compile(with_switches(file.read_bytes(), [*enumerate(found)]), part, "exec")
