"""Operators that write where other tensors say.

Each states a loop that pulls: an element of the result looks for its updates. That is correct on every target and in
any order of threads, and takes work in proportion to the output times the updates. A target with a kernel of the family
"scatter" writes the updates one after the other instead.

Decided here where ONNX leaves it open: without a reduction the last of several updates of one element wins; an index
out of range writes nothing, and the run is refused (:mod:`torshc.ops.core.bounds`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import BOOL, DType, Expr, as_int, const, eq, product, select
from ...graph import Node, Shape, TensorType, Value
from ..core.axes import require
from ..core.base import (
    Constraints,
    Index,
    Inputs,
    LoopNest,
    Op,
    Read,
    axis_of,
    filled,
    need,
    operator,
    same_dim,
)
from ..core.bounds import demand_in_range
from ..core.composite import Formula
from ..core.functions import concat, gather_elements, scatter_elements
from ..core.functions import equal as equal_tensors
from ..core.functions import where as choose
from ..core.gradient import Backward, NoGradient, gradient_of, zeros
from ..core.reach import clamped
from ..core.scalar import Scalar, element, function_named, where
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_op
from ..nn.conv import inside
from .index import Gather, GatherElements, GatherND, indices_of
from .parts import Pad
from .view import Reshape

_COMBINE = {"none": "max", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def identity(combine: str, dtype: DType) -> float:
    """The identity element of a way to combine: combined with it, an element stays."""
    if combine in ("add", "mul"):
        return int(combine == "mul")
    low = combine == "max"
    if dtype.is_float:
        return -math.inf if low else math.inf
    return dtype.range[0 if low else 1]


def _place(index: Expr, size: Expr) -> Expr:
    """An index counted from the end where negative; one that is out of range stays so."""
    return select(index < 0, index + size, index)


@dataclass(frozen=True)
class Scattering(Op):
    """Base of the scatters: operands data, indices and updates.

    Attributes:
        reduction: "none", "add", "mul", "max" or "min"; how updates are combined with the data.
    """

    family: ClassVar[str] = "scatter"
    epilogue: ClassVar[bool] = False  # a later update may change what is stored
    reduction: str = "none"

    def check(self, inputs: Inputs) -> tuple[Value, Value, Value]:
        """The operands, whose types fit each other."""
        data, indices = indices_of(inputs, self.name)
        updates = need(inputs[2], f"the updates of {self.name}")
        if updates.dtype is not data.dtype:
            raise ModelError(
                f"{self.name} of {data.dtype!r} with updates of {updates.dtype!r}, which have to be of one type"
            )
        if self.reduction != "none" and data.dtype is BOOL:
            raise Unsupported(f"{self.name} of booleans with reduction {self.reduction}")
        return data, indices, updates

    def contribute(self, hit: Expr, number: Expr, update: Scalar) -> Scalar:
        """What an update adds to the reduction of an element: its number where the last update counts, else its value.

        Args:
            hit: whether the update is for this element; one that is not contributes nothing.
        """
        if self.reduction == "none":
            return where(hit, element(number), -1)
        return where(hit, update, identity(_COMBINE[self.reduction], update.dtype))

    def indexed_axes(self, node: Node) -> tuple[int, ...]:
        """The axes of the result along which the indices say where an update goes."""
        raise NotImplementedError

    def extents(self, node: Node) -> tuple[Expr, Sequence[Expr]]:
        """The loops over updates: how many may meet in one element, and how many there are along each axis.

        The second numbers count along axes that are not indexed.
        """
        raise NotImplementedError

    def locate(self, node: Node, step: Expr, beside: Index, read: Read) -> tuple[list[Expr], Index]:
        """The indices of an update along the indexed axes, and its index into the updates.

        Args:
            step: its number among those that may meet in one element.
            beside: index into the result along the other axes.
        """
        raise NotImplementedError

    def combine(self, old: Scalar, update: Scalar) -> Scalar:
        """The element after an update."""
        return update if self.reduction == "none" else function_named(_COMBINE[self.reduction])(old, update)

    def flops(self, node: Node) -> Expr:
        return const(0) if self.reduction == "none" else node.operands[2].type.size

    def finish(self, total: Scalar, old: Scalar, last: Scalar) -> Scalar:
        """The element of the result.

        Args:
            total: the reduction of what all updates contribute.
            old: the element of the data.
            last: the update whose number is ``total``, where the last one counts.
        """
        if self.reduction == "none":
            return where(total >= 0, last, old)
        return function_named(_COMBINE[self.reduction])(old, total)


@operator()
@dataclass(frozen=True)
class ScatterElements(Scattering):
    """out[indices[i, j], j] = updates[i, j] for axis 0, and so on; the data elsewhere."""

    axis: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        data, indices, updates = self.check(inputs)
        axis = axis_of(self.axis, data.type.rank)
        if data.type.rank != indices.type.rank or updates.type.rank != indices.type.rank:
            raise ModelError(
                f"ScatterElements into {data.type!r} with indices {indices.type!r}"
                ", where data, indices and updates need the same number of dimensions"
            )
        for k, (d, i) in enumerate(zip(data.shape, indices.shape, strict=True)):
            same_dim(i, updates.shape[k], constraints, "the indices and updates of ScatterElements")
            if k != axis:
                what = f"ScatterElements into {data.type!r} with indices {indices.type!r}"
                require(constraints, i <= d, what)
        return [data.type]

    def indexed_axes(self, node: Node) -> tuple[int, ...]:
        return (axis_of(self.axis, node.output.type.rank),)

    def extents(self, node: Node) -> tuple[Expr, Sequence[Expr]]:
        shape = node.operands[1].shape
        return shape[self.axis], shape

    def locate(self, node: Node, step: Expr, beside: Index, read: Read) -> tuple[list[Expr], Index]:
        (axis,) = self.indexed_axes(node)
        place = (*beside[:axis], step, *beside[axis + 1 :])
        return [read(1, place).index()], place

    def nest(self, node: Node, output: int) -> LoopNest:
        data, indices = node.operands[0].shape, node.operands[1].shape
        axis = axis_of(self.axis, len(data))

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            there, covered = [*at[:axis], inner[0], *at[axis + 1 :]], const(True)
            for k, (i, d) in enumerate(zip(indices, data, strict=True)):
                if k != axis and i is not d:
                    covered = covered & (at[k] < i)
                    there[k] = clamped(at[k], i)
            place = _place(read(1, tuple(there)).index(), data[axis])
            hit = covered & eq(place, at[axis])
            return self.contribute(hit, inner[0], read(2, tuple(there)))

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            last = total
            if self.reduction == "none":
                there = (*at[:axis], total.index(), *at[axis + 1 :])
                last = read(2, tuple(clamped(i, d) for i, d in zip(there, indices, strict=True)))
            return self.finish(total, read(0, at), last)

        return LoopNest(body, (indices[axis],), _COMBINE[self.reduction], finish)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        data = source.required(0)
        op = cls(**source.fields(cls))
        if not data.type.rank or as_int(source.required(1).type.size) == 0:
            if not data.type.rank:
                raise ModelError(f"{source.op_type} into a scalar, which has no axis")
            return [data]
        demand_in_range(source, source.required(1), data.shape[axis_of(op.axis, data.type.rank)])
        return source.emit(op, [data, source.required(1), source.required(2)])


@operator()
@dataclass(frozen=True)
class Scatter(ScatterElements):
    """ScatterElements as opset 9 called it; it becomes one at import."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return ScatterElements.read(source)


@operator()
@dataclass(frozen=True)
class ScatterND(Scattering):
    """out[indices[i, :], rest...] = updates[i, rest...]; the data elsewhere.

    Operands: data, indices as a matrix of a row for each update, updates with that row's number in front.
    """

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        data, indices, updates = self.check(inputs)
        depth = as_int(indices.shape[-1]) if indices.type.rank == 2 else None
        if depth is None or depth > data.type.rank or updates.type.rank != data.type.rank - depth + 1:
            raise ModelError(
                f"ScatterND into {data.type!r} with indices {indices.type!r}, updates {updates.type!r}"
                ": their dimensions do not fit each other"
            )
        for a, u in zip((indices.shape[0], *data.shape[depth:]), updates.shape, strict=True):
            same_dim(a, u, constraints, f"ScatterND into {data.type!r} with updates {updates.type!r}")
        return [data.type]

    def indexed_axes(self, node: Node) -> tuple[int, ...]:
        return tuple(range(as_int(node.operands[1].shape[1]) or 0))

    def extents(self, node: Node) -> tuple[Expr, Sequence[Expr]]:
        return node.operands[1].shape[0], node.output.shape

    def locate(self, node: Node, step: Expr, beside: Index, read: Read) -> tuple[list[Expr], Index]:
        axes = self.indexed_axes(node)
        return [read(1, (step, const(k))).index() for k in axes], (step, *beside[len(axes) :])

    def nest(self, node: Node, output: int) -> LoopNest:
        data, indices = node.operands[0].shape, node.operands[1].shape
        depth = as_int(indices[1]) or 0

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            hit = const(True)
            for k in range(depth):
                place = _place(read(1, (inner[0], const(k))).index(), data[k])
                hit = hit & eq(place, at[k])
            return self.contribute(hit, inner[0], read(2, (inner[0], *at[depth:])))

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            last = read(2, (clamped(total.index(), indices[0]), *at[depth:])) if self.reduction == "none" else total
            return self.finish(total, read(0, at), last)

        return LoopNest(body, (indices[0],), _COMBINE[self.reduction], finish)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        data, indices, updates = (source.required(k) for k in range(3))
        op = cls(**source.fields(cls))
        depth = as_int(indices.shape[-1]) if indices.type.rank else None
        if depth is None:
            raise Unsupported("ScatterND whose last dimension of indices is symbolic")
        if updates.type.rank != indices.type.rank - 1 + data.type.rank - depth:
            raise ModelError(
                f"ScatterND into {data.type!r} with indices {indices.type!r}, updates {updates.type!r}"
                ": their dimensions do not fit each other"
            )
        if as_int(updates.type.size) == 0:
            return [data]
        rows = product(indices.shape[:-1])
        table = source.emit(Reshape((rows, indices.shape[-1])), [indices])[0]
        rest = updates.shape[indices.type.rank - 1 :]
        if 0 < depth <= data.type.rank:
            demand_in_range(source, table, *data.shape[:depth])
        return source.emit(op, [data, table, source.emit(Reshape((rows, *rest)), [updates])[0]])


@operator()
@dataclass(frozen=True)
class TensorScatter(Op):
    """A cache with an update written along an axis, from the place on that the third operand gives for each batch.

    Operands: cache[B, ..., L, ...], update[B, ..., S, ...], and perhaps places[B].

    Attributes:
        mode: "linear" (what passes the end is refused, or dropped) or "circular" (it goes on at the beginning).
    """

    family: ClassVar[str] = "nest"
    axis: int = -2
    mode: str = "linear"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        cache, update = need(inputs[0], "the cache of TensorScatter"), need(inputs[1], "the update of TensorScatter")
        axis = axis_of(self.axis, cache.type.rank)
        if update.dtype is not cache.dtype or update.type.rank != cache.type.rank or not axis:
            raise ModelError(
                f"TensorScatter of {update.type!r} into {cache.type!r} along axis {axis}"
                "; both need one type and as many dimensions, and an axis other than 0"
            )
        for k, (c, u) in enumerate(zip(cache.shape, update.shape, strict=True)):
            if k != axis:
                same_dim(c, u, constraints, f"TensorScatter of {update.type!r} into {cache.type!r}")
        filled(inputs, self.name)
        size, capacity = as_int(update.shape[axis]), as_int(cache.shape[axis])
        if size is not None and capacity is not None and size > capacity:
            raise ModelError(f"TensorScatter of {update.type!r} into {cache.type!r}, which is shorter")
        if len(inputs) > 2:
            places = need(inputs[2], "the places of TensorScatter")
            if places.type.rank != 1 or not places.dtype.is_int:
                raise ModelError(f"TensorScatter at places {places.type!r}, where a vector of integers is needed")
            same_dim(places.shape[0], cache.shape[0], constraints, "the batch of TensorScatter")
        return [cache.type]

    def nest(self, node: Node, output: int) -> LoopNest:
        cache, update = node.operands[0].shape, node.operands[1].shape
        axis = axis_of(self.axis, len(cache))

        def body(at: Index, _: Index, read: Read) -> Scalar:
            start = read(2, at[:1]).index() if len(node.operands) > 2 else const(0)
            away = at[axis] - start
            if self.mode == "circular":
                away = away % cache[axis]
            new = read(1, (*at[:axis], clamped(away, update[axis]), *at[axis + 1 :]))
            return where(inside(away, update[axis]), new, read(0, at))

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        op = cls(**source.fields(cls))
        found = source.emit(op, source.inputs)
        if source.input(2) is not None and op.mode == "linear":
            cache, update = source.required(0).shape, source.required(1).shape
            axis = axis_of(op.axis, len(cache))
            demand_in_range(source, source.required(2), cache[axis] - update[axis] + 1, negative=False)
        return found


@operator()
@dataclass(frozen=True)
class MaxUnpool(Formula):
    """Zeros, and each element of x[N, C, spatial] at the place in the whole output, row-major, that its index gives.

    An index out of range is refused, or writes nothing, and the last of several elements at one place wins.

    Attributes:
        kernel, strides: of each spatial dimension.
        pads: margins, first all begins, then all ends.
    """

    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, indices = indices_of(inputs, "MaxUnpool")
        rank = len(self.kernel)
        if x.type.rank != rank + 2 or indices.type.rank != x.type.rank:
            raise ModelError(
                f"MaxUnpool of {x.type!r} with indices {indices.type!r} and a kernel of rank {rank}"
                ", which need two dimensions more than the kernel"
            )
        for d, i in zip(x.shape, indices.shape, strict=True):
            same_dim(d, i, constraints, "the indices of MaxUnpool")
        spatial = tuple(
            (d - 1) * s + k - self.pads[n] - self.pads[rank + n]
            for n, (d, s, k) in enumerate(zip(x.shape[2:], self.strides, self.kernel, strict=True))
        )
        out = TensorType(x.dtype, (*x.shape[:2], *spatial))
        return [out]

    def formula(self, x: Tensor, indices: Tensor) -> Tensor:
        shape = self.infer([x.value, indices.value], [])[0].shape
        flat, places = x.reshape(product(x.shape)), indices.reshape(product(indices.shape))
        zeros = x.constant(0).expand(product(shape))
        return scatter_elements(zeros, places, flat, axis=0).reshape(*shape)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, indices, wanted = source.required(0), source.required(1), source.dims(2, "the output shape of MaxUnpool")
        kernel = tuple(int(k) for k in source.attribute("kernel_shape", ()))
        strides = tuple(int(k) for k in source.attribute("strides", (1,) * len(kernel)))
        pads = tuple(int(k) for k in source.attribute("pads", (0,) * (2 * len(kernel))))
        source.fields(cls)
        if len(strides) != len(kernel) or len(pads) != 2 * len(kernel):
            raise ModelError(
                f"MaxUnpool with a kernel {kernel}, strides {strides} and pads {pads}"
                ", where a dimension needs one stride and two pads"
            )
        filled((x, indices), "MaxUnpool")
        out = source.emit(cls(kernel, strides, pads), [x, indices])[0]
        demand_in_range(source, indices, out.type.size, negative=False)
        if wanted is None:
            return [out]
        if len(wanted) != out.type.rank:
            raise ModelError(
                f"MaxUnpool of {x.type!r} with an output shape of {len(wanted)} dimensions, which needs as many"
            )
        after = tuple(w - d for w, d in zip(wanted, out.shape, strict=True))
        return source.emit(Pad((const(0),) * len(after), after), [out])


# Gathers and scatters that add are each other's adjoints.


def _add_updates(shape: Shape, indices: Tensor, updates: Tensor) -> Tensor:
    """Zeros of a shape, with each update added at the place of its row of indices."""
    return apply_op(ScatterND("add"), updates.constant(0.0).expand(*shape), indices, updates)


@gradient_of(Gather)
def _gather_gradient(op: Gather, at: Backward) -> Tensor:
    """Each slice added where it was taken from, with the axis in front."""
    data, indices, g = at.operand(0), at.operand(1), at.gradient
    axis, count = axis_of(op.axis, data.rank), product(indices.shape)
    first = range(axis, axis + indices.rank)
    rest = (*data.shape[:axis], *data.shape[axis + 1 :])
    updates = g.transpose(*first, *(k for k in range(g.rank) if k not in first)).reshape(count, *rest)
    made = _add_updates((data.shape[axis], *rest), indices.reshape(count, 1), updates)
    return made.transpose(*range(1, axis + 1), 0, *range(axis + 1, data.rank))


@gradient_of(GatherElements)
def _gather_elements_gradient(op: GatherElements, at: Backward) -> Tensor:
    return apply_op(ScatterElements("add", op.axis), zeros(at.operand(0)), at.operand(1), at.gradient)


@gradient_of(GatherND)
def _gather_nd_gradient(op: GatherND, at: Backward) -> Tensor:
    """The numbers of the batch stand before the places in it."""
    data, indices, b = at.operand(0), at.operand(1), op.batch_dims
    batch, each = product(data.shape[:b]), product(indices.shape[b:-1])
    numbers = indices.range(0, batch, indices.dtype).reshape(batch, 1, 1).expand(batch, each, 1)
    rows = concat(numbers, indices.reshape(batch, each, op.depth), axis=2).reshape(batch * each, 1 + op.depth)
    updates = at.gradient.reshape(batch * each, *data.shape[b + op.depth :])
    return _add_updates((batch, *data.shape[b:]), rows, updates).reshape(*data.shape)


def _reduced_gradient(
    reduction: str, at: Backward, take: Callable[[Tensor], Tensor], scatter: Callable[[str, Tensor, Tensor], Tensor]
) -> list[Tensor | None]:
    """Of products, the largest and the least; an extreme is shared evenly by those that are equal to it.

    Args:
        take: what lies at the places of the updates.
        scatter: does something with data and values for the places.
    """
    data, updates, y, g = at.operand(0), at.operand(2), at.outputs[0], at.gradient
    if reduction == "mul":
        is_zero = equal_tensors(updates, 0.0)
        factors = choose(is_zero, 1.0, updates)
        whole = take(scatter("mul", data, factors))
        zero_count = take(scatter("add", zeros(data), choose(is_zero, 1.0, zeros(updates))))
        alone = choose(is_zero, equal_tensors(zero_count, 1.0), equal_tensors(zero_count, 0.0))
        others = choose(alone, whole / factors, 0.0)  # the product without this update
        return [g * scatter("mul", zeros(data) + 1.0, updates), None, take(g) * others]
    kept = choose(equal_tensors(data, y), 1.0, zeros(data))
    won = choose(equal_tensors(updates, take(y)), 1.0, zeros(updates))
    share = g / scatter("add", kept, won)
    return [share * kept, None, take(share) * won]


@gradient_of(ScatterElements)
def _scatter_elements_gradient(op: ScatterElements, at: Backward) -> list[Tensor | None]:
    """Of updates what stands where they were written; of several at one place, the last has it."""
    indices, updates, g = at.operand(1), at.operand(2), at.gradient
    taken = gather_elements(g, indices, axis=op.axis)
    if op.reduction == "add":
        return [g, None, taken]
    if op.reduction != "none":

        def scatter(reduction: str, data: Tensor, values: Tensor) -> Tensor:
            return apply_op(ScatterElements(reduction, op.axis), data, indices, values)

        return _reduced_gradient(op.reduction, at, lambda t: gather_elements(t, indices, axis=op.axis), scatter)
    numbers = indices.range(0, product(updates.shape)).reshape(*updates.shape)
    none = indices.range(-1, 1).expand(*at.operand(0).shape)
    last = gather_elements(apply_op(ScatterElements("none", op.axis), none, indices, numbers), indices, axis=op.axis)
    kept = apply_op(op, g, indices, zeros(updates))
    return [kept, None, choose(equal_tensors(last, numbers), taken, 0.0)]


@gradient_of(ScatterND)
def _scatter_nd_gradient(op: ScatterND, at: Backward) -> list[Tensor | None]:
    """The gradients of data and updates, as of ScatterElements."""
    data, indices, updates, g = at.operand(0), at.operand(1), at.operand(2), at.gradient
    depth = as_int(indices.shape[1]) or 0
    if not depth:
        raise NoGradient("indices of no dimension")
    taken = apply_op(GatherND(0, depth), g, indices)
    if op.reduction == "add":
        return [g, None, taken]
    if op.reduction != "none":

        def scatter(reduction: str, data: Tensor, values: Tensor) -> Tensor:
            return apply_op(ScatterND(reduction), data, indices, values)

        return _reduced_gradient(op.reduction, at, lambda t: apply_op(GatherND(0, depth), t, indices), scatter)
    count = updates.shape[0]
    numbers, none = indices.range(0, count), indices.range(-1, 1).expand(*data.shape[:depth])
    last = apply_op(GatherND(0, depth), apply_op(ScatterND(), none, indices, numbers), indices)
    wins = equal_tensors(last, numbers).reshape(count, *(1,) * (updates.rank - 1))
    return [apply_op(op, g, indices, zeros(updates)), None, choose(wins, taken, 0.0)]
