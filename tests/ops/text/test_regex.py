"""Regular expressions: programs of patterns run under the sanitizers, against Python's where the syntaxes agree."""

from __future__ import annotations

import itertools
import random
import re
import time
from collections.abc import Iterator

import numpy as np
import pytest

from tests.templates.host_harness import Array, Failed, Harness
from torshc.base.errors import ModelError
from torshc.ops import Unsupported
from torshc.ops.text.regex import TEXT_MAX, compile_pattern

TEXTS = [
    "",
    "a",
    "b",
    "ab",
    "abc",
    "aab",
    "foo@bar.com",
    "a\n",
    "a b",
    "ü",
    "K",
    "x" * 30,
    "12",
    "1_a",
    "ab\nab",
    "-]\\",
]
PATTERNS = [
    "", "a*", "(a|b)*c?", r"[\w.\-]+@\w+\.com", "[^a]+", "a{2,3}b?", "(?:a|ab)(?:c|bc)?", r"\d+", r"\D*", "a$", "^a",
    r"\bab\b.*", "(?s).*", ".*", "x{30}", "(x*)*", "(?m)ab$.^ab", "(?ms)ab$.^ab", r"\w+\s?\w*", r"[]\\-]+", "a??b",
    "(?P<n>a)b*", r"[^\x00-\x7f].*", "(a?){30}a*", "|a", r"\B-\B.*", "a|b|", "(?i)[A-B]+", "(?i)k",
]  # fmt: skip


@pytest.fixture(scope="module")
def host() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    assert harness.close() == 0


def matched(host: Harness, pattern: str, texts: list[str]) -> list[bool]:
    strings: Array = np.array([*texts, None], object)[:-1]
    return list(map(bool, host("t_op_text_match", [strings, compile_pattern(pattern)])[0]))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(host: Harness, pattern: str) -> None:
    flags = 0 if "(?i)" in pattern else re.ASCII
    assert matched(host, pattern, TEXTS) == [re.fullmatch(pattern, t, flags) is not None for t in TEXTS]


def drawn(rng: random.Random, depth: int) -> str:
    """A pattern over a, b and c."""
    kind = rng.random()
    if depth == 0 or kind < 0.35:
        return rng.choice(["a", "b", "c", ".", "[ab]", "[^a]", r"\w", r"\b", "^", "$"])
    if kind < 0.6:
        return drawn(rng, depth - 1) + drawn(rng, depth - 1)
    if kind < 0.75:
        return f"(?:{drawn(rng, depth - 1)}|{drawn(rng, depth - 1)})"
    return f"(?:{drawn(rng, depth - 1)}){rng.choice(['*', '+', '?', '{2}', '{1,3}', '{0,2}', '*?'])}"


def test_drawn_patterns(host: Harness) -> None:
    rng, texts = random.Random(1), ["".join(c) for n in range(5) for c in itertools.product("abc", repeat=n)]
    for _ in range(200):
        pattern = drawn(rng, 4)
        assert matched(host, pattern, texts) == [re.fullmatch(pattern, t) is not None for t in texts], pattern


@pytest.mark.parametrize(
    ("pattern", "text", "want"),
    [
        ("[[:alpha:]]+", "ab", True), ("[[:^digit:]]", "x", True), (r"\p{Lu}\pL+", "Ünic", True),
        (r"\P{Lu}", "U", False),
        (r"\p{^Lu}", "u", True), (r"a\z", "a", True), (r"\Qa.b\E+", "a.bb", True), (r"\Q*", "*", True),
        ("(?i)σ", "ς", True), ("(?i:a)b", "Ab", True), ("(?i:a)b", "AB", False), ("a(?i)b|c", "C", True),
        ("(?<n>a)", "a", True), ("a{,2}", "a{,2}", True), (r"\pN", "٣", True), (r"\d", "٣", False),
        (r"\012", "\n", True),
        (r"\x{1F600}+", "😀😀", True), ("[^a]", "\n", True), ("x*" * 50, "x" * 3000, True),
        ("(x+x+)+y", "x" * 3000, False),
    ],
)  # fmt: skip
def test_syntax_of_re2(host: Harness, pattern: str, text: str, want: bool) -> None:
    assert matched(host, pattern, [text]) == [want]


@pytest.mark.parametrize(
    "pattern",
    ["(", "a)", "[a", "a**", "*a", "(?i)*", "a{1001}", "a{2,1}", "[b-a]", "\\", "(?<a", "(?x)a", "[[:foo:]]", r"\y"],
)
def test_patterns_that_are_none(pattern: str) -> None:
    with pytest.raises(ModelError, match="at "):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"(a)\1", "backreference"), ("(?=a)", "look ahead"), ("(?<!a)", "look behind"), (r"\p{Greek}", "Greek"),
        ("((a{1000}){1000})", "steps"), ("(" * 300 + ")" * 300, "nested"),
        ("(aa){999}" * 50, "steps"), ("a" * 70000, "70000 characters"), (r"\C", "bytes"),
    ],
)  # fmt: skip
def test_patterns_that_are_refused(pattern: str, why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        compile_pattern(pattern)


@pytest.mark.parametrize("form", ["{0}", "(?i){0}", "[{0}]", "(?i)[{0}]", "(?i){1}"])
def test_the_longest_patterns_take_a_moment(form: str) -> None:
    """Of as many different code points as there is room for, or of as many different classes of them."""
    letters = [chr(0x400 + k) for k in range(TEXT_MAX - 6)]
    pattern = form.format("".join(letters), "".join(f"[a-{c}]" for c in letters[: len(letters) // 5]))
    began = time.process_time()
    assert len(compile_pattern(pattern)) > 1
    assert time.process_time() - began < 10  # what any model may take; a second or two by themselves


@pytest.mark.parametrize(
    "program",
    [[], [5], [1, 1, 0, 0], [2, 1, 99, 1, 0, 0, 0], [2, 2, 5, 0, 0, 0, 0], [2, 9, 5, 0, 0, 0, 0], [1 << 62, 0, 0, 0]],
)
def test_programs_that_leave_themselves(host: Harness, program: list[int]) -> None:
    with pytest.raises(Failed, match="not a program"):
        host("t_op_text_match", [np.array(["a"], object), np.array(program, np.int64)])
