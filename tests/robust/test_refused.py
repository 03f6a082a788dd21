"""What mutants of models found, each a class of its own: refused by the node's name, with the cause; none recurses."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, parser

import torshc
from torshc.base.errors import ModelError, UnsupportedError
from torshc.expr import I64, Expr, const, load
from torshc.graph import Graph, TensorType
from torshc.kernels.nest import Buffers

F = TensorProto.FLOAT


def parsed(body: str, opset: int = 18) -> ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{body}')


def compiled(model: ModelProto, folder: Path, **options: object) -> None:
    onnx.save(model, folder / "m.onnx")
    torshc.compile(folder / "m.onnx", folder / "m.tsc", emit="source", **options)


BRANCH = """g (float[2, 3] x, bool c) => (float y) {{
  [the_node] y = If (c) <then_branch = t () => (float a) {{ {0} }}, else_branch = e () => ({2}) {{ {1} }}>
}}"""
OPERATORS: dict[str, tuple[str, int, str]] = {
    "Gather at a scalar": (
        "g (float[4] x) => (float y) <int64 i = {9}> { [the_node] y = Gather (x, i) }", 18,
        "(Gather): Gather at index 9, of a dimension of 4",
    ),
    "GatherND": (
        "g (float[4] x) => (float y) <int64[1, 1] i = {0}> { [the_node] y = GatherND <batch_dims = 3> (x, i) }", 18,
        "(GatherND): GatherND of f32[4] at i64[1, 1] with batch_dims 3",
    ),
    "MatMulInteger with a zero point that does not fit": (
        "g (uint8[4, 3] x) => (int32 y) <uint8 a = {0}, uint8[3, 2] w = {1, 2, 3, 4, 5, 6}, uint8[3] z = {1, 2, 3}>"
        " { [the_node] y = MatMulInteger (x, w, a, z) }", 18,
        "(MatMulInteger): weights of shape [3, 2] with a zero point of shape [3]",
    ),
    "Add of two types": (
        "g (float16[3] x) => (float[3] y) <float[1] k = {1}> { [the_node] y = Add (k, x) }", 18,
        "(Add): Add of different types, f32[1] and f16[3]",
    ),
    "Where of two types": (
        "g (float[3] x, int32[3] k, bool[3] c) => (float[3] y) { [the_node] y = Where (c, x, k) }", 18,
        "(Where): Where of different types, f32[3] and i32[3]",
    ),
    "Swish before its time": (
        "g (float[4] x) => (float[4] y) { [the_node] y = Swish (x, x) }", 13, "(Swish): Swish takes 1 inputs, and 2",
    ),
    "Gelu before its time": (
        "g (float[4] x) => (float[4] y) { [the_node] y = Gelu (x, x, x) }", 13, "(Gelu): Gelu takes 1 inputs, and 3",
    ),
    "Celu before its time": (
        "g (float[4] x) => (float[4] y) { [the_node] y = Celu (x, x) }", 7, "(Celu): Celu takes 1 inputs, and 2 are",
    ),
    "DeformConv before its time": (
        "g (float[1, 1, 4, 4] x) => (float y) { [the_node] y = DeformConv (x) }", 11,
        "(DeformConv): DeformConv takes 3 to 5 inputs, and 1 are given",
    ),
    "TensorScatter before its time": (
        "g (float[1, 4] x) => (float y) { [the_node] y = TensorScatter (x) }", 20,
        "(TensorScatter): TensorScatter takes 2 to 3 inputs, and 1 are given",
    ),
    "Upsample at a matrix": (
        "g (float[2] s) => (float y) <float[1, 2] x = {1, 2}> { [the_node] y = Upsample (s, x) }", 9,
        "(Upsample): Upsample of f32[2] needs a scale or a size for 1 dimensions",
    ),
    "If of two types": (
        BRANCH.format("a = Neg (x)", "b = Cast <to = 7> (x)", "int64 b"), 18,
        "(If): the branches of an If give f32 and i64",
    ),
    "If of two ranks": (
        BRANCH.format("a = Neg (x)", "b = ReduceSum <keepdims = 0> (x)", "float b"), 18,
        "(If): its branches give f32[2, 3] and f32[], and which one is known only at run time",
    ),
    "If of two numbers of outputs": (
        BRANCH.format("a = Neg (x)", "b = Neg (x) d = Neg (x)", "float b, float d"), 18,
        "(If): If needs two branches with as many outputs as it has",
    ),
    "If without outputs": (
        BRANCH.format("a = Neg (x)", "b = Neg (x)", ""), 18, "(If): If needs two branches with as many outputs",
    ),
    "If of a number": (
        "g (float[2, 3] x) => (float y) { [the_node] y = If (x) <then_branch = t () => (float a) { a = Neg (x) }, "
        "else_branch = e () => (float b) { b = Abs (x) }> }", 18, "(If): input 0 of If of opset 16 cannot be f32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OPERATORS)
def test_operators(case: str, tmp_path: Path) -> None:
    body, opset, message = OPERATORS[case]
    with pytest.raises((ModelError, UnsupportedError), match=re.escape(f"'the_node' {message}")):
        compiled(parsed(body, opset), tmp_path)


@pytest.mark.parametrize("value", [1.5, "1", [1], "\udcff".encode("utf-8", "surrogateescape")])
@pytest.mark.parametrize("name", ["num_scan_inputs", "scan_input_axes", "scan_output_directions", "body"])
def test_attributes_of_scan(name: str, value: object, tmp_path: Path) -> None:
    """Of another type than they have."""
    body = parser.parse_graph("b (float[3] s, float[3] e) => (float[3] t, float[3] o) { t = Add (s, e) o = Neg (t) }")
    given = {"num_scan_inputs": 1, "body": body, name: value}
    if name.startswith("scan_") and value == [1]:
        return
    scan = helper.make_node("Scan", ["s0", "x"], ["u", "y"], name="the_Scan", **given)
    inputs = [helper.make_tensor_value_info("s0", F, [3]), helper.make_tensor_value_info("x", F, [2, 3])]
    graph = helper.make_graph([scan], "g", inputs, [helper.make_empty_tensor_value_info("y")])
    with pytest.raises(ModelError, match=rf"'the_Scan' \(Scan\): attribute '{name}' of Scan must be"):
        compiled(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), tmp_path)


def test_strings_in_scan(tmp_path: Path) -> None:
    body = "b (string s, string e) => (string t, string o) { t = Identity (e) o = Identity (s) }"
    scan = f"u, y = Scan (s, x) <num_scan_inputs = 1, body = {body}>"
    text = f"g (string s, string[2] x) => (string y) {{ [a_node] {scan} }}"
    with pytest.raises(UnsupportedError, match=r"'a_node' \(Scan\): Scan over strings"):
        compiled(parsed(text), tmp_path)


def chain(op: str, count: int, **attributes: object) -> ModelProto:
    """Nodes one after the other, or for Sum one node of as many operands."""
    if op == "Sum":
        nodes = [helper.make_node(op, [f"x{k}" for k in range(count)], ["y"])]
        inputs = [f"x{k}" for k in range(count)]
    else:
        nodes = [helper.make_node(op, [f"v{k}"], [f"v{k + 1}"], **attributes) for k in range(count)]
        inputs = ["v0"]
    infos = [helper.make_tensor_value_info(n, F, ["n"]) for n in inputs]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info(nodes[-1].output[0])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def test_an_index_that_passes_through_many_nodes(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", [f"i{k}"], [f"i{k + 1}"]) for k in range(1200)]
    nodes.append(helper.make_node("Gather", ["t", "i1200"], ["y"]))
    infos = [helper.make_tensor_value_info(n, TensorProto.INT64, ["n"]) for n in ("i0", "t")]
    graph = helper.make_graph(nodes, "g", infos, [helper.make_empty_tensor_value_info("y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    compiled(made, tmp_path, opt_level=1)


def test_elements_at_elements_at_elements() -> None:
    """Loads within the indices of loads."""
    value = Graph().new_value(TensorType(I64, (const(5),)))
    e: Expr = const(3)
    for _ in range(500):
        e = load(value, (e,), I64)
    found, depth = Buffers({}).resolve(e), 0
    while found.op == "load":
        (found,), depth = found.args, depth + 1
    assert depth == 500 and found is const(3)


@pytest.mark.parametrize(("op", "count"), [("Sum", 400), ("Sin", 300), ("Softsign", 260)])
def test_nothing_recurses_over_operands_or_depth(op: str, count: int, tmp_path: Path) -> None:
    for options in ({"opt_level": 0}, {"fusion": "aggressive"}):
        compiled(chain(op, count), tmp_path, **options)
