"""Looking through views: where a value comes from, and who reads it in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..graph import Node, Value
from ..passes.match import behind_views

__all__ = ["bases", "behind_views", "is_view", "readers"]


def is_view(node: Node) -> bool:
    return node.op.family == "view"


def bases(value: Value, joined: bool = True) -> Iterator[Value]:
    """The values behind a value that are not views; without `joined`, concatenations count as none."""
    pending = [value]
    while pending:
        v = pending.pop()
        if v.producer is not None and is_view(v.producer) and (joined or v.producer.op.name != "Concat"):
            pending.extend(v.producer.operands)
        else:
            yield v


def readers(value: Value, users: Mapping[Value, list[Node]]) -> list[Node]:
    """The nodes that read a value, be it through views, and are not views."""
    out: list[Node] = []
    pending = list(users.get(value, []))
    while pending:
        n = pending.pop()
        if is_view(n):
            pending.extend(m for v in n.outputs for m in users.get(v, []))
        else:
            out.append(n)
    return out
