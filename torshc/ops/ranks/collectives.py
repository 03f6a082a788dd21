"""Exchanges between ranks: what one process sends to another, and what all of them do together.

No model names these operators: cutting a graph into ranks makes them (``torshc.sharding``). Every rank must make its
exchanges in one order, so each takes a token from the one before it and gives one to the next: a boolean of rank 0 that
is false. It makes the order a matter of operands, which no pass changes, and keeps alive what only sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import BOOL, DTYPES, F32, F64, I32, I64, const
from ...graph import Shape, TensorType
from ..core.base import Constraints, Inputs, Op, need, operator

TOKEN = TensorType(BOOL, ())
SUMMED = (F32, F64, I32, I64)  # element types that sums over ranks have


@dataclass(frozen=True)
class Collective(Op):
    """Base of the exchanges; the last operand and the last result are tokens.

    Class attributes:
        verb: what the C function is called.
    """

    family: ClassVar[str] = "collective"
    epilogue: ClassVar[bool] = False
    verb: ClassVar[str] = ""

    @property
    def numbers(self) -> tuple[int, ...]:
        """What the C function takes beside operands and results."""
        return ()


@operator(domain="torshc")
@dataclass(frozen=True)
class Send(Collective):
    """Operand 0 goes to another rank; no result but the token.

    Attributes:
        peer: the rank that it goes to.
        tag: what tells it from other messages between the two.
    """

    verb: ClassVar[str] = "send"

    peer: int
    tag: int

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TOKEN]

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.peer, self.tag


@operator(domain="torshc")
@dataclass(frozen=True)
class Recv(Collective):
    """A tensor that another rank sends; the token is its only operand.

    Attributes:
        peer, tag: as of `Send`.
        dtype: short name of its element type.
        shape: its dimensions.
    """

    verb: ClassVar[str] = "receive"

    peer: int
    tag: int
    dtype: str
    shape: Shape

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(DTYPES[self.dtype], self.shape), TOKEN]

    @property
    def numbers(self) -> tuple[int, ...]:
        return self.peer, self.tag


@operator(domain="torshc")
@dataclass(frozen=True)
class AllReduce(Collective):
    """The sum of operand 0 over all ranks, on each of them; of an element type in `SUMMED`."""

    verb: ClassVar[str] = "all_reduce"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [need(inputs[0], "a summand").type, TOKEN]


@operator(domain="torshc")
@dataclass(frozen=True)
class AllGather(Collective):
    """Operand 0 of all ranks behind each other along a new first dimension.

    Attributes:
        ranks: how many there are.
    """

    verb: ClassVar[str] = "all_gather"

    ranks: int

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "a part").type
        return [TensorType(x.dtype, (const(self.ranks), *x.shape)), TOKEN]


@operator(domain="torshc")
@dataclass(frozen=True)
class ReduceScatter(Collective):
    """The sum of operand 0 over all ranks, of which each gets its part: that of its number along dimension 0.

    Attributes:
        ranks: how many there are, which is how long dimension 0 is; the result lacks it.
    """

    verb: ClassVar[str] = "reduce_scatter"

    ranks: int

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "summands").type
        return [TensorType(x.dtype, x.shape[1:]), TOKEN]
