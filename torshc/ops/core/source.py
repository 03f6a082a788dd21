"""A node as the front ends hand it to the operators: attributes by name, operands as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ...base.errors import ModelError, did_you_mean
from ...expr import I64, Expr, cast, without_wraps
from ...graph import Builder, Value

if TYPE_CHECKING:
    from .base import Op


class Unsupported(Exception):
    """A node asks for something torshc cannot do; the front end gathers these into one message."""


def text_of(value: Any, what: str) -> str:
    """An attribute of text, as text.

    Raises:
        ModelError: when its bytes are no UTF-8, or it holds half a surrogate pair.
    """
    try:
        text = value.decode() if isinstance(value, bytes) else str(value)
        text.encode()
    except UnicodeError as e:
        raise ModelError(f"{what} is not UTF-8: {e}") from e
    return text


@dataclass
class SourceNode:
    """A node of a model before it becomes an operator.

    Attributes:
        op_type: ONNX's name of the operator.
        opset: version of its domain.
        attributes: values by name; int, float, str, bytes-free, tuples of them, numpy arrays, or sub-graphs.
        inputs: operands; None where an optional one is absent. Trailing absent ones are dropped.
        outputs: number of outputs that the model names (an unused optional one in the middle counts).
        builder: where operators are added.
        stated_rank: rank of the first output, where the model states it.
        apply: for functions of users: adds a node of an operator, by domain and name in snake case, from operands
            (values, numbers, lists, arrays), attributes and the number of its results, 0 for those that it always has.
        note: for functions of users: says that the model holds an operator.
    """

    op_type: str
    opset: int
    attributes: Mapping[str, Any]
    inputs: list[Value | None]
    outputs: int
    builder: Builder
    used: set[str] = field(default_factory=set)
    stated_rank: int | None = None
    apply: Callable[[str, str, Sequence[Any], Mapping[str, Any], int], Sequence[Value]] | None = None
    note: Callable[[type[Op]], None] | None = None

    def emit(self, op: Op, inputs: Sequence[Value | None]) -> list[Value]:
        """Add an operator and return its outputs."""
        return self.builder.add(op, inputs)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value, or the default."""
        self.used.add(name)
        return self.attributes.get(name, default)

    def fields(self, cls: type[Op]) -> dict[str, Any]:
        """The attributes that are fields of an operator class. Floats have 32 bits in ONNX, so do those by default.

        Raises:
            ModelError: for an attribute that the operator does not have.
        """
        known = {f.name for f in dataclasses.fields(cls)}
        for name in self.attributes:
            if name not in known and name not in self.used:
                raise ModelError(f"{self.op_type} has no attribute {name!r}{did_you_mean(name, sorted(known))}")
        plain = {f.name: float(np.float32(f.default)) for f in dataclasses.fields(cls) if isinstance(f.default, float)}
        return plain | {k: v for k, v in self.attributes.items() if k in known}

    def input(self, k: int) -> Value | None:
        """Input k, or None when absent."""
        return self.inputs[k] if k < len(self.inputs) else None

    def required(self, k: int) -> Value:
        """Input k.

        Raises:
            ModelError: when it is absent.
        """
        value = self.input(k)
        if value is None:
            raise ModelError(f"{self.op_type} needs input {k}")
        return value

    def array(self, k: int, what: str) -> np.ndarray[Any, Any] | None:
        """Input k as an array known at compile time, None when absent.

        Raises:
            Unsupported: when it is known only at run time.
        """
        value = self.input(k)
        if value is None:
            return None
        if value.const is not None:
            return value.const
        if value.data is None or any(e.op != "const" for e in value.data):
            raise Unsupported(f"{what} is known only at run time")
        shape = value.type.static_shape
        return np.asarray([e.data for e in value.data], dtype=value.dtype.numpy).reshape(shape or ())

    def dims(self, k: int, what: str, clamped: bool = False) -> tuple[Expr, ...] | None:
        """The elements of input k as i64 expressions (a shape, starts, repeats), None when absent.

        A run checks that none of the narrower integers that exporters compute sizes with has wrapped.

        Args:
            clamped: an element that does not fit 32 bits at run time counts as the largest of them.

        Raises:
            Unsupported: when not even their number is known.
        """
        value = self.input(k)
        if value is None:
            return None
        data = self.builder.elements_of(value, clamped)
        if data is None:
            raise Unsupported(f"{what} is {value.type!r}: how many there are is known only at run time")
        found = [without_wraps(cast(e, I64)) for e in data]
        self.builder.graph.constraints += [pair for _, pairs in found for pair in pairs]
        return tuple(e for e, _ in found)

    def ints(self, k: int, what: str) -> tuple[int, ...] | None:
        """The elements of input k as integers, None when absent.

        Raises:
            Unsupported: when they are known only at run time, or depend on a symbolic dimension.
        """
        array = self.array(k, what)
        return None if array is None else tuple(int(v) for v in array.reshape(-1))

    def axes(self, k: int = 1, name: str = "axes") -> tuple[int, ...] | None:
        """Axes from the attribute (older opsets) or from input k (newer ones); None when neither is there."""
        given = self.attribute(name)
        return tuple(int(a) for a in given) if given is not None else self.ints(k, name)
