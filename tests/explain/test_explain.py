"""What explain says of small models: groups, boundaries, work and traffic, in all its forms."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper, parser

from torshc.base.errors import ConfigError
from torshc.base.options import CompileOptions
from torshc.explain import Explanation, count_launches, explain, group_text, to_dot, to_json, to_text
from torshc.formats import load_graph
from torshc.pipeline.compiler import prepare
from torshc.plan.group import REASONS

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

CHAIN = """
<ir_version: 8, opset_import: ["" : 18]>
chain (float[batch,64] x, float[64] scale) => (float[batch,64] y) {
  a = Mul(x, scale)
  b = Sigmoid(a)
  y = Add(b, x)
}
"""

# Two reductions over different axes cannot share a row kernel.
CROSSED = """
<ir_version: 8, opset_import: ["" : 18]>
crossed (float[32,64] x) => (float[32,64] y) {
  a = Softmax<axis=1>(x)
  y = Softmax<axis=0>(a)
}
"""

# Eight symbols, and an output of a long size.
MANY = """
<ir_version: 8, opset_import: ["" : 18]>
many (float[a,b,c,d] x, float[e,f,g,h] z) => (float[n] y) {
  one = Constant<value = int64[1] {-1}>()
  u = Reshape(x, one)
  v = Reshape(z, one)
  p = Concat<axis=0>(u, v)
  even = Constant<value = int64[1] {2}>()
  none = Constant<value = int64[1] {0}>()
  far = Constant<value = int64[1] {1000000}>()
  q = Slice(p, none, far, none, even)
  r = Concat<axis=0>(q, u)
  y = Slice(r, none, far, none, even)
}
"""

HOSTILE = 'x"\n*/ {{ 7*7 }} \x1b[31m \\ </b>\u202e'


def proto(text: str) -> ModelProto:
    return parser.parse_model(text)


def explained(model: ModelProto | str, dims: dict[str, int] | None = None, **options: object) -> Explanation:
    m = proto(model) if isinstance(model, str) else model
    graph = load_graph(m.SerializeToString())
    return explain(prepare(graph, CompileOptions.create(mcpu="x86-64-v3", **options)), dims)


def hostile() -> ModelProto:
    m = proto(CHAIN)
    m.graph.name = HOSTILE
    for node in m.graph.node:
        node.name = HOSTILE
    for value in (*m.graph.input, *m.graph.output):
        for node in m.graph.node:
            node.input[:] = [HOSTILE + n if n == value.name else n for n in node.input]
            node.output[:] = [HOSTILE + n if n == value.name else n for n in node.output]
        value.name = HOSTILE + value.name
    return m


def test_of_kernels_that_are_chosen_by_size_one_is_launched() -> None:
    done = prepare(load_graph(SAMPLES / "digits.onnx"), CompileOptions.create(mcpu="x86-64-v3"))
    kernels = sum(len(u.kernels) for u in done.units)
    assert count_launches(done) == len(done.units) < kernels
    assert f"{len(done.units)} launches of {kernels} kernels" in " ".join(to_text(explain(done)).split())


def test_a_fused_chain_is_one_group_with_its_traffic() -> None:
    e = explained(CHAIN, {"batch": 10})
    (group,) = e.groups
    assert group.operators == "Mul+Sigmoid+Add" and e.launches == 1 and e.dims == {"batch": 10}
    assert [t.kind for t in group.reads] == ["input", "input"] and [t.name for t in group.writes] == ["y"]
    # x and scale are read, y is written, each once.
    assert group.bytes == 4 * (640 + 64 + 640) and group.flops >= 3 * 640
    assert e.stops == () and e.weights_bytes == 0


def test_a_weight_in_two_layouts_is_told() -> None:
    """An embedding that is also the last product's factor, as in GPT-2."""
    x, y = helper.make_tensor_value_info("x", 7, ["n", 8]), helper.make_tensor_value_info("y", 1, ["n", 8, 8192])
    nodes = [
        helper.make_node("Gather", ["w", "x"], ["e"]),
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["e", "t"], ["y"]),
    ]
    w = numpy_helper.from_array(np.random.default_rng(0).standard_normal((8192, 64), np.float32), "w")
    graph = helper.make_graph(nodes, "tied", [x], [y], [w])
    e = explained(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    assert (e.weights_bytes, e.copied_bytes) == (2 * 8192 * 64 * 4, 8192 * 64 * 4)
    assert "weights 4.19 MB, 2.10 MB of them in a second layout" in " ".join(to_text(e).split())


def test_symbols_left_out_count_as_one() -> None:
    assert explained(CHAIN).dims == {"batch": 1}
    assert explained(CHAIN).groups[0].bytes == 4 * (64 + 64 + 64)
    assert "batch" in str(explained(CHAIN).groups[0].kernels[0].bytes_text)


def test_an_unknown_dimension_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'batch'"):
        explained(CHAIN, {"bath": 1})


def test_a_boundary_tells_who_why_and_where() -> None:
    e = explained(CROSSED)
    assert len(e.groups) == 2
    (stop,) = {s.reason: s for s in e.stops}.values()
    assert stop.reason in REASONS and stop.meaning == REASONS[stop.reason]
    assert stop.source == 0 and stop.producer is not None and stop.producer.op == "Mul"
    assert e.groups[1].reads[0].groups == (0,)


def test_the_size_limit_is_a_reason() -> None:
    e = explained(CHAIN, max_fusion_size=2)
    assert [s.reason for s in e.stops] == ["size"] and "size limit" in to_text(e)


def test_many_symbols_and_long_sizes_are_summed_up() -> None:
    assert "(numbers at 8 sizes=1)" in to_text(explained(MANY))
    assert "(numbers at b=5, 7 others=1)" in to_text(explained(MANY, {"b": 5}))
    (result,) = explained(MANY).outputs
    assert "..." in result.type and len(result.type) < 200


def test_without_fusion_every_node_is_a_launch() -> None:
    e = explained(CHAIN, opt_level=0)
    assert e.launches == 3 and e.stops == () and "Fusion is off" in to_text(e)


@pytest.mark.parametrize("model", [CHAIN, CROSSED, MANY, hostile()], ids=["chain", "crossed", "many", "hostile"])
@pytest.mark.parametrize("everything", [False, True])
def test_text_fits_80_columns_and_has_no_control_characters(model: ModelProto | str, everything: bool) -> None:
    e = explained(model)
    text = to_text(e, everything) + "".join(group_text(e, g.id) for g in e.groups)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert all(c.isprintable() or c == "\n" for c in text) and "\u202e" not in text


def test_a_long_group_is_cut_and_says_so() -> None:
    body = "\n".join(f"  a{k + 1} = {'Tanh' if k % 2 else 'Sigmoid'}(a{k})" for k in range(40))
    text = f'<ir_version: 8, opset_import: ["" : 18]>\ng (float[8] a0) => (float[8] a40) {{\n{body}\n}}'
    shown = to_text(explained(text))
    assert re.search(r"\+\s*\d+ more", shown) and max(map(len, shown.splitlines())) <= 80


def test_runs_of_one_operator_are_counted() -> None:
    text = CHAIN.replace("b = Sigmoid(a)", "a2 = Mul(a, a)\n  b = Sigmoid(a2)")
    assert explained(text).groups[0].operators == "Mul(2)+Sigmoid+Add"


def test_one_group_in_full() -> None:
    e = explained(CROSSED)
    text = group_text(e, 1)
    for word in ("Group 1", "Nodes", "Reads", "from group 0", "Writes", "Kernels", "flop/B", "Where fusion stopped"):
        assert word in text
    for number in (-1, 2):
        with pytest.raises(ConfigError, match="groups are 0 to 1"):
            group_text(e, number)


def test_json_has_everything_and_is_ascii() -> None:
    text = to_json(explained(hostile(), {"batch": 3}))
    assert text.isascii()
    found = json.loads(text)
    assert found["torshc_explain"] == 1 and found["model"] == HOSTILE
    assert found["groups"][0]["nodes"][0]["name"] == HOSTILE
    assert found["totals"]["bytes"] == sum(g["bytes"] for g in found["groups"])
    assert found["groups"][0]["templates"] == ["map"]


def test_dot_quotes_every_name(tmp_path: Path) -> None:
    text = to_dot(explained(hostile()))
    without_strings = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    assert "7*7" in text and "7*7" not in without_strings and "\x1b" not in text
    assert 'g0 -> o0 [label=""]' in without_strings and 'i0 -> g0 [label=""]' in without_strings
    if dot := shutil.which("dot"):
        subprocess.run([dot, "-Tsvg", "-o", str(tmp_path / "x.svg")], input=text, text=True, check=True)


def test_dot_draws_values_between_groups() -> None:
    assert "g0 -> g1" in to_dot(explained(CROSSED))


def test_parts_of_a_concatenation_show_all_their_writers() -> None:
    e = explained("""
        <ir_version: 8, opset_import: ["" : 18]>
        joined (float[4,8] x, float[4,8] y) => (float[4,16] z) {
          a = Softmax<axis=1>(x)
          b = Softmax<axis=1>(y)
          c = Concat<axis=1>(a, b)
          z = Softmax<axis=1>(c)
        }""")
    assert e.groups[-1].reads[0].groups == (0, 1)
