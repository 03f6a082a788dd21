"""Groups and the reasons of their boundaries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from torshc.expr import F32, const, dim
from torshc.graph import Builder, Graph, State, TensorType, Value
from torshc.ops.core.base import REGISTRY, Op
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import Plan, make_plan


def graph_of(*shapes: tuple[object, ...]) -> tuple[Graph, Builder, list[Value]]:
    graph = Graph()
    for k, shape in enumerate(shapes):
        dims = tuple(dim(d) if isinstance(d, str) else const(int(str(d))) for d in shape)
        graph.inputs.append(graph.new_value(TensorType(F32, dims), f"x{k}"))
    return graph, Builder(graph), graph.inputs


def op(name: str, domain: str = "", **attributes: object) -> Op:
    return REGISTRY[domain, name](**attributes)


def finish(graph: Graph, *outputs: Value, **limits: object) -> Plan:
    graph.outputs = list(outputs)
    graph.output_names = [f"y{k}" for k in range(len(outputs))]
    return make_plan(finalise(graph, Policy.of(**limits)))  # type: ignore[arg-type]


def shown(plan: Plan) -> list[str]:
    return ["+".join(n.op.name for n in g.nodes) for g in plan.groups]


def test_a_chain_is_one_group() -> None:
    graph, b, (x,) = graph_of(("n", 7))
    y = b.one(op("Relu"), b.one(op("Abs"), b.one(op("Neg"), x)))
    assert shown(finish(graph, y)) == ["Neg+Abs+Relu"]


def test_without_fusion_every_node_is_a_launch() -> None:
    graph, b, (x,) = graph_of(("n", 7))
    y = b.one(op("Relu"), b.one(op("Transpose", perm=(1, 0)), b.one(op("Neg"), x)))
    assert shown(finish(graph, y, strategy="none")) == ["Neg", "Transpose", "Relu"]


def test_a_group_has_no_more_buffers_than_the_target_allows() -> None:
    graph, b, xs = graph_of(*[(4, 7)] * 6)
    y = xs[0]
    for x in xs[1:]:
        y = b.one(op("Add"), b.one(op("Neg"), y), x)
    graph.outputs, graph.output_names = [y], ["y"]
    plan = make_plan(finalise(graph, replace(Policy.of(), max_buffers=4)))
    assert shown(plan) == ["Neg+Add+Neg+Add+Neg", "Add+Neg+Add+Neg", "Add"]
    assert [s.reason for g in plan.groups for s in g.boundaries] == ["buffers", "buffers"]


def test_with_few_buffers_a_group_reads_what_it_could_compute_again() -> None:
    """Concatenations that fold into a group, unless there are too many parts."""
    graph, b, xs = graph_of(*[(4, 7)] * 6)
    left, right = (b.one(op("Concat", axis=0), *xs[k : k + 3]) for k in (0, 3))
    graph.outputs, graph.output_names = [b.one(op("Mul"), left, right)], ["y"]
    plan = make_plan(finalise(graph, replace(Policy.of(), max_buffers=6)))
    assert shown(plan) == ["Identity"] * 6 + ["Mul"]
    assert max(len(g.reads) for g in plan.groups) == 2


def test_a_diamond_with_two_outputs_is_one_group() -> None:
    graph, b, (x, z) = graph_of((4, 7), (4, 7))
    a = b.one(op("Exp"), x)
    left, right = b.one(op("Add"), a, z), b.one(op("Mul"), a, z)
    plan = finish(graph, b.one(op("Sub"), left, right), a)
    assert len(plan.groups) == 1 and len(plan.groups[0].outputs) == 2


def test_softmax_is_one_row_group_with_what_stands_around_it() -> None:
    graph, b, (x,) = graph_of((4, 33))
    x = b.one(op("Tanh"), x)
    m = b.one(op("ReduceMax", axes=(1,)), x)
    e = b.one(op("Exp"), b.one(op("Sub"), x, m))
    y = b.one(op("Relu"), b.one(op("Div"), e, b.one(op("ReduceSum", axes=(1,)), e)))
    plan = finish(graph, y)
    assert [g.kind for g in plan.groups] == ["row"]


def test_what_moves_rows_does_not_read_them_inside_their_kernel() -> None:
    graph, b, (x,) = graph_of(("n", 33))
    y = b.one(op("Mul"), x, b.one(op("ReduceSum", axes=(1,)), x))
    moved = b.one(op("Pad", before=(const(1), const(0)), after=(const(-1), const(0))), y)
    plan = finish(graph, b.one(op("Add"), y, moved))
    assert shown(plan) == ["ReduceSum+Mul", "Pad+Add"]


def test_reductions_over_other_axes_say_so() -> None:
    graph, b, (x,) = graph_of((4, 33))
    rows = b.one(op("Sub"), x, b.one(op("ReduceMax", axes=(1,)), x))
    plan = finish(graph, b.one(op("ReduceSum", axes=(0,)), rows))
    assert len(plan.groups) == 2 and {x.reason for x in plan.boundaries} == {"axes"}


def test_a_product_takes_what_follows_and_not_another_product() -> None:
    graph, b, (x, r) = graph_of((4, 33), (4, 33))
    w = graph.constant(np.ones((33, 33), np.float32))
    first = b.one(op("Add"), b.one(op("MatMul"), x, w), r)
    plan = finish(graph, b.one(op("Relu"), b.one(op("MatMul"), first, w)))
    assert shown(plan) == ["MatMul+Add", "MatMul+Relu"] and plan.boundaries[0].reason == "operand"


def test_a_group_has_one_heavy_kernel() -> None:
    graph, b, (x, y) = graph_of((4, 33), (4, 33))
    w = graph.constant(np.ones((33, 33), np.float32))
    plan = finish(graph, b.one(op("Add"), b.one(op("MatMul"), x, w), b.one(op("MatMul"), y, w)))
    assert shown(plan) == ["MatMul", "MatMul+Add"] and {x.reason for x in plan.boundaries} == {"heavy"}


def test_what_a_product_reads_is_not_computed_after_it() -> None:
    graph, b, (x,) = graph_of((8, 8))
    w = graph.constant(np.ones((8, 8), np.float32))
    e = b.one(op("Exp"), x)
    plan = finish(graph, b.one(op("Add"), b.one(op("MatMul"), e, w), e))
    assert shown(plan) == ["Exp", "MatMul+Add"] and {x.reason for x in plan.boundaries} == {"operand", "cycle"}


def test_what_sums_read_is_not_stored_beside_windows() -> None:
    graph, b, (x, y) = graph_of((1, 2, 6, 6), (1, 2, 4, 4))
    pooled = b.one(op("MaxPool", kernel=(3, 3), strides=(1, 1), pads=(const(0),) * 4, dilations=(1, 1)), x)
    total = b.one(op("ReduceSum", axes=(0,)), b.one(op("Mul"), pooled, y))
    assert shown(finish(graph, total, pooled)) == ["MaxPool", "Mul+ReduceSum"]


@pytest.mark.parametrize(
    ("sides", "kernels"), [((3, 3), ["MaxPool+MaxPool+Add"]), ((3, 5), ["MaxPool", "MaxPool+Add"])]
)
def test_windows_of_one_kernel_have_the_same_extents(sides: tuple[int, int], kernels: list[str]) -> None:
    """Its loop over a window is one for all of them."""
    graph, b, (x,) = graph_of((1, 2, 6, 6))
    windows = ({"kernel": (k, k), "pads": (const(k // 2),) * 4} for k in sides)
    pooled = [b.one(op("MaxPool", strides=(1, 1), dilations=(1, 1), **window), x) for window in windows]
    assert shown(finish(graph, b.one(op("Add"), *pooled))) == kernels


def test_what_sums_read_is_not_stored_beside_what_it_is_computed_of() -> None:
    """As in a normalisation's gradient: the product's result is stored anyway, and its readers compute the rest."""
    graph, b, (x, y) = graph_of((8, 33), (8, 33))
    w = graph.constant(np.ones((33, 33), np.float32))
    g = b.one(op("MatMul"), x, w)
    scaled = b.one(op("Mul"), g, y)
    total = b.one(op("ReduceSum", axes=(0,)), scaled)
    plan = finish(graph, b.one(op("Add"), scaled, total), g)
    assert shown(plan)[0] == "MatMul" and "beside" in {x.reason for x in plan.boundaries}


@pytest.mark.parametrize("shared", [False, True])
def test_reductions_over_the_rows_of_one_value_are_one_kernel(shared: bool) -> None:
    """Where the target wants that: those over other axes stay apart, and one that waits for the other's result."""
    graph, b, (x, y) = graph_of((8, 33), (8, 33))
    total = b.one(op("ReduceSum", axes=(0,)), x)
    along = b.one(op("ReduceSum", axes=(0,)), b.one(op("Mul"), x, y))
    across = b.one(op("ReduceSum", axes=(1,)), x)
    w = graph.constant(np.ones((33, 33), np.float32))
    after = b.one(op("MatMul"), b.one(op("Mul"), y, total), w)
    waits = b.one(op("ReduceSum", axes=(0,)), b.one(op("Mul"), x, after))
    graph.outputs, graph.output_names = [total, along, across, waits], ["t", "a", "c", "w"]
    plan = make_plan(finalise(graph, replace(Policy.of(), shared_rows=shared)))
    assert any(g.startswith("ReduceSum+Mul+ReduceSum") for g in shown(plan)) == shared
    assert sum("ReduceSum" in g for g in shown(plan)) == 4 - shared


@pytest.mark.parametrize("apart", ["", "target", "windows", "data"])
def test_who_looks_for_maxima_shares_a_kernel_with_who_computes_them(apart: str) -> None:
    """Where the target wants that, if windows are the same and slide over the same data."""
    graph, b, (x, y) = graph_of((1, 2, 6, 6), (1, 2, 6, 6))
    window = {"kernel": (3, 3), "strides": (1, 1), "pads": (const(1),) * 4, "dilations": (1, 1)}
    pooled = b.one(op("MaxPool", **window), x)
    half = b.one(op("Mul"), pooled, graph.constant(np.array(0.5, np.float32)))
    if apart == "windows":
        window |= {"kernel": (5, 5), "pads": (const(2),) * 4}
    places = b.one(op("PoolTap", "torshc", **window), y if apart == "data" else x, pooled)
    graph.outputs, graph.output_names = [half, places], ["h", "p"]
    plan = make_plan(finalise(graph, replace(Policy.of(), shared_rows=apart != "target")))
    assert ("MaxPool+Mul+PoolTap" in shown(plan)) == (not apart)


@pytest.mark.parametrize(("most", "alone"), [(1, True), (2, False), (None, False)])
def test_a_product_updates_as_many_states_as_the_target_says(most: int | None, alone: bool) -> None:
    """Or none: its result is stored, and one other kernel updates them."""
    graph, b, (x, y, m, w) = graph_of((8, 4), (4, 33), (8, 33), (8, 33))
    half = graph.constant(np.array(0.5, np.float32))
    moved = b.one(op("Add"), b.one(op("Mul"), m, half), b.one(op("Mul"), b.one(op("MatMul"), x, y), half))
    new = b.one(op("Sub"), w, moved)
    graph.outputs, graph.output_names = [moved, new], ["m", "w"]
    graph.declare_states([State("m", None, False), State("w", None, True)])
    plan = make_plan(finalise(graph, replace(Policy.of(), states=most)))
    assert (shown(plan)[0] == "MatMul", len(plan.groups)) == (alone, 1 + alone)
    assert ("states" in {x.reason for x in plan.boundaries}) == alone


def test_what_follows_a_product_by_two_ways_joins_it() -> None:
    graph, b, (x,) = graph_of((8, 33))
    w = graph.constant(np.ones((33, 33), np.float32))
    g = b.one(op("MatMul"), x, w)
    plan = finish(graph, b.one(op("Mul"), b.one(op("Sigmoid"), g), g))
    assert shown(plan) == ["MatMul+Sigmoid+Mul"]


def test_joining_that_would_make_a_cycle_is_refused() -> None:
    graph, b, (x,) = graph_of((8, 8))
    first = b.one(op("Exp"), x)
    columns = b.one(op("ReduceMax", axes=(0,)), first)
    both = b.one(op("Mul"), first, b.one(op("ReduceSum", axes=(1,)), b.one(op("Add"), first, columns)))
    plan = finish(graph, both)
    made: set[Value] = set()
    for g in plan.groups:
        assert all(v in made or v in graph.inputs or v.const is not None for v in g.reads)
        made.update(g.outputs)


def test_what_stands_around_a_concatenation_does_not_read_it_inside_one_kernel() -> None:
    """A reduction of what is written there would begin before it is there."""
    graph, b, (x,) = graph_of((1,))
    part = b.one(op("Sign"), x)
    joined = b.one(op("Concat", axis=0), part, part)
    total = b.one(op("ReduceProd", axes=(0,)), joined)
    plan = finish(graph, b.one(op("Div"), part, total), joined)
    (own,) = (g for g in plan.groups if "ReduceProd" in {n.op.name for n in g.nodes})
    assert "Sign" not in {n.op.name for n in own.nodes}


def test_the_size_limit_holds() -> None:
    graph, b, (x,) = graph_of((8, 8))
    for _ in range(10):
        x = b.one(op("Exp"), x)
    plan = finish(graph, x, size=4)
    assert [len(g.nodes) for g in plan.groups] == [4, 4, 2] and {b.reason for b in plan.boundaries} == {"size"}


def test_views_are_read_through_by_every_reader() -> None:
    graph, b, (x,) = graph_of((4, 6))
    t = b.one(op("Transpose", perm=(1, 0)), x)
    plan = finish(graph, b.one(op("Exp"), t), b.one(op("ReduceSum", axes=(0,)), t))
    assert all(g.folded == [t.producer] for g in plan.groups) and len(plan.groups) == 2


def test_a_reshape_between_kernels_is_an_alias() -> None:
    graph, b, (x,) = graph_of((4, 6))
    w = graph.constant(np.ones((12, 5), np.float32))
    flat = b.one(op("Reshape", shape=(const(2), const(12))), b.one(op("Exp"), x))
    plan = finish(graph, b.one(op("MatMul"), flat, w))
    assert shown(plan) == ["Exp", "MatMul"]


def test_operands_of_a_concatenation_are_stored_in_place() -> None:
    graph, b, (x, z) = graph_of((4, 6), (4, 6))
    w = graph.constant(np.ones((12, 5), np.float32))
    parts = [b.one(op("Exp"), x), b.one(op("Neg"), z)]
    plan = finish(graph, b.one(op("MatMul"), b.one(op("Concat", axis=1), *parts), w))
    assert shown(plan) == ["Exp", "Neg", "MatMul"]
    assert [plan.storage[v].offset for v in parts] == [const(0), const(6)]
    assert len({plan.storage[v].root for v in parts}) == 1


@pytest.mark.parametrize("source", ["input", "twice"])
def test_outputs_that_are_no_result_of_their_own_are_copied(source: str) -> None:
    graph, b, (x,) = graph_of((4, 6))
    y = x if source == "input" else b.one(op("Exp"), x)
    plan = finish(graph, y, y)
    assert len({*graph.outputs}) == 2 and all(v.producer is not None for v in graph.outputs)
    assert sum("Identity" in s for s in shown(plan)) >= 1
