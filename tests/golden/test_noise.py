"""How generated sources read: no arithmetic with ones and zeros, no unread locals, headings in long kernels."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from torshc.base.resources import templates

from .test_golden import FILES, HERE

TEMPLATES = templates()
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
NOISE = {
    "times 1": r"(?<![\w.)\]])1 \* |\* 1(?![\w.])",
    "divided by 1": r"[/%] 1(?![\w.])",
    "plus a negative number": r"\+ \(?-\d",
    "plus 0": r"[-+] 0(?![\w.])|(?<![\w.+])0 \+ ",
    "times 0": r"(?<![\w.])0 \* |\* 0(?![\w.])",
}
C_LIKE = [file for file in FILES if not file.endswith(".ll")]
TYPE = r"(?:(?:int|float|double|bool|u?int\d+_t|float4|[fiu]\d+v) )?\*?"
LOCAL = re.compile(rf"(?m)^ +(?:const |var |let )?{TYPE}(?:const )?([a-z]\w*)(?:\[\w*\])* = ")


def code_of(file: str) -> str:
    return COMMENT.sub("", (HERE / file).read_text())


@pytest.mark.parametrize("file", C_LIKE)
def test_arithmetic_changes_something(file: str) -> None:
    lines = code_of(file).splitlines()
    assert not [(what, line) for what, text in NOISE.items() for line in lines if re.search(text, line)]


def unread(code: str) -> Iterator[str]:
    """Locals of functions that are declared or set, and then named nowhere but in a cast to void."""
    for function in re.split(r"(?m)^}", code):
        body = re.sub(r"\(void\)\w+", "", function[function.find("{\n") + 1 :])
        for name in dict.fromkeys(LOCAL.findall(body)):
            if len(re.findall(rf"(?<![\w.>]){name}\b", body)) == 1:
                yield name


@pytest.mark.parametrize("file", [file for file in FILES if file.endswith(".c")])
def test_locals_are_read(file: str) -> None:
    assert not [*unread(code_of(file))]


def test_such_text_is_found() -> None:
    wrong = {"times 1": "h * 1 - 1", "divided by 1": "warp / 1 * 16", "plus a negative number": "i + (-1)",
             "plus 0": "values[at + 0]", "times 0": "scratch + 0 * (16)"}  # fmt: skip
    assert {what for what, text in NOISE.items() if re.search(text, wrong[what])} == wrong.keys()
    right = "x[i - 1] * 1.5f + 10 * 16 / 128 - 0x1p23f + t_splat_f32(1.0f) * 12 + a[1] * b + (n + 1) * 4, q0 + 0.5f"
    assert not [what for what, text in NOISE.items() if re.search(text, right)]
    assert [*unread("void f(void) {\n    const int64_t i0 = 3;\n    (void)i0;\n}\n")] == ["i0"]


def test_long_kernels_have_headings() -> None:
    """One for each phase of a kernel of 250 lines, so that a reader finds it."""
    texts = {place: place.read_text() for place in TEMPLATES.glob("*/kernels/*.j2")}
    assert [p for p, text in texts.items() if text.count("\n") >= 250 and text.count("/* ---- ") < 3] == []


ONE_TURN = re.compile(r"for \(\w+ (\w+) = 0; \1 < (\d+); (?:\1\+\+|\1 \+= (\d+))\) ")


def loops_of_one_turn(code: str) -> Iterator[str]:
    """Their heads."""
    for found in ONE_TURN.finditer(code):
        if int(found[2]) <= int(found[3] or 1):
            yield found[0]


@pytest.mark.parametrize("file", C_LIKE)
def test_loops_take_turns(file: str) -> None:
    assert not [*loops_of_one_turn(code_of(file))]


def test_a_loop_of_one_turn_is_found() -> None:
    text = "    for (int g = 0; g < {}; g++) {{\n        {}\n    }}\n    continue;\n"
    assert [*loops_of_one_turn(text.format(1, "x[g] = 0;"))] == ["for (int g = 0; g < 1; g++) "]
    assert not [*loops_of_one_turn(text.format(2, "x[g] = 0;"))]
    assert [*loops_of_one_turn(text.format(1, "if (x[g]) continue;"))]
    assert [*loops_of_one_turn("for (int u = 0; u < 16; u += 16) x[u] = 0;\n")]
