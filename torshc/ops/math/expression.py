"""Operators of any scalar expression, which gradients of pointwise operators and of loop nests are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import F32, DType, Expr, acc, const, rebuild, substitute
from ...graph import Node, TensorType
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read
from ..core.pointwise import Pointwise
from ..core.scalar import Scalar

_NOTHING = const(0.0)


@dataclass(frozen=True)
class Expression(Pointwise):
    """A scalar expression of an element of each operand; no model names it.

    Attributes:
        of: over `argument(0, ...)`, `argument(1, ...)` and so on.
        to: element type of the result.
    """

    name: ClassVar[str] = "Expression"
    domain: ClassVar[str] = "torshc"
    of: Expr = _NOTHING
    to: DType = F32

    def body(self, *xs: Scalar) -> Scalar:
        return Scalar(substitute(self.of, {argument(k, x.dtype): x.expr for k, x in enumerate(xs)}))

    def result(self, inputs: Inputs) -> DType:
        return self.to


@dataclass(frozen=True)
class Loops(Op):
    """A scalar expression of elements that operands hold anywhere, for each turn of some loops; no model names it.

    Attributes:
        of: over the axes and over loads, whose keys are the numbers of operands.
        axes: loops of the result, outermost first.
        inner: loops that it is summed over.
        to: element type of the result.
    """

    name: ClassVar[str] = "Loops"
    domain: ClassVar[str] = "torshc"
    family: ClassVar[str] = "nest"
    of: Expr = _NOTHING
    axes: tuple[Expr, ...] = ()
    inner: tuple[Expr, ...] = ()
    to: DType = F32

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(self.to, tuple(a.args[0] for a in self.axes))]

    def nest(self, node: Node, output: int) -> LoopNest:
        def body(at: Index, inner: Index, read: Read) -> Scalar:
            places = dict(zip((*self.axes, *self.inner), (*at, *inner), strict=True))

            def placed(e: Expr) -> Expr | None:
                if e.op == "load":
                    assert isinstance(e.data, int)
                    return read(e.data, tuple(rebuild(i, placed) for i in e.args)).expr
                return places.get(e)

            return Scalar(rebuild(self.of, placed))

        return LoopNest(body, tuple(a.args[0] for a in self.inner), "add" if self.inner else "")


def argument(k: int, dtype: DType) -> Expr:
    """What stands for an element of operand k, of a type that is computed with."""
    return acc(f"argument{k}", dtype)


__all__ = ["Expression", "Loops", "argument"]
