"""Where symbols come from: a dimension of an input that has a name of its own; where new states are written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from torshc.base.errors import UnsupportedError
from torshc.base.options import CompileOptions
from torshc.bundle.program import Program
from torshc.expr import F32, const, parse_dim
from torshc.graph import Builder, Graph, State, TensorType
from torshc.ops.core.functions import relu
from torshc.ops.core.tensor import Tensor
from torshc.pipeline.compiler import prepare


def test_a_symbol_that_stands_in_expressions_only() -> None:
    """All of them are named with where they stand, and what to do."""
    graph = Graph("expressions")
    shapes = {"x": ("2*seq + 1", "3"), "y": ("n + m", "n")}
    given = [graph.new_value(TensorType(F32, tuple(map(parse_dim, s))), name) for name, s in shapes.items()]
    graph.declare_inputs(given)
    graph.declare_outputs([relu(Tensor(Builder(graph), v)).value for v in given], ["of x", "of y"])
    with pytest.raises(UnsupportedError) as caught:
        prepare(graph, CompileOptions())
    assert caught.value.problems == (
        "dimension 'seq' of the inputs appears only in 2*seq + 1, dimension 0 of input 'x'",
        "dimension 'm' of the inputs appears only in m + n, dimension 0 of input 'y'",
    )
    assert "by one word" in caught.value.remedy


def program_of(*update: Callable[..., Tensor], level: int, target: str = "c") -> Program:
    """A program that keeps a matrix for each function, which makes the new one of all old ones."""
    graph = Graph("states")
    held = [graph.new_value(TensorType(F32, (const(4), const(4))), f"s{k}") for k in range(len(update))]
    given = [Tensor(Builder(graph), v) for v in held]
    y = relu(given[0])
    new = [f(*given) for f in update]
    first = graph.constant(np.ones((4, 4), np.float32))
    graph.declare_inputs(held)
    graph.declare_outputs([y.value, *(t.value for t in new)], ["y", *(v.name for v in held)])
    graph.declare_states([State("s0", first), *(State(v.name) for v in held[1:])])
    return prepare(graph, CompileOptions(opt_level=level, target=target)).program


def moved(program: Program) -> list[str]:
    names = {s.offset: s.name for s in program.states}
    return [names[int(m.target.offset)] for m in program.moves]


@pytest.mark.parametrize("level", [0, 3])
def test_a_new_state_waits_while_the_old_one_is_read(level: int) -> None:
    program = program_of(lambda a, b: b * 2.0, lambda a, b: a * 3.0, level=level)
    assert [(s.name, s.bytes, s.first >= 0) for s in program.states] == [("s0", 64, True), ("s1", 64, False)]
    assert (len(program.inputs), len(program.outputs), len(program.steps)) == (0, 1, 3)
    # Who writes s0 waits for the kernel that reads it; that one writes s1, which is then yet to be read.
    assert moved(program) == ["s1"]
    (move,) = program.moves
    writers = [k for k, s in enumerate(program.steps) if s.buffers[-1] == move.source]
    assert len(writers) == 1 and move.source.space == "arena"  # its memory is not given to another


@pytest.mark.parametrize("level", [0, 3])
def test_a_kernel_overwrites_only_what_it_reads_at_the_same_place(level: int) -> None:
    assert moved(program_of(lambda a: a * 2.0 + 1.0, level=level)) == []
    assert moved(program_of(lambda a: a.transpose(1, 0) * 2.0 + a, level=3)) == ["s0"]
    assert moved(program_of(lambda a: a @ a, level=level)) == ["s0"]
    assert moved(program_of(lambda a: a * a.sum(1), level=level)) == (["s0"] if level else [])


@pytest.mark.parametrize("target", ["c", "llvm", "cuda"])
def test_what_follows_from_sums_overwrites_what_it_reads(target: str) -> None:
    """The epilogue of a product, the end of a reduction, and maps, which share a launch on a card."""

    def pairs(a: Tensor) -> Tensor:
        return (a.reshape(4, 4, 1) + a.reshape(1, 4, 4)).sum(1, keep=False)

    def found(*update: Callable[..., Tensor]) -> list[str]:
        return moved(program_of(*update, level=3, target=target))

    assert found(lambda a, b: a * 0.5 + b @ b, lambda a, b: b * 2.0) == []
    assert found(lambda a: a * 0.5 + a @ a) == ["s0"]  # its factors
    assert found(lambda a, b: a * 0.5 + pairs(b), lambda a, b: b * 2.0) == []
    assert found(lambda a: a * 0.5 + pairs(a)) == ["s0"]
    assert found(lambda a, b: a * 2.0, lambda a, b: b * 3.0) == []
    assert found(lambda a, b: a * 2.0 + b.transpose(1, 0), lambda a, b: b * 3.0) == (["s1"] if target == "cuda" else [])
