"""Graphs cut into segments and the host's steps between them: what is where, bound, checked and dropped."""

from __future__ import annotations

import pytest
from onnx import NodeProto, TensorProto, helper

from torshc.expr import const
from torshc.formats import import_model
from torshc.graph import Graph
from torshc.plan.partition import drop_unneeded, is_plain, partition
from torshc.plan.script import Bind, Branch, Call, Check, Drop, Operate, Repeat, Script, flat, reads

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info


def imported(nodes: list[NodeProto], outputs: str, **inputs: tuple[int, list[int | str]]) -> Graph:
    values = [info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs.split()]
    graph = helper.make_graph(nodes, "g", values, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return import_model(model.SerializeToString())


def found(*more: NodeProto, outputs: str = "y") -> Graph:
    """Places of what is not 0, and what follows."""
    nodes = [node("Relu", ["x"], ["r"]), node("NonZero", ["r"], ["at"]), *more]
    return imported(nodes, outputs, x=(F, ["n", 3]))


def operators(script: Script) -> list[list[str]]:
    """The operators of each segment."""
    return [[n.op.name for n in part.nodes] for part in script.segments]


def check_slots(script: Script) -> None:
    """No step reads what is not there: an input, a constant or what an earlier step wrote; nor what was dropped."""
    there = {*script.inputs, *script.constants}
    for step in script.steps:
        if isinstance(step, Drop):
            there -= set(step.slots)
            continue
        missing = {s for s in reads(step) if s >= 0} - there
        assert not missing, (step, missing)
        there |= set(getattr(step, "outputs", ()))
    assert set(script.outputs) <= there


def test_one_segment_does_where_inputs_tell_all() -> None:
    plain = imported([node("Relu", ["x"], ["y"])], "y", x=(F, ["n", 3]))
    assert is_plain(plain)
    assert not is_plain(found(node("Cast", ["at"], ["y"], to=F)))


def test_what_waits_for_the_host_is_in_a_later_segment() -> None:
    graph = found(
        node("Cast", ["at"], ["c"], to=F), node("Exp", ["r"], ["e"]), node("Neg", ["c"], ["y"]), outputs="y e"
    )
    script = partition(graph)
    assert operators(script) == [["Relu", "Exp"], ["Cast", "Neg"]]
    steps = [s for s in flat(script.steps) if not isinstance(s, Drop)]
    assert [type(s) for s in steps] == [Call, Operate, Bind, Call]
    assert isinstance(steps[1], Operate) and steps[1].node.op.name == "NonZero"
    assert isinstance(steps[2], Bind) and script.computed == (steps[2].symbol,)
    check_slots(script)


def test_each_segment_is_a_graph_of_its_own() -> None:
    script = partition(found(node("Cast", ["at"], ["c"], to=F), node("Neg", ["c"], ["y"])))
    first, second = script.segments
    assert not {id(n) for n in first.nodes} & {id(n) for n in second.nodes}
    for part in script.segments:
        known = {*part.inputs, *(v for n in part.nodes for v in n.outputs)}
        assert all(v in known or v.const is not None for n in part.nodes for v in n.operands)
        assert set(part.results) <= known


def test_nothing_is_read_after_it_was_dropped() -> None:
    script = partition(found(node("Cast", ["at"], ["c"], to=F), node("Exp", ["c"], ["y"])))
    check_slots(script)
    dropped = [slot for s in flat(script.steps) if isinstance(s, Drop) for slot in s.slots]
    assert len(dropped) == len(set(dropped)) and not set(dropped) & {*script.outputs, *script.inputs}


def test_sizes_of_a_run_that_must_be_equal_are_checked_before_they_are_used() -> None:
    """Two counts meet in a sum: the check comes after both are bound, and before the segment of the sum."""
    nodes = [node("NonZero", [x], [f"at_{x}"]) for x in "xz"]
    graph = imported([*nodes, node("Add", ["at_x", "at_z"], ["y"])], "y", x=(F, [5]), z=(F, [7]))
    script = partition(graph)
    steps = [s for s in flat(script.steps) if isinstance(s, Bind | Check | Call)]
    assert [type(s) for s in steps] == [Bind, Bind, Check, Call]
    check_slots(script)


def test_branches_are_steps_with_segments_inside() -> None:
    sides = [helper.make_graph([node(op, ["x"], [op])], op, [], [info(op, F, ["n", 3])]) for op in ("Exp", "Neg")]
    graph = imported(
        [node("If", ["c"], ["y"], then_branch=sides[0], else_branch=sides[1])], "y", c=(B, []), x=(F, ["n", 3])
    )
    script = partition(graph)
    (branch,) = (s for s in script.steps if isinstance(s, Branch))
    assert operators(script) == [["Exp"], ["Neg"]]
    assert [len([s for s in flat(side) if isinstance(s, Call)]) for side in (branch.then, branch.other)] == [1, 1]


def test_a_loop_is_a_step() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "x"], ["t"]), node("Identity", ["go"], ["on"])], "body",
        [info("i", INT, []), info("go", B, []), info("s", F, [3])], [info("on", B, []), info("t", F, [3])],
    )  # fmt: skip
    graph = imported([node("Loop", ["m", "", "x"], ["y"], body=body)], "y", m=(INT, []), x=(F, [3]))
    script = partition(graph)
    assert [type(s) for s in script.steps if not isinstance(s, Drop)] == [Repeat]
    assert operators(script) == [["Add", "Identity"]]


@pytest.mark.parametrize(("op", "bound"), [("Gather", 0), ("Slice", 1)])
def test_the_number_of_a_round_is_read_where_it_is_a_size(op: str, bound: int) -> None:
    """Gather takes it as a tensor; how far a Slice goes depends on it, as that is below n, it is one element far."""
    nodes = [
        node("Add", ["i", "i"], ["twice"]),
        node("Sub", ["twice", "i"], ["at"]),
        node("Sub", ["i", "minus"], ["next"]),
        node(op, ["x", "at", "next"][: 2 + bound], ["part"]),
        node("Identity", ["go"], ["on"]),
    ]
    body = helper.make_graph(
        nodes, "body", [info("i", INT, [1]), info("go", B, [])], [info("on", B, []), info("part", F, None)]
    )
    outside = [node("Size", ["x"], ["n"]), node("Constant", [], ["minus"], value_ints=[-1])]
    graph = imported([*outside, node("Loop", ["n", ""], ["y"], body=body)], "y", x=(F, ["n"]))
    assert graph.outputs[0].shape[1:] == (const(1),)
    script = partition(graph)
    assert sum(isinstance(s, Bind) for s in flat(script.steps)) == bound


def test_what_no_output_needs_goes_with_its_symbols_and_checks() -> None:
    graph = found(node("Cast", ["at"], ["lost"], to=F), node("Neg", ["r"], ["y"]))
    assert graph.sources
    drop_unneeded(graph)
    assert [n.op.name for n in graph.nodes] == ["Relu", "Neg"] and not graph.sources
    assert is_plain(graph)
