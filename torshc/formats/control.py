"""Control flow whose course depends on data: If, Loop, Scan and SequenceMap with bodies as graphs of their own.

    Loop(limit, condition, state...)  ->  the body's graph, run by the host over and over

What a body computes only from values around it is moved out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..expr import BOOL, SEQUENCE, Expr, as_int, const, dims_of, walk
from ..graph import Builder, Graph, Partial, Rewriter, Value, ints_of
from ..ops import REGISTRY, SourceNode, Unsupported
from ..ops.control.flow import Branching, Looping, all_nodes, free_values, symbols_of
from ..ops.core.base import axis_of
from ..ops.core.compose import apply
from ..ops.tensor.random import salt
from ..ops.tensor.view import Reshape
from .model import Misfit, SourceGraph, SourceOp

_ATTEMPTS = 12  # rounds until the types of a loop's states are settled; each makes a dimension or a rank open
Results = Sequence[Value | None]


@dataclass(frozen=True)
class Importer:
    """What control flow needs of the importer.

    Attributes:
        inside: makes an empty graph the one that nodes are added to, for a while.
        body: imports a body for operands, and gives its outputs.
    """

    inside: Callable[[], AbstractContextManager[Graph]]
    body: Callable[[SourceGraph, Sequence[Value]], list[Value | None]]


class RanksDiffer(Unsupported):
    """The branches of an If give results of different ranks."""


def branch(op: SourceOp, condition: Value, importer: Importer, b: Builder) -> Results:
    """The outputs of an If; none when a branch could not be imported."""
    sides: list[Graph] = []
    for key in ("then_branch", "else_branch"):
        body = op.attributes.get(key)
        if not isinstance(body, SourceGraph) or len(body.outputs) != len(op.outputs):
            raise Misfit("If needs two branches with as many outputs as it has")
        with importer.inside() as graph:
            made = importer.body(body, [])
        if not _close(graph, made):
            return ()
        sides.append(graph)
    partials = []
    for one, two in zip(*(g.results for g in sides), strict=True):
        if one.dtype is two.dtype and one.type.rank != two.type.rank:
            raise RanksDiffer(_ranks(condition, one, two))
        partials.append(_join(seen_outside(one, sides[0]), seen_outside(two, sides[1]), "the branches of an If"))
    return b.host_op(Branching(then=sides[0], other=sides[1]), [condition, *free_values(sides)], partials)


def _ranks(condition: Value, one: Value, two: Value) -> str:
    """Why an If whose branches differ in rank is refused, and what to do."""
    decided = condition.data is not None and all(
        e.op in ("const", "dim") for d in condition.data for e in walk(d) if not e.args
    )
    remedy = (
        "pin the inputs' shapes with --shapes, so that the branch is known"
        if decided
        else ("let both branches give one rank")
    )
    return f"its branches give {one.type!r} and {two.type!r}, and which one is known only at run time: {remedy}"


def loop(op: SourceOp, operands: list[Value | None], importer: Importer, b: Builder) -> Results:
    """The outputs of a Loop; none when its body could not be imported."""
    body = _body(op)
    limit, condition, states = _three(operands)
    for what, v in (("limit", limit), ("condition", condition)):
        if v is not None and as_int(v.type.size) not in (None, 1):
            raise Misfit(f"the {what} of a Loop is {v.type!r}, and one element is needed")
    if len(body.inputs) != len(states) + 2 or len(body.outputs) <= len(states):
        raise Misfit("the body of a Loop does not fit its operands")
    if limit is None and condition is None:
        raise Unsupported("a Loop without a condition and with no limit below 2^62 rounds, which never ends")

    graphs: list[Graph] = []

    def round_(number: Value, going: Value, current: list[Value]) -> list[Value | None]:
        inner = Builder(graphs[-1], name=b.name)
        made = importer.body(body, [*as_declared(body, inner, number, going), *current])
        going_on = made[0]
        if going_on is not None and going_on.type.rank:
            made[0] = inner.one(Reshape(()), going_on)
        return made

    return _loop(b, importer, limit, condition, states, round_, condition is not None, None, graphs)


def as_declared(body: SourceGraph, b: Builder, number: Value, going: Value) -> list[Value]:
    """The number of a round and the condition as a Loop's body takes them: old converters declare them of shape [1]."""
    return [
        b.one(Reshape((const(1),)), v) if t.dims is not None and len(t.dims) == 1 else v
        for v, (_, t) in zip((number, going), body.inputs, strict=False)
    ]


def scan(op: SourceOp, operands: list[Value | None], importer: Importer, b: Builder) -> Results:
    """The outputs of a Scan of opset 9 and later: a Loop that takes a part of each sequence in each round."""
    body, values = _body(op), [v for v in operands if v is not None]
    scanned = int(op.attributes.get("num_scan_inputs", 0))
    fixed = len(values) - scanned
    if len(values) != len(operands) or not 0 < scanned <= len(values) or len(body.inputs) != len(values):
        raise Misfit("the body of a Scan does not fit its operands")
    if len(body.outputs) < fixed:
        raise Misfit("the body of a Scan has too few outputs")
    sequences, made_each = values[fixed:], len(body.outputs) - fixed
    axes = [axis_of(a, v.type.rank) for a, v in zip(ints(op, "scan_input_axes", scanned), sequences, strict=True)]
    backward = ints(op, "scan_input_directions", scanned)
    length = sequences[0].shape[axes[0]]
    b.graph.constraints += [(length, v.shape[a]) for v, a in zip(sequences, axes, strict=True)]

    def round_(number: Value, going: Value, current: list[Value]) -> list[Value | None]:
        inner = Builder(number_graph(number), name=b.name)
        parts = []
        for v, a, back in zip(sequences, axes, backward, strict=True):
            if as_int(length) == 0:  # there is no round: this tells the types alone
                parts.append(inner.graph.new_runtime_value(Partial(v.dtype, (*v.shape[:a], *v.shape[a + 1 :]))))
                continue
            last = apply(inner, "Sub", _size(inner, v, a), 1)
            place = apply(inner, "Sub", last, number) if back else number
            parts.append(apply(inner, "Gather", v, place, axis=a))
        made = importer.body(body, [*current, *parts])
        return [going, *made]

    graphs: list[Graph] = []

    def number_graph(_: Value) -> Graph:
        return graphs[-1]

    out = _loop(b, importer, _size(b, sequences[0], axes[0]), None, values[:fixed], round_, False, length, graphs)
    outer, reverse = ints(op, "scan_output_axes", made_each), ints(op, "scan_output_directions", made_each)
    stacked = [_turn_rounds(b, v, a, r) for v, a, r in zip(out[fixed:], outer, reverse, strict=False)]
    return [*out[:fixed], *stacked]


def sequence_map(op: SourceOp, operands: list[Value | None], importer: Importer, b: Builder) -> Results:
    """The outputs of a SequenceMap: a Loop that takes an element of each sequence and adds one to each result."""
    body, values = _body(op), [v for v in operands if v is not None]
    if not values or values[0].dtype is not SEQUENCE or len(body.inputs) != len(values):
        raise Misfit("the body of a SequenceMap does not fit its operands")
    graphs: list[Graph] = []

    def round_(number: Value, going: Value, current: list[Value]) -> list[Value | None]:
        inner = Builder(graphs[-1], name=b.name)
        parts = [_read(inner, "SequenceAt", v, number) if v.dtype is SEQUENCE else v for v in values]
        made = importer.body(body, parts)
        if any(m is None for m in made):
            return [None]
        grown = [_read(inner, "SequenceInsert", s, m) for s, m in zip(current, made, strict=True)]
        return [going, *grown]

    empty = [b.host_op(REGISTRY["", "SequenceEmpty"](), [], [Partial(SEQUENCE, (None,))])[0] for _ in body.outputs]
    count = _read(b, "SequenceLength", values[0])
    return _loop(b, importer, count, None, empty, round_, False, None, graphs)


def _loop(
    b: Builder,
    importer: Importer,
    limit: Value | None,
    condition: Value | None,
    states: Sequence[Value],
    round_: Callable[[Value, Value, list[Value]], list[Value | None]],
    uses_condition: bool,
    rounds: Expr | None = None,
    graphs: list[Graph] | None = None,
) -> list[Value]:
    """A Looping node for a body that `round_` imports; rounds: their number, if it is known."""
    partials = [v.type.partial for v in states]
    most = limit.data[0] if limit is not None and limit.data is not None else None
    for _ in range(_ATTEMPTS):
        with importer.inside() as graph:
            if graphs is not None:
                graphs.append(graph)
            number, going = graph.new_counter(most), graph.new_runtime_value(Partial(BOOL))
            current = [graph.new_runtime_value(ranked(p)) for p in partials]
            graph.declare_inputs([number, going, *current])
            made = round_(number, going, current)
        if not _close(graph, made):
            return []
        if limit is None and _always(graph.outputs[0], going):
            raise Unsupported("a Loop whose condition stays true and with no limit below 2^62 rounds, which never ends")
        salt(graph.nodes, number)
        found = [seen_outside(v, graph) for v in graph.results[1:]]
        wider = [_join(p, f, "the iterations of a loop") for p, f in zip(partials, found, strict=False)]
        if wider == partials:
            break
        partials = wider
    else:
        raise Unsupported("a loop whose results change their types from iteration to iteration")
    hoist(graph, b)
    stacked = [Partial(p.dtype, (rounds, *(ranked(p).dims or ()))) for p in found[len(states) :]]
    op = Looping(body=graph, states=len(states), uses_condition=uses_condition)
    return b.host_op(op, [limit, condition, *states, *free_values([graph])], [*partials, *stacked])


def _always(condition: Value, going: Value) -> bool:
    """Whether a body's condition is that of the round before, or true."""
    while condition.producer is not None and condition.producer.op.name == "Identity":
        condition = condition.producer.operands[0]
    known = condition.const is not None and condition.const.all()
    return bool(condition is going or known)


def hoist(graph: Graph, b: Builder) -> None:
    """Move what a loop's body computes from values around it alone in front of the loop."""
    own = set(graph.inputs)
    inner = {s for s, e in graph.sources.items() if e.value in own}
    rewriter = Rewriter(graph, "hoist")
    for node in rewriter:
        moving = any(v in own for v in node.operands) or node.op.family == "host" or not node.operands
        moving = moving or any(
            v in graph.outputs and v not in graph.results for v in node.outputs
        )  # no round, no fault
        if moving or symbols_of(node) & inner:
            own.update(node.outputs)
            inner |= {s for s, e in graph.sources.items() if e.value in node.outputs}
            rewriter.keep(node)
        else:
            b.adopt(node)
    rewriter.finish()


def seen_outside(v: Value, graph: Graph) -> Partial:
    """The type of a body's result, without the dimensions that only the body knows."""
    inside = {x for n in all_nodes(graph) for x in n.outputs} | set(graph.inputs)
    hidden = {s for s, e in graph.sources.items() if e.value in inside}

    def open_(p: Partial) -> Partial:
        dims = None
        if p.dims is not None:
            dims = tuple(None if d is None or hidden & set(dims_of(d)) else d for d in p.dims)
        return Partial(p.dtype, dims, open_(p.inner) if p.inner else None)

    return open_(v.type.partial)


def ranked(p: Partial) -> Partial:
    """A type whose rank is known.

    Raises:
        Unsupported: when it is not.
    """
    if p.dims is None:
        raise Unsupported("results of different ranks, of which one is chosen only at run time")
    return p


def _join(a: Partial, b: Partial, what: str) -> Partial:
    try:
        return ranked(a.join(b))
    except ValueError as e:
        raise Misfit(f"{what} give {e}") from e


def _close(graph: Graph, made: Sequence[Value | None]) -> bool:
    outputs = [m for m in made if m is not None]
    graph.declare_outputs(outputs, [m.name for m in outputs])
    return len(graph.results) == len(made)


def _body(op: SourceOp) -> SourceGraph:
    body = op.attributes.get("body")
    if not isinstance(body, SourceGraph):
        raise Misfit(f"{op.op_type} needs a body")
    return body


def _three(operands: list[Value | None]) -> tuple[Value | None, Value | None, list[Value]]:
    padded = [*operands, *[None] * (2 - len(operands))]
    states = [v for v in padded[2:] if v is not None]
    if len(states) != len(padded) - 2:
        raise Misfit("a state of a Loop is missing")
    limit = padded[0]
    known = ints_of(limit.data) if limit is not None else None
    return (None if known and known[0] >= 1 << 62 else limit), padded[1], states


def _size(b: Builder, v: Value, axis: int) -> Value:
    """A dimension as a tensor of rank 0."""
    shape = apply(b, "Shape", v, start=axis, end=axis + 1)
    return apply(b, "Reshape", shape, shape=())


def _read(b: Builder, name: str, *inputs: Value | None) -> Value:
    """An operator as a model would write it."""
    value = REGISTRY["", name].read(SourceNode(name, 21, {}, list(inputs), 1, b))[0]
    assert value is not None
    return value


def _turn_rounds(b: Builder, v: Value, axis: int, reverse: int) -> Value:
    """A stacked result with its rounds along another axis, or from the last to the first."""
    if reverse:
        ends = [np.asarray([n], np.int64) for n in (-1, -(1 << 31) + 1, 0, -1)]
        node = SourceNode("Slice", 13, {}, [v, *map(b.constant, ends)], 1, b)
        v = REGISTRY["", "Slice"].read(node)[0]
    axis = axis_of(axis, v.type.rank)
    perm = [k + 1 if k < axis else 0 if k == axis else k for k in range(v.type.rank)]
    return apply(b, "Transpose", v, perm=tuple(perm)) if axis else v


def ints(op: SourceOp, name: str, count: int) -> list[int]:
    """An attribute of Scan: a number for each operand, 0 where it is not given.

    Raises:
        Misfit: when there are fewer or more.
    """
    given: Any = op.attributes.get(name)
    values = [int(v) for v in given] if given else [0] * count
    if len(values) != count:
        raise Misfit(f"{name} of {op.op_type} has {len(values)} elements and not {count}")
    return values


__all__ = ["Importer", "as_declared", "branch", "hoist", "ints", "loop", "scan", "seen_outside", "sequence_map"]
