"""A step that several ranks make together: each has a part of the batch, and all have the same weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Builder, Value
from ..ops.core.tensor import Tensor
from ..ops.ranks.chain import Chain
from ..ops.ranks.collectives import AllReduce
from ..ops.tensor.random import salt


class Replicas:
    """The exchanges of one rank's step; none where there is one rank.

    A loss is a mean over the batch, so the mean over ranks, whose parts are equally long, is that of the whole batch.

    Args:
        builder: of the step's graph.
        rank, ranks: which of how many this is.
    """

    def __init__(self, builder: Builder, rank: int, ranks: int) -> None:
        self._builder, self._rank, self._count = builder, rank, ranks
        self._chain = Chain(builder)
        if ranks > 1:
            builder.graph.rank, builder.graph.ranks = rank, ranks

    def mean(self, v: Value, name: str) -> Value:
        """The mean over ranks."""
        if self._count == 1:
            return v
        (total,) = self._chain.add(AllReduce(), v, name=name)
        return (Tensor(self._builder, total) * (1 / self._count)).value

    def means(self, gradients: Sequence[Value], names: Sequence[str]) -> list[Value]:
        """Means over ranks, exchanged in the order in which gradients are computed: each as soon as it is there."""
        place = {v: k for k, node in enumerate(self._builder.graph.nodes) for v in node.outputs}
        order = sorted(range(len(gradients)), key=lambda k: place.get(gradients[k], -1))
        found = {k: self.mean(gradients[k], names[k]) for k in order}
        return [found[k] for k in range(len(gradients))]

    def salt_draws(self) -> None:
        """Have ranks draw different numbers, as each has other examples."""
        if self._count > 1:
            salt(self._builder.graph.nodes, self._builder.constant(np.array(self._rank)))

    def settle(self) -> None:
        """Have the step demand its exchanges."""
        self._chain.settle()
