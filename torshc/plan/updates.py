"""New states of a model that trains wait for those who read the old ones, which they may then overwrite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..graph import Graph, Value
from .group import Group

Groups = dict[int, list[Group]]


def readers_of_old_states(
    graph: Graph, groups: Sequence[Group], made: Mapping[Value, Group], writers: Callable[[Value], list[Group]]
) -> Groups:
    """The groups that should run before another, by its identity; none that needs it, directly or by such a wish.

    Args:
        made: the group that writes a value.
        writers: the groups that have to run before a value can be read.
    """
    readers: dict[Value, list[Group]] = {}
    for g in groups:
        for v in g.reads:
            readers.setdefault(v, []).append(g)
    found: Groups = {}

    def needs(g: Group, other: Group) -> bool:
        pending, seen = [g], set[int]()
        while pending:
            at = pending.pop()
            if at is other:
                return True
            if id(at) not in seen:
                seen.add(id(at))
                pending += found.get(id(at), [])
                pending += (w for v in at.reads for w in writers(v))
        return False

    for _, old, new in graph.updates:
        if (writer := made.get(new)) is None:
            continue
        for reader in readers.get(old, []):
            if reader is not writer and not needs(reader, writer):
                found.setdefault(id(writer), []).append(reader)
    return found
