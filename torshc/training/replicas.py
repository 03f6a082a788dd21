"""A step that several ranks make together: each has a part of the batch, and all have the same weights.

What ranks add up (gradients, the loss, statistics of batches) is exchanged while the other gradients are computed: in
buckets, each begun when all of it is there, as DistributedDataParallel does (Li and others, "PyTorch Distributed", VLDB
2020, section 3.2). Bytes and the graph's order say what is in a bucket, so that sums have the same bits in every run.

Where what the optimizer keeps is shared too, each rank gets its part of the mean of a gradient, updates its part of the
weight, and all get the whole again: stage 1 of ZeRO (Rajbhandari and others 2020, section 5). A part is a range of a
weight's elements, all as long; a weight of a number of elements that ranks do not divide is updated whole by each.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import numpy as np

from ..expr import DType, as_int
from ..graph import Builder, Value
from ..ops.core.functions import concat
from ..ops.core.tensor import Tensor
from ..ops.ranks.chain import Chain
from ..ops.ranks.collectives import AllGather, AllReduce, ReduceScatter
from ..ops.tensor.random import salt

LANES = 16  # elements of a vector
BUCKET = 1 << 20  # bytes with which a bucket is full; a tensor of as many is exchanged by itself, without a copy


class Replicas:
    """The exchanges of one rank's step; none where there is one rank.

    A loss is a mean over the batch, so the mean over ranks, whose parts are equally long, is that of the whole batch.

    Args:
        builder: builder of the step's graph.
        rank, ranks: which of how many this is.
        shared: whether each keeps its part of what the optimizer keeps.
    """

    def __init__(self, builder: Builder, rank: int, ranks: int, shared: bool = False) -> None:
        self._builder, self._rank, self._count, self._shared = builder, rank, ranks, shared
        self._chain = Chain(builder)
        if ranks > 1:
            builder.graph.rank, builder.graph.ranks = rank, ranks

    def totals(self, gradients: Mapping[str, Value], others: Mapping[str, Value]) -> dict[str, Tensor]:
        """Sums over ranks, by name, exchanged in the order in which summands are computed; of one rank its own.

        Args:
            gradients: for weights that are shared, this rank's part of the sum, a vector.
        """
        values = {**others, **gradients}
        if self._count == 1:
            return {name: Tensor(self._builder, v) for name, v in values.items()}
        place = {v: k for k, node in enumerate(self._builder.graph.nodes) for v in node.outputs}
        found, buckets = dict[str, Tensor](), dict[tuple[bool, DType], dict[str, Value]]()
        for name, v in sorted(values.items(), key=lambda item: place.get(item[1], -1)):
            kind = name in gradients and self.shares(v), v.dtype
            bucket = {name: v} if _bytes(v) >= BUCKET else {**buckets.pop(kind, {}), name: v}
            if sum(map(_bytes, bucket.values())) >= BUCKET:
                found |= self._add_up(bucket, kind[0])
            else:
                buckets[kind] = bucket
        for kind, bucket in buckets.items():
            found |= self._add_up(bucket, kind[0])
        return found

    def mean(self, total: Tensor) -> Value:
        """The mean of which this is the sum over ranks."""
        return (total * (1 / self._count)).value if self._count > 1 else total.value

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

    def _add_up(self, bucket: Mapping[str, Value], shared: bool) -> dict[str, Tensor]:
        """What becomes of a bucket's tensors, by one exchange; of what is shared the parts are beside each other."""
        # Behind a few numbers too many no vector would be where processors and cards like it.
        bucket = dict(sorted(bucket.items(), key=lambda item: (as_int(item[1].type.size) or 0) % LANES > 0))
        op, more, first = ReduceScatter(self._count) if shared else AllReduce(), len(bucket) - 1, next(iter(bucket))
        rows = [self._rows(v) if shared else Tensor(self._builder, v) for v in bucket.values()]
        if more:
            rows = [row if shared else row.reshape(row.value.type.size) for row in rows]
        sent = concat(*rows, axis=int(shared)) if more else rows[0]
        (found,) = self._chain.add(op, sent.value, name=f"{first} and {more} more" if more else first)
        total = Tensor(self._builder, found)
        if not more:
            return {first: total}
        ends = [0, *accumulate(as_int(row.shape[-1]) or 0 for row in rows)]
        parts = {name: total.part(0, *ends[k : k + 2]) for k, name in enumerate(bucket)}
        return parts if shared else {name: parts[name].reshape(*v.shape) for name, v in bucket.items()}

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


def _bytes(v: Value) -> int:
    return as_int(v.type.nbytes) or 0
