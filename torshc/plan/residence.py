"""Which segments of a script run on the processor although the target is a device.

    x -> Less -> ReduceMax -> If       the comparison of a few numbers runs where the host reads its result

A segment that computes sizes, conditions or indices for the host and nothing else would only visit the device: its
result has to come back before the host can go on.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..expr import as_int
from ..graph import Graph, Value
from .script import Call, Move, Repeat, Script, flat

SMALL = 512  # elements: fewer take less time on the processor than the way to a device and back


def segments_for_host(script: Script) -> frozenset[int]:
    """Numbers of the segments whose results only the host reads, and whose values are small or all integers."""
    steps = [*flat(script.steps)]
    calls = [step for step in steps if isinstance(step, Call)]
    elsewhere = set(script.outputs)
    for step in steps:
        if isinstance(step, Move):
            elsewhere.add(step.source)
        elif isinstance(step, Repeat):
            elsewhere.update(slot for state in step.states for slot in state)
            elsewhere.update(stack.each for stack in step.stacks)
    able = {c.number for c in calls if _is_light(script.segments[c.number])}
    while True:  # a segment that another reads can stay when that one does
        read = elsewhere.union(*(c.inputs for c in calls if c.number not in able))
        kept = {c.number for c in calls if c.number in able and not read.intersection(c.outputs)}
        if kept == able:
            return frozenset(able)
        able = kept


def _is_light(graph: Graph) -> bool:
    values = [v for v in _values(graph) if v.const is None]
    return all(_is_small(v) for v in values) or not any(v.dtype.is_float for v in values)


def _values(graph: Graph) -> Iterable[Value]:
    yield from graph.inputs
    for node in graph.nodes:
        yield from node.outputs


def _is_small(v: Value) -> bool:
    size = as_int(v.type.size)
    return size is not None and size <= SMALL
