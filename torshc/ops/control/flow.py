"""Control flow: branches and loops whose course depends on data. Their bodies are graphs of their own.

A body reads values of the graphs around it directly; the node lists them among its inputs, so that nothing has to look
into a body to know what it needs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ...expr import BOOL, I64, Expr, dims_of
from ...graph import Builder, Graph, Node, Partial, TensorType, Value
from ..core.host import HostOp


@dataclass(frozen=True, eq=False)
class Branching(HostOp):
    """If: one of two bodies without inputs. Operands: the condition, then what the bodies read."""

    name: ClassVar[str] = "If"
    then: Graph = field(default_factory=Graph)
    other: Graph = field(default_factory=Graph)


@dataclass(frozen=True, eq=False)
class Looping(HostOp):
    """Loop: a body over and over, as long as its condition holds and at most `limit` times.

    Operands: limit and condition (absent: none), the states, then what the body reads. The body's inputs are the number
    of the round, the condition, the states; its outputs the condition, the states, and a part of each stacked result.
    Results: the last states, the stacked results.

    Attributes:
        states: how many.
        uses_condition: whether the loop uses the condition that the body gives.
    """

    name: ClassVar[str] = "Loop"
    body: Graph = field(default_factory=Graph)
    states: int = 0
    uses_condition: bool = True


def bodies(node: Node) -> tuple[Graph, ...]:
    """The graphs inside a node."""
    if isinstance(node.op, Branching):
        return node.op.then, node.op.other
    return (node.op.body,) if isinstance(node.op, Looping) else ()


def free_values(graphs: Iterable[Graph]) -> list[Value]:
    """What bodies read of the graphs around them, constants apart, in order of first use."""
    made: set[Value] = set()
    read: dict[Value, None] = {}
    for g in graphs:
        made.update(g.inputs)
        for node in g.nodes:
            made.update(node.outputs)
            read.update(dict.fromkeys(node.operands))
        read.update(dict.fromkeys(g.outputs))
    return [v for v in read if v not in made and v.const is None]


def all_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of a graph and of the bodies in it."""
    for node in graph.nodes:
        yield node
        for body in bodies(node):
            yield from all_nodes(body)


def symbols_of(node: Node) -> set[str]:
    """The symbols that computing a node takes, those of the bodies in it included."""
    found: set[str] = set()
    for n in (node, *(m for body in bodies(node) for m in all_nodes(body))):
        exprs = [d for v in (*n.operands, *n.outputs) for d in (*v.shape, *(v.data or ()))]
        for f in dataclasses.fields(n.op):
            exprs += _exprs(getattr(n.op, f.name))
        for body in bodies(n):
            exprs += [e for pair in body.constraints for e in pair]
        found.update(dims_of(*exprs))
    return found


def _exprs(value: object) -> list[Expr]:
    if isinstance(value, Expr):
        return [value]
    if isinstance(value, tuple):
        return [e for v in value for e in _exprs(v)]
    if dataclasses.is_dataclass(value) and not isinstance(value, (type, Graph, TensorType)):
        return [e for f in dataclasses.fields(value) for e in _exprs(getattr(value, f.name))]
    return []


Turn = Callable[[Builder, Value, list[Value]], tuple[Sequence[Value], Sequence[Value]]]


def repeat(b: Builder, limit: Value, states: Sequence[Value], turn: Turn, rounds: Expr | None = None) -> list[Value]:
    """Add a Loop without a condition, whose states keep their types.

    Args:
        limit: how many rounds; rank 0.
        turn: adds a round, and gives the new states and a part of each stacked result.
        rounds: the limit as a size, where it is known as one.

    Returns:
        The last states, then the stacked results.
    """
    body = b.graph.child()
    number, going = body.new_runtime_value(Partial(I64)), body.new_runtime_value(Partial(BOOL))
    current = [body.new_runtime_value(v.type.partial) for v in states]
    body.declare_inputs([number, going, *current])
    after, parts = turn(Builder(body, name=b.name), number, current)
    body.declare_outputs([going, *after, *parts], [""] * (1 + len(after) + len(parts)))
    partials = [v.type.partial for v in states]
    partials += [Partial(p.dtype, (rounds, *p.shape)) for p in parts]
    op = Looping(body=body, states=len(states), uses_condition=False)
    return b.host_op(op, [limit, None, *states, *free_values([body])], partials)
