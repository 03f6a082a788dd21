"""Kernels that exchange tensors with other ranks: operands and results lie compact and row-major for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..base.manifest import DLPACK
from ..expr import Expr, as_expr
from ..graph import Value
from ..ops.ranks.collectives import AllReduce, Collective, ReduceScatter
from ..plan.group import Group
from ..plan.storage import Storage
from .base import Buffer, Kernel, Temporary
from .custom import Nests, copy_kernels, in_place
from .heavy import traffic


@dataclass(frozen=True)
class CollectiveKernel(Kernel):
    """An exchange.

    Attributes:
        verb: which function of ``t_ranks.h`` it calls.
        operator: the operator that it computes.
        payload: numbers of the buffers that hold what is sent and what comes, in this order.
        token: number of the buffer of the token that it gives.
        size: bytes of its own part; of what is summed, elements.
        type: DLPack's type code and bits of what is summed; empty where only bytes move.
        numbers: what the function takes beside these.
    """

    kind: ClassVar[str] = "collective"
    template: ClassVar[str] = "collective.c.j2"

    verb: str
    operator: str
    payload: tuple[int, ...]
    token: int
    size: Expr
    type: tuple[int, ...]
    numbers: tuple[int, ...]

    @property
    def collective(self) -> str:
        return self.operator

    @property
    def begins(self) -> bool:
        """Whether other launches may run before it is done, as all ranks take part; messages are waited for."""
        return not self.numbers


def lower_collective(group: Group, storage: Mapping[Value, Storage], nests: Nests) -> list[Kernel]:
    """The exchange, between copies of what does not lie as it has to.

    Args:
        nests: lowers a group of nests on the same target.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, Collective)
    *sent, order = node.operands
    *come, token = node.outputs
    before: list[Kernel] = []
    after: list[Kernel] = []
    buffers: list[Buffer] = []
    for v in sent:
        found = in_place(v, storage)
        if found is None:
            found = Buffer(Temporary("sent", group.id, v.type.nbytes), v.dtype, written=False)
            before += copy_kernels(group, v, None, found, nests)
        buffers.append(found)
    for v in come:
        found = in_place(v, storage) if v in group.outputs else None
        if found is None:
            found = Buffer(Temporary("come", group.id, v.type.nbytes), v.dtype, written=True)
            after += copy_kernels(group, None, v, found, nests) if v in group.outputs else []
        buffers.append(Buffer(found.operand, v.dtype, True, found.start))
    count = len(buffers)
    buffers.append(in_place(order, storage) or Buffer(order, order.dtype, written=False))
    if token in group.outputs:
        found = in_place(token, storage)
        assert found is not None  # of rank 0
        buffers.append(Buffer(found.operand, token.dtype, True, found.start))
    else:
        buffers.append(Buffer(Temporary("token", group.id, token.type.nbytes), token.dtype, written=True))
    summed = isinstance(node.op, AllReduce | ReduceScatter)
    own = come[0] if isinstance(node.op, ReduceScatter) else (sent or come)[0]
    call = CollectiveKernel(
        buffers=tuple(buffers),
        tasks=as_expr(1),
        flops=as_expr(0),
        nbytes=traffic(buffers, node.outputs),
        verb=node.op.verb,
        operator=node.op.name,
        payload=tuple(range(count)),
        token=len(buffers) - 1,
        size=own.type.size if summed else own.type.nbytes,
        type=DLPACK[own.dtype.name] if summed else (),
        numbers=node.op.numbers,
    )
    return [*before, call, *after]
