"""How many nodes calls of a model's functions come to, counted before any is expanded.

Forty functions that call the one before twice are a file of some kilobytes, and 2^40 nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .model import SourceFunction, SourceGraph, SourceOp

DEPTH = 64  # calls of functions and branches inside each other


class CallSizes:
    """The numbers of nodes that calls expand to: exact but for bodies of loops, which may have no rounds, and are 0.

    Args:
        functions: those of the model, by domain and name.
    """

    def __init__(self, functions: Mapping[tuple[str, str], SourceFunction]) -> None:
        self._functions = functions
        self._known: dict[tuple[str, str], int] = {}

    def of(self, op: SourceOp, depth: int = 0) -> int:
        """Nodes of the function that a node calls, and of all that it calls; 0 where it calls none.

        Calls that are too deep, or in a circle, count as nothing here: their import says so.
        """
        key = op.domain, op.op_type
        if key not in self._functions or depth >= DEPTH:
            return self._branches(op, depth)
        if key not in self._known:
            self._known[key] = 0  # in a circle
            self._known[key] = self._body(self._functions[key].nodes, depth + 1)
        return self._known[key]

    def _branches(self, op: SourceOp, depth: int) -> int:
        if op.op_type != "If" or op.domain or depth >= DEPTH:
            return 0
        bodies = [a for a in op.attributes.values() if isinstance(a, SourceGraph)]
        return min((self._body(b.nodes, depth + 1) for b in bodies), default=0)

    def _body(self, ops: Iterable[SourceOp], depth: int) -> int:
        """Nodes of a body but its Constants, of which those that are there twice are made once."""
        return sum(1 + self.of(op, depth) for op in ops if op.op_type != "Constant")
