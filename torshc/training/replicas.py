"""A step that several ranks make together: each has a part of the batch, and all have the same weights.

Where what the optimizer keeps is shared too, each rank gets its part of the mean of a gradient, updates its part of the
weight, and all get the whole again: stage 1 of ZeRO (Rajbhandari and others 2020, section 5). A part is a range of a
weight's elements, all as long; a weight of a number of elements that ranks do not divide is updated whole by each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..expr import as_int
from ..graph import Builder, Value
from ..ops.core.tensor import Tensor
from ..ops.ranks.chain import Chain
from ..ops.ranks.collectives import AllGather, AllReduce, ReduceScatter
from ..ops.tensor.random import salt


class Replicas:
    """The exchanges of one rank's step; none where there is one rank.

    A loss is a mean over the batch, so the mean over ranks, whose parts are equally long, is that of the whole batch.

    Args:
        builder: of the step's graph.
        rank, ranks: which of how many this is.
        shared: whether each keeps its part of what the optimizer keeps.
    """

    def __init__(self, builder: Builder, rank: int, ranks: int, shared: bool = False) -> None:
        self._builder, self._rank, self._count, self._shared = builder, rank, ranks, shared
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
        """Means over ranks, exchanged in the order in which gradients are computed: each as soon as it is there.

        Of what is shared this rank's part of the mean, a vector.
        """
        place = {v: k for k, node in enumerate(self._builder.graph.nodes) for v in node.outputs}
        order = sorted(range(len(gradients)), key=lambda k: place.get(gradients[k], -1))
        found = {k: self._part_of_mean(gradients[k], names[k]) for k in order}
        return [found[k] for k in range(len(gradients))]

    def shares(self, v: Value) -> bool:
        """Whether ranks share what the optimizer keeps of a weight, a part of its elements each."""
        size = as_int(v.type.size) or 0
        return self._shared and size > 0 and size % self._count == 0

    def part(self, v: Value) -> Value:
        """This rank's part of a weight, where it is shared, a vector; else all of it."""
        return self._rows(v).part(0, self._rank, self._rank + 1).reshape(self._each(v)).value if self.shares(v) else v

    def whole(self, part: Value, v: Value) -> Value:
        """A tensor like `v` of the parts that ranks have of it."""
        if not self.shares(v):
            return part
        (found,) = self._chain.add(AllGather(self._count), part, name=v.name)
        return Tensor(self._builder, found).reshape(*v.shape).value

    def squares(self, part: Tensor, v: Value) -> Tensor:
        """What a rank adds to the sum over ranks of the squares of a tensor like `v`, of which this is its part."""
        own = (part * part).sum(range(part.rank), keep=False)
        return own if self.shares(v) or not self._shared else own * (1 / self._count)

    def sum(self, x: Tensor) -> Tensor:
        """The sum over ranks of what each computes of its parts; without parts the number itself."""
        return Tensor(self._builder, self._chain.add(AllReduce(), x.value, name="norm")[0]) if self._shared else x

    def _part_of_mean(self, v: Value, name: str) -> Value:
        if not self.shares(v):
            return self.mean(v, name)
        (total,) = self._chain.add(ReduceScatter(self._count), self._rows(v).value, name=name)
        return (Tensor(self._builder, total) * (1 / self._count)).value

    def _rows(self, v: Value) -> Tensor:
        """A tensor as a matrix with a row for each rank."""
        return Tensor(self._builder, v).reshape(self._count, self._each(v))

    def _each(self, v: Value) -> int:
        return (as_int(v.type.size) or 0) // self._count

    def salt_draws(self) -> None:
        """Have ranks draw different numbers, as each has other examples."""
        if self._count > 1:
            salt(self._builder.graph.nodes, self._builder.constant(np.array(self._rank)))

    def settle(self) -> None:
        """Have the step demand its exchanges."""
        self._chain.settle()
