"""Operators of the host that eliminate the rows of a matrix: determinants of any size, inverses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import F32, F64
from ...graph import Partial, Shape, Value
from ..core.axes import constraints_of
from ..core.base import same_dim
from ..core.host import HostOp, emit
from ..core.source import SourceNode
from ..core.tensor import Tensor, operand


@dataclass(frozen=True)
class Elimination(HostOp):
    """Base of the operators: computed in f64, with the largest pivot of each column."""

    file: ClassVar[str] = "t_op_matrix.c"


@dataclass(frozen=True)
class Determinant(Elimination):
    """The determinants of x[..., N, N], of shape [...]; 1 where N is 0."""

    name: ClassVar[str] = "Determinant"
    domain: ClassVar[str] = "torshc"
    function: ClassVar[str] = "t_op_determinant"


def eliminated(source: SourceNode, op: Elimination, shape: Shape) -> Value:
    """The result of an elimination of operand 0, of this shape.

    Raises:
        ModelError: the operand holds no square matrices of floats.
    """
    x = operand(source, 0)
    if not x.dtype.is_float or x.dtype.is_narrow or x.rank < 2:
        raise ModelError(f"{source.op_type} of {x.type!r}, which is not a matrix of floats")
    same_dim(x.shape[-1], x.shape[-2], constraints_of(source), f"{source.op_type} of {x.type!r}")
    wide = x.cast(F64 if x.dtype is F64 else F32)
    found = emit(source, op, [wide.value], Partial(wide.dtype, tuple(shape)))[0]
    return Tensor(source.builder, found).cast(x.dtype).value
