"""The order of a model's nodes: each after those whose results it reads."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from ..base.errors import ModelError
from . import differentiate
from .model import Misfit, SourceGraph, SourceOp, several

_DEPTH = 64


def sort_nodes(nodes: list[SourceOp], own: set[str], around: set[str]) -> list[SourceOp]:
    """The nodes in topological order, as near to the given order as it can be.

    Args:
        own: names of the graph's inputs and constants.
        around: names of the values around a body, which its own values hide.

    Raises:
        ModelError: when two nodes make one value, a node reads one that nothing produces, or the graph has a cycle.
    """
    maker: dict[str, int] = {}
    faults: list[ModelError] = []
    for k, op in enumerate(nodes):
        for name in filter(None, op.outputs):
            if name in maker or name in own:
                other = nodes[maker[name]].describe() if name in maker else "an input or initializer"
                faults.append(Misfit(f"{op.describe()} produces {name!r}, which {other} produces too"))
            maker[name] = k
    waiting = [0] * len(nodes)
    readers: list[list[int]] = [[] for _ in nodes]
    for k, op in enumerate(nodes):
        for name in dict.fromkeys(reads(op)):
            if name in maker:
                waiting[k] += 1
                readers[maker[name]].append(k)
            elif name not in own and name not in around:
                faults.append(Misfit(f"{op.describe()} reads {name!r}, which nothing produces"))
    if faults:
        raise several(faults)
    ready = [k for k, n in enumerate(waiting) if not n]
    order: list[SourceOp] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(nodes[k])
        for r in readers[k]:
            waiting[r] -= 1
            if not waiting[r]:
                heapq.heappush(ready, r)
    if len(order) < len(nodes):
        stuck = next(op for op, n in zip(nodes, waiting, strict=True) if n)
        raise Misfit(f"the graph is cyclic: {stuck.describe()} needs its own result")
    return order


def reads(op: SourceOp, depth: int = 0) -> Iterator[str]:
    """Names that a node reads, those that its subgraphs take from outside included."""
    yield from filter(None, op.inputs)
    if (op.domain, op.op_type) == differentiate.OPERATOR:
        xs, zs, y = differentiate.names_of(op)
        yield from filter(None, (*xs, *zs, y))
    if depth > _DEPTH:
        raise Misfit(f"{op.describe()}: subgraphs are nested too deeply")
    for value in op.attributes.values():
        for body in value if isinstance(value, tuple) else (value,):
            if isinstance(body, SourceGraph):
                own = {n for n, _ in body.inputs} | set(body.constants) | {o for n in body.nodes for o in n.outputs}
                yield from (name for n in body.nodes for name in reads(n, depth + 1) if name not in own)
                yield from (name for name, _ in body.outputs if name not in own)
