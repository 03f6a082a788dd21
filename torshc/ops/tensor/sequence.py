"""Sequences and optionals.

A sequence whose elements are known one by one, as exporters write them for a split in parts, needs no host: it is kept
as a SequenceConstruct, and what reads an element of it reads that value itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import BOOL, I32, I64, OPTIONAL, SEQUENCE, Expr, as_int, const
from ...graph import Partial, Shape, Value, ints_of, learn
from ..core.base import axis_of, operator
from ..core.functions import concat
from ..core.host import HostOp, emit, ranked
from ..core.source import SourceNode
from ..core.tensor import Tensor
from .parts import Split
from .view import Expand, Reshape

LONGEST = 64  # elements that are followed one by one


@dataclass(frozen=True)
class SequenceOp(HostOp):
    """Base of this file's operators. Where they are given a position out of range, a run ends with an error."""

    file: ClassVar[str] = "t_op_sequence.c"


def sequence_of(value: Value, name: str) -> Value:
    """The value, which has to be a sequence."""
    if value.dtype is not SEQUENCE:
        raise ModelError(f"{name} of {value.type!r}, which is not a sequence")
    return value


def tensor_of(value: Value, name: str) -> Value:
    """The value, which has to be a tensor."""
    if value.dtype.kind == "q":
        raise ModelError(f"{name} with {value.type!r}, which is not a tensor")
    return value


def contents(sequence: Value) -> tuple[Value, ...] | None:
    """The elements of a sequence that are known one by one."""
    made = sequence.producer
    return made.operands if made is not None and isinstance(made.op, SequenceConstruct) else None


def construct(source: SourceNode, elements: tuple[Value, ...]) -> list[Value]:
    """A sequence of these."""
    inner: Partial | None = None
    for v in elements:
        try:
            inner = v.type.partial if inner is None else inner.join(v.type.partial)
        except ValueError as e:
            raise ModelError(f"{source.op_type} gives a sequence of {e}") from e
    partial = Partial(SEQUENCE, (const(len(elements)),), inner)
    return emit(source, SequenceConstruct(len(elements)), elements, partial)


def _position(source: SourceNode, k: int) -> tuple[Value | None, int | None]:
    """A position operand, if it is there, and its value, if it is known."""
    operand = source.input(k)
    if operand is None:
        return None, None
    if operand.dtype not in (I64, I32) or as_int(operand.type.size) not in (1, None):
        raise ModelError(f"{source.op_type} with a position of {operand.type!r}, where one integer is needed")
    if operand.const is not None:
        return operand, int(operand.const.reshape(-1)[0])
    known = ints_of(operand.data)
    return operand, known[0] if known else None


def _within(position: int, count: int, last: int, name: str) -> int:
    """A position counted from the end where negative, as one of 0..last."""
    if not -count <= position <= last:
        raise ModelError(f"{name}: position {position} of a sequence of {count}, which is out of range")
    return position % count if position < 0 else position


@operator()
@dataclass(frozen=True)
class SequenceEmpty(SequenceOp):
    """A sequence without elements. What it holds is open until something is put in, so that it joins with any other."""

    function: ClassVar[str] = "t_op_sequence_construct"

    def integers(self) -> tuple[int, ...]:
        return (0,)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        source.attribute("dtype")  # that of what is put in, which says so itself
        source.fields(cls)
        return construct(source, ())


@operator()
@dataclass(frozen=True)
class SequenceConstruct(SequenceOp):
    """A sequence of the operands."""

    function: ClassVar[str] = "t_op_sequence_construct"
    count: int = 0

    def integers(self) -> tuple[int, ...]:
        return (self.count,)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        source.fields(SequenceOp)
        elements = tuple(tensor_of(source.required(k), "SequenceConstruct") for k in range(len(source.inputs)))
        return construct(source, elements)


@operator()
@dataclass(frozen=True)
class SequenceInsert(SequenceOp):
    """A sequence with a tensor put in before a position from -n to n; at its end where none is given."""

    function: ClassVar[str] = "t_op_sequence_insert"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        sequence = sequence_of(source.required(0), "SequenceInsert")
        x, (operand, at) = tensor_of(source.required(1), "SequenceInsert"), _position(source, 2)
        source.fields(cls)
        known = contents(sequence)
        if known is not None and len(known) < LONGEST and (operand is None or at is not None):
            place = len(known) if at is None else _within(at, len(known), len(known), "SequenceInsert")
            return construct(source, (*known[:place], x, *known[place:]))
        inner = sequence.type.inner
        try:
            inner = x.type.partial if inner is None else inner.join(x.type.partial)
        except ValueError as e:
            raise ModelError(f"SequenceInsert gives a sequence of {e}") from e
        return emit(source, cls(), [sequence, x, operand], Partial(SEQUENCE, (None,), inner))


@operator()
@dataclass(frozen=True)
class SequenceErase(SequenceOp):
    """A sequence without the element at a position from -n to n - 1; without the last where none is given."""

    function: ClassVar[str] = "t_op_sequence_erase"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        sequence, (operand, at) = sequence_of(source.required(0), "SequenceErase"), _position(source, 1)
        source.fields(cls)
        known = contents(sequence)
        if known is not None and (operand is None or at is not None):
            place = _within(-1 if at is None else at, len(known), len(known) - 1, "SequenceErase")
            return construct(source, (*known[:place], *known[place + 1 :]))
        return emit(source, cls(), [sequence, operand], Partial(SEQUENCE, (None,), sequence.type.inner))


@operator()
@dataclass(frozen=True)
class SequenceAt(SequenceOp):
    """The element at a position from -n to n - 1."""

    function: ClassVar[str] = "t_op_sequence_at"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        sequence, (operand, at) = sequence_of(source.required(0), "SequenceAt"), _position(source, 1)
        source.required(1)
        source.fields(cls)
        known = contents(sequence)
        if known is not None and at is not None:
            return [known[_within(at, len(known), len(known) - 1, "SequenceAt")]]
        return emit(source, cls(), [sequence, operand], ranked(sequence.type.inner, "an element of a sequence"))


@operator()
@dataclass(frozen=True)
class SequenceLength(SequenceOp):
    """How many elements a sequence has, as a scalar."""

    function: ClassVar[str] = "t_op_sequence_length"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        sequence = sequence_of(source.required(0), "SequenceLength")
        source.fields(cls)
        return _known_scalar(source, cls(), sequence, Partial(I64), sequence.shape)


def _known_scalar(source: SourceNode, op: HostOp, x: Value, partial: Partial, data: Shape) -> list[Value]:
    """A scalar that the host reads from x, and whose value can be told from the symbols."""
    if data[0].op == "const":
        return [source.builder.constant(np.asarray(data[0].data, partial.dtype.numpy))]
    out = emit(source, op, [x], partial)
    learn(out[0], data)
    return out


@operator()
@dataclass(frozen=True)
class ConcatFromSequence(SequenceOp):
    """The elements of a sequence in a row along an axis, or along a new one. An empty sequence ends a run."""

    function: ClassVar[str] = "t_op_concat_from_sequence"
    axis: int = 0
    new_axis: int = 0

    def integers(self) -> tuple[int, ...]:
        return (self.axis, self.new_axis)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        sequence = sequence_of(source.required(0), "ConcatFromSequence")
        fields = source.fields(cls)
        known = contents(sequence)
        if known is not None and not known:
            raise ModelError("ConcatFromSequence of an empty sequence, which has no type")
        each = ranked(sequence.type.inner, "ConcatFromSequence of elements")
        dims, stacked = list(each.dims or ()), bool(fields.get("new_axis", 0))
        axis = axis_of(int(fields["axis"]), len(dims) + stacked, "the axis of ConcatFromSequence")
        if known is not None and not each.dtype.is_object:
            parts = [_insert_axis(source, v, axis) for v in known] if stacked else list(known)
            return [concat(*(Tensor(source.builder, v) for v in parts), axis=axis).value]
        dims[axis : axis + (not stacked)] = [sequence.shape[0] if stacked else None]
        return emit(source, cls(axis, int(stacked)), [sequence], Partial(each.dtype, tuple(dims)))


def _insert_axis(source: SourceNode, x: Value, axis: int) -> Value:
    return source.emit(Reshape((*x.shape[:axis], const(1), *x.shape[axis:])), [x])[0]


@operator()
@dataclass(frozen=True)
class SplitToSequence(SequenceOp):
    """A tensor cut along an axis: in parts of 1, of a scalar's size (the last perhaps shorter), or of given sizes.

    Attributes:
        keepdims: parts of 1 keep the axis; only looked at where no size is given.
    """

    function: ClassVar[str] = "t_op_split_to_sequence"
    axis: int = 0
    keepdims: int = 1

    def integers(self) -> tuple[int, ...]:
        return (self.axis, int(self.keepdims != 0))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, split = tensor_of(source.required(0), "SplitToSequence"), source.input(1)
        fields = source.fields(cls)
        axis = axis_of(int(fields.get("axis", 0)), x.type.rank)
        op = cls(axis, int(fields.get("keepdims", 1)))
        if split is not None and split.type.rank > 1:
            raise ModelError(f"SplitToSequence into parts of {split.type!r}, where a number or a vector is needed")
        squeezed = split is None and not op.keepdims
        sizes = _sizes(x.shape, axis, split)
        if sizes is not None and 0 < len(sizes) <= LONGEST and not x.dtype.is_object:
            return construct(source, tuple(_parts(source, x, axis, sizes, squeezed)))
        middle = () if squeezed else (_each(split),)
        inner = Partial(x.dtype, (*x.shape[:axis], *middle, *x.shape[axis + 1 :]))
        count = x.shape[axis] if split is None else split.shape[0] if split.type.rank else None
        return emit(source, op, [x, split], Partial(SEQUENCE, (count,), inner))


def _sizes(shape: Shape, axis: int, split: Value | None) -> tuple[int, ...] | None:
    """The sizes of the parts, when they are known."""
    length = as_int(shape[axis])
    known = (1,) if split is None else ints_of(split.data)
    if known is None or (length is None and (split is None or not split.type.rank)):
        return None
    if split is not None and split.type.rank:
        if min(known, default=0) < 0 or (length is not None and sum(known) != length):
            raise ModelError(
                f"SplitToSequence of a dimension of {length} into {list(known)}"
                ", which have to be 0 or more and make up the dimension"
            )
        return known
    assert length is not None
    if known[0] < 1:
        raise ModelError(f"SplitToSequence into parts of {known[0]}, where a part needs 1 or more")
    if -(-length // known[0]) > LONGEST:
        return None
    return tuple(min(known[0], length - start) for start in range(0, length, known[0]))


def _each(split: Value | None) -> Expr | None:
    """The size that all parts have, when it is known though their number is not, as of a constant expanded."""
    if split is None:
        return const(1)
    made = split.producer
    filled = ints_of(made.operands[0].data) if made is not None and isinstance(made.op, Expand) else None
    return const(filled[0]) if filled is not None and len(filled) == 1 and split.type.rank else None


def _parts(source: SourceNode, x: Value, axis: int, sizes: tuple[int, ...], squeezed: bool) -> list[Value]:
    parts = source.emit(Split(axis, tuple(map(const, sizes))), [x])
    if not squeezed:
        return parts
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [source.emit(Reshape(shape), [p])[0] for p in parts]


@operator()
@dataclass(frozen=True)
class Optional(SequenceOp):
    """An optional with the operand, a tensor or a sequence, or with nothing in it.

    What an empty one could hold is open, so that it joins with any other.
    """

    function: ClassVar[str] = "t_op_optional"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, kind = source.input(0), source.attribute("type")
        source.fields(cls)
        if x is not None and x.dtype is OPTIONAL:
            raise ModelError("Optional of an optional, where a tensor or a sequence is needed")
        if x is None and kind is None:
            raise ModelError("Optional needs an input or a type")
        partial = Partial(OPTIONAL, (const(int(x is not None)),), x.type.partial if x is not None else None)
        return emit(source, cls(), [x], partial)


@operator()
@dataclass(frozen=True)
class OptionalHasElement(SequenceOp):
    """Whether there is something in an optional, as a scalar; in a tensor or a sequence there always is."""

    function: ClassVar[str] = "t_op_optional_has"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.input(0)
        source.fields(cls)
        if x is None or x.dtype is not OPTIONAL:
            return [source.builder.constant(np.asarray(x is not None))]
        return _known_scalar(source, cls(), x, Partial(BOOL), (x.shape[0] > 0,))


@operator()
@dataclass(frozen=True)
class OptionalGetElement(SequenceOp):
    """The contents of an optional; a run in which it is empty is refused. A tensor or a sequence stays as it is."""

    function: ClassVar[str] = "t_op_optional_get"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        source.fields(cls)
        if x.dtype is not OPTIONAL:
            return [x]
        if as_int(x.shape[0]) == 0:
            raise ModelError("OptionalGetElement of an optional that is empty")
        made = x.producer
        if made is not None and isinstance(made.op, Optional):
            return [made.operands[0]]
        return emit(source, cls(), [x], ranked(x.type.inner, "what is in an optional,"))
