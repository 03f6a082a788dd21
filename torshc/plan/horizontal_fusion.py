"""Small kernels that do not need each other become one launch, whose blocks compute one or another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..expr import as_int
from ..graph import Node, Value
from .group import Group

MOST = 480  # tensors of one launch: a kernel's arguments have 4 KB
TINY = 1 << 16  # bytes of results of a group that may wait for others, as what it reads is kept meanwhile
LARGE = 1 << 22  # bytes of results from which on a kernel takes long enough to be launched by itself


def side_by_side(
    groups: Sequence[Group], writers: Callable[[Value], list[Group]], position: Callable[[Node], int]
) -> list[Group]:
    """Groups in launch order, in which small pointwise ones that follow each other are one.

    Args:
        groups: in launch order.
        writers: the groups that have to run before a value can be read.
        position: where a node stands in the graph.
    """
    return [_join_groups(run, position) if len(run) > 1 else run[0] for run in _runs(groups, writers)]


def gathered(
    groups: Sequence[Group], writers: Callable[[Value], list[Group]], waits: Mapping[int, Sequence[Group]]
) -> list[Group]:
    """Groups in launch order, in which small pointwise ones follow each other where they may.

    Each is taken as soon as what it reads is there, and left until another group needs it; then all that were left are
    launched with it. So kernels of single channels all along a training step, as those that update what normalisations
    keep, become a few launches.

    Args:
        groups: in launch order.
        waits: groups that should run before another, by its identity.
    """

    def needs(g: Group) -> set[int]:
        return {id(w) for v in g.reads for w in writers(v)} | {id(w) for w in waits.get(id(g), ())}

    return _late(_early(groups, needs), needs)


def _early(groups: Sequence[Group], needs: Callable[[Group], set[int]]) -> list[Group]:
    """Small groups right behind the last of those that they need."""
    behind: dict[int, list[Group]] = {}
    place = {id(g): k for k, g in enumerate(groups)}
    for g in groups:
        if _is_small(g):
            last = max((place[w] for w in needs(g)), default=-1)
            place[id(g)] = last
            behind.setdefault(last, []).append(g)
    found = list[Group](behind.get(-1, []))
    for k, g in enumerate(groups):
        found += [] if _is_small(g) else [g]
        found += behind.get(k, [])
    return found


def _late(groups: Sequence[Group], needs: Callable[[Group], set[int]]) -> list[Group]:
    """Tiny groups right before the first that needs one of them."""
    found, left = list[Group](), dict[int, Group]()
    for g in groups:
        if not needs(g).isdisjoint(left):
            found += left.values()
            left.clear()
        if _is_tiny(g):
            left[id(g)] = g
        else:
            found.append(g)
    return [*found, *left.values()]


def _is_tiny(group: Group) -> bool:
    return _is_small(group) and sum(as_int(v.type.nbytes) or 0 for v in group.outputs) <= TINY


def _runs(groups: Sequence[Group], writers: Callable[[Value], list[Group]]) -> Iterator[list[Group]]:
    run: list[Group] = []
    tensors = set[Value]()
    for group in groups:
        ahead = {id(w) for v in group.reads for w in writers(v)}
        tensors.update(group.reads, group.outputs)
        fits = _is_small(group) and len(tensors) <= MOST and all(_is_small(g) and id(g) not in ahead for g in run)
        if run and not fits:
            yield run
            run, tensors = [], {*group.reads, *group.outputs}
        run.append(group)
    if run:
        yield run


def _is_small(group: Group) -> bool:
    """Whether a group is pointwise work of a known size, so little that its launch is a good part of it."""
    sizes = [as_int(v.type.nbytes) for v in group.outputs]
    if group.kind != "nest" or any(n.op.family == "composite" for n in group.nodes):
        return False
    return all(s is not None and 0 < s < LARGE for s in sizes)


def _join_groups(run: Sequence[Group], position: Callable[[Node], int]) -> Group:
    """A group with the nodes and results of all."""
    return Group(
        run[0].id,
        "nest",
        sorted(dict.fromkeys(n for g in run for n in g.nodes), key=position),
        folded=sorted(dict.fromkeys(n for g in run for n in g.folded), key=position),
        outputs=list(dict.fromkeys(v for g in run for v in g.outputs)),
        reads=list(dict.fromkeys(v for g in run for v in g.reads)),
        rules=list(dict.fromkeys(r for g in run for r in g.rules)),
    )
