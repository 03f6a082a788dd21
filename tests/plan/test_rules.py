"""Fusion rules of a user's file: each kind, what explain says of it, and that results stay right."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import torshc
from tests.emulation.emulated import emulated_tools
from torshc.base import resources
from torshc.base.options import CompileOptions
from torshc.explain import Explanation, explain, group_text, to_dot, to_json, to_text
from torshc.explain.rules import RuleInfo
from torshc.formats import load_graph
from torshc.passes.rules import read_rules
from torshc.pipeline.compiler import prepare

HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'
ATTENTION = f"""{HEAD}attention (float[2,9,9] q, float[2,9,9] k, float[2,9,9] v, float[9,9] a) => (float[2,9,9] y) {{
  s = MatMul(q, k)
  w = Softmax<axis=-1>(s)
  m = MatMul(w, v)
  p = MatMul(q, a)
  r = Relu(p)
  t = MatMul(m, a)
  y = Add(r, t)
}}"""
CHAIN = f"""{HEAD}chain (float[8,9] x, float[8,9] z) => (float[8,9] y) {{
  a = Mul(x, z)
  b = Tanh(a)
  c = Exp(b)
  y = Add(c, z)
}}"""
SHARED = f"""{HEAD}shared (float[8,9] x, float[8,1] g) => (float[8,9] y, float[8] s) {{
  h = Sin(g)
  t = Mul(x, h)
  axes = Constant<value = int64[1] {{1}}>()
  y = Softmax<axis=0>(t)
  s = ReduceSum<keepdims=0>(t, axes)
}}"""

TEN_LINES = """\
- name: softmax apart from its product
  match: "MatMul(weights=Softmax(scores), v)"
  separate: weights

- name: gate with the first product
  about: Otherwise the sum joins the product that is computed last.
  match: "Add(Relu(MatMul(x, w)), ...)"
  fuse: force
"""


def rules(folder: Path, text: str) -> Path:
    file = folder / "mine.yaml"
    file.write_text(text)
    return file


def explained(model: str, file: Path | None = None, **options: object) -> Explanation:
    graph = load_graph(parser.parse_model(model).SerializeToString())
    files = () if file is None else (file,)
    return explain(prepare(graph, CompileOptions.create(mcpu="x86-64-v3", rules=files, **options)))


def groups(e: Explanation) -> list[str]:
    return [g.operators for g in e.groups]


def rule(e: Explanation) -> RuleInfo:
    (found,) = [r for r in e.rules if r.where]
    return found


def test_explain_shows_what_ten_lines_change(tmp_path: Path) -> None:
    assert groups(explained(ATTENTION)) == ["Transpose", "Attention", "MatMul+Relu", "MatMul+Add"]
    file = rules(tmp_path, TEN_LINES)
    e = explained(ATTENTION, file)
    softmax = "ReduceMax+Sub+Exp+ReduceSum+Reciprocal+Mul"
    assert groups(e) == ["MatMul", softmax, "MatMul", "MatMul", "MatMul+Relu+Add"]
    apart, force = e.rules[:2]
    assert (apart.name, apart.where, apart.stops) == ("softmax apart from its product", f"{file}:1", 1)
    assert (force.name, force.where, force.groups, force.unmet) == (
        "gate with the first product", f"{file}:5", (4,), (),
    )  # fmt: skip
    (stop,) = [s for s in e.stops if s.reason == "apart"]
    assert stop.producer is not None and (stop.producer.op, stop.consumer.op) == ("Mul", "MatMul")
    shown = {
        "separator": f"softmax apart from its product ({file}:1)",
        "force": f"gate with the first product ({file}:5)",
    }
    assert stop.rule == shown["separator"] and shown["force"] in e.groups[4].rules
    # Every form names both; text breaks lines, which may fall into a path.
    for text in (to_text(e), group_text(e, 4)):
        assert "gate with the first product" in " ".join(text.split())
    assert "softmax apart from its product" in " ".join(to_text(e).split())
    document = json.loads(to_json(e))
    assert shown["force"] in document["groups"][4]["rules"]
    assert shown["separator"] in [s["rule"] for g in document["groups"] for s in g["stops"]]
    assert "apart: softmax apart" in to_dot(e) and "rule: gate with the first product" in to_dot(e)


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("level", [0, 3])
def test_results_stay_right(target: str, level: int, tmp_path: Path) -> None:
    onnx.save(parser.parse_model(ATTENTION), tmp_path / "m.onnx")
    rng = np.random.default_rng(5)
    feeds = {n: rng.standard_normal((2, 9, 9)).astype(np.float32) for n in "qkv"}
    feeds["a"] = rng.standard_normal((9, 9)).astype(np.float32)
    with emulated_tools() if target == "cuda" else nullcontext():
        torshc.compile(
            tmp_path / "m.onnx",
            tmp_path / "m.tsc",
            target=target,
            opt_level=level,
            rules=(rules(tmp_path, TEN_LINES),),
            fallback=False,
        )
        with torshc.load(tmp_path / "m.tsc", threads=1) as model:
            got = model.run(feeds)["y"]
    q, k, v, a = (feeds[n].astype(np.float64) for n in "qkva")
    weights = np.exp(q @ k - (q @ k).max(-1, keepdims=True))
    wanted = np.maximum(q @ a, 0) + weights / weights.sum(-1, keepdims=True) @ v @ a
    # Sums of 9 products of numbers around 1, three deep, in f32.
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_rule_can_join_where_fusion_is_off(tmp_path: Path) -> None:
    file = rules(tmp_path, '- name: mine\n  match: "Exp(Tanh(x))"\n  fuse: allow\n')
    assert groups(explained(CHAIN, fusion="none")) == ["Mul", "Tanh", "Exp", "Add"]
    e = explained(CHAIN, file, fusion="none")
    assert groups(e) == ["Mul", "Tanh+Exp", "Add"] and rule(e).groups == (1,)


def test_what_is_forced_goes_first_and_past_general_limits(tmp_path: Path) -> None:
    file = rules(tmp_path, '- name: mine\n  match: "Add(Exp(Tanh(x)), z)"\n  fuse: force\n')
    assert groups(explained(CHAIN, max_fusion_size=2)) == ["Mul+Tanh", "Exp+Add"]
    assert groups(explained(CHAIN, file, max_fusion_size=2)) == ["Mul", "Tanh+Exp+Add"]


def test_operators_may_be_those_of_the_model_or_what_passes_made_of_them(tmp_path: Path) -> None:
    for match in ("Mul(Softmax(x), x)", "Mul(Mul(a, Reciprocal(ReduceSum(b))), x)"):
        text = f"{HEAD}m (float[8,9] x) => (float[8,9] y) {{ s = Softmax<axis=1>(x) \n y = Mul(s, x) }}"
        e = explained(text, rules(tmp_path, f'- name: mine\n  match: "{match}"\n  fuse: force\n'), fusion="none")
        assert rule(e).groups and not rule(e).unmet


def test_a_composite_that_is_forced_is_taken_apart_without_fusion(tmp_path: Path) -> None:
    text = f"{HEAD}m (float[8,9] x) => (float[8,9] y) {{ s = Softmax<axis=1>(x) \n y = Mul(s, x) }}"
    assert groups(explained(text, opt_level=0)) == ["Softmax", "Mul"]
    e = explained(text, rules(tmp_path, '- name: mine\n  match: "Mul(Softmax(x), x)"\n  fuse: force\n'), opt_level=0)
    assert groups(e) == ["ReduceMax+Sub+Exp+ReduceSum+Div+Mul"]


def test_what_cannot_be_had_says_why(tmp_path: Path) -> None:
    file = rules(tmp_path, '- name: mine\n  match: "MatMul(Softmax(x), v)"\n  fuse: force\n')
    e = explained(ATTENTION, file, passes={"recognise_attention": False})
    (line,) = rule(e).unmet
    assert line == "Mul 'w' -> MatMul 'm': a heavy kernel reads its operands from memory"
    assert "cannot be had" in to_text(e)


def test_a_rule_that_matches_nothing_says_so(tmp_path: Path) -> None:
    e = explained(CHAIN, rules(tmp_path, '- name: mine\n  match: "Softmax(x)"\n  fuse: force\n'))
    assert rule(e).places == 0 and "matches nothing in this model" in " ".join(to_text(e).split())


def test_two_rules_that_contradict_each_other_are_both_named(tmp_path: Path) -> None:
    both = '- name: a\n  match: "Exp(t=Tanh(x))"\n  separate: t\n- name: b\n  match: "Exp(Tanh(x))"\n  fuse: force\n'
    e = explained(CHAIN, rules(tmp_path, both))
    assert groups(e) == ["Mul+Tanh", "Exp+Add"]
    assert [r.unmet for r in e.rules if r.name == "b"] == [
        (f"Tanh 'b' -> Exp 'c': a rule keeps them apart: a ({tmp_path / 'mine.yaml'}:1)",)
    ]


@pytest.mark.parametrize(("names", "wanted"), [("t", ["Mul+Tanh", "Exp+Add"]), ("[t, x]", ["Mul", "Tanh", "Exp+Add"])])
def test_values_are_kept_apart(names: str, wanted: list[str], tmp_path: Path) -> None:
    assert groups(explained(CHAIN)) == ["Mul+Tanh+Exp+Add"]
    file = rules(tmp_path, f'- name: mine\n  match: "Exp(t=Tanh(x))"\n  separate: {names}\n')
    assert groups(explained(CHAIN, file)) == wanted


def test_the_result_of_a_pattern_is_kept_apart_from_all_its_readers(tmp_path: Path) -> None:
    file = rules(tmp_path, '- name: mine\n  match: "t=Mul(x, Sin(g))"\n  separate: t\n')
    e = explained(SHARED, file)
    assert sum(s.reason == "apart" for s in e.stops) >= 2
    (home,) = [g for g in e.groups if "Mul" in g.operators and "Exp" not in g.operators]
    assert "Reduce" not in home.operators


def test_views_do_not_hide_what_is_kept_apart(tmp_path: Path) -> None:
    text = f"""{HEAD}m (float[8,9] x) => (float[9,8] y) {{
      a = Neg(x) \n b = Transpose<perm=[1,0]>(a) \n y = Tanh(b) }}"""
    assert len(explained(text).groups) == 1
    e = explained(text, rules(tmp_path, '- name: mine\n  match: "Transpose(a=Neg(x))"\n  separate: a\n'))
    assert groups(e) == ["Neg", "Tanh"] and {s.reason for s in e.stops} == {"apart"}


def test_halves_are_stored_where_values_are_kept_apart(tmp_path: Path) -> None:
    file = rules(tmp_path, '- name: mine\n  match: "MatMul(s=Softmax(x), v)"\n  separate: s\n')
    e = explained(ATTENTION, file, precision="f16")
    assert sum(s.reason == "apart" for s in e.stops) == 1 and groups(e)[3].endswith("Reciprocal+Mul+Cast")


@pytest.mark.parametrize(
    ("limit", "wanted", "reason"),
    [
        ("{nodes: 2}", ["Mul+Tanh", "Exp+Add"], "size"),
        ("{inputs: 1}", ["Mul", "Tanh+Exp", "Add"], "inputs"),
        ("{nodes: 100, inputs: 2}", ["Mul+Tanh+Exp+Add"], ""),
    ],
)
def test_limits_hold_for_all_groups(limit: str, wanted: list[str], reason: str, tmp_path: Path) -> None:
    e = explained(CHAIN, rules(tmp_path, f"- name: mine\n  limit: {limit}\n"))
    assert groups(e) == wanted
    assert {(s.reason, s.rule) for s in e.stops} == (
        {(reason, f"mine ({tmp_path / 'mine.yaml'}:1)")} if reason else set()
    )


def test_a_limit_with_a_pattern_holds_for_groups_that_have_it(tmp_path: Path) -> None:
    file = rules(tmp_path, '- name: mine\n  match: "Mul(x, z)"\n  limit: {nodes: 1}\n')
    assert groups(explained(CHAIN, file)) == ["Mul", "Tanh+Exp+Add"]


def test_the_last_general_limit_counts(tmp_path: Path) -> None:
    file = rules(tmp_path, "- name: mine\n  limit: {nodes: 2}\n")
    assert groups(explained(CHAIN, file, max_fusion_size=3)) == ["Mul+Tanh+Exp", "Add"]
    assert {s.rule for s in explained(CHAIN, file, max_fusion_size=3).stops} == {"--max-fusion-size"}


def test_readers_are_a_limit(tmp_path: Path) -> None:
    """As many as the limit says are let be."""
    text = f"{HEAD}m (float[8,9] x) => (float[8,9] y, float[8,9] z) {{ a = Exp(x) \n y = Tanh(a) \n z = Neg(a) }}"
    file = rules(tmp_path, "- name: mine\n  limit: {readers: 1}\n- name: other\n  recompute: forbid\n")
    e = explained(text, file)
    assert groups(e) == ["Exp", "Tanh", "Neg"] and {s.reason for s in e.stops} == {"reader"}
    file = rules(tmp_path, "- name: mine\n  limit: {readers: 2}\n- name: other\n  recompute: forbid\n")
    e = explained(text, file)
    assert groups(e) == ["Exp+Tanh+Neg"] and not e.stops


@pytest.mark.parametrize(
    ("given", "stored"), [("allow", False), ("forbid", True), ("{nodes: 1, work: 100}", False), ("{work: 1}", True)]
)
def test_what_is_computed_again(given: str, stored: bool, tmp_path: Path) -> None:
    file = rules(tmp_path, f'- name: mine\n  match: "Sin(x)"\n  recompute: {given}\n')
    e = explained(SHARED, file)
    assert (groups(e)[0] == "Sin") is stored
    (home,) = [g for g in e.groups if "Mul" in g.operators]
    assert ("Sin" in [n.op for n in home.folded]) is not stored
    assert (rule(e).groups == (home.id,)) is not stored


def test_what_is_stored_all_the_same_says_why(tmp_path: Path) -> None:
    file = rules(tmp_path, '- name: mine\n  match: "ReduceSum(x)"\n  recompute: allow\n')
    text = f"""{HEAD}m (float[8,9] x) => (float[8,9] y) {{
      axes = Constant<value = int64[1] {{0}}>()
      s = ReduceSum(x, axes) \n t = Softmax<axis=1>(x) \n y = Add(t, s) }}"""
    assert rule(explained(text, file)).unmet == ("ReduceSum 's': a kernel of kind row makes it",)


def test_conditions_and_the_strategy_say_where_a_rule_holds(tmp_path: Path) -> None:
    for more, wanted in (
        ('  where: ["rank(x, 2)"]\n', ["Mul+Tanh", "Exp+Add"]),
        ('  where: ["rank(x, 3)"]\n', ["Mul+Tanh+Exp+Add"]),
        ("  fusion: aggressive\n", ["Mul+Tanh+Exp+Add"]),
        ("  fusion: [default, aggressive]\n", ["Mul+Tanh", "Exp+Add"]),
    ):
        file = rules(tmp_path, f'- name: mine\n  match: "Exp(t=Tanh(x))"\n  separate: t\n{more}')
        assert groups(explained(CHAIN, file, fusion="default")) == wanted


def test_another_way_to_write_attention_is_a_rule(tmp_path: Path) -> None:
    text = f"""{HEAD}m (float[2,9,9] q, float[2,9,9] k, float[2,9,9] v) => (float[2,9,9] y) {{
      s = MatMul(q, k) \n n = Neg(s) \n o = Neg(n) \n w = Softmax<axis=-1>(o) \n y = MatMul(w, v) }}"""
    options = {"passes": {"rewrite": False}}
    assert "Attention" not in groups(explained(text, **options))
    form = '- name: mine\n  match: "MatMul(Softmax[axis=$axis](Neg(Neg(MatMul(q, k)))), v)"\n  fuse: attention\n'
    e = explained(text, rules(tmp_path, form), **options)
    assert "Attention" in groups(e) and rule(e).groups == (1,)
    assert e.groups[1].rules == (f"mine ({tmp_path / 'mine.yaml'}:1)",)


def test_names_of_torshcs_own_rules_are_unique() -> None:
    files = (*resources.rule_files("fusion"), *resources.rule_files("rewrites"))
    found = [r.name.name for f in files for r in read_rules(f, user=False).fusion]
    assert found and len({*found}) == len(found)


def test_a_form_of_attention_without_its_pass_says_so(tmp_path: Path) -> None:
    form = '- name: mine\n  match: "MatMul(Softmax[axis=$axis](MatMul(q, k)), v)"\n  fuse: attention\n'
    (line,) = rule(explained(ATTENTION, rules(tmp_path, form), opt_level=2)).unmet
    assert "recognise_attention did not run" in line and "-O3" in line


def test_a_reduction_of_two_operands_joins_what_stands_before() -> None:
    text = f"{HEAD}m (float[8,9] x) => (int64[8] y) {{ a = Neg(x) \n y = ArgMax<axis=1, keepdims=0>(a) }}"
    assert groups(explained(text)) == ["Neg+ReduceMax+ArgSearch"]
