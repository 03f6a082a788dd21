"""Stages that work side by side: each computes a part of the batch while others compute other parts.

Of N stages and M parts, a run takes as long as N + M - 1 parts in the longest stage, in place of N M.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..base.errors import ConfigError, UnsupportedError
from ..expr import as_int
from ..graph import Graph, Node, Value
from ..ops import Tensor
from ..ops.core.tensor import apply_op
from ..ops.tensor.view import Concat
from ..passes.config import Problems
from .config import Stages
from .cut import EVERYWHERE, Cut, RankGraph, Transfer, finish_stages, name_of
from .layout import Axis, Layout, Way, way_of


def cut_micro_batches(graph: Graph, stages: Stages, stage: Mapping[Node, int]) -> Cut:
    """The graphs of stages that compute the parts of a batch one after the other.

    The batch is dimension 0 of all inputs. What does not depend on it is computed once. Exchanges are in the order of
    the parts, and in that of the model's nodes within one, so that no rank waits for one that waits for it.

    Args:
        stage: the stage of each node, `EVERYWHERE` for what all ranks compute, with whole inputs.

    Raises:
        ConfigError: the batch is not known, or cannot be cut into so many parts.
        UnsupportedError: operators that need the whole batch; all are named.
    """
    layout = _batch(graph, stages)
    ways = _ways(graph, stages, stage, layout)
    ranks = [_MicroRank(graph, r, stages, layout) for r in range(stages.count)]
    users = graph.users()
    transfers: list[Transfer] = []

    def send(v: Value, part: int | None, source: int, targets: set[int]) -> None:
        for target in sorted(targets - {source}):
            own = ranks[source].part_of(v, part)
            ranks[source].send(v, own, target, len(transfers))
            ranks[target].put(v, part, ranks[target].receive(v, own, source, len(transfers)))
            transfers.append(Transfer(source, target, "Send", name_of(v), own.type))

    def make(nodes: list[Node], part: int | None) -> None:
        for node in nodes:
            here = stage[node]
            for rank in ranks if here == EVERYWHERE else [ranks[here]]:
                rank.make(node, ways.get(node), part)
            for v in node.outputs if here != EVERYWHERE else ():
                send(v, part, here, {stage[n] for n in users.get(v, ())} - {EVERYWHERE})

    make([n for n in graph.nodes if n not in ways], None)
    for part in range(stages.parts):
        make([n for n in graph.nodes if n in ways], part)
    for v in dict.fromkeys(graph.results):
        maker = stage.get(v.producer, EVERYWHERE) if v.producer is not None else EVERYWHERE
        if maker != EVERYWHERE:
            ranks[maker].join(v)
            send(v, None, maker, {r for r in range(stages.count) if v not in ranks[r].there})
    return Cut(finish_stages(graph, ranks, stage), tuple(transfers))


def _batch(graph: Graph, stages: Stages) -> dict[Value, Axis]:
    """The inputs, split along dimension 0.

    Raises:
        ConfigError: with all inputs that cannot be.
    """
    problems, found = Problems(), dict[Value, Axis]()
    for v in graph.inputs:
        size = as_int(v.shape[0]) if v.type.rank else None
        with problems.gather():
            if size is None or size % stages.parts or not size:
                long = f"{v.shape[0]!r} long" if v.type.rank else "a single number"
                what = f"the batch of input {v.name!r} is {long}, of which there are no {stages.parts} parts"
                raise ConfigError(
                    f"{stages.where}: {what}",
                    "pin it with --shapes to a multiple, or take other micro_batches",
                )
            found[v] = Axis(0, (size,))
    problems.settle()
    return found


def _ways(graph: Graph, stages: Stages, stage: Mapping[Node, int], layout: dict[Value, Axis]) -> dict[Node, Way]:
    """How nodes compute a part of the batch, those that depend on it; `layout` gets their results.

    Raises:
        UnsupportedError: nodes that need the whole batch.
    """
    found: dict[Node, Way] = {}
    whole: list[str] = []
    for node in graph.nodes:
        layouts = [None if v is None else layout.get(v) for v in node.inputs]
        if not any(layouts):
            continue
        way = way_of(node, layouts, stages.parts)
        if stage[node] == EVERYWHERE:  # whole on every rank, which others take their parts of
            gives = () if way is None or way.summed else zip(node.outputs, way.gives, strict=True)
            layout |= {v: x for v, x in gives if x is not None}
            continue
        wants = () if way is None else tuple(zip(node.inputs, way.wants, strict=False))
        if way is None or way.summed or way.make or any(v in layout and layout[v] != want for v, want in wants if v):
            whole.append(f"{node.describe()} needs the whole batch, or torshc does not know that it does not")
            continue
        found[node] = way
        layout |= {v: x for v, x in zip(node.outputs, way.gives, strict=True) if x is not None}
    if whole:
        raise UnsupportedError(whole, f"leave micro_batches out of {stages.where}")
    return found


class _MicroRank(RankGraph):
    """The graph of a stage in the making, with parts of values beside whole ones."""

    def __init__(self, whole: Graph, rank: int, stages: Stages, layout: Mapping[Value, Axis]) -> None:
        super().__init__(whole, rank, stages.count)
        self._count, self._layout = stages.parts, layout
        self._parts: dict[tuple[Value, int], Value] = {}

    def make(self, node: Node, way: Way | None, part: int | None) -> None:
        """Make a node: as it is, or for a part of the batch."""
        if way is None or part is None:
            self.copy(node)
            return
        wants: tuple[Layout, ...] = (*way.wants, *[None] * len(node.inputs))
        operands = [None if v is None else self._in(v, want, part) for v, want in zip(node.inputs, wants, strict=False)]
        for v, own in zip(node.outputs, self.builder.add(way.op, operands, node.name), strict=True):
            own.name = v.name
            self._parts[v, part] = own

    def part_of(self, v: Value, part: int | None) -> Value:
        """What stands here for a value of the model, or for a part of it."""
        return self.get(v) if part is None else self._parts[v, part]

    def put(self, v: Value, part: int | None, own: Value) -> None:
        """From now on this stands for a value of the model, or for a part of it."""
        if part is None:
            self.there[v] = own
        else:
            self._parts[v, part] = own

    def join(self, v: Value) -> None:
        """Make a value whole of its parts, where it has some."""
        if (v, 0) in self._parts:
            parts = [Tensor(self.builder, self._parts[v, k]) for k in range(self._count)]
            self.there[v] = apply_op(Concat(self._layout[v].axis), *parts).value

    def _in(self, v: Value, want: Layout, part: int) -> Value:
        """A value, or its part, as an operand."""
        if want is None:
            return self.get(v)
        if (v, part) not in self._parts:
            each = want.size // self._count
            if v.const is not None:
                array = np.ascontiguousarray(np.take(v.const, range(part * each, (part + 1) * each), want.axis))
                array.flags.writeable = False
                self._parts[v, part] = self.graph.constant_like(v, array)
            else:
                x = Tensor(self.builder, self.there[v])
                self._parts[v, part] = x.part(want.axis, part * each, (part + 1) * each).value
        return self._parts[v, part]
