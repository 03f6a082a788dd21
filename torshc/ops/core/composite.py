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

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_args, get_type_hints

from ...base.errors import ModelError
from ...expr import BF16, F16, F32, F64
from ...graph import Builder, Value
from .base import Inputs, Op, operator
from .source import SourceNode
from .tensor import Tensor

FLOATS = (F16, BF16, F32, F64)
Result = Tensor | Sequence[Tensor]
F = TypeVar("F", bound=Callable[..., Result])
C = TypeVar("C", bound=Op)


@dataclass(frozen=True)
class Operands:
    """The positional parameters of a function.

    Attributes:
        optional: of each operand, whether it may be absent.
        rest: whether those that follow may be absent; None where none may follow.
        node: whether the node itself is the first parameter.
    """

    optional: tuple[bool, ...]
    rest: bool | None
    node: bool

    def take(self, source: SourceNode) -> list[Any]:
        """Arguments of the function.

        Raises:
            ModelError: for an operand that is missing or too many.
        """
        most = len(self.optional)
        if len(source.inputs) > most and self.rest is None:
            limit = f"at most {most} input{'s' if most != 1 else ''}"
            raise ModelError(f"{source.op_type} takes {limit}, and {len(source.inputs)} are given")
        optional = [*self.optional, *[bool(self.rest)] * (len(source.inputs) - most)]
        values = [source.input(k) if may else source.required(k) for k, may in enumerate(optional)]
        taken: list[Any] = [None if v is None else Tensor(source.builder, v) for v in values]
        return [source, *taken] if self.node else taken


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
        attributes = source.fields(cls)
        for f in dataclasses.fields(cls):
            if f.default is dataclasses.MISSING and f.name not in attributes:
                raise ModelError(f"{source.op_type} lacks its attribute {f.name!r}")
        operands = cls.operands.take(source)
        kinds = {v.dtype.name for v in source.inputs if v is not None and v.dtype.is_float}
        if len(kinds) > 1 and not cls.mixed:
            raise ModelError(f"{source.op_type} of {' and '.join(sorted(kinds))}")
        if cls.floats and source.required(0).dtype not in FLOATS:
            raise ModelError(f"{source.op_type} of {source.required(0).dtype!r}")
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


def class_of(function: Callable[..., Any], name: str, base: type[C], **members: Any) -> type[C]:
    """The class of an operator that a function's signature declares.

    Args:
        base: what it derives from; has `function` and `operands`.
        members: further members of the class.
    """
    operands, attributes = _signature(function)
    space = {
        "__doc__": function.__doc__, "__module__": function.__module__, "function": staticmethod(function),
        "operands": operands, **members,
    }  # fmt: skip
    return dataclasses.make_dataclass(name, attributes, bases=(base,), namespace=space, frozen=True, kw_only=True)


def _signature(function: Callable[..., Result]) -> tuple[Operands, list[tuple[str, Any, Any]]]:
    """The operands and attributes that a function's parameters stand for."""
    hints, optional, rest, node = get_type_hints(function), [], None, False
    attributes: list[tuple[str, Any, Any]] = []
    for name, p in inspect.signature(function).parameters.items():
        kind = hints.get(name, type(p.default))
        may_lack = p.default is None or type(None) in get_args(kind)
        if p.kind is p.VAR_KEYWORD:
            (window,) = get_args(hints[name])
            attributes += [(key, each, dataclasses.field(default=None)) for key, each in get_type_hints(window).items()]
        elif p.kind is p.KEYWORD_ONLY:
            if p.default is p.empty and name not in hints:
                raise TypeError(f"attribute {name!r} of {function.__name__}() has neither a type nor a default")
            default = {} if p.default is p.empty else {"default": p.default}
            attributes.append((name, kind, dataclasses.field(**default)))
        elif p.kind is p.VAR_POSITIONAL:
            rest = may_lack
        elif kind is SourceNode:
            node = True
        else:
            optional.append(may_lack)
    return Operands(tuple(optional), rest, node), attributes
