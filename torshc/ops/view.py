"""Views: operators that move elements and compute nothing; fusion folds their index arithmetic away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..errors import ModelError
from ..expr import Expr, as_int, call, const, select
from ..graph import Node, Shape, TensorType, Value
from .base import (
    Constraints,
    Index,
    Inputs,
    Nest,
    Op,
    Read,
    axis_of,
    broadcast,
    broadcast_index,
    need,
    operator,
    same_dim,
)
from .source import SourceNode, Unsupported


@dataclass(frozen=True)
class View(Op):
    """Base of the views of one operand."""

    family: ClassVar[str] = "view"


def linear(index: Index, shape: Shape) -> Expr:
    """Row-major position of an index."""
    total = const(0)
    for i, d in zip(index, shape, strict=True):
        total = total * d + i
    return total


def delinear(position: Expr, shape: Shape) -> Index:
    """Index of a row-major position."""
    out: list[Expr] = []
    for k, d in enumerate(reversed(shape)):
        if as_int(d) == 1:
            out.append(const(0))
            continue
        out.append(position if k == len(shape) - 1 else call("mod", position, d))
        position = call("floordiv", position, d)
    return tuple(reversed(out))


def remap(index: Index, source: Shape, target: Shape) -> Index:
    """The index into `target` of the element that stands at `index` in `source`, both row-major.

    Runs of dimensions that hold the same number of elements are mapped apart, so that a batch dimension that both
    share never meets a division.
    """
    out: list[Expr] = []
    i = j = 0
    while i < len(source) or j < len(target):
        start_i, start_j = i, j
        left, right = const(1), const(1)
        if i < len(source):
            left, i = source[i], i + 1
        if j < len(target):
            right, j = target[j], j + 1
        while left is not right and (i < len(source) or j < len(target)):
            a, b = as_int(left), as_int(right)
            grow_left = a < b if a is not None and b is not None else len(source) - i >= len(target) - j
            if (grow_left and i < len(source)) or j >= len(target):
                left, i = left * source[i], i + 1
            else:
                right, j = right * target[j], j + 1
        out.extend(delinear(linear(index[start_i:i], source[start_i:i]), target[start_j:j]))
    return tuple(out)


@operator()
@dataclass(frozen=True)
class Reshape(View):
    """The same elements in row-major order under another shape."""

    shape: Shape = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Reshape")
        out = TensorType(x.dtype, self.shape)
        if out.size is not x.type.size:
            same_dim(x.type.size, out.size, constraints, f"Reshape of {x.type!r} to {out!r}")
        return [out]

    def nest(self, node: Node, output: int) -> Nest:
        source, target = node.operands[0].shape, node.outputs[0].shape
        return Nest(lambda at, _, read: read(0, remap(at, target, source)))

    def push(self, node: Node, index: Index) -> Index:
        return remap(index, node.operands[0].shape, node.outputs[0].shape)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        given = source.attribute("shape")
        wanted = tuple(const(int(d)) for d in given) if given is not None else source.dims(1, "the shape of Reshape")
        keep_zero = bool(source.attribute("allowzero", 0))
        source.fields(cls)
        return source.emit(cls(resolve(x.shape, wanted or (), keep_zero)), [x])


def resolve(shape: Shape, wanted: Shape, keep_zero: bool) -> Shape:
    """A Reshape operand with its 0 (copy) and -1 (the rest) filled in."""
    dims = list(wanted)
    for k, d in enumerate(dims):
        if as_int(d) == 0 and not keep_zero:
            if k >= len(shape):
                raise ModelError(f"Reshape copies dimension {k} of a tensor of rank {len(shape)}")
            dims[k] = shape[k]
    holes = [k for k, d in enumerate(dims) if as_int(d) == -1]
    if len(holes) > 1:
        raise ModelError("Reshape with more than one -1")
    if holes:
        total, known = const(1), const(1)
        for d in shape:
            total = total * d
        for k, d in enumerate(dims):
            if k != holes[0]:
                known = known * d
        if as_int(known) == 0:
            raise ModelError("Reshape with -1 beside a dimension of 0")
        dims[holes[0]] = call("floordiv", total, known)
    return tuple(dims)


@operator()
@dataclass(frozen=True)
class Transpose(View):
    """Permuted dimensions: output dimension k is input dimension perm[k]."""

    perm: tuple[int, ...] = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Transpose")
        if sorted(self.perm) != list(range(x.type.rank)):
            raise ModelError(f"perm {self.perm} is no permutation of rank {x.type.rank}")
        return [TensorType(x.dtype, tuple(x.shape[p] for p in self.perm))]

    def nest(self, node: Node, output: int) -> Nest:
        inverse = sorted(range(len(self.perm)), key=self.perm.__getitem__)
        return Nest(lambda at, _, read: read(0, tuple(at[k] for k in inverse)))

    def push(self, node: Node, index: Index) -> Index:
        return tuple(index[p] for p in self.perm)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        perm = source.attribute("perm")
        source.fields(cls)
        return source.emit(cls(tuple(perm) if perm is not None else tuple(reversed(range(x.type.rank)))), [x])


def _reshaping(name: str) -> None:
    """Squeeze, Unsqueeze and Flatten are reshapes; they become one at import."""

    def read(cls: type[Op], source: SourceNode) -> list[Value]:
        x = source.required(0)
        if name == "Flatten":
            axis = int(source.attribute("axis", 1))
            axis = axis + x.type.rank if axis < 0 else axis
            if not 0 <= axis <= x.type.rank:
                raise ModelError(f"axis {axis} is out of range for rank {x.type.rank}")
            sizes = [const(1), const(1)]
            for k, d in enumerate(x.shape):
                sizes[k >= axis] = sizes[k >= axis] * d
            shape: Shape = tuple(sizes)
        else:
            shape = (_squeeze if name == "Squeeze" else _unsqueeze)(source, x)
        source.fields(cls)
        return source.emit(Reshape(shape), [x])

    operator(name)(
        dataclass(frozen=True)(type(name, (View,), {"read": classmethod(read), "__doc__": f"ONNX {name}, a Reshape."}))
    )


def _squeeze(source: SourceNode, x: Value) -> Shape:
    axes = source.axes()
    chosen = {axis_of(a, x.type.rank) for a in axes} if axes is not None else None
    for k in chosen or ():
        if as_int(x.shape[k]) not in (1, None):
            raise ModelError(f"Squeeze of dimension {k}, which is {x.shape[k]!r}")
    return tuple(d for k, d in enumerate(x.shape) if (k not in chosen if chosen is not None else as_int(d) != 1))


def _unsqueeze(source: SourceNode, x: Value) -> Shape:
    axes = source.axes() or ()
    rank = x.type.rank + len(axes)
    places = {axis_of(a, rank) for a in axes}
    if len(places) != len(axes):
        raise ModelError(f"Unsqueeze names an axis twice: {axes}")
    rest = iter(x.shape)
    return tuple(const(1) if k in places else next(rest) for k in range(rank))


for _name in ("Squeeze", "Unsqueeze", "Flatten"):
    _reshaping(_name)


@operator()
@dataclass(frozen=True)
class Expand(View):
    """Broadcast to a shape; a dimension of 1 in the wanted shape keeps the operand's."""

    shape: Shape = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Expand")
        return [TensorType(x.dtype, broadcast([x.shape, self.shape], constraints))]

    def nest(self, node: Node, output: int) -> Nest:
        shape = node.operands[0].shape
        return Nest(lambda at, _, read: read(0, broadcast_index(at, shape)))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return source.emit(cls(source.dims(1, "the shape of Expand") or ()), [source.required(0)])


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
    steps: tuple[int, ...] = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(need(inputs[0], "input 0 of Slice").dtype, self.sizes)]

    def nest(self, node: Node, output: int) -> Nest:
        def body(at: Index, _: Index, read: Read) -> Expr:
            return read(0, tuple(i * step + start for i, start, step in zip(at, self.starts, self.steps, strict=True)))

        return Nest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        if source.opset < 10:
            raw = source.attribute("starts"), source.attribute("ends"), source.attribute("axes"), None
            starts, ends, axes, steps = (None if r is None else tuple(const(int(v)) for v in r) for r in raw)
        else:
            starts, ends = source.dims(1, "the starts of Slice"), source.dims(2, "the ends of Slice")
            axes, steps = source.dims(3, "the axes of Slice"), source.dims(4, "the steps of Slice")
        source.fields(cls)
        if starts is None or ends is None:
            raise ModelError("Slice needs starts and ends")
        which = [axis_of(_known(a), x.type.rank) for a in axes or map(const, range(len(starts)))]
        lengths = {len(which), len(starts), len(ends), len(steps if steps is not None else starts)}
        if len(lengths) > 1 or len(set(which)) != len(which):
            raise ModelError("Slice needs as many starts, ends, axes and steps, and each axis once")
        begin, size, step = [const(0)] * x.type.rank, list(x.shape), [1] * x.type.rank
        for k, axis in enumerate(which):
            step[axis] = 1 if steps is None else _known(steps[k])
            begin[axis], size[axis] = slice_extent(x.shape[axis], starts[k], ends[k], step[axis])
        return source.emit(cls(tuple(begin), tuple(size), tuple(step)), [x])


def _known(e: Expr) -> int:
    value = as_int(e)
    if value is None:
        raise Unsupported("axes or steps of Slice that depend on a symbolic dimension")
    return value


def slice_extent(size: Expr, start: Expr, end: Expr, step: int) -> tuple[Expr, Expr]:
    """First index and number of elements of a Python slice of a dimension, with ONNX's clamping."""
    if step == 0:
        raise ModelError("Slice with a step of 0")

    def place(e: Expr, low: Expr, high: Expr) -> Expr:
        e = select(call("lt", e, 0), e + size, e)
        return call("min", call("max", e, low), high)

    if step > 0:
        first, last = place(start, const(0), size), place(end, const(0), size)
        return first, call("floordiv", call("max", last - first, 0) + (step - 1), step)
    first, last = place(start, const(0), size - 1), place(end, const(-1), size - 1)
    return first, call("floordiv", call("max", first - last, 0) + (-step - 1), -step)


@operator()
@dataclass(frozen=True)
class Concat(Op):
    """Operands joined along an axis."""

    family: ClassVar[str] = "view"
    axis: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        first = need(inputs[0], "input 0 of Concat")
        if not first.type.rank:
            raise ModelError("Concat of scalars")
        axis = axis_of(self.axis, first.type.rank)
        shape = list(first.shape)
        for v in inputs[1:]:
            v = need(v, "an input of Concat")
            if v.type.rank != first.type.rank or v.dtype is not first.dtype:
                raise ModelError(f"Concat of {first.type!r} and {v.type!r}")
            for d in range(len(shape)):
                shape[d] = shape[d] + v.shape[d] if d == axis else same_dim(shape[d], v.shape[d], constraints, "Concat")
        return [TensorType(first.dtype, tuple(shape))]

    def nest(self, node: Node, output: int) -> Nest:
        axis = axis_of(self.axis, node.operands[0].type.rank)
        sizes = [v.shape[axis] for v in node.operands]

        def body(at: Index, _: Index, read: Read) -> Expr:
            ends = [sizes[0]]
            for s in sizes[1:]:
                ends.append(ends[-1] + s)

            def pick(k: int) -> Expr:
                """Operand k or a later one; an operand that the index surely misses is not read."""
                here = at[axis] - (ends[k - 1] if k else const(0))
                inside = const(True) if k == len(sizes) - 1 else call("lt", here, sizes[k])
                if inside.op == "const" and not inside.data:
                    return pick(k + 1)
                value = read(k, (*at[:axis], here, *at[axis + 1 :]))
                return value if inside.op == "const" else select(inside, value, pick(k + 1))

            return pick(0)

        return Nest(body)


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

    def nest(self, node: Node, output: int) -> Nest:
        axis = axis_of(self.axis, node.operands[0].type.rank)
        start = const(0)
        for s in self.sizes[:output]:
            start = start + s
        return Nest(lambda at, _, read: read(0, (*at[:axis], at[axis] + start, *at[axis + 1 :])))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        if not x.type.rank:
            raise ModelError("Split of a scalar")
        axis = axis_of(int(source.attribute("axis", 0)), x.type.rank)
        given = source.attribute("split")
        sizes = tuple(const(int(s)) for s in given) if given is not None else source.dims(1, "the sizes of Split")
        if sizes is None:
            count = int(source.attribute("num_outputs", source.outputs))
            if count < 1:
                raise ModelError(f"Split into {count} parts")
            chunk = call("floordiv", x.shape[axis] + (count - 1), count)
            sizes = (*[chunk] * (count - 1), x.shape[axis] - chunk * (count - 1))
        source.attribute("num_outputs")
        source.fields(cls)
        if len(sizes) < source.outputs:
            raise ModelError(f"Split into {len(sizes)} parts with {source.outputs} outputs")
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

    def nest(self, node: Node, output: int) -> Nest:
        shape, has_value = node.operands[0].shape, len(node.operands) > 1

        def body(at: Index, _: Index, read: Read) -> Expr:
            inside, index = const(True), []
            for i, b, d in zip(at, self.before, shape, strict=True):
                j = i - b
                if self.mode == "edge":
                    j = call("min", call("max", j, 0), d - 1)
                elif self.mode == "wrap":
                    j = call("mod", j, d)
                elif self.mode == "reflect":
                    j = select(call("lt", j, 0), -j, j)
                    j = select(call("lt", j, d), j, (d - 1) * 2 - j)
                else:
                    inside = call("and", inside, call("and", call("ge", j, 0), call("lt", j, d)))
                index.append(j)
            value = read(0, tuple(index))
            return select(inside, value, read(1, ()) if has_value else const(0, value.dtype))

        return Nest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        given = source.attribute("pads")
        pads = tuple(const(int(p)) for p in given) if given is not None else source.dims(1, "the pads of Pad")
        mode, fill = str(source.attribute("mode", "constant")), source.input(2)
        if source.attribute("value"):
            import numpy as np

            fill = source.builder.constant(np.asarray(source.attribute("value"), dtype=x.dtype.numpy))
        if fill is not None and fill.type.rank:
            fill = source.emit(Reshape(()), [fill])[0]
        source.fields(cls)
        if mode not in ("constant", "edge", "reflect", "wrap"):
            raise ModelError(f"Pad has no mode {mode!r}")
        axes = source.ints(3, "the axes of Pad")
        which = [axis_of(a, x.type.rank) for a in axes] if axes is not None else list(range(x.type.rank))
        if pads is None or len(pads) != 2 * len(which):
            raise ModelError(f"Pad of rank {x.type.rank} needs {2 * len(which)} pads")
        before, after = [const(0)] * x.type.rank, [const(0)] * x.type.rank
        for k, axis in enumerate(which):
            before[axis], after[axis] = pads[k], pads[k + len(which)]
        return source.emit(cls(tuple(before), tuple(after), mode), [x] if fill is None else [x, fill])


@operator()
@dataclass(frozen=True)
class Tile(View):
    """The operand repeated along each dimension.

    Attributes:
        repeats: how often, for each dimension.
    """

    repeats: Shape = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Tile")
        if len(self.repeats) != x.type.rank:
            raise ModelError(f"Tile of {x.type!r} with {len(self.repeats)} repeats")
        return [TensorType(x.dtype, tuple(d * r for d, r in zip(x.shape, self.repeats, strict=True)))]

    def nest(self, node: Node, output: int) -> Nest:
        shape = node.operands[0].shape

        def body(at: Index, _: Index, read: Read) -> Expr:
            return read(
                0, tuple(call("mod", i, d) if as_int(d) != 1 else const(0) for i, d in zip(at, shape, strict=True))
            )

        return Nest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        return source.emit(cls(source.dims(1, "the repeats of Tile") or ()), [source.required(0)])
