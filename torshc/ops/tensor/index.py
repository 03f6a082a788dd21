"""Operators that read where other tensors say, and the search for the place of an extreme.

An index out of range is refused where a model's node reads, before or while it runs (:mod:`..core.bounds`). The
kernels also clamp every index into the range, so that none ever reads outside of a tensor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import I64, Expr, as_int, const, eq, min_of, select
from ...graph import Node, TensorType, Value
from ..core.axes import axis_at, constraints_of, integer, pick, require
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, axis_of, need, operator, same_dim
from ..core.bounds import demand_in_range
from ..core.composite import Formula
from ..core.functions import concat
from ..core.gradient import Backward, gradient_of, zeros
from ..core.reach import clamped, guarded
from ..core.scalar import Scalar, element, equal, isnan, where
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_named, apply_op
from .view import Reshape


def wrap(index: Expr, size: Expr) -> Expr:
    """An index, counted from the end where negative, clamped into 0..size-1."""
    index = select(index < 0, index + size, index)
    return clamped(index, size)


def indices_of(inputs: Inputs, name: str) -> tuple[Value, Value]:
    """The data and the indices of an operator."""
    data, indices = need(inputs[0], f"input 0 of {name}"), need(inputs[1], f"input 1 of {name}")
    if not indices.dtype.is_int:
        raise ModelError(f"{name} with indices of {indices.dtype!r}, where integers are needed")
    return data, indices


def not_empty(data: Value, axes: range, indices: Value, name: str) -> None:
    """Refuse to take elements out of a dimension that has none."""
    wanted = as_int(indices.type.size)
    if wanted != 0 and any(as_int(data.shape[a]) == 0 for a in axes):
        raise ModelError(f"{name} of {data.type!r}, which has no elements there")


_NONE = const(0)


@operator()
@dataclass(frozen=True)
class Gather(Op):
    """Slices of the data along an axis, at the indices: out[..., i..., ...] = data[..., indices[i...], ...]."""

    family: ClassVar[str] = "nest"
    axis: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        data, indices = indices_of(inputs, "Gather")
        axis = axis_of(self.axis, data.type.rank)
        if not data.type.rank:
            raise ModelError("Gather from a scalar, which has no axis")
        not_empty(data, range(axis, axis + 1), indices, "Gather")
        return [TensorType(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        data, indices = (v.shape for v in node.operands)
        axis = axis_of(self.axis, len(data))

        def body(at: Index, _: Index, read: Read) -> Scalar:
            place = wrap(read(1, at[axis : axis + len(indices)]).index(), data[axis])
            return guarded(read, 0, (*at[:axis], place, *at[axis + len(indices) :]), data[axis : axis + 1])

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return _read_along(cls, source)


@operator()
@dataclass(frozen=True)
class GatherElements(Op):
    """out[i, j, k] = data[i, indices[i, j, k], k] for axis 1, and so on; the other dimensions may be shorter."""

    family: ClassVar[str] = "nest"
    axis: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        data, indices = indices_of(inputs, "GatherElements")
        axis = axis_of(self.axis, data.type.rank)
        if data.type.rank != indices.type.rank or not data.type.rank:
            raise ModelError(
                f"GatherElements of {data.type!r} with indices {indices.type!r}"
                ", which need the same number of dimensions, 1 or more"
            )
        for k, (d, i) in enumerate(zip(data.shape, indices.shape, strict=True)):
            if k != axis:
                what = f"GatherElements of {data.type!r} with indices {indices.type!r}"
                require(constraints, i <= d, what)
        not_empty(data, range(axis, axis + 1), indices, "GatherElements")
        return [TensorType(data.dtype, indices.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        data = node.operands[0].shape
        axis = axis_of(self.axis, len(data))

        def body(at: Index, _: Index, read: Read) -> Scalar:
            place = wrap(read(1, at).index(), data[axis])
            return guarded(read, 0, (*at[:axis], place, *at[axis + 1 :]), data[axis : axis + 1])

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return _read_along(cls, source)


def _read_along(cls: type[Gather | GatherElements], source: SourceNode) -> list[Value]:
    op = cls(**source.fields(cls))
    data = source.required(0)
    if data.type.rank:
        demand_in_range(source, source.required(1), data.shape[axis_of(op.axis, data.type.rank)])
    return source.emit(op, source.inputs)


@operator()
@dataclass(frozen=True)
class GatherND(Op):
    """out[b..., i..., rest...] = data[b..., indices[b..., i..., :], rest...].

    Attributes:
        batch_dims: number of leading dimensions that data and indices share.
        depth: length of the last dimension of the indices.
    """

    family: ClassVar[str] = "nest"
    batch_dims: int = 0
    depth: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        data, indices = indices_of(inputs, "GatherND")
        b, depth = self.batch_dims, self.depth
        if not 0 <= b < indices.type.rank or b + depth > data.type.rank or depth < 1:
            raise ModelError(
                f"GatherND of {data.type!r} with indices {indices.type!r} and {b} batch dimensions"
                ", which do not fit the data's dimensions"
            )
        batch = [same_dim(data.shape[k], indices.shape[k], constraints, "the batch of GatherND") for k in range(b)]
        not_empty(data, range(b, b + depth), indices, "GatherND")
        return [TensorType(data.dtype, (*batch, *indices.shape[b:-1], *data.shape[b + depth :]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        data, indices = (v.shape for v in node.operands)
        b, head = self.batch_dims, len(indices) - 1

        def body(at: Index, _: Index, read: Read) -> Scalar:
            places = [wrap(read(1, (*at[:head], const(k))).index(), data[b + k]) for k in range(self.depth)]
            return guarded(read, 0, (*at[:b], *places, *at[head:]), data[b : b + self.depth])

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        indices = source.required(1)
        depth = as_int(indices.shape[-1]) if indices.type.rank else 0
        if depth is None:
            raise Unsupported("GatherND whose last dimension of indices is symbolic")
        batch = int(source.attribute("batch_dims", 0))
        source.fields(cls)
        data = source.required(0)
        if batch > min(data.type.rank, indices.type.rank - 1):
            raise ModelError(
                f"GatherND of {data.type!r} at {indices.type!r} with batch_dims {batch}"
                ", where indices need a dimension more, and data as many"
            )
        if depth and batch + depth <= data.type.rank:
            demand_in_range(source, indices, *data.shape[batch : batch + depth])
        return source.emit(cls(batch, depth), [data, indices])


@operator("ArgSearch", "torshc")
@dataclass(frozen=True)
class ArgSearch(Op):
    """First (or last) place along an axis where the data equal the extreme, the second operand, or are NaN."""

    family: ClassVar[str] = "reduce"
    axis: int = 0
    last: bool = False

    @property
    def axes(self) -> tuple[int, ...]:
        """The reduced dimensions, as other reductions have them."""
        return (self.axis,)

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(I64, need(inputs[1], "the extreme of ArgSearch").shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        data = node.operands[0]
        size = data.shape[self.axis]

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            value = read(0, (*at[: self.axis], inner[0], *at[self.axis + 1 :]))
            found = equal(value, read(1, at))
            if value.dtype.is_float:
                found = found | isnan(value)
            return where(found, element(inner[0]), -1 if self.last else element(size))

        return LoopNest(body, (size,), "max" if self.last else "min")


@dataclass(frozen=True)
class Arg(Formula):
    """Base of ArgMax and ArgMin: the place of the extreme along an axis."""

    reduction: ClassVar[str] = ""
    axis: int = 0
    keepdims: int = 1
    select_last_index: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        axis = axis_of(self.axis, x.type.rank)
        kept = (const(1),) if self.keepdims else ()
        if x.type.rank:
            require(constraints, const(1) <= x.shape[axis], f"{self.name} along a dimension without elements")
        return [TensorType(I64, (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))]

    def formula(self, x: Tensor) -> Tensor:
        axis = axis_of(self.axis, x.rank)
        extreme = apply_named(self.reduction, x, axes=(axis,))
        out = apply_op(ArgSearch(axis, bool(self.select_last_index)), x, extreme)
        return out if self.keepdims else out.reshape(*x.shape[:axis], *x.shape[axis + 1 :])


@operator()
@dataclass(frozen=True)
class ArgMax(Arg):
    """Place of the maximum along an axis; the first NaN counts as one."""

    reduction: ClassVar[str] = "ReduceMax"


@operator()
@dataclass(frozen=True)
class ArgMin(Arg):
    """Place of the minimum along an axis; the first NaN counts as one."""

    reduction: ClassVar[str] = "ReduceMin"


@operator()
@dataclass(frozen=True)
class OneHot(Op):
    """values[1] where the index is the place along a new axis, values[0] elsewhere and where the index is not a place.

    Operands: indices, values.

    Attributes:
        depth: length of the new axis.
        axis: its position in the output.
    """

    family: ClassVar[str] = "nest"
    depth: Expr = _NONE
    axis: int = -1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        indices, values = need(inputs[0], "input 0 of OneHot"), need(inputs[1], "the values of OneHot")
        axis = axis_of(self.axis, indices.type.rank + 1)
        if values.type.static_shape != (2,):
            raise ModelError(f"OneHot with values {values.type!r}; two are needed")
        return [TensorType(values.dtype, (*indices.shape[:axis], self.depth, *indices.shape[axis:]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        axis = axis_of(self.axis, node.operands[0].type.rank + 1)

        def body(at: Index, _: Index, read: Read) -> Scalar:
            place = read(0, (*at[:axis], *at[axis + 1 :])).index()
            place = select(place < 0, place + self.depth, place)
            return where(eq(place, at[axis]), read(1, (const(1),)), read(1, (const(0),)))

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        depth, axis = integer(source, 1, "the depth of OneHot"), int(source.attribute("axis", -1))
        source.fields(cls)
        return source.emit(cls(depth, axis), [source.required(0), source.required(2)])


@operator()
@dataclass(frozen=True)
class ReverseSequence(Op):
    """The first lengths[b] elements of each sequence reversed, the rest as they are."""

    family: ClassVar[str] = "nest"
    batch_axis: int = 1
    time_axis: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, lengths = indices_of(inputs, "ReverseSequence")
        if {self.batch_axis, self.time_axis} != {0, 1} or x.type.rank < 2 or lengths.type.rank != 1:
            raise ModelError(
                f"ReverseSequence of {x.type!r} with lengths {lengths.type!r}"
                "; lengths have to be a vector, and batch_axis and time_axis 0 and 1, either way round"
            )
        same_dim(x.shape[self.batch_axis], lengths.shape[0], constraints, "the batch of ReverseSequence")
        return [x.type]

    def nest(self, node: Node, output: int) -> LoopNest:
        size = node.operands[0].shape[self.time_axis]

        def body(at: Index, _: Index, read: Read) -> Scalar:
            time = at[self.time_axis]
            length = min_of(read(1, (at[self.batch_axis],)).index(), size)
            index = list(at)
            index[self.time_axis] = select(time < length, length - 1 - time, time)
            return read(0, tuple(index))

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        op = cls(**source.fields(cls))
        found = source.emit(op, source.inputs)
        steps = source.required(0).shape[op.time_axis]
        demand_in_range(source, source.required(1), steps + 1, negative=False, use="length")
        return found


@dataclass(frozen=True)
class Cumulative(Op):
    """Base of CumSum and CumProd. The nest is for what is evaluated when compiling: it takes quadratic work.

    An axis known only at run time is the middle one of three: what comes before it and after it is joined.
    """

    family: ClassVar[str] = "scan"
    combine: ClassVar[str] = "add"
    neutral: ClassVar[int] = 0
    axis: int = 0
    exclusive: int = 0
    reverse: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        axis_of(self.axis, x.type.rank)
        return [x.type]

    def nest(self, node: Node, output: int) -> LoopNest:
        axis = self.axis

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            here, there = at[axis], inner[0]
            before, after = (here, there) if self.reverse else (there, here)
            counts = before < after if self.exclusive else before <= after
            return where(counts, read(0, (*at[:axis], there, *at[axis + 1 :])), self.neutral)

        return LoopNest(body, (node.operands[0].shape[axis],), self.combine)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, axis = source.required(0), source.dims(1, f"the axis of {source.op_type}")
        if axis is None or len(axis) != 1:
            raise ModelError(f"the axis of {source.op_type} is not a scalar")
        exclusive, reverse = int(source.attribute("exclusive", 0)), int(source.attribute("reverse", 0))
        source.fields(cls)
        place = axis_at(axis[0], x.type.rank, constraints_of(source))
        if isinstance(place, int):
            return source.emit(cls(place, exclusive, reverse), [x])
        before, behind = const(1), const(1)
        for k, d in enumerate(x.shape):
            before = before * select(k < place, d, const(1))
            behind = behind * select(k > place, d, const(1))
        (joined,) = source.emit(Reshape((before, pick(place, x.shape), behind)), [x])
        (sums,) = source.emit(cls(1, exclusive, reverse), [joined])
        return source.emit(Reshape(x.shape), [sums])


@operator()
@dataclass(frozen=True)
class CumSum(Cumulative):
    """Running sum along an axis."""


@operator()
@dataclass(frozen=True)
class CumProd(Cumulative):
    """Running product along an axis."""

    combine: ClassVar[str] = "mul"
    neutral: ClassVar[int] = 1


@gradient_of(ReverseSequence)
def _reverse_sequence_gradient(op: ReverseSequence, at: Backward) -> Tensor:
    return apply_op(op, at.gradient, at.operand(1))


@gradient_of(OneHot)
def _one_hot_gradient(op: OneHot, at: Backward) -> list[Tensor | None]:
    """Of the two values the sums of where each stands."""
    values, g = at.operand(1), at.gradient
    hit = apply_op(op, at.operand(0), concat(*(zeros(values).part(0, k, k + 1) + float(k) for k in (0, 1)), axis=0))
    return [None, concat(*((g * x).sum(range(g.rank), keep=False).reshape(1) for x in (1.0 - hit, hit)), axis=0)]


@gradient_of(CumSum)
def _cum_sum_gradient(op: CumSum, at: Backward) -> Tensor:
    return apply_op(replace(op, reverse=1 - op.reverse), at.gradient)
