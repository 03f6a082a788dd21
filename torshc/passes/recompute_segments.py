"""Segments of a training step's forward pass that can be computed again, and what that takes.

A segment is a run of nodes. What a node behind it reads in the forward pass is kept, and all that only the backward
pass reads is computed again of what is kept before it, right before the backward pass reads the first of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate

from ..expr import as_int
from ..graph import Graph, Node, Recomputation, Value

_FEW = 2**16  # elements, fewer than which nobody computes again
_PART = 256  # of all that is kept, less than which nobody computes again
_INTENSITY = 16  # operations in the time of a byte
_FIXED = ("host", "collective", "custom", "boundary")  # families of nodes that are not made twice


class Kept:
    """What the forward pass of a step makes and its backward pass reads.

    Args:
        graph: a graph of known sizes.
        loss: the node behind which the backward pass begins.

    Attributes:
        forward: the nodes of the forward pass.
        late: the nodes of the backward pass that read each value.
        values: what both passes read, but for outputs, in order.
        least: elements of a value that is worth being computed again.
        across: what segments make and the forward pass reads behind them, once it is cut.
    """

    def __init__(self, graph: Graph, loss: Node) -> None:
        self.order = {n: k for k, n in enumerate(graph.nodes)}
        turn, self.users = self.order[loss], graph.users()
        self.forward = graph.nodes[: turn + 1]
        self.late = {v: [n for n in by if self.order[n] > turn] for v, by in self.users.items()}
        made = [v for n in self.forward[:-1] for v in n.outputs]
        outputs = {*graph.outputs}
        self._read_late = [v for v in made if self.late.get(v) and v not in outputs]
        self.values = [
            v for v in self._read_late
            if v.producer is not None and len(v.producer.outputs) == 1 and len(self.late[v]) < len(self.users[v])
        ]  # fmt: skip
        self.across = set[Value]()
        self.least = min(_FEW, sum(as_int(v.type.size) or 0 for v in self._read_late) // _PART + 1)

    def bytes(self, v: Value) -> int:
        """Of a value; 0 where its size is not known."""
        return as_int(v.type.nbytes) or 0

    def worth(self, v: Value) -> bool:
        """Whether a value may be computed again: it is no small one, as of channels, and its node may be copied."""
        return (
            v.producer is not None and v.producer.op.family not in _FIXED and (as_int(v.type.size) or 0) >= self.least
        )

    def inner(self, begin: int, end: int) -> list[Value]:
        """What a segment makes and only the backward pass reads behind it."""
        found = (v for n in self.forward[begin:end] for v in n.outputs if self.late.get(v) and self.worth(v))
        return [v for v in found if v in self._set and self._last.get(v, 0) < end]

    def nodes_for(self, v: Value, inside: Collection[Value], made: Collection[Value]) -> list[Node]:
        """The nodes that make a value of what is kept, in order.

        Args:
            inside: what is not kept.
            made: what was computed again before.
        """
        found, pending = set[Node](), [v]
        while pending:
            x = pending.pop()
            node = x.producer
            if node is None or x.const is not None or x in made or node in found:
                continue
            if x is not v and x not in inside and (self.late.get(x) or not self.worth(x) or x in self.across):
                continue
            found.add(node)
            pending += node.operands
        return sorted(found, key=self.order.__getitem__)

    def cut(self, count: int) -> list[tuple[int, int]]:
        """About so many segments, each from a node to before another, which make about as much for the backward pass.

        They end where the forward pass carries the least across.
        """
        n, place = len(self.forward), {v: k for k, node in enumerate(self.forward) for v in node.outputs}
        self._set = {*self._read_late}
        self._last = {
            v: max((self.order[u] for u in self.users.get(v, ()) if self.order[u] < n), default=0) for v in place
        }
        steps = [0] * (n + 1)
        for v, at in place.items():
            steps[at] += self.bytes(v)
            steps[max(self._last[v], at)] -= self.bytes(v)
        carried = [*accumulate(steps)]
        made = [*accumulate(sum(self.bytes(v) for v in node.outputs if v in self._set) for node in self.forward)]
        found, begin, least = list[tuple[int, int]](), 0, made[-1] // count + 1
        while begin < n:
            before = made[begin - 1] if begin else 0
            ends = [k for k in range(begin, n) if least <= made[k] - before <= 1.5 * least]
            end = (
                min(ends, key=carried.__getitem__)
                if ends
                else next((k for k in range(begin, n) if made[k] - before > least), n - 1)
            )
            found.append((begin, end + 1))
            begin = end + 1
        self.across = {v for begin, end in found for v, at in place.items() if begin <= at < end <= self._last[v]}
        return found


def find_segments(kept: Kept, count: int) -> list[Recomputation]:
    """The segments that can be computed again, but for the last one, which the backward pass reads at once."""
    found = []
    for begin, end in kept.cut(count)[:-1]:
        values = kept.inner(begin, end)
        nodes = {n for v in values for n in kept.nodes_for(v, values, ())}
        freed = sum(map(kept.bytes, values))
        if freed:
            found.append(Recomputation(tuple(values), len(nodes), freed, sum(map(work_of, nodes))))
    return found


def work_of(node: Node) -> int:
    """Bytes that a node moves, or what its operations take in bytes that take as long, whichever is more."""
    moved = sum(as_int(v.type.nbytes) or 0 for v in (*node.operands, *node.outputs))
    return max(moved, _operations(node, [as_int(v.type.size) or 0 for v in node.operands]) // _INTENSITY)


def _operations(node: Node, sizes: Sequence[int]) -> int:
    made = as_int(node.outputs[0].type.size) or 0
    if node.op.family == "gemm":
        return 2 * made * (as_int(node.operands[0].shape[-1]) or 1)
    if node.op.family in ("conv", "conv_transpose"):
        return 2 * made * sizes[1] // max(as_int(node.operands[1].shape[0]) or 1, 1)
    if node.op.family == "attention":
        return 4 * made * (as_int(node.operands[1].shape[-2]) or 1)
    return made
