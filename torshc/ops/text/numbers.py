"""Numbers as text and back: the casts to and from strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import BF16, BOOL, STRING, DType
from ...graph import Partial, Value
from ..core.host import HostOp, emit
from ..core.source import SourceNode


@dataclass(frozen=True)
class ToText(HostOp):
    """Text of numbers: "True", "-12", "0.1", "inf", "-inf", "nan".

    Floats have the fewest digits that identify them in their type, always with a point or an exponent: plain
    from 0.0001 up to below 1e16, "1e-05" and "1e+16" elsewhere. (What ONNX leaves open is done here as by NumPy before
    2.4, which since then writes f32 from a million on, and f16 from a thousand on, with an exponent.)
    """

    name: ClassVar[str] = "ToText"
    domain: ClassVar[str] = "torshc"
    function: ClassVar[str] = "t_op_text_from"
    file: ClassVar[str] = "t_op_number.c"


@dataclass(frozen=True)
class FromText(HostOp):
    """Numbers that text spells, in decimal, with spaces around them at most; "inf", "infinity" and "nan" in any case.

    Floats are the nearest to the number, ties to even. To integers, what follows the point is dropped. To
    bools, 0 is false and all else true, as are "false" and "true". What is not a number
    of the result's type is an error of the run (TORSHC_E_VALUE).
    """

    name: ClassVar[str] = "FromText"
    domain: ClassVar[str] = "torshc"
    function: ClassVar[str] = "t_op_text_to"
    file: ClassVar[str] = "t_op_number.c"
    to: DType = BOOL

    def integers(self) -> tuple[int, ...]:
        code = 4 if self.to is BF16 else {"i": 0, "u": 1, "f": 2, "b": 6}[self.to.kind]
        return code, 8 * self.to.size


def cast_text(source: SourceNode, x: Value, to: DType) -> list[Value]:
    """A cast of which one side is text, neither of the narrow types.

    Raises:
        ModelError: for sequences and similar types.
    """
    if to is STRING and x.dtype is STRING:
        return [x]
    if to is STRING and not x.dtype.is_object:
        return emit(source, ToText(), [x], Partial(STRING, x.shape))
    if x.dtype is not STRING or to.is_object:
        raise ModelError(f"{source.op_type} of {x.dtype!r} to {to!r}, where only strings become numbers")
    return emit(source, FromText(to), [x], Partial(to, x.shape))
