"""Stages of a model one behind the other, each a rank: what a stage makes for a later one, it sends there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import accumulate

from ..base.errors import ConfigError
from ..expr import as_int
from ..graph import Graph, Node, Value
from ..passes.config import Problems
from .config import Stages
from .cost import CORE, compute_seconds
from .cut import EVERYWHERE, Cut, RankGraph, Transfer, cone, demands_of, finish_stages, name_of, names_of
from .micro import cut_micro_batches

NEAR = 0.05  # of all, how far a cut may be from where stages have equally many bytes of weights, or equal times


def cut_stages(graph: Graph, stages: Stages) -> Cut:
    """The graphs of the stages of a model.

    Every rank takes all inputs of the model and gives all its outputs, which their stages send to the others. What
    depends on constants alone, and the checks of indices among inputs, every rank computes for itself.

    Raises:
        ConfigError: a name that the model does not have, a stage without nodes, or one that feeds an earlier one.
    """
    own = _everywhere(graph)
    rest = [n for n in graph.nodes if n not in own]
    shares = _seconds_of(rest) if stages.parts > 1 else _weights_of(rest)
    stage = _by_names(rest, stages) if stages.names else _evenly(rest, shares, stages)
    stage |= dict.fromkeys(own, EVERYWHERE)
    _require_forward(graph, stage, stages)
    if stages.parts > 1:
        return cut_micro_batches(graph, stages, stage)
    users = graph.users()
    ranks = [RankGraph(graph, r, stages.count) for r in range(stages.count)]
    transfers: list[Transfer] = []

    def send(v: Value, source: int, targets: set[int]) -> None:
        for target in sorted(targets - {source}):
            ranks[source].send(v, ranks[source].get(v), target, len(transfers))
            ranks[target].there[v] = ranks[target].receive(v, v, source, len(transfers))
            transfers.append(Transfer(source, target, "Send", name_of(v), v.type))

    # All ranks make their exchanges in the order of the model's nodes, so that none waits for one that waits for it.
    for node in graph.nodes:
        here = stage[node]
        for rank in ranks if here == EVERYWHERE else [ranks[here]]:
            rank.copy(node)
        for v in node.outputs if here != EVERYWHERE else ():
            send(v, here, {stage[n] for n in users.get(v, ())} - {EVERYWHERE})
    for v in dict.fromkeys(graph.results):
        made = stage.get(v.producer, EVERYWHERE) if v.producer is not None else EVERYWHERE
        if made != EVERYWHERE:
            send(v, made, {r for r in range(stages.count) if v not in ranks[r].there})
    return Cut(finish_stages(graph, ranks, stage), tuple(transfers))


def _everywhere(graph: Graph) -> set[Node]:
    """What every rank computes: what depends on constants alone, and light checks that runs are refused by."""
    found: set[Node] = set()
    for node in graph.nodes:
        if all(v.const is not None or v.producer in found for v in node.operands):
            found.add(node)
    for v in demands_of(graph):
        nodes = cone(v)
        weights = sum(c.const.nbytes for n in nodes for c in n.operands if c.const is not None)
        if not any(n.op.heavy for n in nodes) and weights < 1 << 16:
            found.update(nodes)
    return found


def _by_names(nodes: list[Node], stages: Stages) -> dict[Node, int]:
    """The stage of each node as names say; what they do not name goes with the latest that it reads of.

    Raises:
        ConfigError: names that no node has, or that several stages have.
    """
    known = {name for n in nodes for name in names_of(n)}
    named: dict[str, int] = {}
    problems = Problems()
    for k, choices in enumerate(stages.names):
        for choice in choices:
            with problems.gather():
                for name in sorted(choice.among(known)):
                    if named.setdefault(name, k) != k:
                        raise ConfigError(
                            f"{choice.where}: {name!r} is in stage {named[name]} and, by {choice.text!r}, in stage {k}",
                            "name it in one of them",
                        )
    problems.settle()
    stage: dict[Node, int] = {}
    for n in nodes:
        found = [named[name] for name in names_of(n) if name in named]
        latest = max((stage.get(v.producer, 0) for v in n.operands if v.producer is not None), default=0)
        stage[n] = max(found) if found else latest
    return stage


def _weights_of(nodes: list[Node]) -> list[float]:
    """Bytes of the weights that each node is the first to read."""
    seen: set[Value] = set()
    found: list[float] = []
    for n in nodes:
        fresh = {v for v in n.operands if v.const is not None} - seen
        seen |= fresh
        found.append(sum(v.const.nbytes for v in fresh if v.const is not None))
    return found


def _seconds_of(nodes: list[Node]) -> list[float]:
    """What nodes take by the cost model; what is not heavy shares a kernel with others, and writes its result."""
    found = []
    for n in nodes:
        moved = sum(map(_nbytes, (*(n.operands if n.op.heavy else ()), *n.outputs)))
        found.append(compute_seconds(CORE, as_int(n.op.flops(n)) or 0, moved))
    return found


def _nbytes(v: Value) -> int:
    """Bytes of a tensor; symbols count as 1."""
    return v.dtype.size * math.prod(as_int(d) or 1 for d in v.shape)


def _evenly(nodes: list[Node], shares: list[float], stages: Stages) -> dict[Node, int]:
    """Stages with about equal sums of what each node has a share of, cut where the least has to be sent.

    Raises:
        ConfigError: there are fewer nodes than stages.
    """
    if len(nodes) < stages.count:
        raise ConfigError(
            f"{stages.where}: {stages.count} stages of a model of {len(nodes)} nodes", "ask for fewer stages"
        )
    before = [0, *accumulate(shares)]  # of the nodes before each place
    sent = _bytes_across(nodes)
    total, first, cuts = before[-1] or 1, 1, list[int]()
    for k in range(1, stages.count):
        last = len(nodes) - (stages.count - k)
        aim = total * k / stages.count
        places = range(first, last + 1)
        nearest = min(abs(before[p] - aim) for p in places)
        cuts.append(
            min(
                (p for p in places if abs(before[p] - aim) <= nearest + NEAR * total),
                key=lambda p: (sent[p], abs(before[p] - aim)),
            )
        )
        first = cuts[-1] + 1
    return {n: sum(p <= i for p in cuts) for i, n in enumerate(nodes)}


def _bytes_across(nodes: list[Node]) -> list[int]:
    """Bytes of what the nodes before each place make and those behind it read; symbols count as 1."""
    number = {n: i for i, n in enumerate(nodes)}
    last: dict[Value, int] = {}
    for i, n in enumerate(nodes):
        last |= {v: i for v in n.operands if v.producer in number}
    change = [0] * (len(nodes) + 1)
    for v, end in last.items():
        assert v.producer is not None
        change[number[v.producer] + 1] += _nbytes(v)
        change[end + 1] -= _nbytes(v)
    return list(accumulate(change))


def _require_forward(graph: Graph, stage: Mapping[Node, int], stages: Stages) -> None:
    """Refuse stages without nodes, and those that feed earlier ones.

    Raises:
        ConfigError: with all of them.
    """
    problems = Problems()
    for n in graph.nodes:
        for v in n.operands:
            source = stage[v.producer] if v.producer is not None else EVERYWHERE
            with problems.gather():
                if stage[n] != EVERYWHERE and source > stage[n]:
                    assert v.producer is not None
                    here, there = f"{n.describe()} of stage {stage[n]}", f"{v.producer.describe()} of stage {source}"
                    remedy = "a stage feeds later ones only: name both in one stage, or the second in an earlier one"
                    raise ConfigError(f"{stages.where}: {here} reads what {there} makes", remedy)
    for k in range(stages.count):
        with problems.gather():
            if k not in stage.values():
                raise ConfigError(
                    f"{stages.where}: stage {k} has no nodes", "name some of the model's, or ask for fewer stages"
                )
    problems.settle()
