"""Which groups wait for those that read old states, seen by what need not be copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from torshc.base.options import CompileOptions
from torshc.expr import F32, const
from torshc.graph import Builder, Graph, State, TensorType
from torshc.ops.core.tensor import Tensor
from torshc.pipeline.compiler import prepare

SQUARE = TensorType(F32, (const(4), const(4)))


def moves(make: Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]], level: int = 3) -> int:
    """How many states are copied in a step that makes a result and two new states of the old ones."""
    graph = Graph("step")
    old = [graph.new_value(SQUARE, name) for name in ("a", "b")]
    y, *new = make(*(Tensor(Builder(graph), v) for v in old))
    graph.declare_inputs(old)
    graph.declare_outputs([y.value, *(t.value for t in new)], ["y", "a", "b"])
    graph.declare_states([State("a"), State("b")])
    return len(prepare(graph, CompileOptions(opt_level=level)).program.moves)


@pytest.mark.parametrize("level", [0, 3])
def test_a_new_state_waits_for_a_reader_that_comes_later(level: int) -> None:
    def step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new = a * 2.0
        return a @ b, new, b * 3.0

    assert moves(step, level) == 0


def test_no_state_waits_for_what_needs_it() -> None:
    def step(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        new = b @ b
        return a @ new, new, b * 2.0  # the product reads a, of which the new state is an operand

    def crossed(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return a, b @ b, a @ a  # each reads what the other replaces

    assert moves(step) == 1
    assert moves(crossed) == 1
