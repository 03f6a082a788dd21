"""Views: operators that move elements and compute nothing; fusion folds their index arithmetic away."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import Expr, as_int, const, eq, ne, select
from ...graph import Node, Shape, TensorType, Value
from ..core.axes import (
    at_run,
    axes_operand,
    constraints_of,
    either,
    known_axes,
    marks,
    require,
    with_ones,
    without,
)
from ..core.base import (
    Constraints,
    Index,
    Inputs,
    LoopNest,
    Op,
    Read,
    axis_of,
    broadcast,
    broadcast_index,
    need,
    operator,
    same_dim,
)
from ..core.gradient import Backward, gradient_of, sum_to
from ..core.reach import within
from ..core.scalar import Scalar, where
from ..core.source import SourceNode
from ..core.tensor import Tensor

WIDEST = 32  # operands of run-time sizes that are joined at once


@dataclass(frozen=True)
class View(Op):
    """Base of the views of one operand."""

    family: ClassVar[str] = "view"


def too_wide(parts: Inputs) -> bool:
    """Whether to join the parts in groups."""
    return len(parts) > WIDEST and any(v is not None and v.type.static_shape is None for v in parts)


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
        out.append(position if k == len(shape) - 1 else position % d)
        position = position // d
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

    def nest(self, node: Node, output: int) -> LoopNest:
        source, target = node.operands[0].shape, node.outputs[0].shape
        return LoopNest(lambda at, _, read: read(0, remap(at, target, source)))

    def push(self, node: Node, index: Index) -> Index:
        return remap(index, node.operands[0].shape, node.outputs[0].shape)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        given = source.attribute("shape")
        wanted = tuple(const(int(d)) for d in given) if given is not None else _read_wanted_shape(source)
        keep_zero = bool(source.attribute("allowzero", 0))
        source.fields(cls)
        if at_run(*(wanted or ())):
            return source.emit(cls(resolve_at_run(x.shape, wanted or (), keep_zero, constraints_of(source))), [x])
        return source.emit(cls(resolve(x.shape, wanted or (), keep_zero)), [x])


def _read_wanted_shape(source: SourceNode) -> Shape | None:
    """The shape operand of a Reshape; where its length is not known, that is the rank that the model states."""
    operand, rank = source.input(1), source.stated_rank
    if operand is not None and rank is not None and operand.type.static_shape is None and operand.type.rank == 1:
        source.inputs[1] = source.builder.one(Reshape((const(rank),)), operand)  # a run checks it
    return source.dims(1, "the shape of Reshape")


def resolve_at_run(shape: Shape, wanted: Shape, keep_zero: bool, constraints: Constraints) -> Shape:
    """A Reshape operand known only at run time, with 0 and -1 filled in wherever they occur."""
    dims, holes = [], const(0)
    for k, d in enumerate(wanted):
        require(constraints, d >= -1, "a dimension of Reshape below -1")
        copied = eq(d, 0)
        if keep_zero:
            dims.append(d)
        elif k < len(shape):
            dims.append(select(copied, shape[k], d))
        else:
            dims.append(d)
            require(constraints, ne(d, 0), f"Reshape copies dimension {k} of a tensor of rank {len(shape)}")
        holes = holes + select(eq(d, -1), const(1), const(0))
    require(constraints, holes <= 1, "Reshape with more than one -1")
    total = const(1)
    for d in shape:
        total = total * d
    out = []
    for k, d in enumerate(dims):
        known = const(1)
        for other in (*dims[:k], *dims[k + 1 :]):
            known = known * other
        hole = eq(wanted[k], -1)
        require(constraints, either(wanted[k] >= 0, ne(known, 0)), "Reshape with -1 beside a 0")
        out.append(select(hole, total // known, d))
    return tuple(out)


def resolve(shape: Shape, wanted: Shape, keep_zero: bool) -> Shape:
    """A Reshape operand with its 0 (copy) and -1 (the rest) filled in."""
    dims = list(wanted)
    for k, d in enumerate(dims):
        if as_int(d) == 0 and not keep_zero:
            if k >= len(shape):
                raise ModelError(f"Reshape copies dimension {k} of a tensor of rank {len(shape)}, which it lacks")
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
            raise ModelError("Reshape with -1 beside a dimension of 0, which leaves it open")
        dims[holes[0]] = total // known
    return tuple(dims)


@operator()
@dataclass(frozen=True)
class Transpose(View):
    """Permuted dimensions: output dimension k is input dimension perm[k]."""

    perm: tuple[int, ...] = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Transpose")
        if sorted(self.perm) != list(range(x.type.rank)):
            raise ModelError(f"perm {self.perm} is not a permutation of rank {x.type.rank}")
        return [TensorType(x.dtype, tuple(x.shape[p] for p in self.perm))]

    def nest(self, node: Node, output: int) -> LoopNest:
        inverse = sorted(range(len(self.perm)), key=self.perm.__getitem__)
        return LoopNest(lambda at, _, read: read(0, tuple(at[k] for k in inverse)))

    def push(self, node: Node, index: Index) -> Index:
        return tuple(index[p] for p in self.perm)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        perm = source.attribute("perm")
        source.fields(cls)
        return source.emit(cls(tuple(perm) if perm is not None else tuple(reversed(range(x.type.rank)))), [x])


def _read_as_reshape(name: str) -> None:
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
    given = axes_operand(source)
    axes = known_axes(given) if given is not None else None
    if given is not None and axes is None:
        constraints = constraints_of(source)
        marked = marks(given, x.type.rank, constraints)
        for m, d in zip(marked, x.shape, strict=True):
            whole = select(m, d, const(1))
            require(constraints, eq(whole, 1), f"Squeeze of a dimension {d!r}")
        return without(x.shape, marked, x.type.rank - len(given))
    chosen = {axis_of(a, x.type.rank) for a in axes} if axes is not None else None
    for k in chosen or ():
        if as_int(x.shape[k]) not in (1, None):
            raise ModelError(f"Squeeze of dimension {k}, which is {x.shape[k]!r}")
    if chosen is None:
        return _without_ones(source, x)
    return tuple(d for k, d in enumerate(x.shape) if k not in chosen)


def _without_ones(source: SourceNode, x: Value) -> Shape:
    """All sizes but 1; those that may be 1 go too where the model states the rank that is left then.

    A size that is 1 only in some runs would change the rank of the result, so each run checks it.
    """
    left = tuple(d for d in x.shape if ne(d, 1) is const(True))
    if source.stated_rank != len(left):
        left = tuple(d for d in x.shape if as_int(d) != 1)
    for d in x.shape:
        require(constraints_of(source), (ne if d in left else eq)(d, 1), f"Squeeze without axes of {x.type!r}")
    return left


def _unsqueeze(source: SourceNode, x: Value) -> Shape:
    given = axes_operand(source) or ()
    axes, rank = known_axes(given), x.type.rank + len(given)
    if axes is None:
        return with_ones(x.shape, marks(given, rank, constraints_of(source)))
    places = {axis_of(a, rank) for a in axes}
    if len(places) != len(axes):
        raise ModelError(f"Unsqueeze names an axis twice: {axes}")
    rest = iter(x.shape)
    return tuple(const(1) if k in places else next(rest) for k in range(rank))


for _name in ("Squeeze", "Unsqueeze", "Flatten"):
    _read_as_reshape(_name)


@operator()
@dataclass(frozen=True)
class Expand(View):
    """Broadcast to a shape; a dimension of 1 in the wanted shape keeps the operand's."""

    shape: Shape = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Expand")
        return [TensorType(x.dtype, broadcast([x.shape, self.shape], constraints))]

    def nest(self, node: Node, output: int) -> LoopNest:
        shape = node.operands[0].shape
        return LoopNest(lambda at, _, read: read(0, broadcast_index(at, shape)))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, wanted = source.required(0), source.dims(1, "the shape of Expand") or ()
        if not at_run(*wanted, *x.shape):
            return source.emit(cls(wanted), [x])
        lead = max(x.type.rank - len(wanted), 0)
        have = (const(1),) * (len(wanted) - x.type.rank) + x.shape
        whole = tuple(_spread(d, w, constraints_of(source)) for d, w in zip(have[lead:], wanted, strict=True))
        return source.emit(expansion(x.shape, (*have[:lead], *whole)), [x])


def expansion(shape: Shape, to: Shape) -> Expand | Stretch:
    """What broadcasts a shape to one that it is known to fit, exactly: no dimension of that is derived again."""
    plain = all(as_int(d) == 1 or d is w for d, w in zip(shape, to[len(to) - len(shape) :], strict=True))
    return Expand(to) if plain else Stretch(to)


def _spread(d: Expr, wanted: Expr, constraints: Constraints) -> Expr:
    """What a dimension becomes when it is broadcast to another one; either may be 1 at run time."""
    if as_int(d) == 1 or d is wanted:
        return wanted
    fits = either(eq(d, 1), eq(wanted, 1), eq(d, wanted))
    require(constraints, fits, f"Expand of a dimension {d!r} to {wanted!r}")
    known = as_int(d), as_int(wanted)
    if known[0] is not None or known[1] == 1:
        return d
    return wanted if known[1] is not None else select(eq(wanted, 1), d, wanted)


@operator("Stretch", "torshc")
@dataclass(frozen=True)
class Stretch(View):
    """Broadcast to a shape where only the run shows which dimensions of the operand are 1; others must be equal."""

    shape: Shape = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "the operand of Stretch")
        for d, wanted in zip(x.shape, self.shape[len(self.shape) - x.type.rank :], strict=True):
            if d is not wanted:
                fits = either(eq(d, 1), eq(d, wanted))
                require(constraints, fits, f"a dimension {d!r} does not broadcast to {wanted!r}")
        return [TensorType(x.dtype, self.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        shape, out = node.operands[0].shape, node.outputs[0].shape

        def body(at: Index, _: Index, read: Read) -> Scalar:
            lead = len(out) - len(shape)
            index = [
                i if d is w else select(eq(d, 1), const(0), i)
                for i, d, w in zip(at[lead:], shape, out[lead:], strict=True)
            ]
            return read(0, tuple(index))

        return LoopNest(body)


@operator()
@dataclass(frozen=True)
class Concat(Op):
    """Operands joined along an axis.

    Where the k-th begins is a sum of k sizes. Of many run-time sizes all those sums would be a text that grows with the
    square of their number, so many operands are joined in groups, and the groups then.
    """

    family: ClassVar[str] = "view"
    axis: int = 0

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        parts = source.inputs
        if not too_wide(parts):
            return super().read(source)
        size = math.isqrt(len(parts))
        op = cls(**source.fields(cls))
        groups = [source.emit(op, parts[k : k + size])[0] for k in range(0, len(parts), size)]
        return source.emit(op, groups)

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        first = need(inputs[0], "input 0 of Concat")
        if not first.type.rank:
            raise ModelError("Concat of scalars, which have no axis")
        axis = axis_of(self.axis, first.type.rank)
        shape = list(first.shape)
        for v in inputs[1:]:
            v = need(v, "an input of Concat")
            if v.type.rank != first.type.rank or v.dtype is not first.dtype:
                raise ModelError(
                    f"Concat of {first.type!r} and {v.type!r}, which need one type and the same number of dimensions"
                )
            for d in range(len(shape)):
                shape[d] = shape[d] + v.shape[d] if d == axis else same_dim(shape[d], v.shape[d], constraints, "Concat")
        return [TensorType(first.dtype, tuple(shape))]

    def nest(self, node: Node, output: int) -> LoopNest:
        axis = axis_of(self.axis, node.operands[0].type.rank)
        sizes = [v.shape[axis] for v in node.operands]

        def body(at: Index, _: Index, read: Read) -> Scalar:
            ends = [sizes[0]]
            for s in sizes[1:]:
                ends.append(ends[-1] + s)

            def pick(k: int) -> Scalar:
                """Operand k or a later one; an operand that the index surely misses is not read."""
                here = at[axis] - (ends[k - 1] if k else const(0))
                inside = const(True) if k == len(sizes) - 1 else here < sizes[k]
                if inside.op == "const" and not inside.data:
                    return pick(k + 1)
                value = within(read, k, (*at[:axis], here, *at[axis + 1 :]), node.operands[k].shape, (axis,))
                return value if inside.op == "const" else where(inside, value, pick(k + 1))

            return pick(0)

        return LoopNest(body)


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
            raise ModelError(f"Tile of {x.type!r} with {len(self.repeats)} repeats, where each dimension needs one")
        return [TensorType(x.dtype, tuple(d * r for d, r in zip(x.shape, self.repeats, strict=True)))]

    def nest(self, node: Node, output: int) -> LoopNest:
        shape = node.operands[0].shape

        def body(at: Index, _: Index, read: Read) -> Scalar:
            return read(0, tuple(i % d if as_int(d) != 1 else const(0) for i, d in zip(at, shape, strict=True)))

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        repeats = source.dims(1, "the repeats of Tile") or ()
        if any((as_int(r) or 0) < 0 for r in repeats):
            raise ModelError(f"Tile with repeats {list(repeats)}, which have to be 0 or more")
        return source.emit(cls(repeats), [source.required(0)])


@gradient_of(Reshape)
def _reshape_gradient(op: Reshape, at: Backward) -> Tensor:
    return at.gradient.reshape(*at.operand(0).shape)


@gradient_of(Transpose)
def _transpose_gradient(op: Transpose, at: Backward) -> Tensor:
    return at.gradient.transpose(*sorted(range(len(op.perm)), key=op.perm.__getitem__))


@gradient_of(Expand, Stretch)
def _expand_gradient(op: Expand | Stretch, at: Backward) -> Tensor:
    return sum_to(at.gradient, at.operand(0).shape)


@gradient_of(Concat)
def _concat_gradient(op: Concat, at: Backward) -> list[Tensor]:
    axis = axis_of(op.axis, at.outputs[0].rank)
    return at.gradient.split(axis, *(at.operand(k).shape[axis] for k in range(len(at.inputs))))


@gradient_of(Tile)
def _tile_gradient(op: Tile, at: Backward) -> Tensor:
    """The sum of the copies."""
    shape = at.operand(0).shape
    parts = at.gradient.reshape(*(d for pair in zip(op.repeats, shape, strict=True) for d in pair))
    return parts.sum(range(0, 2 * len(shape), 2), keep=False) if shape else parts
