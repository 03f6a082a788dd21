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
    storage = compilation.plan.storage
    apart = {*compilation.graph.inputs, *compilation.graph.results}
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for k, unit in enumerate(compilation.units):
        for v in (*unit.group.outputs, *unit.group.reads):
            root = storage[v].root if v in storage else v
            if root.const is None and root not in apart:
                first.setdefault(root, k)
                last[root] = k
    changes = [0] * (len(compilation.units) + 1)
    for root, begin in first.items():
        nbytes = sizes.total([root.type.nbytes])
        changes[begin] += nbytes
        changes[last[root] + 1] -= nbytes
    alive, found = 0, []
    for change in changes[:-1]:
        alive += change
        found.append(alive)
    return tuple(found)
