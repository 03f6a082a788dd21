"""Files of fusion rules: what is read, and what is said of a bad one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from torshc.base import resources
from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.cli import cli
from torshc.ops import REGISTRY, Op
from torshc.ops.core.base import LIGHT
from torshc.passes.fusion_rules import UNLIMITED, Fuse, Limit, Recompute, Separate
from torshc.passes.manager import pipeline_of, read_pipeline
from torshc.passes.pattern import Apply
from torshc.passes.policy import Policy, policy_of
from torshc.passes.rules import read_rules


def written(folder: Path, text: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(text)
    return file


def test_each_action_is_read(tmp_path: Path) -> None:
    text = """\
- {name: a, match: "Exp(Tanh(x))", fuse: force}
- {name: b, match: "Exp(t=Tanh(x))", separate: [t, x]}
- {name: c, limit: {nodes: 4, inputs: 2}}
- {name: d, match: "Sin(x)", where: ["rank(x, 2)"], recompute: allow, fusion: aggressive}
- {name: e, match: "Neg(Neg(x))", replace: "x"}
"""
    found = read_rules(written(tmp_path, text))
    assert [r.action for r in found.fusion] == [
        Fuse("force"),
        Separate(("t", "x")),
        Limit(4, 2),
        Recompute(UNLIMITED, UNLIMITED, UNLIMITED),
    ]
    assert [r.name.where for r in found.fusion] == [f"{tmp_path / 'mine.yaml'}:{k}" for k in (1, 2, 3, 4)]
    assert len(found.fusion[3].where) == 1 and found.fusion[3].fusion == ("aggressive",)
    assert [r.name for r in found.rewrites] == ["e"]


def test_heavy_is_every_operator_with_kernels_of_its_own() -> None:
    @dataclass(frozen=True)
    class New(Op):
        family: ClassVar[str] = "new"

    (rule,) = (r for r in Policy.of().rules if r.name.name == "heavy kernel and what follows")
    assert isinstance(rule.match, Apply)
    inner = rule.match.args[0]
    assert isinstance(inner, Apply)
    heavy = {op.family for op in REGISTRY.values() if inner.fits(object.__new__(op))}  # some need attributes
    assert inner.fits(New()) and heavy.isdisjoint(LIGHT) and {"gemm", "conv", "trees", "cache"} <= heavy


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('- name: a\n  match: "Exp(x)"\n  fuze: force\n', 3, "unknown key 'fuze'; did you mean 'fuse'"),
        ('- name: a\n  match: "Exp(x)"\n', 1, "one of replace, fuse, separate, limit, recompute is missing"),
        ('- name: a\n  match: "Exp(x)"\n  fuse: force\n  limit: {nodes: 2}\n', 1, "this one has fuse and limit"),
        (
            '- name: a\n  match: "Exp(x)"\n  fuse: froce\n',
            3,
            "allow, force or attention, not 'froce'; did you mean 'force'",
        ),
        ('- name: a\n  match: "Exp(x)"\n  shared: allow\n  fuse: force\n', 3, "unknown key 'shared'"),
        ("- name: a\n  fuse: force\n", 2, "fuse needs a match"),
        ("- name: a\n  separate: x\n", 2, "separate needs a match"),
        ('- match: "Exp(x)"\n  fuse: force\n', 1, "'name' is missing"),
        ('- name: a\n  match: "Exp(w=Tanh(x))"\n  separate: v\n', 3, "'v' is not bound by the match"),
        ('- name: a\n  match: "Exp(weights=Tanh(x))"\n  separate: [x, weigths]\n', 3, "did you mean 'weights'"),
        ('- name: a\n  match: "Exp(x)"\n  separate: []\n', 3, "separate names nothing"),
        ("- name: a\n  limit: {node: 2}\n", 2, "unknown key 'node'; did you mean 'nodes'"),
        ("- name: a\n  limit: {nodes: 0}\n", 2, "whole number from 1"),
        ("- name: a\n  limit: {nodes: many}\n", 2, "whole number"),
        ("- name: a\n  limit: {}\n", 2, "a limit says nothing"),
        ("- name: a\n  limit: 3\n", 2, "expected a mapping"),
        ("- name: a\n  recompute: alow\n", 2, "did you mean 'allow'"),
        ("- name: a\n  recompute: {flops: 2}\n", 2, "unknown key 'flops'"),
        ("- name: a\n  recompute: {}\n", 2, "recompute says nothing"),
        ('- name: a\n  where: ["rank(x, 2)"]\n  limit: {nodes: 2}\n', 2, "a condition needs a match"),
        ('- name: a\n  match: "Exp(x)"\n  where: ["rnk(x, 2)"]\n  fuse: force\n', 3, "did you mean 'rank'"),
        ('- name: a\n  match: "Exp(x)"\n  where: ["rank(y, 2)"]\n  fuse: force\n', 3, "not bound"),
        ('- name: a\n  match: "Exp(x)"\n  where: "rank(x, 2)"\n  fuse: force\n', 3, "expected a list"),
        ('- name: a\n  match: "Exp(x)"\n  fusion: agressive\n  fuse: force\n', 3, "did you mean 'aggressive'"),
        ('- name: a\n  match: "x"\n  fuse: force\n', 2, "must begin with an operator"),
        ('- name: a\n  match: "Epx(x)"\n  fuse: force\n', 2, "did you mean 'Exp'"),
        ('- name: a\n  match: "pointwse(x)"\n  fuse: force\n', 2, "did you mean 'pointwise'"),
        ('- name: a\n  match: "gemm[axis=1](x, y)"\n  fuse: force\n', 2, "the family 'gemm' has no attributes"),
        ('- name: a\n  match: "Exp(x, ..., y)"\n  fuse: force\n', 2, r"expected '\)'"),
        ('- name: a\n  match: "Exp(@inner)"\n  fuse: force\n', 2, "the part @inner is not defined"),
        ('- name: a\n  match: "Exp(@iner)"\n  parts: {inner: ["Neg(x)"]}\n  fuse: force\n', 2, "did you mean 'inner'"),
        ('- name: a\n  match: "Exp(@b)"\n  parts: {b: ["@b"]}\n  fuse: force\n', 3, "@b refers to itself"),
        ('- name: a\n  parts: {b: ["x"]}\n  limit: {nodes: 2}\n', 2, "parts belong to a match"),
        ('- name: a\n  match: "MatMul(Softmax(MatMul(q, k)), v)"\n  fuse: attention\n', 2, "must bind 'axis'"),
        ('- name: a\n  match: "MatMul(ReduceSum[axes=$axis](MatMul(q, k)), v)"\n  fuse: attention\n', 2, "a Softmax"),
        ("- name: a\n  limit: {nodes: 2}\n- name: a\n  limit: {nodes: 3}\n", 3, "two rules are called 'a'"),
        ("- [1]\n", 1, "expected a mapping"),
        ("name: a\nlimit: {nodes: 2}\n", 1, "expected a list"),
    ],
)
def test_a_wrong_rule_names_file_line_and_what_was_meant(tmp_path: Path, text: str, line: int, message: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(ConfigError, match=message) as e:
        read_rules(file)
    assert f"{file}:{line}:" in str(e.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        '- name: a\n  match: "Epx(x)"\n  fuse: froce\n  fusion: agressive\n- name: b\n  limt: {nodes: 2}\n'
        '- name: c\n  match: "Add(x, y"\n  replace: x\n',
    )
    other = tmp_path / "other.yaml"
    other.write_text("- name: a\n  limit: {nodes: none}\n")
    with pytest.raises(ConfigError) as e:
        policy_of(CompileOptions(rules=(file, other)), pipeline_of(CompileOptions()))
    text = str(e.value)
    places = (f"{file}:2", f"{file}:3", f"{file}:4", f"{file}:6", f"{file}:8", f"{other}:2")
    assert "6 mistakes" in text and all(f"{place}:" in text for place in places)


@pytest.mark.parametrize("level", range(4))
def test_a_bad_file_is_bad_configuration_at_every_level(level: int, tmp_path: Path) -> None:
    file = written(tmp_path, "- name: a\n  limit: {nods: 2}\n")
    sample = resources.rules().parent / "samples" / "mlp.json"
    done = CliRunner().invoke(cli, ["explain", str(sample), f"-O{level}", "--rules", str(file)], prog_name="torshc")
    assert done.exit_code == ConfigError.exit_code and "did you mean 'nodes'" in done.output


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    file = written(tmp_path, "- name: a\n  limit: {nodes: 2}\n")
    assert Policy.of(files=(file,)).bounds([])[0].limit == Limit(nodes=2)
    file.write_text("- name: a\n  limit: {nodes: 33}\n")
    assert Policy.of(files=(file,)).bounds([])[0].limit == Limit(nodes=33)


def test_a_pipeline_sets_the_strategy_and_its_bounds(tmp_path: Path) -> None:
    file = written(tmp_path, "fusion: aggressive\nlimit: {nodes: 5}\nrecompute: {work: 3}\npasses: [dead_code]\n")
    options = CompileOptions(pipeline=file)
    policy = policy_of(options, read_pipeline(file))
    assert policy.strategy == "aggressive"
    assert [(b.limit, b.rule.where) for b in policy.bounds([]) if b.limit.nodes] == [(Limit(nodes=5), str(file))]
    named = policy_of(CompileOptions(pipeline=file, fusion="conservative", max_fusion_size=9), read_pipeline(file))
    assert named.strategy == "conservative"
    assert [(str(b.rule), b.limit) for b in named.bounds([])] == [
        ("--max-fusion-size", Limit(nodes=9)),
        ("size of a group", Limit(inputs=256)),
        ("one reader", Limit(readers=1)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fusion: agressive\npasses: []\n", ":1: .*did you mean 'aggressive'"),
        ("limit: {nods: 1}\npasses: []\n", ":1: .*did you mean 'nodes'"),
        ("recompute: sometimes\npasses: []\n", ":1: recompute is allow or forbid"),
    ],
)
def test_a_wrong_setting_of_a_pipeline_is_named(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        read_pipeline(written(tmp_path, text))
