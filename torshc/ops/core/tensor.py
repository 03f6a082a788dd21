"""Tensors with Python's operators, so that an operator that is made of others reads as its formula.

    def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
        return x * sigmoid(x * alpha)

Every operation adds the registered operator of that name to the graph, where types and shapes are checked as for a node
of a model. A Python number becomes a constant of the type of the first tensor. Sizes are no tensors: they stay `Expr`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ...base.errors import ModelError
from ...expr import I64, DType, Expr, as_int, const, select
from ...graph import Builder, Shape, TensorType, Value
from .base import REGISTRY, Op, axis_of
from .source import SourceNode

Operand: TypeAlias = "Tensor | float"
Axes: TypeAlias = "int | Sequence[int]"
OPSET = 20  # whose meaning of ONNX's operators counts where none is stated


class Tensor:
    """A value of a graph, with the builder that adds what is computed from it.

    Of two tensors `equal` gives a tensor; ``==`` and ``if`` are refused, as elements are not known yet.
    """

    __slots__ = ("builder", "value")

    def __init__(self, builder: Builder, value: Value) -> None:
        self.builder = builder
        self.value = value

    def __repr__(self) -> str:
        return f"Tensor({self.type!r})"

    def __bool__(self) -> NoReturn:
        raise TypeError("a tensor is neither true nor false while a graph is built; choose elements with where()")

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("== of tensors; compare elements with equal(), tensors with `is`")

    @property
    def type(self) -> TensorType:
        return self.value.type

    @property
    def dtype(self) -> DType:
        return self.value.dtype

    @property
    def shape(self) -> Shape:
        return self.value.shape

    @property
    def rank(self) -> int:
        return self.value.type.rank

    @property
    def const(self) -> np.ndarray[Any, Any] | None:
        """Its elements where they are known, else None."""
        return self.value.const

    def size(self, axis: int) -> int | None:
        """A dimension, None where it is symbolic."""
        return as_int(self.shape[axis])

    # -- elements ---------------------------------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Tensor:
        return apply_named("Add", self, other)

    def __radd__(self, other: float) -> Tensor:
        return apply_named("Add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return apply_named("Sub", self, other)

    def __rsub__(self, other: float) -> Tensor:
        return apply_named("Sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return apply_named("Mul", self, other)

    def __rmul__(self, other: float) -> Tensor:
        return apply_named("Mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return apply_named("Div", self, other)

    def __rtruediv__(self, other: float) -> Tensor:
        return apply_named("Div", other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return apply_named("MatMul", self, other)

    def __neg__(self) -> Tensor:
        return apply_named("Neg", self)

    def __abs__(self) -> Tensor:
        return apply_named("Abs", self)

    def __lt__(self, other: Operand) -> Tensor:
        return apply_named("Less", self, other)

    def __le__(self, other: Operand) -> Tensor:
        return apply_named("LessOrEqual", self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return apply_named("Greater", self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return apply_named("GreaterOrEqual", self, other)

    def __and__(self, other: Tensor) -> Tensor:
        return apply_named("And", self, other)

    def __or__(self, other: Tensor) -> Tensor:
        return apply_named("Or", self, other)

    def __invert__(self) -> Tensor:
        return apply_named("Not", self)

    def cast(self, dtype: DType) -> Tensor:
        """The tensor itself when it is of that element type already."""
        return self if self.dtype is dtype else apply_named("Cast", self, to=dtype)

    def constant(self, array: np.ndarray[Any, Any] | float) -> Tensor:
        """A constant; a Python number has this tensor's element type and rank 0."""
        return Tensor(self.builder, self.builder.constant(array, self.value))

    def range(self, start: Expr | int, count: Expr | int, dtype: DType = I64) -> Tensor:
        """The vector start, start + 1, ... of `count` elements; of this tensor only the graph counts."""
        op = _operator("Range", start=_expr(start), step=const(1), count=_expr(count), dtype=dtype)
        return Tensor(self.builder, self.builder.one(op))

    def elements(self) -> tuple[Expr, ...] | None:
        """The elements as sizes, of a small tensor that the host program computes; None where it cannot."""
        return self.builder.elements_of(self.value)

    # -- shapes -----------------------------------------------------------------------------------------------------

    def reshape(self, *shape: Expr | int) -> Tensor:
        return apply_named("Reshape", self, shape=tuple(map(_expr, shape)))

    def expand(self, *shape: Expr | int) -> Tensor:
        return apply_named("Expand", self, shape=tuple(map(_expr, shape)))

    def transpose(self, *order: int) -> Tensor:
        return apply_named("Transpose", self, perm=order)

    def part(self, axis: int, start: int, stop: int) -> Tensor:
        """x[..., start:stop, ...] along an axis.

        Raises:
            ModelError: it is known to be shorter; else a run checks that.
        """
        axis = axis_of(axis, self.rank)
        there = self.shape[axis] >= stop
        if there.op != "const":
            self.builder.graph.constraints.append((select(there, const(1), const(0)), const(1)))
        elif not there.data:
            raise ModelError(f"{stop} places along dimension {axis} of {self.type!r}, which is shorter")
        starts = tuple(const(start if k == axis else 0) for k in range(self.rank))
        return self.slice(starts, (*self.shape[:axis], const(stop - start), *self.shape[axis + 1 :]))

    def slice(self, starts: Shape, sizes: Shape) -> Tensor:
        """The box of some sizes from some place on."""
        return apply_named("Slice", self, starts=starts, sizes=sizes, steps=(1,) * self.rank)

    def split(self, axis: int, *sizes: Expr | int) -> list[Tensor]:
        """Parts of these sizes along an axis."""
        return apply_all(_operator("Split", axis=axis_of(axis, self.rank), sizes=tuple(map(_expr, sizes))), self)

    # -- over axes --------------------------------------------------------------------------------------------------

    def mean(self, axes: Axes, keep: bool = True) -> Tensor:
        return self._reduce("Mean", axes, keep)

    def sum(self, axes: Axes, keep: bool = True) -> Tensor:
        return self._reduce("Sum", axes, keep)

    def max(self, axes: Axes, keep: bool = True) -> Tensor:
        return self._reduce("Max", axes, keep)

    def min(self, axes: Axes, keep: bool = True) -> Tensor:
        return self._reduce("Min", axes, keep)

    def softmax(self, axis: int) -> Tensor:
        return apply_named("Softmax", self, axis=axis)

    def _reduce(self, kind: str, axes: Axes, keep: bool) -> Tensor:
        chosen = (axes,) if isinstance(axes, int) else tuple(axes)
        places = tuple(axis_of(a, self.rank) for a in chosen)
        return apply_named(f"Reduce{kind}", self, axes=places, keepdims=keep)


def _expr(size: Expr | int) -> Expr:
    return const(size) if isinstance(size, int) else size


def _operator(name: str, **attributes: Any) -> Op:
    return REGISTRY["", name](**attributes)


def apply_named(name: str, *operands: Operand | None, **attributes: Any) -> Tensor:
    """The first result of ONNX's operator of a name; attributes are the fields of its class."""
    return apply_op(_operator(name, **attributes), *operands)


def apply_op(op: Op, *operands: Operand | None) -> Tensor:
    """The first result of an operator."""
    return apply_all(op, *operands)[0]


def apply_all(op: Op, *operands: Operand | None) -> list[Tensor]:
    """All results of an operator; absent operands behind the last that is there are left out."""
    like = _first(operands)
    values = [v if v is None else _tensor(v, like).value for v in operands]
    return _results(like.builder, like.builder.add(op, _without_tail(values)))


def read_node(kind: str | type[Op], *operands: Tensor | None, opset: int = OPSET, **attributes: Any) -> Tensor:
    """The first result of an operator, by ONNX's name of it, with ONNX's attributes: read as a node of a model is."""
    return read_all(kind, *operands, opset=opset, **attributes)[0]


def read_all(
    kind: str | type[Op], *operands: Tensor | None, opset: int = OPSET, outputs: int = 1, **attributes: Any
) -> list[Tensor]:
    """All results of an operator that is read as :func:`read_node` does; an empty attribute counts as absent."""
    builder, values = _first(operands).builder, _without_tail([None if v is None else v.value for v in operands])
    stated = {k: v for k, v in attributes.items() if v not in ((), "")}
    cls = REGISTRY["", kind] if isinstance(kind, str) else kind
    return _results(builder, cls.read(SourceNode(cls.name, opset, stated, values, outputs, builder)))


def operand(source: SourceNode, k: int) -> Tensor:
    """Operand k of a node.

    Raises:
        ModelError: when it is absent.
    """
    return Tensor(source.builder, source.required(k))


def optional(source: SourceNode, k: int) -> Tensor | None:
    """Operand k of a node, None when it is absent."""
    value = source.input(k)
    return None if value is None else Tensor(source.builder, value)


def _first(operands: Sequence[Operand | None]) -> Tensor:
    for v in operands:
        if isinstance(v, Tensor):
            return v
    raise TypeError("an operator of numbers only; one of its operands has to be a tensor")


def _tensor(v: Operand, like: Tensor) -> Tensor:
    return v if isinstance(v, Tensor) else like.constant(v)


def _without_tail(values: list[Value | None]) -> list[Value | None]:
    """Operands up to the last that is there."""
    while values and values[-1] is None:
        values.pop()
    return values


def _results(builder: Builder, values: Sequence[Value]) -> list[Tensor]:
    return [Tensor(builder, v) for v in values]
