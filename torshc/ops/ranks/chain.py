"""Exchanges of a graph in the making, each behind the one before it."""

from __future__ import annotations

import numpy as np

from ...graph import Builder, Value
from ..core.bounds import EXCHANGE
from .collectives import Collective


class Chain:
    """The exchanges of one rank, in the order in which they are added; all ranks add them in the same order.

    Args:
        builder: adds them to its graph.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._token = builder.graph.constant(np.zeros((), np.bool_))

    def add(self, op: Collective, *operands: Value, name: str = "") -> list[Value]:
        """Make an exchange; its results without the token."""
        *results, self._token = self._builder.add(op, (*operands, self._token), name)
        return results

    def settle(self) -> None:
        """Have the graph demand that they are made, where there are any."""
        if self._token.const is None:
            self._builder.graph.demand(self._token, EXCHANGE)
