"""Small kernels that do not need each other are one launch."""

from __future__ import annotations

from dataclasses import replace

from torshc.expr import F32, const
from torshc.graph import Builder, Graph, State, TensorType
from torshc.ops.core.tensor import Tensor
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan

from ..support.pass_graphs import Model
from .test_place import check_order, shown


def groups(graph: Graph, strategy: str = "default") -> list[str]:
    plan = make_plan(finalise(graph, replace(Policy.of(strategy), horizontal_fusion=True)))
    check_order(plan)
    assert [g.id for g in plan.groups] == list(range(len(plan.groups)))
    return shown(plan)


def test_those_of_other_shapes() -> None:
    m = Model()
    assert groups(m.done(m("Exp", m.input(4, 6)), m("Sin", m.input(7)))) == ["Exp+Sin"]


def test_one_that_reads_another_comes_after() -> None:
    m = Model()
    y = m("Exp", m.input(8, 8))
    z = m("Transpose", m("MatMul", y, m.input(8, 8)), perm=(1, 0))
    assert groups(m.done(m("Sin", z), m("Cos", m.input(7)), y)) == ["Exp", "MatMul", "Sin+Cos"]


def test_no_more_tensors_than_a_kernel_has_arguments() -> None:
    """What several read counts once."""
    m = Model()
    assert groups(m.done(*(m("Exp", m.input(n)) for n in range(1, 243)))) == ["+".join(["Exp"] * 240), "Exp+Exp"]
    m = Model()
    x = m.input(5)
    assert len(groups(m.done(*(m("Mul", m.input(n, 1), x) for n in range(1, 240))))) == 1


def test_what_stays_apart() -> None:
    """Large ones, those of sizes that a run tells, reductions, and all where nothing is fused."""
    m = Model()
    assert len(groups(m.done(m("Exp", m.input(1 << 20)), m("Exp", m.input(3))))) == 2
    m = Model()
    assert len(groups(m.done(m("Exp", m.input("n")), m("Exp", m.input(3))))) == 2
    m = Model()
    assert len(groups(m.done(m("ReduceSum", m.input(3, 4), axes=(1,)), m("Exp", m.input(3))))) == 2
    m = Model()
    assert len(groups(m.done(m("Exp", m.input(4)), m("Exp", m.input(3))), "none")) == 2


def test_small_kernels_all_along_a_step_are_gathered() -> None:
    """What updates states waits for the end, and what a product needs comes before it, with all that it may."""
    graph = Graph("step")
    old = [graph.new_value(TensorType(F32, (const(8), const(8))), f"s{k}") for k in range(3)]
    x, *states = (Tensor(Builder(graph), v) for v in old)
    y, new = x, list[Tensor]()
    for s in states:
        y = y @ (s + 1.0)
        new.append(s * 2.0)
    graph.declare_inputs(old)
    graph.declare_outputs([y.value, x.value, *(t.value for t in new)], ["y", "s0", "s1", "s2"])
    graph.declare_states([State(f"s{k}") for k in range(3)])
    assert groups(graph) == ["Add+Mul+Add", "MatMul", "MatMul", "Mul+Identity"]
