"""Operators that are functions over tensors: the decorator `composite`.

    @composite("FastGelu", "com.microsoft")
    def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
        return gelu(x if bias is None else x + bias, approximate="tanh")

The signature says what a node may have:

* positional parameters are operands, optional where they may be None; ``*xs`` takes any number of them;
* keyword-only parameters are attributes, with type and default; a node must have those without a default;
* ``**window: Unpack[Window]``, of a TypedDict, takes attributes of which only those arrive that a node has;
* a parameter annotated `SourceNode` is the node, for what nothing else tells: its opset, the number of its outputs,
  operands that must be known.

The function stays what it is, so that others may call it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ...base.errors import ModelError
from ...expr import BF16, F16, F32, F64
from ...graph import Builder, Value
from .base import Inputs, Op, operator
from .signature import Operands, attributes_of, class_of
from .source import SourceNode
from .tensor import Tensor

FLOATS = (F16, BF16, F32, F64)
Result = Tensor | Sequence[Tensor]
F = TypeVar("F", bound=Callable[..., Result])


@dataclass(frozen=True)
class Composite(Op):
    """Base of the operators that are functions; their fields are the function's attributes.

    Class attributes:
        function: makes the results.
        operands: what it takes.
        floats: whether operand 0 must be of floats.
        mixed: whether operands of floats may be of different types.
    """

    function: ClassVar[Callable[..., Result]]
    operands: ClassVar[Operands]
    floats: ClassVar[bool] = True
    mixed: ClassVar[bool] = False

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        attributes = attributes_of(source, cls)
        values = cls.operands.values(source)
        operands: list[Any] = [None if v is None else Tensor(source.builder, v) for v in values]
        if cls.operands.node:
            operands.insert(0, source)
        kinds = {v.dtype.name for v in source.inputs if v is not None and v.dtype.is_float}
        if len(kinds) > 1 and not cls.mixed:
            raise ModelError(f"{source.op_type} of {' and '.join(sorted(kinds))}, which have to be of one type")
        if cls.floats and source.required(0).dtype not in FLOATS:
            raise ModelError(f"{source.op_type} of {source.required(0).dtype!r}, where floats are needed")
        return _values(cls.function(*operands, **attributes))


@dataclass(frozen=True)
class Formula(Op):
    """Base of the operators that passes see as one, and take apart by a formula over tensors.

    Class attributes:
        formula: a method that makes the results of the operands.
    """

    family: ClassVar[str] = "composite"
    formula: ClassVar[Callable[..., Result]]

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        return _values(self.formula(*(None if v is None else Tensor(b, v) for v in inputs)))


def _values(made: Result) -> list[Value]:
    results = [made] if isinstance(made, Tensor) else made
    if not isinstance(results, list | tuple) or not all(isinstance(t, Tensor) for t in results):
        raise TypeError(f"the result is {made!r}, where a tensor or a list of tensors has to be")
    return [t.value for t in results]


def composite(name: str, domain: str = "", *, floats: bool = True, mixed: bool = False) -> Callable[[F], F]:
    """Function decorator: register the operator that a function over tensors computes.

    Args:
        floats, mixed: as of :class:`Composite`.
    """

    def register(function: F) -> F:
        operator(name, domain)(class_of(function, name, Composite, floats=floats, mixed=mixed))
        return function

    return register
