"""Loop and Scan whose number of steps is known and small: their bodies, one after the other.

    Scan(state, xs[T, ...])  ->  body(state, xs[0]); body(state', xs[1]); ...; the results of the steps stacked

Anything else, a condition that depends on the data or more nodes than the budget for unrolling, is a loop at run time
(:mod:`torshc.formats.control`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..base.budget import budget
from ..expr import STRING, as_int, const
from ..graph import Builder, Node, Value, ints_of
from ..ops import Unsupported
from ..ops.control.flow import bodies
from ..ops.core.base import axis_of
from ..ops.core.compose import apply
from ..ops.tensor.random import salt
from ..ops.tensor.view import Concat, Reshape
from .control import as_declared, ints
from .model import Misfit, SourceGraph, SourceOp

Once = Callable[[SourceGraph, Sequence[Value], int], list[Value | None]]
Results = Sequence[Value | None]


# A step may be this many times as many nodes as its model writes for it: functions become several, and loops inside are
# unrolled first, so that of six loops in each other of eight steps not all 8^6 are written out.
_INNER = 4


class Endless(Exception):
    """A loop cannot be unrolled after all."""


def is_short(op: SourceOp, version: int, operands: Sequence[Value | None]) -> bool:
    """Whether the number of steps is known and small."""
    body = op.attributes.get("body")
    if not isinstance(body, SourceGraph) or op.op_type == "SequenceMap":
        return False
    if op.op_type == "Loop":
        limit, condition = [*operands, None, None][:2]
        if condition is not None and _truth(condition) is None:
            return False
        if limit is None:
            return True  # until the condition is not known any more
        known = ints_of(limit.data)
        count = known[0] if known else None
    else:
        scanned = int(op.attributes.get("num_scan_inputs", 0))
        axes = op.attributes.get("scan_input_axes") or (0,)
        last = operands[-scanned] if 0 < scanned <= len(operands) else None
        fits = last is not None and -last.type.rank <= int(axes[0]) < last.type.rank
        count = as_int(last.shape[int(axes[0])]) if last is not None and fits else None
        if version < 9:
            return True
    return count is not None and count > 0 and count * max(len(body.nodes), 1) <= budget().unrolled


def unroll(op: SourceOp, version: int, operands: Sequence[Value | None], once: Once, b: Builder) -> Results:
    """The outputs of a Loop or a Scan.

    Args:
        once: imports the body for operands and the number of a step, and gives its outputs.

    Raises:
        Endless: when the course of the steps depends on data, or there are too many.
        Misfit: when the body does not fit the node.
    """
    body = op.attributes.get("body")
    if not isinstance(body, SourceGraph):
        raise Misfit(f"{op.op_type} needs a body")
    if op.op_type == "Loop":
        return _loop(op, body, list(operands), once, b)
    if version < 9:
        return _unroll_batched_scan(op, body, list(operands), once, b)
    return _scan(op, body, list(operands), once, b)


def _count(nodes: Sequence[Node]) -> int:
    """Nodes with those of the graphs inside them."""
    return sum(1 + sum(_count(g.nodes) for g in bodies(n)) for n in nodes)


def _stack(b: Builder, parts: list[Value], axis: int) -> Value:
    """The results of the steps along a new axis."""
    axis = axis_of(axis, parts[0].type.rank + 1)
    shape = parts[0].shape
    if parts[0].dtype is STRING:
        raise Endless("results that are strings")
    if any(p.type != parts[0].type for p in parts):
        raise Endless("results that change their shape from step to step")
    wide = [b.one(Reshape((*shape[:axis], const(1), *shape[axis:])), p) for p in parts]
    return b.one(Concat(axis), *wide) if len(wide) > 1 else wide[0]


def _truth(v: Value | None) -> bool | None:
    """A condition that is known, else None."""
    if v is None:
        return None
    if v.const is not None:
        return bool(v.const.reshape(-1)[0]) if v.const.size == 1 else None
    known = ints_of(v.data)
    return bool(known[0]) if known is not None and len(known) == 1 else None


def _loop(op: SourceOp, body: SourceGraph, operands: list[Value | None], once: Once, b: Builder) -> Results:
    operands += [None] * (2 - len(operands))
    limit, condition, states = operands[0], operands[1], operands[2:]
    if any(s is None for s in states) or len(body.inputs) != len(states) + 2 or len(body.outputs) <= len(states):
        raise Misfit("the body of a Loop does not fit its operands")
    known = ints_of(limit.data) if limit is not None else None
    count = known[0] if known is not None else None
    goes_on = True if condition is None else _truth(condition)
    current: list[Value | None] = list(states)
    rows: list[list[Value]] = []
    step = 0
    while count is None or step < count:
        if goes_on is None:
            raise Endless("a condition that is known only at run time")
        if not goes_on:
            break
        if (step + 1) * max(len(body.nodes), 1) > budget().unrolled:
            raise Endless("too many steps")
        number, going = b.constant(np.asarray(step, np.int64)), b.constant(np.asarray(True))
        first = len(b.nodes)
        made = once(body, [*as_declared(body, b, number, going), *(c for c in current if c is not None)], step)
        salt(b.nodes[first:], number)
        if (step + 1) * _count(b.nodes[first:]) > _INNER * budget().unrolled:
            raise Endless("too many steps, with those of the loops inside")
        if any(m is None for m in made):
            return ()
        current, rest = made[1 : 1 + len(states)], made[1 + len(states) :]
        if any(
            c is not None and s is not None and c.dtype is not s.dtype for c, s in zip(current, states, strict=True)
        ):
            raise Endless("a state that is an optional at first and what it holds later")
        rows.append([r for r in rest if r is not None])
        goes_on = True if condition is None else _truth(made[0])  # without one, what the body says is ignored
        step += 1
    if not rows and len(body.outputs) > 1 + len(states):
        raise Endless("no steps, and results of them")
    return [*current, *(_stack(b, list(parts), 0) for parts in zip(*rows, strict=True))]


def _unroll_batched_scan(
    op: SourceOp, body: SourceGraph, operands: list[Value | None], once: Once, b: Builder
) -> Results:
    """Scan of opset 8, whose operands have a batch as their first dimension: a Scan for each member of it."""
    lengths, *values = operands
    batch = as_int(values[0].shape[0]) if values and values[0] is not None and values[0].shape else None
    if lengths is not None or not batch:
        raise Unsupported("Scan of opset 8 with lengths of its sequences, or with an unknown batch")
    directions = op.attributes.get("directions", ())
    single = replace(op, attributes={**op.attributes, "scan_input_directions": directions})
    rows = []
    for n in range(batch):
        place = b.constant(np.asarray(n, np.int64))
        members: list[Value | None] = [apply(b, "Gather", v, place, axis=0) for v in values]
        made = [v for v in _scan(single, body, members, once, b) if v is not None]
        if len(made) != len(body.outputs):
            return ()
        rows.append(made)
    return [_stack(b, list(parts), 0) for parts in zip(*rows, strict=True)]


def _scan(op: SourceOp, body: SourceGraph, operands: list[Value | None], once: Once, b: Builder) -> Results:
    values = [v for v in operands if v is not None]
    scanned = int(op.attributes.get("num_scan_inputs", 0))
    fixed = len(values) - scanned
    if len(values) != len(operands) or not 0 < scanned <= len(values) or len(body.inputs) != len(values):
        raise Misfit("the body of a Scan does not fit its operands")
    made_each = len(body.outputs) - fixed
    if made_each < 0:
        raise Misfit("the body of a Scan has too few outputs")
    states, sequences = values[:fixed], values[fixed:]
    axes = [axis_of(a, v.type.rank) for a, v in zip(ints(op, "scan_input_axes", scanned), sequences, strict=True)]
    backward = ints(op, "scan_input_directions", scanned)
    length = as_int(sequences[0].shape[axes[0]])
    if length is None:
        raise Unsupported("Scan of opset 8 over a number of steps known only at run time")
    if any(as_int(v.shape[a]) != length for v, a in zip(sequences, axes, strict=True)):
        raise Misfit("the sequences of a Scan have different lengths")
    rows: list[list[Value]] = []
    for step in range(length):
        parts = []
        for v, a, back in zip(sequences, axes, backward, strict=True):
            place = b.constant(np.asarray(length - 1 - step if back else step, np.int64))
            parts.append(apply(b, "Gather", v, place, axis=a))
        first = len(b.nodes)
        made = [m for m in once(body, [*states, *parts], step) if m is not None]
        salt(b.nodes[first:], b.constant(np.asarray(step, np.int64)))
        if (step + 1) * _count(b.nodes[first:]) > _INNER * budget().unrolled:
            raise Endless("too many steps, with those of the loops inside")
        if len(made) != len(body.outputs):
            return ()
        states = made[:fixed]
        rows.append(made[fixed:])
    outer, reverse = ints(op, "scan_output_axes", made_each), ints(op, "scan_output_directions", made_each)
    stacked = zip(zip(*rows, strict=True), outer, reverse, strict=True)
    return [*states, *(_stack(b, list(parts)[:: -1 if back else 1], axis) for parts, axis, back in stacked)]
