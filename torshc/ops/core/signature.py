"""What the signature of a function says of the operator that it computes: operands and attributes."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_type_hints

from ...base.errors import ModelError
from ...graph import Value
from .base import Op
from .source import SourceNode

C = TypeVar("C", bound=Op)


@dataclass(frozen=True)
class Operands:
    """The positional parameters of a function.

    Attributes:
        optional: for each operand, whether it may be absent.
        rest: whether those that follow may be absent; None where none may follow.
        node: whether the node itself is the first parameter.
    """

    optional: tuple[bool, ...]
    rest: bool | None
    node: bool

    def values(self, source: SourceNode) -> list[Value | None]:
        """The operands of a node.

        Raises:
            ModelError: for an operand that is missing or too many.
        """
        most = len(self.optional)
        if len(source.inputs) > most and self.rest is None:
            limit = f"at most {most} input{'s' if most != 1 else ''}"
            raise ModelError(f"{source.op_type} takes {limit}, and {len(source.inputs)} are given")
        optional = [*self.optional, *[bool(self.rest)] * (len(source.inputs) - most)]
        return [source.input(k) if may else source.required(k) for k, may in enumerate(optional)]


def attributes_of(source: SourceNode, cls: type[Op]) -> dict[str, Any]:
    """The attributes of a node that are fields of an operator's class.

    Raises:
        ModelError: for one that it does not have, or lacks.
    """
    attributes = source.fields(cls)
    for f in dataclasses.fields(cls):
        if f.default is dataclasses.MISSING and f.name not in attributes:
            raise ModelError(f"{source.op_type} lacks its attribute {f.name!r}")
    return attributes


def class_of(python: Callable[..., Any], name: str, base: type[C], **members: Any) -> type[C]:
    """The class of an operator that a function's signature declares.

    Args:
        base: what it derives from; has `function` and `operands`.
        members: further members of the class.
    """
    operands, attributes = _signature(python)
    space = {
        "__doc__": python.__doc__, "__module__": python.__module__, "function": staticmethod(python),
        "operands": operands, **members,
    }  # fmt: skip
    if not attributes:  # a dataclass would add nothing, and takes a millisecond to make
        return type(name, (base,), space)
    return dataclasses.make_dataclass(name, attributes, bases=(base,), namespace=space, frozen=True, kw_only=True)


def _signature(function: Callable[..., Any]) -> tuple[Operands, list[tuple[str, Any, Any]]]:
    """The operands and attributes that a function's parameters stand for; these as fields of a dataclass."""
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
