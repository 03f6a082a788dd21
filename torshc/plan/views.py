"""Looking through views: where a value comes from, and who reads it in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..graph import Node, Value
from ..passes.match import behind_views

__all__ = ["bases", "behind_views", "is_view", "readers"]


def is_view(node: Node) -> bool:
    return node.op.family == "view"


def bases(value: Value, joined: bool = True) -> Iterator[Value]:
    """The values behind a value that are not views, each once; without `joined`, concatenations count as none."""
    pending, seen = [value], {value}
    while pending:
        v = pending.pop()
        if v.producer is not None and is_view(v.producer) and (joined or v.producer.op.name != "Concat"):
            found = [o for o in dict.fromkeys(v.producer.operands) if o not in seen]
            pending.extend(found)
            seen.update(found)
        else:
            yield v


def readers(value: Value, users: Mapping[Value, list[Node]]) -> list[Node]:
    """The nodes that read a value, be it through views, and are not views. A view is looked through once."""
    out: list[Node] = []
    pending, seen = [value], set[Node]()
    while pending:
        for n in users.get(pending.pop(), []):
            if not is_view(n):
                out.append(n)
            elif n not in seen:
                seen.add(n)
                pending.extend(n.outputs)
    return out
