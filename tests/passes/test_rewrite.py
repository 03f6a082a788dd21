"""Every rewrite, on random inputs: what it puts there computes what was there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from torshc.base import resources
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.passes.manager import PASSES
from torshc.passes.rewrite_rules import Rewrite
from torshc.passes.rule_examples import check_example
from torshc.passes.rules import read_rules

from ..support.pass_graphs import OPTIONS, Model, names

RULES = [rule for file in resources.rule_files("rewrites") for rule in read_rules(file).rewrites]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name.replace(" ", "-"))
def test_rewrite_computes_the_same(rule: Rewrite) -> None:
    check_example(rule)


def test_names_are_unique() -> None:
    assert len({r.name for r in RULES}) == len(RULES)


def test_a_users_rule_is_applied(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text('- name: mine\n  match: "Exp(Log(x))"\n  replace: "x"\n')
    m = Model()
    graph = m.done(m("Relu", m("Exp", m("Log", m.input(2, 3)))))
    assert not PASSES["rewrite"](graph, OPTIONS)
    assert PASSES["rewrite"](graph, CompileOptions(rules=(file,)))
    PASSES["dead_code"](graph, OPTIONS)
    assert names(graph) == ["Relu"]


def test_a_rule_names_operators_of_other_domains(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text('- name: mine\n  match: "ai.onnx.ml::Binarizer(y=ai.onnx.ml::Binarizer(x))"\n  replace: "y"\n')
    m = Model()
    once = m("Binarizer", m.input(3, 3), domain="ai.onnx.ml")
    graph = m.done(m("Relu", m("Binarizer", once, domain="ai.onnx.ml")))
    assert PASSES["rewrite"](graph, CompileOptions(rules=(file,)))
    PASSES["dead_code"](graph, OPTIONS)
    assert names(graph) == ["Binarizer", "Relu"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Binarizer", "unknown operator 'Binarizer'; did you mean 'ai.onnx.ml::Binarizer'?"),
        ("ai.onnx.ml::Binariser", "unknown operator 'ai.onnx.ml::Binariser'; did you mean 'ai.onnx.ml::Binarizer'?"),
        ("a.b::Relu", "unknown operator 'a.b::Relu'; did you mean 'Relu'?"),
        ("Squeeze", "no graph has 'Squeeze': the import replaces it by what it is made of"),
    ],
)
def test_an_unknown_operator_is_told_what_a_rule_may_say(name: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f'- name: mine\n  match: "{name}(x)"\n  replace: "x"\n')
    with pytest.raises(ConfigError) as caught:
        read_rules(file)
    assert caught.value.message.endswith(message)


def test_an_inner_value_with_another_reader_is_left_alone() -> None:
    m = Model()
    x = m.input(2, 3)
    s = m("Sigmoid", x)
    graph = m.done(m("Mul", x, s), m("Exp", s))
    assert not PASSES["rewrite"](graph, OPTIONS)


def test_a_replacement_of_another_shape_is_no_match() -> None:
    m = Model()
    ones = m.const(np.ones((4, 3)))
    graph = m.done(m("Mul", m.input(3), ones))
    assert not PASSES["rewrite"](graph, OPTIONS)


@pytest.mark.parametrize(
    ("dtype", "over", "keepdims", "quotient"),
    [
        ("f32", 1, True, False),
        ("f64", 1, True, False),
        ("f16", 1, True, True),
        ("f32", 0, True, True),
        ("f32", 1, False, True),
    ],
)
def test_softmax_has_a_reciprocal_where_its_sum_is_at_least_1(
    dtype: str, over: int, keepdims: bool, quotient: bool
) -> None:
    m = Model()
    x = m.input(3, 3, dtype=dtype)
    e = m("Exp", m("Sub", x, m("ReduceMax", x, axes=(over,), keepdims=keepdims)))
    graph = m.done(m("Div", e, m("ReduceSum", e, axes=(1,))))
    PASSES["rewrite"](graph, OPTIONS)
    assert ("Div" in names(graph)) == quotient


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('- name: a\n  match: "Addd(x, y)"\n  replace: "x"\n', 2, "did you mean 'Add'"),
        ('- name: a\n  match: "Add(x, y"\n  replace: "x"\n', 2, "ends too early"),
        ('- name: a\n  match: "Add(x, y)"\n  replace: "z"\n', 3, "'z' is not bound"),
        ('- name: a\n  match: "Add(x, y)"\n  replase: "x"\n', 3, "did you mean 'replace'"),
        ('- name: a\n  match: "Add(x, y)"\n', 1, "one of replace, fuse, separate, limit, recompute is missing"),
        ('- name: a\n  match: "Clip[lo=1](x)"\n  replace: "x"\n', 2, "did you mean 'low'"),
        ('- name: a\n  match: "Add(x, y)"\n  where: ["scalr(x)"]\n  replace: "x"\n', 3, "did you mean 'scalar'"),
        ('- name: a\n  match: "Add(x, y)"\n  where: ["scalar(z)"]\n  replace: "x"\n', 3, "not bound"),
        ('- name: a\n  match: "Add(x, y)"\n  where: ["scalar(x, y)"]\n  replace: "x"\n', 3, "takes 1"),
        ('- name: a\n  match: "Add(x, y)"\n  where: ["__import__"]\n  replace: "x"\n', 3, "not a condition"),
        ('- name: a\n  match: "x"\n  replace: "x"\n', 2, "must begin with an operator"),
        ('- name: a\n  match: "Add(x, @y)"\n  replace: "x"\n', 2, "no parts"),
        ('- name: a\n  match: "Add(x, ;)"\n  replace: "x"\n', 2, "cannot read"),
        ("- name: a\n  match: [1]\n  replace: x\n", 2, "expected text"),
    ],
)
def test_a_wrong_rule_names_file_and_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as e:
        read_rules(file)
    assert f"{file}:{line}:" in str(e.value)
