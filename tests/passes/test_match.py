"""Searches for a rule end: by steps, whatever the pattern and the graph are."""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.base.budget import spending
from torshc.base.errors import ConfigError, UnsupportedError
from torshc.base.options import CompileOptions
from torshc.graph import Graph, RuleName
from torshc.passes.manager import PASSES
from torshc.passes.match import Search, match
from torshc.passes.rules import read_rules

from ..support.pass_graphs import Model

NESTED = "Tanh(" + "any(" * 28 + "Exp(x)" + ", ...)" * 28 + ")"
RECURSIVE = '- name: r\n  fuse: allow\n  match: Tanh(@p)\n  parts:\n    p: ["Exp(@p)", "Relu(x)"]\n'


def doubled(depth: int = 40) -> Graph:
    """Products of a value with itself, so that each level has two ways on."""
    m = Model()
    value = m.input(4, 4)
    for _ in range(depth):
        value = m("MatMul", value, value)
    return m.done(m("Tanh", value))


def chained(depth: int = 1500) -> Graph:
    m = Model()
    value = m.input(4)
    for _ in range(depth):
        value = m("Exp", value)
    return m.done(m("Tanh", value))


@pytest.mark.parametrize(("action", "pass_"), [("replace: Tanh(x)", "rewrite"), ("fuse: allow", "mark_fusion")])
def test_a_pattern_with_endless_ways_is_refused_with_its_line(action: str, pass_: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f'- name: "nested"\n  match: "{NESTED}"\n  {action}\n')
    with pytest.raises(ConfigError, match=r"mine\.yaml:1: finding the rule 'nested' .* more than \d+ steps"):
        PASSES[pass_](doubled(), CompileOptions(rules=(file,)))


def test_parts_that_name_themselves_in_a_long_chain(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(RECURSIVE)
    assert not PASSES["mark_fusion"](chained(50), CompileOptions(rules=(file,)))
    with pytest.raises(ConfigError, match=r"mine\.yaml:1: finding the rule 'r' in this model leads too deep"):
        PASSES["mark_fusion"](chained(), CompileOptions(rules=(file,)))


def test_a_rule_of_ours_is_refused_by_its_budget(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f'- name: own\n  match: "{NESTED}"\n  fuse: allow\n')
    (rule,) = read_rules(file, user=False).fusion
    graph = doubled()
    with (
        spending({"matching": 5000}),
        pytest.raises(UnsupportedError, match=r"'own' .* more than 9100 steps") as caught,
    ):
        assert rule.match is not None
        list(match(rule.match, graph.outputs[0], Search(RuleName("own"), graph)))
    assert "--budget matching=NUMBER" in caught.value.remedy


@pytest.mark.parametrize(
    ("each", "message"),
    [
        ("@p{1}", "more than 40 parts lead to"),
        ("@p{1}, @p{1}", "more than 40 parts lead to"),
        ("@p{0}", "refers to itself"),
    ],
)
def test_parts_that_lead_to_parts(each: str, message: str, tmp_path: Path) -> None:
    parts = "".join(f"    p{k}: [{', '.join(repr(w) for w in each.format(k, k + 1).split(', '))}]\n" for k in range(90))
    file = tmp_path / "mine.yaml"
    file.write_text(f"- name: p\n  fuse: allow\n  match: Tanh(@p0)\n  parts:\n{parts}    p90: [Exp(x)]\n")
    with pytest.raises(ConfigError, match=message):
        read_rules(file)
