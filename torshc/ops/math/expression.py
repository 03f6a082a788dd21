"""An operator of any scalar expression, which derivatives of pointwise operators are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import F32, DType, Expr, acc, const, substitute
from ..core.base import Inputs
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


def argument(k: int, dtype: DType) -> Expr:
    """What stands for an element of operand k, of a type that is computed with."""
    return acc(f"argument{k}", dtype)


__all__ = ["Expression", "argument"]
