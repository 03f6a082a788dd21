"""Parts of tensors and margins around them: Slice, Split and Pad."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.budget import afford
from ...base.errors import ModelError
from ...expr import Expr, as_int, ceil_div, const, eq, is_nonnegative, max_of, min_of, ne, select, walk
from ...graph import Node, Shape, TensorType, Value
from ..core.axes import at_run, axis_at, both, constraints_of, count_steps, either, marks, put, require
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, axis_of, need, operator, same_dim
from ..core.functions import concat, where
from ..core.gradient import Backward, NoGradient, as_shape, gradient_of, zeros
from ..core.reach import within
from ..core.scalar import Scalar
from ..core.source import SourceNode
from ..core.tensor import Tensor, apply_op
from .view import Reshape, View


@operator()
@dataclass(frozen=True)
class Slice(View):
    """Strided part of each dimension.

    Attributes:
        starts: first index of every dimension (0 where a dimension is whole).
        sizes: extent of every dimension of the output.
        steps: step of every dimension; negative steps walk down.
    """

    starts: Shape = ()
    sizes: Shape = ()
    steps: tuple[int | Expr, ...] = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(need(inputs[0], "input 0 of Slice").dtype, self.sizes)]

    def nest(self, node: Node, output: int) -> LoopNest:
        def body(at: Index, _: Index, read: Read) -> Scalar:
            return read(0, tuple(i * step + start for i, start, step in zip(at, self.starts, self.steps, strict=True)))

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        if source.opset < 10:
            raw = source.attribute("starts"), source.attribute("ends"), source.attribute("axes"), None
            starts, ends, axes, steps = (None if r is None else tuple(const(int(v)) for v in r) for r in raw)
        else:
            operands = ((1, "starts", True), (2, "ends", True), (3, "axes", False), (4, "steps", True))
            starts, ends, axes, steps = (source.dims(k, f"the {what} of Slice", far) for k, what, far in operands)
        source.fields(cls)
        if starts is None or ends is None:
            raise ModelError("Slice needs starts and ends")
        axes = axes or tuple(map(const, range(len(starts))))
        steps = steps if steps is not None else (const(1),) * len(starts)
        if len({len(axes), len(starts), len(ends), len(steps)}) > 1:
            raise ModelError("Slice needs as many starts, ends, axes and steps")
        marks(axes, x.type.rank, constraints_of(source), "axes of Slice")
        for step in steps:
            require(constraints_of(source), ne(step, 0), "Slice with a step of 0")
        begin, size, pace = list[Expr](), list[Expr](), list[int | Expr]()
        for k, d in enumerate(x.shape):
            start, end, step = const(0), d, const(1)
            for n, a in enumerate(axes):
                here = either(eq(a, k), eq(a, k - x.type.rank))
                start, end = select(here, starts[n], start), select(here, ends[n], end)
                step = select(here, steps[n], step)
            first, count = slice_extent(d, start, end, step)
            begin.append(first)
            size.append(count)
            known = as_int(_near(step))
            pace.append(step if known is None else known)
        return source.emit(cls(tuple(begin), tuple(size), tuple(pace)), [x])


def _near(e: Expr) -> Expr:
    """A number beyond all sizes as one that a size can be added to."""
    far, known = 1 << 60, as_int(e)
    return e if known is None else const(max(-far, min(known, far)))


def slice_extent(size: Expr, start: Expr, end: Expr, step: Expr) -> tuple[Expr, Expr]:
    """First index and number of elements of a Python slice of a dimension, with ONNX's clamping."""
    start, end, step = map(_near, (start, end, step))

    def place(e: Expr, low: Expr, high: Expr) -> Expr:
        e = select(e < 0, e + size, e)
        return min_of(max_of(e, low), high)

    if end is size and as_int(start) == 0 and as_int(step) == 1:
        return start, size
    up = step > 0
    first = select(up, place(start, const(0), size), place(start, const(0), size - 1))
    last = select(up, place(end, const(0), size), place(end, const(-1), size - 1))
    return first, count_steps(select(up, _between(first, last), _between(last, first)), step)


def _between(low: Expr, high: Expr) -> Expr:
    """high - low, through the ends of a clamped place where that is shorter: of ``x[-1:]``, min(1, n)."""
    plain = high - low
    if low.op not in ("min", "max"):
        return plain
    ends = (max_of if low.op == "min" else min_of)(*(_between(e, high) for e in low.args))
    return ends if len([*walk(ends)]) < len([*walk(plain)]) else plain


@operator()
@dataclass(frozen=True)
class Split(Op):
    """One operand cut along an axis into parts."""

    family: ClassVar[str] = "view"
    axis: int = 0
    sizes: Shape = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Split")
        axis = axis_of(self.axis, x.type.rank)
        total = const(0)
        for s in self.sizes:
            total = total + s
        same_dim(total, x.shape[axis], constraints, "the parts of Split")
        return [TensorType(x.dtype, (*x.shape[:axis], s, *x.shape[axis + 1 :])) for s in self.sizes]

    def nest(self, node: Node, output: int) -> LoopNest:
        axis = axis_of(self.axis, node.operands[0].type.rank)
        start = const(0)
        for s, times in Counter(self.sizes[:output]).items():  # mostly all are one
            start = start + s * times
        return LoopNest(lambda at, _, read: read(0, (*at[:axis], at[axis] + start, *at[axis + 1 :])))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        if not x.type.rank:
            raise ModelError("Split of a scalar, which has no axis")
        axis = axis_of(int(source.attribute("axis", 0)), x.type.rank)
        given = source.attribute("split")
        sizes = tuple(const(int(s)) for s in given) if given is not None else source.dims(1, "the sizes of Split")
        if sizes is None:
            count = int(source.attribute("num_outputs", source.outputs))
            afford("outputs", count, f"Split into {count} parts")
            chunk = ceil_div(x.shape[axis], count)
            sizes = (*[chunk] * (count - 1), x.shape[axis] - chunk * (count - 1))
        source.attribute("num_outputs")
        source.fields(cls)
        if len(sizes) < source.outputs:
            raise ModelError(
                f"Split into {len(sizes)} parts with {source.outputs} outputs, where each output needs a part"
            )
        for size in sizes if at_run(*sizes) else ():
            require(constraints_of(source), size >= 0, f"Split with a part of {size!r}")
        return source.emit(cls(axis, sizes), [x])


@operator()
@dataclass(frozen=True)
class Pad(Op):
    """Margins around a tensor, or cut off it where negative.

    Attributes:
        before, after: margin of each dimension.
        mode: "constant", "edge", "reflect" or "wrap". The constant is operand 1, or 0.
    """

    family: ClassVar[str] = "nest"
    before: Shape = ()
    after: Shape = ()
    mode: str = "constant"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Pad")
        dims = tuple(b + d + a for b, d, a in zip(self.before, x.shape, self.after, strict=True))
        return [TensorType(x.dtype, dims)]

    def nest(self, node: Node, output: int) -> LoopNest:
        shape, has_value = node.operands[0].shape, len(node.operands) > 1

        def body(at: Index, _: Index, read: Read) -> Scalar:
            inside, index = const(True), []
            for i, b, d, a in zip(at, self.before, shape, self.after, strict=True):
                j = i - b
                if self.mode == "edge":
                    j = min_of(max_of(j, 0), d - 1)
                elif self.mode == "wrap":
                    j = j % d
                elif self.mode == "reflect" and not all(is_nonnegative(d - 1 - margin) for margin in (b, a)):
                    j = j % max_of((d - 1) * 2, 1)
                    j = min_of(j, max_of((d - 1) * 2 - j, 0))
                elif self.mode == "reflect":
                    j = select(j < 0, -j, j)
                    j = select(j < d, j, (d - 1) * 2 - j)
                else:
                    inside = inside & ((j >= 0) & (j < d))
                index.append(j)
            outside = range(len(shape)) if self.mode == "constant" else ()
            value = within(read, 0, tuple(index), shape, outside)
            return where(inside, value, read(1, ()) if has_value else 0)

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        given = source.attribute("pads")
        pads = tuple(const(int(p)) for p in given) if given is not None else source.dims(1, "the pads of Pad")
        mode, fill = str(source.attribute("mode", "constant")), source.input(2)
        if source.attribute("value"):
            fill = source.builder.constant(np.asarray(source.attribute("value"), dtype=x.dtype.numpy))
        if fill is not None and fill.type.rank:
            fill = source.emit(Reshape(()), [fill])[0]
        source.fields(cls)
        axes, rank, constraints = source.dims(3, "the axes of Pad"), x.type.rank, constraints_of(source)
        which = [axis_at(a, rank, constraints) for a in (map(const, range(rank)) if axes is None else axes)]
        if pads is None or len(pads) != 2 * len(which):
            raise ModelError(f"Pad of rank {rank} needs {2 * len(which)} pads")
        marks(axes or (), rank, constraints, "axes of Pad")
        before, after = (const(0),) * rank, (const(0),) * rank
        for k, axis in enumerate(which):
            before, after = put(axis, before, pads[k]), put(axis, after, pads[k + len(which)])
        for b, d, a in zip(before, x.shape, after, strict=True):
            if at_run(b, a):
                readable = either(d > 0, eq(b + d + a, 0), const(mode == "constant"))
                require(constraints, b + d + a >= 0, f"Pad of {d!r} by {b!r} and {a!r}")
                require(constraints, readable, f"Pad of a dimension without elements, mode {mode}")
        return source.emit(cls(tuple(before), tuple(after), mode), [x] if fill is None else [x, fill])


@dataclass(frozen=True)
class Embed(View):
    """Zeros of a shape with the operand in the place that a Slice reads, of which this is the adjoint.

    Attributes:
        shape: shape of the result.
        starts, steps: as of Slice.
    """

    name: ClassVar[str] = "Embed"
    domain: ClassVar[str] = "torshc"
    family: ClassVar[str] = "nest"
    shape: Shape = ()
    starts: Shape = ()
    steps: tuple[int | Expr, ...] = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(need(inputs[0], "the operand of Embed").dtype, self.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        sizes = node.operands[0].shape

        def body(at: Index, _: Index, read: Read) -> Scalar:
            ways = [i - start for i, start in zip(at, self.starts, strict=True)]
            index = tuple(way // step for way, step in zip(ways, self.steps, strict=True))
            met = (eq(way % step, 0) for way, step in zip(ways, self.steps, strict=True))
            inside = both(*met, *(both(k >= 0, k < size) for k, size in zip(index, sizes, strict=True)))
            return where(inside, within(read, 0, index, sizes, range(len(sizes))), 0)

        return LoopNest(body)


@gradient_of(Slice)
def _slice_gradient(op: Slice, at: Backward) -> Tensor:
    return apply_op(Embed(at.operand(0).shape, op.starts, op.steps), at.gradient)


@gradient_of(Embed)
def _embed_gradient(op: Embed, at: Backward) -> Tensor:
    return apply_op(Slice(op.starts, at.operand(0).shape, op.steps), at.gradient)


@gradient_of(Split)
def _split_gradient(op: Split, at: Backward) -> Tensor:
    found = zip(at.gradients, at.outputs, strict=True)
    return concat(*(zeros(y) if g is None else g for g, y in found), axis=op.axis)


@gradient_of(Pad)
def _pad_gradient(op: Pad, at: Backward) -> list[Tensor | None]:
    """Of the constant what lies in the margins: all but what lies inside."""
    shape, g = at.operand(0).shape, at.gradient
    if op.mode != "constant":
        return [_with_margins(op, shape, g)]
    inner = apply_op(Pad(tuple(-b for b in op.before), tuple(-a for a in op.after)), g)
    if not at.wants(1):
        return [inner]
    margin = where(apply_op(Pad(op.before, op.after), zeros(at.operand(0)) + 1.0) > 0.0, 0.0, g)
    return [as_shape(inner, shape), margin.sum(range(g.rank), keep=False) if g.rank else margin]


def _with_margins(op: Pad, shape: Shape, g: Tensor) -> Tensor:
    """A gradient of the padded tensor as one of a tensor of this shape: margins are added to what they repeat.

    Raises:
        NoGradient: a margin may repeat an element twice.
    """
    before, after = (tuple(max_of(m, 0) for m in margins) for margins in (op.before, op.after))
    cut = tuple(max_of(-b, 0) for b in op.before), tuple(max_of(-a, 0) for a in op.after)
    if any(m is not const(0) for m in (*cut[0], *cut[1])):
        g = apply_op(Pad(*cut), g)
    for axis, (b, d, a) in enumerate(zip(before, shape, after, strict=True)):
        most = d - 1 if op.mode == "reflect" else d
        if op.mode != "edge" and not all(is_nonnegative(most - margin) for margin in (b, a)):
            raise NoGradient(f"mode {op.mode!r} with margins that may be longer than dimension {axis}")
        where_to = {"edge": (const(0), d - 1), "reflect": (const(1), d - 1 - a), "wrap": (d - b, const(0))}[op.mode]
        whole, inner = g, _along(g, axis, b, d)
        for start, size, place in zip((const(0), b + d), (b, a), where_to, strict=True):
            if size is const(0):
                continue
            if op.mode == "reflect":
                part = _along(whole, axis, start + size - 1, size, -1)
            else:
                part = _along(whole, axis, start, size)
            if op.mode == "edge":
                part, size = part.sum((axis,)), const(1)
            none = (const(0),) * len(shape)
            inner = inner + apply_op(Pad(put(axis, none, place), put(axis, none, d - place - size)), part)
        g = inner
    return g


def _along(x: Tensor, axis: int, start: Expr, size: Expr, step: int = 1) -> Tensor:
    """A part of one dimension, all of the others."""
    starts = put(axis, (const(0),) * x.rank, start)
    return apply_op(Slice(starts, put(axis, x.shape, size), put(axis, (const(1),) * x.rank, const(step))), x)
