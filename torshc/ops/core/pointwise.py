"""Operators of which an element of the result is a formula of one element of each operand: the decorator `pointwise`.

    @pointwise("LeakyRelu")
    def leaky_relu(x: Scalar, *, alpha: float = 0.01) -> Scalar:
        return where(x < 0, x * alpha, x)

Operands broadcast as NumPy's do. Positional parameters are operands, keyword-only ones attributes, as of a function
over tensors (:mod:`.composite`). Called with elements the function computes an element; called with tensors it adds the
operator to their graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Protocol, overload

from ...base.errors import ModelError
from ...expr import DType, Expr, acc
from ...graph import Node, TensorType, Value
from .base import Constraints, Index, Inputs, LoopNest, Op, Read, broadcast, broadcast_index, need, operator
from .scalar import Scalar, element
from .signature import Operands, attributes_of, class_of
from .source import SourceNode
from .tensor import Operand, Tensor, apply_op


class Function(Protocol):
    """An operator as a function of tensors and, where it is pointwise, of elements."""

    @overload
    def __call__(self, x: Scalar, *others: Scalar | float, **attributes: Any) -> Scalar: ...

    @overload
    def __call__(self, *operands: Operand | None, **attributes: Any) -> Tensor: ...


def compute(dtype: DType) -> DType:
    """The type that arithmetic happens in: f16, bf16 and narrower floats are read as f32."""
    return dtype.register


@dataclass(frozen=True)
class Pointwise(Op):
    """Base: subclasses give ``body``, and ``result`` where the output's dtype is not the first operand's."""

    family: ClassVar[str] = "pointwise"

    def body(self, *xs: Scalar) -> Scalar:
        raise NotImplementedError(self.name)

    def expression(self, *xs: Expr) -> Expr:
        """The body over expressions."""
        return self.body(*map(Scalar, xs)).expr

    def result(self, inputs: Inputs) -> DType:
        """Element type of the output: that of the first operand which is computed with in the body's type (so that f16
        stays f16), else the body's own, such as bool for a comparison."""
        present = tuple(need(v, f"input {k} of {self.name}").dtype for k, v in enumerate(inputs))
        made = _type_of(self, tuple(map(compute, present)))
        return next((d for d in present if compute(d) is made), made)

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        present = [need(v, f"input {k} of {self.name}") for k, v in enumerate(inputs or (None,))]
        try:
            dtype = self.result(inputs)
        except TypeError as e:
            shown = " and ".join(repr(v.type) for v in present)
            differ = len({compute(v.dtype) for v in present}) > 1
            message = f"{self.name} of different types, {shown}" if differ else f"{self.name} of {shown}: {e}"
            raise ModelError(message) from e
        return [TensorType(dtype, broadcast([v.shape for v in present], constraints))]

    def nest(self, node: Node, output: int) -> LoopNest:
        shapes = [v.shape for v in node.operands]

        def body(at: Index, _: Index, read: Read) -> Scalar:
            return self.body(*(read(k, broadcast_index(at, s)) for k, s in enumerate(shapes)))

        return LoopNest(body)


@lru_cache(maxsize=1024)
def _type_of(op: Pointwise, operands: tuple[DType, ...]) -> DType:
    """The type of an operator's body over elements of these types, which a model asks for at each of its nodes."""
    return op.expression(*(acc(f"x{k}", d) for k, d in enumerate(operands))).dtype


@dataclass(frozen=True)
class PointwiseFunction(Pointwise):
    """Base of the operators that are functions over elements; their fields are the function's attributes.

    Class attributes:
        function: computes an element of the result.
        operands: what it takes.
    """

    function: ClassVar[Callable[..., Scalar]]
    operands: ClassVar[Operands]

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return source.emit(cls(**attributes_of(source, cls)), cls.operands.values(source))

    def body(self, *xs: Scalar) -> Scalar:
        return self.function(*xs, **self.attributes())


def function_of(cls: type[Op]) -> Function:
    """An operator as a function, its attributes as keywords; a number has the type of the first element or tensor."""

    def apply(*operands: Any, **attributes: Any) -> Any:
        op = cls(**attributes)
        dtype = next((v.dtype for v in operands if isinstance(v, Scalar)), None)
        if dtype is None:
            return apply_op(op, *operands)
        if not isinstance(op, Pointwise):
            raise TypeError(f"{op.name} of elements, which takes whole tensors")
        return op.body(*(v if isinstance(v, Scalar) else element(v, dtype) for v in operands))

    return apply


def pointwise(name: str, domain: str = "") -> Callable[[Callable[..., Scalar]], Function]:
    """Function decorator: register the operator that a function over elements computes."""

    def register(function: Callable[..., Scalar]) -> Function:
        return function_of(operator(name, domain)(class_of(function, name, PointwiseFunction)))

    return register
