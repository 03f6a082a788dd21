"""What a plan stores, what it reads through, and where concatenations lie."""

from __future__ import annotations

import pytest

from torshc.expr import F32, U8, as_int, const
from torshc.graph import Graph, Value
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import Plan, make_plan
from torshc.plan.views import bases

from ..support.pass_graphs import Model, dims


def plan_of(graph: Graph, **limits: object) -> Plan:
    made = make_plan(finalise(graph, Policy.of(**limits)))  # type: ignore[arg-type]  # fields of a policy
    check_order(made)
    return made


def check_order(plan: Plan) -> None:
    """Each group finds its operands: inputs, constants, or what an earlier group wrote, whole or in parts."""
    parts: dict[Value, list[Value]] = {}
    for v, place in plan.storage.items():
        parts.setdefault(place.root, []).append(v)
    written = {v for g in plan.groups for v in g.outputs}
    ready = {v for g in plan.groups for v in g.reads if v.producer is None}
    for group in plan.groups:
        for v in group.reads:
            place = plan.storage.get(v)
            root = place.root if place else v
            needed = {p for p in parts.get(root, ()) if p in written} or {root}
            assert root.producer is None or needed <= ready, f"{v} is read before it is written"
        ready |= set(group.outputs)
    for v in plan.graph.outputs:
        assert v in ready or v in plan.storage or v in parts, f"nobody writes the output {v}"


def shown(plan: Plan) -> list[str]:
    return ["+".join(n.op.name for n in g.nodes) for g in plan.groups]


def test_a_reshape_of_an_output_is_the_same_memory() -> None:
    m = Model()
    y = m("Exp", m.input(4, 6))
    again = m("Neg", m("MatMul", m("Reshape", y, shape=dims(3, 8)), m.input(8, 8)))
    plan = plan_of(m.done(again, y))
    assert "Reshape" not in "+".join(shown(plan))


def test_outputs_that_are_inputs_or_twice_the_same_are_copied() -> None:
    m = Model()
    x = m.input(4)
    y = m("Exp", x)
    plan = plan_of(m.done(x, y, y, m.const([1.0, 2.0])))
    assert sorted(shown(plan)) == ["Exp+Identity", "Identity", "Identity"]
    assert len({id(v) for v in plan.graph.outputs}) == 4


def test_parts_of_a_concatenation_are_written_in_place() -> None:
    m = Model()
    a, b = (m("MatMul", m.input(n, 4), m.input(4, 3)) for n in (2, 5))
    whole = m("Concat", a, b, axis=0)
    plan = plan_of(m.done(m("MatMul", whole, m.input(3, 7)), whole))
    assert "Concat" not in "+".join(shown(plan))
    assert {plan.storage[v].root for v in (a, b)} == {whole}
    assert [as_int(plan.storage[v].offset) for v in (a, b)] == [0, 2 * 3]


def test_parts_along_the_last_axis_keep_the_strides_of_the_whole() -> None:
    m = Model()
    a, b = (m("MatMul", m.input(4, 6), m.input(6, n)) for n in (3, 5))
    whole = m("Concat", a, b, axis=1)
    plan = plan_of(m.done(m("MatMul", whole, m.input(8, 2)), whole))
    assert as_int(plan.storage[b].offset) == 3
    assert plan.storage[b].strides == (const(8), const(1))


def test_a_concatenation_of_concatenations_is_one_place() -> None:
    m = Model()
    a, b, c = (m("MatMul", m.input(n, 4), m.input(4, 3)) for n in (1, 2, 4))
    inner = m("Concat", a, b, axis=0)
    whole = m("Concat", c, inner, axis=0)
    plan = plan_of(m.done(m("MatMul", whole, m.input(3, 7)), whole))
    assert {plan.storage[v].root for v in (a, b, c)} == {whole}
    assert [as_int(plan.storage[v].offset) for v in (a, b, c)] == [12, 15, 0]


def test_a_part_that_stands_there_twice_is_copied_once() -> None:
    m = Model()
    a = m("Softmax", m.input(2, 3), axis=1)
    whole = m("Concat", a, a, axis=0)
    plan = plan_of(m.done(m("MatMul", whole, m.input(3, 7)), whole))
    offsets = sorted(as_int(p.offset) or 0 for p in plan.storage.values() if p.root is whole)
    assert offsets == [0, 6]


def test_views_of_views_of_views_are_looked_through_once() -> None:
    """Each concatenation reads the one before twice: there are 2^64 ways from the first to the last."""
    m = Model()
    v = m.input("n")
    for _ in range(64):
        v = m("Concat", v, v, m.input("k"), axis=0)
        v = m("Slice", v, starts=dims(1), sizes=dims(2), steps=(1,))
    graph = m.done(m("Neg", v))
    (last,) = (n for n in graph.nodes if n.op.name == "Neg")
    assert len(list(bases(last.operands[0]))) == 65  # the inputs
    assert "Neg" in "+".join(shown(plan_of(graph)))


def test_a_transposed_operand_of_a_product_is_read_by_strides() -> None:
    m = Model()
    x = m.input(7, 4)
    plan = plan_of(m.done(m("MatMul", m.input(5, 4), m("Transpose", x, perm=(1, 0)))))
    assert shown(plan) == ["MatMul"] and x in plan.groups[0].reads


def test_a_transposed_left_operand_is_stored() -> None:
    """Products read rows of their left operand with step 1."""
    m = Model()
    plan = plan_of(m.done(m("MatMul", m("Transpose", m.input(4, 5), perm=(1, 0)), m.input(4, 3))))
    assert shown(plan) == ["Transpose", "MatMul"]


@pytest.mark.parametrize(("strategy", "groups"), [("none", ["Neg", "Transpose", "Exp"]), ("default", ["Exp"])])
def test_views_are_kernels_only_without_fusion(strategy: str, groups: list[str]) -> None:
    m = Model()
    plan = plan_of(m.done(m("Exp", m("Transpose", m("Neg", m.input(3, 4)), perm=(1, 0)))), strategy=strategy)
    assert shown(plan) == groups


def test_a_value_that_is_stored_says_why() -> None:
    m = Model()
    x = m.input(64, 64)
    a = m("Exp", x)
    product = m("MatMul", a, m.input(64, 64))
    plan = plan_of(m.done(m("Softmax", m("Transpose", a, perm=(1, 0)), axis=1), product))
    said = {node.op.name: reason for node, reason in plan.stored.items()}
    assert said == {"Exp": "a heavy kernel reads it, which takes its operands from memory"}


def test_groups_are_numbered_in_the_order_of_their_launches() -> None:
    m = Model()
    x = m.input(3, 3)
    plan = plan_of(m.done(m("MatMul", m("Softmax", m("MatMul", x, x), axis=1), x)))
    assert [g.id for g in plan.groups] == list(range(len(plan.groups)))


def test_readers_widen_what_a_kernel_made_narrow() -> None:
    """Memory holds the bytes of a quantised product, though all that reads it wants floats."""
    m = Model()
    wide = m("Cast", m("Cast", m("MatMul", m.input(8, 16), m.input(16, 12)), to=U8), to=F32)
    plan = plan_of(m.done(m("Add", m("MatMul", m.input(8, 16), m.input(16, 12)), wide)))
    assert [[v.dtype.name for v in g.outputs] for g in plan.groups] == [["u8"], ["f32"]]
    assert shown(plan) == ["MatMul+Cast", "MatMul+Add"]
    assert [n.op.name for n in plan.groups[1].folded] == ["Cast"]


def test_a_kernel_keeps_what_comes_before_a_view_when_readers_widen() -> None:
    """What is left of a group whose last steps its readers take reaches back through the views in its middle."""
    m = Model()
    product = m("Exp", m("MatMul", m.input(8, 16), m.input(16, 12)))
    wide = m("Cast", m("Cast", m("Neg", m("Reshape", product, shape=dims(4, 24))), to=U8), to=F32)
    plan = plan_of(m.done(m("Add", m("MatMul", m.input(4, 16), m.input(16, 24)), wide)))
    assert shown(plan)[0] == "MatMul+Exp+Neg+Cast"
