"""What operators of com.microsoft share: their base class, and short ways to make nodes of ONNX's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import ModelError
from ...expr import BF16, F16, F32, F64, const
from ...graph import Builder, Value
from ..core.base import REGISTRY, Op, axis_of
from ..core.source import SourceNode
from ..tensor.parts import Slice
from ..tensor.view import Transpose

DOMAIN = "com.microsoft"
FLOATS = (F32, F16, BF16, F64)
OPSET = 20  # whose meaning of ONNX's operators counts here
WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")  # attributes of sliding windows


@dataclass(frozen=True)
class Contrib(Op):
    """Base of the operators.

    Class attributes:
        floating: whether operand 0 must be of floats.
        mixed: whether operands of floats may be of different types.
    """

    floating: ClassVar[bool] = True
    mixed: ClassVar[bool] = False

    def make(self, source: SourceNode) -> list[Value]:
        """The outputs, made of other operators."""
        raise NotImplementedError(self.name)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        kinds = {v.dtype.name for v in source.inputs if v is not None and v.dtype.is_float}
        if len(kinds) > 1 and not cls.mixed:
            raise ModelError(f"{source.op_type} of {' and '.join(sorted(kinds))}")
        if cls.floating and source.required(0).dtype not in FLOATS:
            raise ModelError(f"{source.op_type} of {source.required(0).dtype!r}")
        return cls(**source.fields(cls)).make(source)


def node(source: SourceNode, op: str, *inputs: Value | None, opset: int = OPSET, **attributes: Any) -> Value:
    """The first output of an operator of ONNX with ONNX's attributes, read as a node of a model is."""
    operands = list(inputs)
    while operands and operands[-1] is None:
        operands.pop()
    return REGISTRY["", op].read(SourceNode(op, opset, attributes, operands, 1, source.builder))[0]


def given(op: Contrib, *names: str) -> dict[str, Any]:
    """Some of the attributes, without those that are absent."""
    return {name: value for name in names if (value := getattr(op, name)) not in ((), "")}


def channels_first(b: Builder, x: Value) -> Value:
    """x[N, spatial, C] as [N, C, spatial]."""
    return b.one(Transpose((0, x.type.rank - 1, *range(1, x.type.rank - 1))), x)


def channels_last(b: Builder, x: Value) -> Value:
    """x[N, C, spatial] as [N, spatial, C]."""
    return b.one(Transpose((0, *range(2, x.type.rank), 1)), x)


def part(b: Builder, x: Value, axis: int, start: int, stop: int) -> Value:
    """x[..., start:stop, ...] along an axis."""
    axis = axis_of(axis, x.type.rank)
    starts = tuple(const(start if k == axis else 0) for k in range(x.type.rank))
    sizes = tuple(const(stop - start) if k == axis else d for k, d in enumerate(x.shape))
    return b.one(Slice(starts, sizes, (1,) * x.type.rank), x)
