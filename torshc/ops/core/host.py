"""Operators of the host: what no loop nest computes, because the size of the result depends on data.

    NonZero(x) -> as many columns as x has elements that are not 0

Such an operator is a C function of ``templates/c/values/t_op_*.c`` over values that know their own shapes
(``templates/c/values/t_value.h``). It stands between the fused kernels and ends a fusion.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...graph import Partial, TensorType, Value
from .base import Constraints, Inputs, Op
from .source import SourceNode, Unsupported


@dataclass(frozen=True)
class HostOp(Op):
    """Base of the operators of the host.

    Class attributes:
        function: name of its C function, a ``t_operator``.
        file: the source of ``templates/c`` that defines it.
    """

    family: ClassVar[str] = "host"
    objects: ClassVar[bool] = True
    function: ClassVar[str] = ""
    file: ClassVar[str] = ""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        raise ModelError(f"{self.name} has types known only at run time")

    def integers(self) -> tuple[int, ...]:
        """What the C function gets as its `n`."""
        return ()


def emit(source: SourceNode, op: HostOp, inputs: Inputs, *outputs: Partial) -> list[Value]:
    """Add an operator of the host with outputs of these types."""
    return source.builder.host_op(op, list(inputs), outputs)


def ranked(partial: Partial | None, what: str) -> Partial:
    """What a sequence or an optional holds, when its rank is known.

    Raises:
        Unsupported: when it is not, or nothing was put into it.
    """
    if partial is None or partial.dims is None:
        raise Unsupported(f"{what} of unknown rank")
    return partial
