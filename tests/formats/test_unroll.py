"""Loops and Scans with a small known number of steps become their steps; others are left for a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper

from tests.support.compare import evaluated, reference
from tests.support.evaluate import Array, run
from tests.support.models import model
from torshc.base.errors import ModelError, UnsupportedError
from torshc.formats import import_model
from torshc.ops.control.flow import all_nodes

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
info = helper.make_tensor_value_info


def model_of(node: NodeProto, inputs: dict[str, tuple[int, list[int]]], weights: dict[str, Array]) -> Any:
    return model([node], inputs, list(node.output), weights)


def agree(made: Any, feeds: dict[str, Array]) -> None:
    for got, want in zip(evaluated(made, feeds), reference(made, feeds), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def powers(going: str = "Identity") -> GraphProto:
    """state' = state * x, with x from outside, and the state and the number of the step as results of each step."""
    nodes = [
        helper.make_node(going, ["going"], ["on"]),
        helper.make_node("Mul", ["state", "x"], ["next"]),
        helper.make_node("Cast", ["step"], ["number"], to=F),
        helper.make_node("Add", ["next", "number"], ["row"]),
    ]
    inputs = [info("step", INT, []), info("going", B, []), info("state", F, [3])]
    return helper.make_graph(nodes, "body", inputs, [info("on", B, []), info("next", F, [3]), info("row", F, [3])])


def loop(count: int | None, condition: bool | None, body: GraphProto) -> Any:
    names = ["count" if count is not None else "", "condition" if condition is not None else "", "first"]
    weights = {} if count is None else {"count": np.asarray(count)}
    weights |= {} if condition is None else {"condition": np.asarray(condition)}
    node = helper.make_node("Loop", names, ["last", "rows"], name="it", body=body)
    return model_of(node, {"first": (F, [3]), "x": (F, [3])}, weights)


FEEDS = {"first": np.array([1, 2, 3], np.float32), "x": np.array([2, -1, 0.5], np.float32)}


def test_loop() -> None:
    agree(loop(4, True, powers()), FEEDS)
    results = [run(import_model(loop(4, c, powers()).SerializeToString()), FEEDS) for c in (None, True)]
    for with_none, with_true in zip(*results, strict=True):  # the reference cannot do without
        np.testing.assert_array_equal(with_none, with_true)
    agree(loop(4, True, powers("Not")), FEEDS)  # one step


def looping(made: Any) -> bool:
    """Whether a loop is left for a run."""
    return any(n.op.name == "Loop" for n in import_model(made.SerializeToString()).nodes)


def test_loops_that_are_not_known() -> None:
    assert not looping(loop(4, True, powers()))
    assert looping(loop(5000, True, powers()))
    assert looping(loop(0, True, powers()))
    three = {"first": (F, [3]), "x": (F, [3])}
    node = helper.make_node("Loop", ["count", "", "first"], ["last", "rows"], name="it", body=powers())
    assert looping(model_of(node, {"count": (INT, []), **three}, {}))
    node = helper.make_node("Loop", ["count", "go", "first"], ["last", "rows"], name="it", body=powers())
    assert looping(model_of(node, {"go": (B, []), **three}, {"count": np.asarray(2)}))
    for endless in (loop(None, True, powers()), loop(None, None, powers())):
        with pytest.raises(UnsupportedError, match="never ends"):
            import_model(endless.SerializeToString())


def test_states_that_are_optional_only_at_first() -> None:
    """The body declares an optional: it is one in every round, so the body is imported once, for a run."""
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(F, [3]))
    nodes = [
        helper.make_node("OptionalGetElement", ["state"], ["held"]),
        helper.make_node("Add", ["held", "x"], ["next"]),
        helper.make_node("Identity", ["going"], ["on"]),
    ]
    inputs = [info("step", INT, []), info("going", B, []), helper.make_value_info("state", kind)]
    body = helper.make_graph(nodes, "body", inputs, [info("on", B, []), info("next", F, [3])])
    node = helper.make_node("Loop", ["count", "condition", "first"], ["last"], name="it", body=body)
    weights = {"count": np.asarray(3), "condition": np.asarray(True)}
    made = model_of(node, {"x": (F, [3])}, weights)
    made.graph.input.append(helper.make_value_info("first", kind))
    made.opset_import[0].version = 16  # whose OptionalGetElement takes nothing but optionals
    made.ir_version = 8
    assert looping(made)


def scan(**attributes: Any) -> NodeProto:
    nodes = [helper.make_node("Add", ["total", "part"], ["sum"]), helper.make_node("Mul", ["sum", "k"], ["row"])]
    inputs = [info("total", F, [2]), info("part", F, [2])]
    body = helper.make_graph(nodes, "body", inputs, [info("sum", F, [2]), info("row", F, [2])])
    return helper.make_node("Scan", ["first", "xs"], ["last", "rows"], "it", body=body, num_scan_inputs=1, **attributes)


def test_scan() -> None:
    feeds = {"first": np.array([1, 2], np.float32), "xs": np.arange(10, dtype=np.float32).reshape(5, 2)}
    weights = {"k": np.array([2], np.float32)}
    made = model_of(scan(), {"first": (F, [2]), "xs": (F, [5, 2])}, weights)
    agree(made, feeds)
    node = scan(scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[-1], scan_output_directions=[1])
    made = model_of(node, {"first": (F, [2]), "xs": (F, [2, 5])}, weights)
    last, rows = run(import_model(made.SerializeToString()), {"first": feeds["first"], "xs": feeds["xs"].T.copy()})
    sums = feeds["first"] + np.cumsum(feeds["xs"][::-1], axis=0)
    np.testing.assert_allclose(last, sums[-1])
    np.testing.assert_allclose(rows, 2 * sums[::-1].T)


def test_scans_that_are_not_known() -> None:
    weights = {"k": np.array([2], np.float32)}
    for shape in ([5000, 2], [0, 2], ["n", 2]):
        assert looping(model_of(scan(), {"first": (F, [2]), "xs": (F, shape)}, weights))
    made = model_of(scan(scan_input_axes=[0, 1]), {"first": (F, [2]), "xs": (F, [5, 2])}, weights)
    with pytest.raises(ModelError, match="scan_input_axes"):
        import_model(made.SerializeToString())


@pytest.mark.parametrize("rounds", [3, 5000])
def test_more_outputs_than_the_body_gives(rounds: int) -> None:
    """Unrolled or not, and with all types stated, which lets the import go on after other mistakes."""
    text = """<ir_version: 9, opset_import: ["" : 20]>
        g (float s) => (float[k] y) <int64 n = {ROUNDS}, bool go = {1}> {
            v, y = Loop(n, go, s) <body = b (int64 i, bool on, float p) => (bool o, float r) {
                o = Identity(on)  r = Identity(p) }>
        }"""
    made = onnx.parser.parse_model(text.replace("ROUNDS", str(rounds)))
    with pytest.raises(ModelError, match="its body gives 1 results, and 2 outputs are named"):
        import_model(made.SerializeToString())


def test_loops_in_loops_are_not_all_written_out() -> None:
    """Six of eight steps in each other are 262,144 steps; the inner ones are written out, the outer ones are loops."""

    def nested(depth: int, x: str) -> tuple[list[onnx.NodeProto], str]:
        if not depth:
            return [helper.make_node("Sin", [x], [f"sin_{x}"])], f"sin_{x}"
        nodes, last = nested(depth - 1, f"x{depth}")
        number = helper.make_tensor_value_info(f"i{depth}", TensorProto.INT64, [])
        going = [helper.make_tensor_value_info(f"{n}{depth}", TensorProto.BOOL, []) for n in ("go", "on")]
        state = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in (f"x{depth}", last)]
        nodes.append(helper.make_node("Identity", [f"go{depth}"], [f"on{depth}"]))
        body = helper.make_graph(nodes, f"b{depth}", [number, going[0], state[0]], [going[1], state[1]])
        return [helper.make_node("Loop", ["count", "yes", x], [f"y{depth}"], body=body)], f"y{depth}"

    nodes, last = nested(6, "x")
    made = model(nodes, {"x": [2]}, last, {"count": np.int64(8), "yes": np.bool_(True)}, opset=18)
    assert sum(1 for _ in all_nodes(import_model(made.SerializeToString()))) < 10_000
