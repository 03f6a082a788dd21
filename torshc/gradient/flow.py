"""The gradients of branches and loops: of the branch that was taken, and of a loop's rounds from the last to the first.

A loop stores what its states are when a round begins, as stacked results. The loop that goes back computes a round
again from these, and so does a branch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ..expr import MAP, OPTIONAL, SEQUENCE, Expr
from ..graph import Builder, Graph, Node, Partial, Value
from ..ops.control.flow import Branching, Looping, all_nodes, bodies, free_values, repeat, symbols_of
from ..ops.core.functions import gather
from ..ops.core.gradient import RULES, Backward, NoGradient, as_shape, gradient_of, zeros
from ..ops.core.tensor import Tensor, apply_named
from ..ops.tensor.index import Gather
from .reverse import gradients_of_several


@gradient_of(Branching)
def _branch_gradient(op: Branching, at: Backward) -> list[Tensor | None]:
    """A branch by the same condition, of the gradients of what the bodies read."""
    b = at.outputs[0].builder
    _require_known_sizes(_node(at))
    wanted = [k for k in range(1, len(at.inputs)) if at.wants(k)]
    xs = [at.operand(k).value for k in wanted]
    sides = []
    for body in (op.then, op.other):
        inner, now = Builder(b.graph.child(), name=b.name), dict[Value, Value]()
        _copy(inner, body.nodes, now)
        seeds = _seeds(inner, [now.get(v, v) for v in body.results], at.gradients)
        inner.graph.declare_outputs(gradients_of_several(inner, seeds, xs), [""] * len(xs))
        sides.append(inner.graph)
    made = Branching(then=sides[0], other=sides[1])
    found = b.host_op(made, [at.operand(0).value, *free_values(sides)], [x.type.partial for x in xs])
    return _at_places(len(at.inputs), wanted, [Tensor(b, v) for v in found])


@gradient_of(Looping)
def _loop_gradient(op: Looping, at: Backward) -> list[Tensor | None]:
    """A loop over the rounds from the last on; its states are the gradients of the states, and sums over rounds.

    What a round takes out of a tensor around the loop by Gather, as Scan does, has its gradients stacked, and all are
    added to the tensor at once.
    """
    b, node, entries = at.outputs[0].builder, _node(at), op.body.inputs[2:]
    _require_known_sizes(node)
    stored, turns = _store_states(b, node, _read_states(op))
    count = _first_size(b, next(iter(stored.values()), node.outputs[-1]))
    moving = [k for k, v in enumerate(entries) if v.dtype.is_float]
    captured = {at.operand(k).value: k for k in range(2 + op.states, len(at.inputs)) if at.wants(k)}
    taken = [n for n in op.body.nodes if isinstance(n.op, Gather) and n.inputs[0] in captured]
    others = {v for n in all_nodes(op.body) if n not in taken for v in n.operands} | set(op.body.results)
    summed = [v for v in captured if v in others]

    def turn(inner: Builder, number: Value, current: list[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        place = Tensor(inner, count.value) - 1 - Tensor(inner, number)
        now = {op.body.inputs[0]: place.value, op.body.inputs[1]: inner.constant(np.array(True))}
        for v in entries:
            if v in stored:
                now[v] = as_shape(gather(Tensor(inner, stored[v]), place, axis=0), v.shape).value
            elif v.dtype.is_float:
                now[v] = zeros(Tensor(inner, v)).value  # which nothing reads
        _copy(inner, op.body.nodes, now)
        after = dict(zip(moving, current, strict=False))
        given = [Tensor(inner, after[k]) if k in after else None for k in range(len(entries))]
        for g in at.gradients[op.states : len(op.body.results) - 1]:
            given.append(None if g is None else gather(Tensor(inner, g.value), place, axis=0))
        parts = [now[n.output] for n in taken]
        xs = [*(now[entries[k]] for k in moving), *summed, *parts]
        found = gradients_of_several(inner, _seeds(inner, [now.get(v, v) for v in op.body.results[1:]], given), xs)
        sums = found[len(moving) : len(current)]
        totals = [Tensor(inner, s) + Tensor(inner, g) for s, g in zip(current[len(moving) :], sums, strict=True)]
        places = [now.get(n.operands[1], n.operands[1]) for n in taken]
        return [*found[: len(moving)], *(t.value for t in totals)], [*found[len(current) :], *places]

    starts = []
    for k in moving:
        g = at.gradients[k]
        starts.append(zeros(at.operand(2 + k)) if g is None else as_shape(g, at.operand(2 + k).shape))
    starts += [zeros(Tensor(b, v)) for v in summed]
    made = [Tensor(b, v) for v in repeat(b, count.value, [t.value for t in starts], turn, turns)]
    found = _at_places(len(at.inputs), [*(2 + k for k in moving), *(captured[v] for v in summed)], made)
    stacks = made[len(starts) :]
    for n, part, place in zip(taken, stacks, stacks[len(taken) :], strict=False):
        assert isinstance(n.op, Gather)
        k = captured[n.operands[0]]
        before, added = found[k], _taken_back(at.operand(k), n.op.axis, part, place)
        found[k] = added if before is None else before + added
    return found


def _node(at: Backward) -> Node:
    node = at.outputs[0].value.producer
    assert node is not None
    return node


def _taken_back(x: Tensor, axis: int, part: Tensor, place: Tensor) -> Tensor:
    """The gradient of a tensor of which each round has taken a part, from the parts' gradients and places, stacked."""
    axis %= x.rank
    g = part.transpose(*range(1, axis + 1), 0, *range(axis + 1, part.rank))
    found = RULES[Gather](Gather(axis), Backward((x, place), (), (g,), (True, False)))
    assert isinstance(found, Tensor)
    return found


def _read_states(op: Looping) -> list[Value]:
    """The states that have to be stored: those that a round computes with."""
    read = {v for n in all_nodes(op.body) for v in n.operands}
    states = [v for v in op.body.inputs[2:] if v in read]
    for v in states:
        if v.dtype in (SEQUENCE, OPTIONAL, MAP):
            raise NoGradient(f"a state of it is {v.type!r}; let its states be tensors")
    return states


def _store_states(b: Builder, node: Node, states: Sequence[Value]) -> tuple[dict[Value, Value], Expr]:
    """Each state with its values at the beginnings of the rounds, which the loop stacks; and how many rounds there are.

    A loop without any other stacked result stores a state that is not read, so that its rounds are counted.
    """
    op = node.op
    assert isinstance(op, Looping)
    if not states and len(node.outputs) == op.states:
        states = op.body.inputs[2:3]
    parts, limit = op.body.results[1 + op.states :], node.inputs[0]
    turns = node.outputs[op.states].shape[0] if parts else None
    if turns is None and not op.uses_condition and limit is not None and limit.data is not None:
        turns = limit.data[0]
    found = {v: node.outputs[op.states + parts.index(v)] for v in states if v in parts}
    for v in states:
        if v not in found:
            found[v] = b.graph.new_runtime_value(Partial(v.dtype, (turns, *v.shape)))
            turns = found[v].shape[0]
            op.body.add_result(v)
            node.add_output(found[v])
    assert turns is not None
    return found, turns


def _first_size(b: Builder, v: Value) -> Tensor:
    return apply_named("Shape", Tensor(b, v), start=0, end=1).reshape()


def _require_known_sizes(node: Node) -> None:
    """Refuse bodies with sizes that are known only in a round, or only in a branch that is taken."""
    for body in bodies(node):
        inside = {v for n in all_nodes(body) for v in n.outputs} | set(body.inputs)
        hidden = {s for s, e in body.sources.items() if e.value in inside}
        for n in body.nodes:
            if symbols_of(n) & hidden:
                raise NoGradient(f"{n.describe()} inside it has sizes that depend on the round or on data")


def _seeds(b: Builder, results: Sequence[Value], given: Iterable[Tensor | None]) -> list[tuple[Value, Tensor]]:
    """Pairs of a result and its gradient, where it has one."""
    pairs = zip(results, given, strict=False)
    return [(v, Tensor(b, g.value)) for v, g in pairs if g is not None and v.dtype.is_float]


def _at_places(count: int, places: Sequence[int], found: Sequence[Tensor]) -> list[Tensor | None]:
    known = dict(zip(places, found, strict=False))
    return [known.get(k) for k in range(count)]


def _copy(b: Builder, nodes: Sequence[Node], now: dict[Value, Value]) -> None:
    """Add nodes of a body again, of other values; `now` says of which, and gets what they make."""
    for node in nodes:
        inputs = [None if v is None else now.get(v, v) for v in node.inputs]
        if node.op.family != "host":
            made = b.add(node.op, inputs, node.name)
        else:
            op = node.op
            if isinstance(op, Branching):
                op = Branching(then=_copy_body(b.graph, op.then, now), other=_copy_body(b.graph, op.other, now))
            if isinstance(op, Looping):
                op = replace(op, body=_copy_body(b.graph, op.body, now))
            made = b.host_op(op, inputs, [v.type.partial for v in node.outputs], node.name)
        now.update(zip(node.outputs, made, strict=True))


def _copy_body(around: Graph, body: Graph, now: dict[Value, Value]) -> Graph:
    copy = Builder(around.child())
    copy.graph.declare_inputs([copy.graph.new_runtime_value(v.type.partial) for v in body.inputs])
    now.update(zip(body.inputs, copy.graph.inputs, strict=True))
    _copy(copy, body.nodes, now)
    copy.graph.declare_outputs([now.get(v, v) for v in body.results], [""] * len(body.results))
    return copy.graph


__all__: list[str] = []
