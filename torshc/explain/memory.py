"""How much memory holds values while each group runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..graph import Value
from .sizes import Evaluator

if TYPE_CHECKING:
    from ..pipeline.compilation import Compilation


def live_bytes(compilation: Compilation, sizes: Evaluator) -> tuple[int, ...]:
    """Bytes of values that a group has written and this one, or a later one, reads; for each group in order.

    The caller's inputs and outputs, weights and scratch do not count.
    """
    changes = [0] * (len(compilation.units) + 1)
    for root, (first, last) in lives(compilation).items():
        nbytes = sizes.total([root.type.nbytes])
        changes[first] += nbytes
        changes[last + 1] -= nbytes
    alive, found = 0, []
    for change in changes[:-1]:
        alive += change
        found.append(alive)
    return tuple(found)


def lives(compilation: Compilation) -> dict[Value, tuple[int, int]]:
    """The first group that writes each value in memory, and the last that reads it; as of :func:`live_bytes`."""
    storage = compilation.plan.storage
    apart = {*compilation.graph.inputs, *compilation.graph.results}
    found: dict[Value, tuple[int, int]] = {}
    for k, unit in enumerate(compilation.units):
        for v in (*unit.group.outputs, *unit.group.reads):
            root = storage[v].root if v in storage else v
            if root.const is None and root not in apart:
                found[root] = found.get(root, (k, k))[0], k
    return found
