"""A rule of the user's is tried on its example before it is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.base.errors import ConfigError
from torshc.passes.rules import rules_of


def tried(tmp_path: Path, match: str, replace: str, rest: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f'- name: mine\n  match: "{match}"\n  replace: "{replace}"\n{rest}')
    rules_of((file,))


def test_true_rules_pass(tmp_path: Path) -> None:
    tried(tmp_path, "Neg(Neg(x))", "x", "  example: {x: [2, 3]}\n")
    tried(tmp_path, "Neg(Neg(x))", "x", "  example: {x: {shape: [2], dtype: i32}}\n")
    tried(tmp_path, "Mul(e=Exp(x), Neg(e))", "Neg(Mul(e, e))", "  shared: allow\n  example: {x: [3]}\n")
    tried(tmp_path, "Mul(Exp(x), Exp(y))", "Exp(Add(x, y))", "  error: rounding\n")
    tried(tmp_path, "Div(Add(x, y), 2.0)", "Mul(Add(x, y), 0.5)", "  example: {x: [3], y: [2, 3]}\n")


@pytest.mark.parametrize(
    ("match", "replace", "rest", "line", "message"),
    [
        ("Exp(Log(x))", "x", "  example: {x: [2, 3]}\n", 3, "is not exact"),
        ("Add(x, 0.0)", "x", "  example: {x: [2, 3]}\n  error: exact\n", 5, "is not exact"),
        ("Exp(Log(x))", "Add(x, 0.001)", "  error: rounding\n  example: {x: [9]}\n", 4, "more than rounding"),
        ("Add(x, $c)", "x", "  example: {x: [2]}\n", 4, "lacks 'c'"),
        ("Add(x, y)", "x", "  example: {x: [2], y: [2], z: [2]}\n", 4, "names 'z'"),
        ("Add(x, y)", "x", "  example: {x: [2], y: [3]}\n", 4, "makes no graph"),
        ("Neg(x)", "x", "  example: {x: {shape: [2], dtype: f31}}\n", 4, "did you mean"),
        ("Neg(Neg(x))", "x", "  where: [scalar(x)]\n  example: {x: [2]}\n", 5, "does not apply to its example"),
    ],
)
def test_a_false_rule_is_refused_with_its_line(
    tmp_path: Path, match: str, replace: str, rest: str, line: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"mine.yaml:{line}: .*{message}"):
        tried(tmp_path, match, replace, rest)


@pytest.mark.parametrize(
    ("match", "replace", "remedy"),
    [
        ("Mul(x, 0.5)", "Mul(x, 0.25)", "mend the rule"),
        ("Div(x, 3.0)", "Mul(x, 0.33333334)", "error: rounding if that is meant"),
    ],
)
def test_only_small_differences_are_called_rounding(tmp_path: Path, match: str, replace: str, remedy: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tried(tmp_path, match, replace, "  example: {x: [3]}\n")
    assert remedy in caught.value.remedy


def test_all_false_rules_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    rule = '- name: {}\n  match: "Exp(Log(x))"\n  replace: "x"\n  example: {{x: [2]}}\n'
    file.write_text(rule.format("a") + rule.format("b"))
    with pytest.raises(ConfigError, match=r"2 mistakes(.|\n)*mine.yaml:3(.|\n)*mine.yaml:7"):
        rules_of((file,))


@pytest.mark.parametrize(
    ("match", "shapes"),
    [("Relu(x)", "{x: [1000000, 1000000]}"), ("Add(x, y)", "{x: [16777216, 1], y: [1, 4194304]}")],
)
def test_examples_are_small(match: str, shapes: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine\.yaml:4: a value of \d+ elements in the example of 'mine'"):
        tried(tmp_path, match, match, f"  example: {shapes}\n")
