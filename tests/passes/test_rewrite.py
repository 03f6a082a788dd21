"""Every rewrite, on random inputs: what it puts there computes what was there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torshc import resources
from torshc.errors import ConfigError
from torshc.expr import DTYPES, as_expr
from torshc.graph import Builder, Graph, TensorType, Value
from torshc.options import CompileOptions
from torshc.passes.interpret import run_graph
from torshc.passes.manager import PASSES
from torshc.passes.match import Match, build
from torshc.passes.pattern import Apply, Capture, Constant, Variable
from torshc.passes.rewrite_rules import Rewrite
from torshc.passes.rules import read_rules

from ..support.pass_graphs import OPTIONS, Model, names

RULES = [rule for file in resources.rule_files("rewrites") for rule in read_rules(file).rewrites]
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf, 1e-40, 3e38]


def leaves(pattern: Any) -> tuple[set[str], set[str], set[str]]:
    """Names of variables, constants and captured attributes."""
    if isinstance(pattern, Variable):
        return {pattern.name}, set(), set()
    if isinstance(pattern, Constant):
        return set(), {pattern.name}, set()
    out: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    if isinstance(pattern, Apply):
        out[2].update(v.name for _, v in pattern.attributes if isinstance(v, Capture))
        for a in pattern.args:
            for mine, its in zip(out, leaves(a), strict=True):
                mine.update(its)
    return out


def instance(rule: Rewrite, shape_of: dict[str, Any]) -> Graph:
    """A graph that is what the rule looks for."""
    graph = Graph("rule")
    variables, constants, captured = leaves(rule.match)
    values: dict[str, Value] = {}
    for name in sorted(variables):
        given = shape_of[name]
        shape, dtype = (given["shape"], given["dtype"]) if isinstance(given, dict) else (given, "f32")
        value = graph.new_value(TensorType(DTYPES[dtype], tuple(as_expr(d) for d in shape)), name)
        graph.inputs.append(value)
        values[name] = value
    for name in sorted(constants):
        values[name] = graph.constant(np.asarray(shape_of[name], np.float32))
    found = Match(values, {name: shape_of[name] for name in captured})
    out = build(rule.match, Builder(graph), found, graph.inputs[0])
    assert out is not None
    graph.outputs, graph.output_names = [out], ["y"]
    return graph


def contents(graph: Graph, seed: int) -> dict[Value, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    out: dict[Value, np.ndarray[Any, Any]] = {}
    for v in graph.inputs:
        shape = v.type.static_shape or ()
        if v.dtype.is_float:
            plain = (rng.standard_normal(shape) * 2).astype(np.float32)
            odd = rng.choice(np.asarray(SPECIAL, np.float32), shape)
            out[v] = np.where(rng.random(shape) < 0.3, odd, plain) if seed % 2 else plain
        else:
            out[v] = rng.integers(0, 2 if v.dtype.name == "bool" else 9, shape).astype(v.dtype.numpy)
    return out


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.name.replace(" ", "-"))
def test_rewrite_computes_the_same(rule: Rewrite) -> None:
    before, after = instance(rule, rule.example), instance(rule, rule.example)
    assert PASSES["rewrite"](after, OPTIONS), f"the rewrite {rule.name!r} does not apply to its own example"
    for seed in range(20):
        (wanted,) = run_graph(before, contents(before, seed))
        (got,) = run_graph(after, dict(zip(after.inputs, contents(before, seed).values(), strict=True)))
        if rule.error == "exact":
            np.testing.assert_array_equal(got, wanted)
            if wanted.dtype.kind == "f":
                numbers = ~np.isnan(wanted)
                np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))
        elif seed % 2 == 0:
            np.testing.assert_allclose(got, wanted, rtol=3e-6, atol=3e-7)


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
