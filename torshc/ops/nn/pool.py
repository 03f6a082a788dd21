"""Pooling: a window that slides over the spatial dimensions and reduces what it covers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ...base.errors import ModelError
from ...expr import I32, I64, U8, DType, Expr, as_int, ceil_div, const, eq, max_of, min_of, product
from ...graph import Node, Shape, TensorType, Value
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from ..core.functions import abs as abs_
from ..core.functions import pow as power
from ..core.gradient import Backward, gradient_of, parts_of
from ..core.pointwise import compute
from ..core.scalar import Scalar, element, equal, isnan, where
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_named, apply_op
from ..math.reduce import GlobalAveragePool
from ..tensor.parts import Pad
from ..tensor.view import delinear, linear
from .conv import Ints, Window, inside, slid_back, slide, window


@dataclass(frozen=True)
class Pool(Op):
    """Base of the pools.

    Attributes:
        kernel, strides, dilations: of each spatial dimension (1 to 3 of them).
        pads: margins, first all begins, then all ends.
        ceil: whether a last window that is only partly covered counts.
    """

    family: ClassVar[str] = "nest"
    combine: ClassVar[str] = "add"
    kernel: Ints = ()
    strides: Ints = ()
    pads: Shape = ()
    dilations: Ints = ()
    ceil: bool = False

    @property
    def windows(self) -> tuple[object, ...] | None:
        """What pools share that slide over the same windows of one operand, and read others where their results are."""
        return self.kernel, self.strides, self.pads, self.dilations, self.ceil

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], f"input 0 of {self.name}")
        spatial = slide(x.shape[2:], self.kernel, Window(self.strides, self.pads, self.dilations), self.ceil)
        return [TensorType(x.dtype, (*x.shape[:2], *spatial))]

    def term(self, x: Scalar) -> Scalar:
        """What is accumulated for an element."""
        return x

    def outside(self, dtype: DType) -> float:
        """What the margin counts as."""
        return 0

    def last(self, total: Scalar, at: Index, shape: Shape) -> Scalar:
        """The result from the accumulated value at an output index."""
        return total

    def nest(self, node: Node, output: int) -> LoopNest:
        shape = node.operands[0].shape

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            index, ok = [], const(True)
            for i, k in enumerate(inner):
                position = at[2 + i] * self.strides[i] - self.pads[i] + k * self.dilations[i]
                ok = ok & inside(position, shape[2 + i])
                index.append(position)
            value = self.term(read(0, (*at[:2], *index)))
            return where(ok, value, self.outside(value.dtype))

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            return self.last(total, at, shape)

        return LoopNest(body, self.taps(shape), self.combine, finish)

    def taps(self, shape: Shape) -> Shape:
        """How many elements of a window, from its first, may lie in x of this shape; all where sizes are symbolic."""
        known = zip(self.kernel, shape[2:], self.pads, self.dilations, strict=False)
        return tuple(
            const(k if (end := as_int(size + before)) is None else max(min(k, -(-end // apart)), 1))
            for k, size, before, apart in known
        )

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        kernel = tuple(int(k) for k in source.attribute("kernel_shape", ()))
        if x.type.rank != len(kernel) + 2:
            raise ModelError(
                f"{source.op_type} of {x.type!r} with kernel_shape {list(kernel)}, which needs two dimensions less"
            )
        slid = window(source, x.shape[2:], kernel)
        ceil = bool(source.attribute("ceil_mode", 0)) and str(source.attribute("auto_pad", "NOTSET")) == "NOTSET"
        columns = bool(source.attribute("storage_order", 0))
        rest: dict[str, Any] = {k: v for k, v in source.fields(cls).items() if k not in _SHARED}
        op = cls(kernel, slid.strides, slid.pads, slid.dilations, ceil, **rest)
        pooled = source.emit(op, [x])
        if source.outputs < 2:
            return pooled
        place = PoolPlace(kernel, slid.strides, slid.pads, slid.dilations, ceil, columns)
        return [*pooled, *source.emit(place, [x, pooled[0]])]


_SHARED = ("kernel", "strides", "pads", "dilations", "ceil")


@operator()
@dataclass(frozen=True)
class MaxPool(Pool):
    """Maximum of each window; the margin never wins, NaN always does."""

    combine: ClassVar[str] = "max"

    def outside(self, dtype: DType) -> float:
        return _lowest(dtype)


def _lowest(dtype: DType) -> float:
    return -math.inf if dtype.is_float else dtype.range[0]


@operator("PoolPlace", "torshc")
@dataclass(frozen=True)
class PoolPlace(Pool):
    """The position of the maximum of each window in the whole of x: the second output of MaxPool.

    Operands: x and the maxima. Of equal elements the first in row-major order counts; a NaN counts as the maximum. A
    window that covers the margin alone has place 0.

    Attributes:
        columns: places are counted with the first spatial dimension running fastest (storage_order 1), not the last.
    """

    combine: ClassVar[str] = "min"
    columns: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(I64, super().infer(inputs, constraints)[0].shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        shape = node.operands[0].shape
        none = product(shape)

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            found = self.is_largest(node, at, inner, read)
            return where(found, element(linear((*at[:2], *self.place(at, inner)), shape)), element(none))

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            place = total.index()
            if self.columns:
                index = delinear(place, shape)
                place = linear((*index[:2], *index[:1:-1]), (*shape[:2], *shape[:1:-1]))
            return where(total < element(none), element(place), 0)

        return LoopNest(body, self.taps(shape), self.combine, finish)

    def place(self, at: Index, inner: Index) -> Index:
        """Where an element of a window lies in the spatial dimensions of x."""
        slid = zip(inner, self.strides, self.pads, self.dilations, strict=False)
        return tuple(at[2 + i] * s - pad + k * d for i, (k, s, pad, d) in enumerate(slid))

    def is_largest(self, node: Node, at: Index, inner: Index, read: Read) -> Scalar:
        """Whether an element of a window is its maximum."""
        index, ok = self.place(at, inner), const(True)
        for i, position in enumerate(index):
            ok = ok & inside(position, node.operands[0].shape[2 + i])
        value = read(0, (*at[:2], *index))
        value = where(ok, value, _lowest(value.dtype))  # as MaxPool has it, so that both may share what is read
        found = equal(value, read(1, at))
        if value.dtype.is_float:
            found = found | isnan(value)
        return where(found, element(ok), False)


@operator()
@dataclass(frozen=True)
class AveragePool(Pool):
    """Mean of each window, over the elements of the tensor, or of the margin too (count_include_pad)."""

    count_include_pad: int = 0

    def last(self, total: Scalar, at: Index, shape: Shape) -> Scalar:
        count = const(1)
        for i, (k, s, d) in enumerate(zip(self.kernel, self.strides, self.dilations, strict=True)):
            start = at[2 + i] * s - self.pads[i]
            low, high = const(0), shape[2 + i]
            sides = self.pads[i], self.pads[len(self.kernel) + i]
            if self.count_include_pad:
                low, high = low - self.pads[i], high + self.pads[len(self.kernel) + i]
            taps = taps_inside(start, k, d, low, high)
            # A window may lie in the margin, where the formula gives a count below 0 (margins of auto_pad are smaller).
            lies_outside = not self.count_include_pad and any((as_int(p) or 0) > (k - 1) * d for p in sides)
            count = count * (max_of(taps, 0) if lies_outside else taps)
        return total / element(count, compute(total.dtype))


@operator("WholeAveragePool", "torshc")
@dataclass(frozen=True)
class WholeAveragePool(AveragePool):
    """Sum of each window over the size of the kernel, also where the last window reaches beyond the margin.

    ONNX Runtime had this before opset 19, where margins count, and com.microsoft's pools have it still.
    """

    def last(self, total: Scalar, at: Index, shape: Shape) -> Scalar:
        return total / math.prod(self.kernel)


def taps_inside(start: Expr, kernel: int, dilation: int, low: Expr, high: Expr) -> Expr:
    """How many of start, start + dilation, ... (kernel of them) lie in low..high-1."""
    end = start + (kernel - 1) * dilation + 1
    if dilation == 1:
        return min_of(end, high) - max_of(start, low)
    first = ceil_div(max_of(low - start, 0), dilation)
    last = min_of((high - 1 - start) // dilation, kernel - 1)
    return last - first + 1


@operator()
@dataclass(frozen=True)
class LpPool(Pool):
    """p-norm of each window."""

    p: int = 2

    def term(self, x: Scalar) -> Scalar:
        return abs(x) if self.p == 1 else abs(x) ** self.p

    def last(self, total: Scalar, at: Index, shape: Shape) -> Scalar:
        return total if self.p == 1 else total ** (1 / self.p)


@operator()
@dataclass(frozen=True)
class GlobalLpPool(GlobalAveragePool):
    """p-norm over all spatial dimensions, kept with size 1."""

    p: int = 2

    def formula(self, x: Tensor) -> Tensor:
        axes = tuple(range(2, x.rank))
        if self.p in (1, 2):
            return apply_named(f"ReduceL{self.p}", x, axes=axes, keepdims=True)
        return power(power(abs_(x), float(self.p)).sum(axes), 1.0 / self.p)


@gradient_of(MaxPool)
def _max_pool_gradient(op: MaxPool, at: Backward) -> Tensor:
    """All of it to the first of equal elements, as of torch.max_pool2d."""
    x, same = at.operand(0), (op.kernel, op.strides, op.pads, op.dilations, op.ceil)
    taps = apply_op(PoolTap(*same), x, at.outputs[0])
    return apply_op(PoolBack(*same, size=x.shape[2:]), at.gradient, taps)


@operator("PoolTap", "torshc")
@dataclass(frozen=True)
class PoolTap(PoolPlace):
    """The number of the element of each window that is its maximum, counted in row-major order within the window.

    Operands, and which of equal elements counts, as of PoolPlace. A window that covers the margin alone has as its
    number that of the elements of a window.

    Attributes:
        positive: so has one whose maximum is not above 0.
    """

    positive: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        few = math.prod(self.kernel) <= U8.range[1]
        return [TensorType(U8 if few else I32, super().infer(inputs, constraints)[0].shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        none, window = element(const(math.prod(self.kernel)), I32), tuple(map(const, self.kernel))

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            return where(self.is_largest(node, at, inner, read), element(linear(inner, window), I32), none)

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            place = where(read(1, at) > 0, total, none) if self.positive else total
            return place.cast(node.output.dtype)

        return LoopNest(body, window, self.combine, finish)


@operator("PoolBack", "torshc")
@dataclass(frozen=True)
class PoolBack(Pool):
    """What a MaxPool hands back: each element of the data gets the gradients of the windows whose maximum it is.

    Operands: the gradient of the result, and the numbers of the maxima in their windows (PoolTap).

    Attributes:
        size: spatial shape of the data.
    """

    size: Shape = ()
    windows = None

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        g = need(inputs[0], "input 0 of PoolBack")
        return [TensorType(g.dtype, (*g.shape[:2], *self.size))]

    def nest(self, node: Node, output: int) -> LoopNest:
        """Over the windows that cover an element; for dilations over all places that it has in one."""
        shape, window = node.operands[0].shape, tuple(map(const, self.kernel))
        plain = all(d == 1 for d in self.dilations)
        counts = tuple(-(-k // s) if plain else k for k, s in zip(self.kernel, self.strides, strict=True))

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            index, taps, ok = [], [], const(True)
            for i, (j, k, s) in enumerate(zip(inner, self.kernel, self.strides, strict=True)):
                reach = at[2 + i] + self.pads[i]
                tap = reach % s + j * s if plain else j
                start = reach // s - j if plain else (reach - j * self.dilations[i]) // s
                ok = ok & (tap < k) & inside(start, shape[2 + i])
                if not plain:
                    ok = ok & eq((reach - j * self.dilations[i]) % s, 0)
                index.append(start)
                taps.append(tap)
            place = (*at[:2], *index)
            hit = equal(read(1, place), element(linear(tuple(taps), window), node.operands[1].dtype))
            return where(ok, where(hit, read(0, place), 0), 0)

        return LoopNest(body, tuple(map(const, counts)), "add")


@gradient_of(WholeAveragePool)
def _whole_average_pool_gradient(op: WholeAveragePool, at: Backward) -> Tensor:
    """Each element of the gradient divided among its window: a transposed convolution with equal weights."""
    x, g = at.operand(0), at.gradient
    images = g.reshape(g.shape[0] * g.shape[1], 1, *g.shape[2:])
    weights = x.constant(1.0 / math.prod(op.kernel)).expand(1, 1, *op.kernel)
    made = slid_back(images, weights, x.shape[2:], Window(op.strides, op.pads, op.dilations), 1)
    return made.reshape(*x.shape)


@parts_of(AveragePool)
def _average_pool_parts(op: AveragePool, x: Tensor) -> Tensor:
    """The sums of windows over how many elements each has, which the sums of ones are."""
    whole = WholeAveragePool(op.kernel, op.strides, op.pads, op.dilations, op.ceil)
    ones = x.constant(1.0).expand(1, 1, *x.shape[2:])
    rank = len(op.kernel)
    if op.count_include_pad:
        before, after = ((const(0), const(0), *side) for side in (op.pads[:rank], op.pads[rank:]))
        margins = apply_op(Pad(before, after), ones, x.constant(1.0))
        counts = apply_op(
            WholeAveragePool(op.kernel, op.strides, (const(0),) * 2 * rank, op.dilations, op.ceil), margins
        )
        sums = apply_op(whole, x)
        return sums / counts.slice((const(0),) * x.rank, (const(1), const(1), *sums.shape[2:]))
    return apply_op(whole, x) / apply_op(whole, ones)


@parts_of(LpPool)
def _lp_pool_parts(op: LpPool, x: Tensor) -> Tensor:
    whole = WholeAveragePool(op.kernel, op.strides, op.pads, op.dilations, op.ceil)
    powers = abs_(x) if op.p == 1 else power(abs_(x), float(op.p))
    sums = apply_op(whole, powers) * float(math.prod(op.kernel))
    return sums if op.p == 1 else power(sums, 1.0 / op.p)
