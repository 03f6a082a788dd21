"""Tensors made from attributes and shapes alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import F32, F64, I64, DType, Expr, as_int, cast, const, eq, from_onnx, ne, select
from ...graph import Node, Shape, TensorType, Value, require_shape
from ..core.axes import constraints_of, count_steps, require
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from ..core.functions import ceil
from ..core.functions import max as larger
from ..core.gradient import Backward, gradient_of
from ..core.pointwise import compute
from ..core.scalar import Scalar, element, where
from ..core.source import SourceNode, Unsupported, text_of
from ..core.tensor import Tensor, apply_op, operand
from .view import Expand


@operator()
@dataclass(frozen=True)
class Constant(Op):
    """ONNX Constant; it becomes a constant value at import, whichever of its attributes holds it."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return [source.builder.graph.constant(array_of(source.attributes))]


def array_of(attributes: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """What a Constant with these attributes makes.

    Raises:
        ModelError: when it has none of its attributes, or more than one.
    """
    if len(attributes) != 1:
        raise ModelError("Constant needs exactly one of its attributes")
    ((name, value),) = attributes.items()
    if name in ("value_int", "value_ints"):
        return np.asarray(value, dtype=np.int64)
    if name in ("value_float", "value_floats"):
        return np.asarray(value, dtype=np.float32)
    if name == "value_string":
        return np.array(text_of(value, "the text of Constant"), object)
    if name == "value_strings":
        return np.array([text_of(v, "the text of Constant") for v in value], object)
    if name not in ("value", "sparse_value"):
        raise ModelError(f"Constant has no attribute {name!r}")
    found: np.ndarray[Any, Any] = value
    return found


@operator()
@dataclass(frozen=True)
class ConstantOfShape(Op):
    """A tensor filled with one value; it becomes an Expand of that value at import."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        value = source.attribute("value")
        array = np.zeros(1, np.float32) if value is None else value
        source.fields(cls)
        if array.size != 1:
            raise ModelError(f"ConstantOfShape with a value of {array.size} elements, where one is needed")
        dims = source.dims(0, "the shape of ConstantOfShape") or ()
        require_shape(dims, "the result")
        fill = source.builder.graph.constant(np.ascontiguousarray(array).reshape(()))
        return source.emit(Expand(dims), [fill])


_NONE = const(0)


@operator()
@dataclass(frozen=True)
class Range(Op):
    """start, start + step, ...: `count` numbers.

    Attributes:
        start, step: i64 expressions, or floats; without meaning where they are operands.
        count: number of elements.
        dtype: element type.
    """

    family: ClassVar[str] = "nest"
    start: Expr | float = 0.0
    step: Expr | float = 1.0
    count: Expr = _NONE
    dtype: DType = I64

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(self.dtype, (self.count,))]

    def nest(self, node: Node, output: int) -> LoopNest:
        kind = compute(self.dtype)

        def body(at: Index, _: Index, read: Read) -> Scalar:
            if node.operands:
                return element(at[0], kind) * read(1, ()) + read(0, ())
            if isinstance(self.start, Expr) or isinstance(self.step, Expr):
                return element(at[0] * self.step + self.start, kind)
            return element(at[0], kind) * self.step + self.start

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        dtype = source.required(0).dtype
        source.attribute("stash_type")
        source.fields(cls)
        if any(source.required(k).dtype is not dtype for k in (1, 2)):
            raise ModelError("Range with bounds of different types, which have to be of one type")
        if not dtype.is_int and any(source.required(k).const is None for k in range(3)):
            return [_floats(source, dtype)]
        if not dtype.is_int:
            start, limit, step = (float(_scalar(source, k)) for k in range(3))
            if step == 0 or not all(map(math.isfinite, (start, limit, step))):
                raise ModelError(
                    f"Range from {start} to {limit} in steps of {step}, which have to be finite, and steps not 0"
                )
            return source.emit(cls(start, step, const(max(math.ceil((limit - start) / step), 0)), dtype), [])
        first, last, by = (cast(_element(source, k), I64) for k in range(3))
        require(constraints_of(source), ne(by, 0), "Range in steps of 0")
        span = select(by > 0, last - first, first - last)
        return source.emit(cls(first, by, count_steps(span, by), dtype), [])


def _floats(source: SourceNode, dtype: DType) -> Value:
    """A Range of floats known only at run time: max(ceil((limit - start) / step), 0) of them, computed in f64.

    Decided here: the count of a step of 0 or of a bound that is not a number is 0, or too large for a run.
    """
    bounds = [operand(source, k) for k in range(3)]
    if any(as_int(v.type.size) != 1 for v in bounds):
        raise ModelError("a bound of Range is not a scalar")
    bounds = [v.reshape() if v.rank else v for v in bounds]
    start, limit, step = (v.cast(F64) for v in bounds)
    found = larger(ceil((limit - start) / step), 0.0).cast(I64).elements()
    assert found is not None
    return apply_op(Range(count=found[0], dtype=dtype), bounds[0], bounds[2]).value


_RANGE = ("the start of Range", "the end of Range", "the step of Range")


def _scalar(source: SourceNode, k: int) -> Any:
    array = source.array(k, _RANGE[k])
    if array is None or array.size != 1:
        raise ModelError(f"{_RANGE[k]} is not a scalar")
    return array.reshape(-1)[0]


def _element(source: SourceNode, k: int) -> Expr:
    dims = source.dims(k, _RANGE[k])
    if dims is None or len(dims) != 1:
        raise ModelError(f"{_RANGE[k]} is not a scalar")
    return dims[0]


@operator()
@dataclass(frozen=True)
class EyeLike(Op):
    """Ones on a diagonal of a matrix, zeros elsewhere.

    Attributes:
        shape: shape of the matrix.
        k: which diagonal; positive ones lie above the main one.
    """

    family: ClassVar[str] = "nest"
    shape: Shape = ()
    k: int = 0
    dtype: DType = F32

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(self.dtype, self.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        kind = compute(self.dtype)

        def body(at: Index, _: Index, read: Read) -> Scalar:
            return where(eq(at[0] + self.k, at[1]), element(1, kind), 0)

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = need(source.required(0), "input 0 of EyeLike")
        code = source.attribute("dtype")
        dtype = x.dtype if code is None else from_onnx(int(code))
        k = int(source.attribute("k", 0))
        source.fields(cls)
        if dtype is None:
            raise Unsupported(f"EyeLike of ONNX type {code}")
        if x.type.rank != 2:
            raise ModelError(f"EyeLike of {x.type!r}, which is not a matrix")
        return source.emit(cls(x.shape, k, dtype), [])


@operator("Shape")
@dataclass(frozen=True)
class ShapeOf(Op):
    """The shape of its operand as an i64 tensor, known symbolically at compile time."""

    family: ClassVar[str] = "nest"
    start: int = 0
    end: int | None = None

    def _dims(self, x: Value) -> Shape:
        return x.shape[slice(self.start, self.end)]

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(I64, (const(len(self._dims(need(inputs[0], "input 0 of Shape")))),))]

    def symbolic(self, node: Node, output: int) -> tuple[Expr, ...]:
        return self._dims(node.operands[0])

    def nest(self, node: Node, output: int) -> LoopNest:
        dims = self._dims(node.operands[0])

        def body(at: Index, _: Index, read: Read) -> Scalar:
            value = dims[-1] if dims else const(0)
            for k in range(len(dims) - 2, -1, -1):
                value = select(eq(at[0], k), dims[k], value)
            return element(value)

        return LoopNest(body)


@operator()
@dataclass(frozen=True)
class Size(Op):
    """The number of elements as a rank-0 i64 tensor."""

    family: ClassVar[str] = "nest"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(I64, ())]

    def nest(self, node: Node, output: int) -> LoopNest:
        size = node.operands[0].type.size
        return LoopNest(lambda at, _, read: element(size))


@operator()
@dataclass(frozen=True)
class Trilu(Op):
    """Upper or lower triangle of the last two dimensions, zero elsewhere."""

    family: ClassVar[str] = "nest"
    upper: int = 1
    k: Expr = _NONE

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Trilu")
        if x.type.rank < 2:
            raise ModelError(f"Trilu of {x.type!r}, which is not a matrix")
        return [x.type]

    def nest(self, node: Node, output: int) -> LoopNest:
        def body(at: Index, _: Index, read: Read) -> Scalar:
            distance = at[-1] - at[-2] - self.k
            return where(distance >= 0 if self.upper else distance <= 0, read(0, at), 0)

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        k = source.dims(1, "k of Trilu", clamped=True)
        upper = int(source.attribute("upper", 1))
        return source.emit(cls(upper, k[0] if k else const(0)), [source.required(0)])


@gradient_of(Trilu)
def _trilu_gradient(op: Trilu, at: Backward) -> Tensor:
    return apply_op(op, at.gradient)
