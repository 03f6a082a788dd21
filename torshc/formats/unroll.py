"""Loop and Scan whose number of steps is known and small: their bodies, one after the other.

    Scan(state, xs[T, ...])  ->  body(state, xs[0]); body(state', xs[1]); ...; the results of the steps stacked

Anything else, a condition that depends on the data or more than `MOST` nodes, is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..expr import as_int, const
from ..graph import Builder, Value, ints_of
from ..ops import Unsupported
from ..ops.base import axis_of
from ..ops.compose import apply
from ..ops.view import Concat, Reshape
from .model import Misfit, SourceGraph, SourceOp

MOST = 4096  # nodes of all steps together
Once = Callable[[SourceGraph, Sequence[Value], int], list[Value | None]]
Results = Sequence[Value | None]


def unroll(op: SourceOp, version: int, operands: Sequence[Value | None], once: Once, b: Builder) -> Results:
    """The outputs of a Loop or a Scan.

    Args:
        once: imports the body for operands and the number of a step, and gives its outputs.

    Raises:
        Unsupported: when the number of steps is not known or too large.
        Misfit: when the body does not fit the node.
    """
    body = op.attributes.get("body")
    if not isinstance(body, SourceGraph):
        raise Misfit(f"{op.op_type} needs a body")
    if op.op_type == "Loop":
        return _loop(op, body, list(operands), once, b)
    if version < 9:
        raise Unsupported("Scan of opset 8, which has a batch dimension")
    return _scan(op, body, list(operands), once, b)


def _budget(body: SourceGraph, steps: int, what: str) -> None:
    if steps * max(len(body.nodes), 1) > MOST:
        raise Unsupported(f"{what} of {steps} steps with {len(body.nodes)} nodes each, more than {MOST}")


def _stack(b: Builder, parts: list[Value], axis: int) -> Value:
    """The results of the steps along a new axis."""
    axis = axis_of(axis, parts[0].type.rank + 1)
    shape = parts[0].shape
    if any(p.type != parts[0].type for p in parts):
        raise Unsupported("a loop whose results change their shape from step to step")
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
    if limit is not None and (known is None or len(known) != 1):
        raise Unsupported("a Loop whose number of steps is known only at run time")
    count = known[0] if known is not None else None
    goes_on = True if condition is None else _truth(condition)
    current: list[Value | None] = list(states)
    rows: list[list[Value]] = []
    step = 0
    while count is None or step < count:
        if goes_on is None:
            raise Unsupported("a Loop whose condition is known only at run time")
        if not goes_on:
            break
        _budget(body, max(count or 0, step + 1), "a Loop")
        number, going = b.constant(np.asarray(step, np.int64)), b.constant(np.asarray(True))
        made = once(body, [number, going, *(c for c in current if c is not None)], step)
        if any(m is None for m in made):
            return ()
        current, rest = made[1 : 1 + len(states)], made[1 + len(states) :]
        rows.append([r for r in rest if r is not None])
        goes_on = True if condition is None else _truth(made[0])  # without one, what the body says is ignored
        step += 1
    if not rows and len(body.outputs) > 1 + len(states):
        raise Unsupported("a Loop of no steps with results of its steps")
    return [*current, *(_stack(b, list(parts), 0) for parts in zip(*rows, strict=True))]


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
    axes = [axis_of(a, v.type.rank) for a, v in zip(_ints(op, "scan_input_axes", scanned), sequences, strict=True)]
    backward = _ints(op, "scan_input_directions", scanned)
    lengths = {as_int(v.shape[a]) for v, a in zip(sequences, axes, strict=True)}
    length = lengths.pop()
    if length is None or lengths:
        raise Unsupported("a Scan over a symbolic dimension, or over several lengths")
    if not length:
        raise Unsupported("a Scan of no steps")
    _budget(body, length, "a Scan")
    rows: list[list[Value]] = []
    for step in range(length):
        parts = []
        for v, a, back in zip(sequences, axes, backward, strict=True):
            place = b.constant(np.asarray(length - 1 - step if back else step, np.int64))
            parts.append(apply(b, "Gather", v, place, axis=a))
        made = [m for m in once(body, [*states, *parts], step) if m is not None]
        if len(made) != len(body.outputs):
            return ()
        states = made[:fixed]
        rows.append(made[fixed:])
    outer, reverse = _ints(op, "scan_output_axes", made_each), _ints(op, "scan_output_directions", made_each)
    stacked = zip(zip(*rows, strict=True), outer, reverse, strict=True)
    return [*states, *(_stack(b, list(parts)[:: -1 if back else 1], axis) for parts, axis, back in stacked)]


def _ints(op: SourceOp, name: str, count: int) -> list[int]:
    given: Any = op.attributes.get(name)
    values = [int(v) for v in given] if given else [0] * count
    if len(values) != count:
        raise Misfit(f"{name} of {op.op_type} has {len(values)} elements and not {count}")
    return values
