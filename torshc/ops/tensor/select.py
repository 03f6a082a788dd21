"""Operators whose results are as large as what they find: NonZero, Compress, Unique, NonMaxSuppression.

What is known at compile time becomes a constant or a Gather; the rest is found by the host, ``t_op_shape.c``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import BOOL, F32, I64, as_int, const
from ...graph import Partial, Value, ints_of
from ..core.base import axis_of, operator, same_dim
from ..core.functions import gather
from ..core.host import HostOp, emit
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor
from .view import Reshape


@dataclass(frozen=True)
class Selecting(HostOp):
    """Base of this file's operators."""

    file: ClassVar[str] = "t_op_shape.c"


def _operand(source: SourceNode) -> Value:
    """Input 0, of elements that can be told apart."""
    x = source.required(0)
    if x.dtype.is_narrow or x.dtype.kind == "q":
        raise Unsupported(f"{source.op_type} of {x.dtype!r}")
    return x


def _is_known(v: Value) -> bool:
    return v.const is not None or ints_of(v.data) is not None


@operator()
@dataclass(frozen=True)
class NonZero(Selecting):
    """Places of the elements that are not 0, a column for each in row-major order; i64 of shape (rank, found).

    NaN is not 0, -0 is; of strings the empty one is 0. Of a scalar the result is (0, found), as ONNX says.
    """

    function: ClassVar[str] = "t_op_nonzero"

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = _operand(source)
        source.fields(cls)
        if not _is_known(x):
            return emit(source, cls(), [x], Partial(I64, (const(x.type.rank), None)))
        array = source.array(0, "the operand of NonZero")
        assert array is not None
        if not array.ndim:
            return [source.builder.constant(np.zeros((0, int(bool(array))), np.int64))]
        return [source.builder.constant(np.stack(np.nonzero(array)).astype(np.int64))]


@operator()
@dataclass(frozen=True)
class Compress(Selecting):
    """The slices along an axis, or of all elements in a row where it is None, where a condition holds.

    A condition that is shorter than the axis leaves out the rest. It may be longer where it does not hold (NumPy's
    rule, which ONNX leaves open); a run in which it holds out of range is refused.
    """

    function: ClassVar[str] = "t_op_compress"
    axis: int | None = None

    def integers(self) -> tuple[int, ...]:
        return (-1 if self.axis is None else self.axis,)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, condition = source.required(0), source.required(1)
        given = source.attribute("axis")
        source.fields(cls)
        if condition.dtype is not BOOL or condition.type.rank != 1 or x.dtype.kind == "q":
            raise ModelError(
                f"Compress of {x.type!r} by a condition {condition.type!r}, where a vector of truth values is needed"
            )
        axis = axis_of(int(given), x.type.rank) if given is not None else None
        size = as_int(x.type.size if axis is None else x.shape[axis])
        if not _is_known(condition) or size is None or x.dtype.is_object:
            dims = (None,) if axis is None else (*x.shape[:axis], None, *x.shape[axis + 1 :])
            return emit(source, cls(axis), [x, condition], Partial(x.dtype, dims))
        array = source.array(1, "the condition of Compress")
        assert array is not None
        places = np.flatnonzero(array)
        if places.size and places[-1] >= size:
            raise ModelError(f"Compress of {x.type!r} by a condition that holds at {places[-1]}")
        if axis is None and x.type.rank != 1:
            x = source.emit(Reshape((x.type.size,)), [x])[0]
        data = Tensor(source.builder, x)
        return [gather(data, data.constant(places), axis=axis or 0).value]


@operator()
@dataclass(frozen=True)
class Unique(Selecting):
    """The different elements, or slices along an axis; the first place of each; which of them stands at each place;
    how often each is there.

    In ascending order (of slices the lexicographic one, of strings that of code points), or in that of their first
    places where `sorted` is 0. What ONNX leaves open: all NaN are one element, after the numbers, alone and in slices;
    -0 equals 0, and the first of them represents both.
    """

    function: ClassVar[str] = "t_op_unique"
    axis: int | None = None
    sorted: int = 1

    def integers(self) -> tuple[int, ...]:
        return (-1 if self.axis is None else self.axis, int(self.sorted != 0))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = _operand(source)
        given, ascending = source.attribute("axis"), int(source.attribute("sorted", 1))
        source.fields(cls)
        axis = axis_of(int(given), x.type.rank) if given is not None else None
        dims = (None,) if axis is None else (*x.shape[:axis], None, *x.shape[axis + 1 :])
        places = x.type.size if axis is None else x.shape[axis]
        types = (Partial(x.dtype, dims), Partial(I64, (None,)), Partial(I64, (places,)), Partial(I64, (None,)))
        return emit(source, cls(axis, ascending), [x], *types[: source.outputs])


@operator()
@dataclass(frozen=True)
class NonMaxSuppression(Selecting):
    """Boxes of each class from the best score on, without those that overlap one already chosen; i64 (chosen, 3).

    Operands: boxes (batch, box, 4), scores (batch, class, box), at most how many of a class (absent: none), the ratio
    of intersection to union above which a box is left out (absent: 0), the score that one has to exceed (absent: any).
    Rows are (batch, class, box), by batch, by class, by falling score, and in order where scores are equal. A score of
    NaN is never chosen; a box with a NaN, or without an area, suppresses nothing and is not suppressed.

    Attributes:
        center_point_box: boxes are (x, y, width, height) from their centres; else two opposite corners (y, x, y, x).
    """

    name: ClassVar[str] = "NonMaxSuppression"
    function: ClassVar[str] = "t_op_non_max_suppression"
    center_point_box: int = 0

    def integers(self) -> tuple[int, ...]:
        return (int(self.center_point_box != 0),)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        boxes, scores = source.required(0), source.required(1)
        op = cls(**source.fields(cls))
        if boxes.type.rank != 3 or scores.type.rank != 3 or boxes.dtype is not F32 or scores.dtype is not F32:
            raise ModelError(
                f"NonMaxSuppression of boxes {boxes.type!r} with scores {scores.type!r}"
                ", which have to be f32 with 3 dimensions"
            )
        constraints = source.builder.graph.constraints
        same_dim(boxes.shape[2], const(4), constraints, "the numbers of a box of NonMaxSuppression")
        same_dim(boxes.shape[0], scores.shape[0], constraints, "the batches of NonMaxSuppression")
        same_dim(boxes.shape[1], scores.shape[2], constraints, "the boxes of NonMaxSuppression")
        limit, ratio, least = (source.input(k) for k in (2, 3, 4))
        for v, dtype in ((limit, I64), (ratio, F32), (least, F32)):
            if v is not None and v.dtype is not dtype:
                raise ModelError(f"NonMaxSuppression with a limit of {v.type!r}, where {dtype!r} is needed")
        return emit(source, op, [boxes, scores, limit, ratio, least], Partial(I64, (None, const(3))))
