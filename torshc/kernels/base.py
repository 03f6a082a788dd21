"""What a kernel is before it is printed: buffers, axes, stores and bodies as expressions.

Nothing here knows a target. A target's templates receive a kernel and a printer, and ask the printer for the text of
the expressions that they place in their loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from ..expr import DType, Expr, as_int, const, select, walk
from ..graph import Value

AT_ONCE = 1 << 22  # elements of a weight that are packed in one go


class NoKernel(Exception):
    """There is no kernel for a group; the message says why."""


@dataclass(frozen=True)
class Packed:
    """A weight in the form that a kernel reads, made from a constant when the bundle is written.

    Attributes:
        source: the constant.
        how: name of the form with its parameters; equal sources packed equally are stored once.
        make: makes the packed array, as parts that lie one after the other, so that not all of a large one is held.
        nbytes: its size.
    """

    source: Value
    how: str
    make: Callable[[np.ndarray[Any, Any]], Iterable[np.ndarray[Any, Any]]] = field(compare=False)
    nbytes: int = 0
    dtype: DType | None = None


def view_elements(
    array: np.ndarray[Any, Any], start: int, shape: Sequence[int], steps: Sequence[int]
) -> np.ndarray[Any, Any]:
    """The elements start + i * steps[0] + j * steps[1] ... of an array, counted in C order, at [i, j, ...].

    An array of another order, such as a transposed weight, is read where it lies, unless a step runs from one of its
    dimensions into the next: then it is copied.

    >>> weight = np.arange(6).reshape(2, 3).T  # of 3 rows, [[0, 3], [1, 4], [2, 5]]
    >>> view_elements(weight, 1, [2, 2], [1, 2]).tolist()
    [[3, 4], [1, 2]]
    >>> view = view_elements(weight, 1, [3], [2])
    >>> view.tolist(), np.shares_memory(view, weight)
    ([3, 4, 5], True)
    """
    if not array.flags.c_contiguous and 0 not in shape and min(steps, default=0) >= 0:
        moving = [step if extent > 1 else 0 for step, extent in zip(steps, shape, strict=True)]
        first, *along = np.transpose(np.unravel_index([start, *moving], array.shape))
        last = first + sum(step * (extent - 1) for step, extent in zip(along, shape, strict=True))
        if (last < array.shape).all():
            corner = array[tuple(slice(at, at + 1) for at in first)]
            strides = [int(step @ np.array(array.strides)) for step in along]
            return np.lib.stride_tricks.as_strided(corner, shape, strides, writeable=False)
    flat = np.ascontiguousarray(array).reshape(-1)[start:]
    return np.lib.stride_tricks.as_strided(flat, shape, [step * flat.itemsize for step in steps], writeable=False)


@dataclass(frozen=True)
class Temporary:
    """Memory that one kernel writes for another of the same group (a packed operand)."""

    name: str
    owner: int
    nbytes: Expr


Operand = Value | Packed | Temporary


@dataclass(frozen=True)
class Buffer:
    """An argument of a kernel.

    Attributes:
        operand: what follows it.
        dtype: element type in memory.
        written: whether the kernel stores to it.
        start: elements of the operand that lie before it.
        length: elements of a part, where an operand is more than one argument can be; 0 for all from the start on.
        last: whether nothing reads the operand after the kernel, so that a result may take its place.
    """

    operand: Operand
    dtype: DType
    written: bool
    start: int = 0
    length: int = 0
    last: bool = False

    @property
    def constant(self) -> bool:
        """Whether it is one of the weights."""
        return isinstance(self.operand, Packed) or (isinstance(self.operand, Value) and self.operand.const is not None)

    @property
    def start_bytes(self) -> int:
        return self.start * self.dtype.size


@dataclass(frozen=True)
class Store:
    """One store: buffer number, element offset, value."""

    buffer: int
    offset: Expr
    value: Expr


@dataclass(frozen=True)
class Total(Store):
    """What a task adds up over its pixels for each channel: `buffer` has places for the totals of each task, and
    `offset` is the number of this one among the kernel's."""


@dataclass(frozen=True)
class Kernel:
    """Base of the kernel kinds.

    Attributes:
        buffers: arguments in order; loads and stores name them by position.
        tasks: number of independent pieces of work.
        scratch: bytes of scratch for each thread.
        flops, nbytes: arithmetic operations and bytes moved at the least, for people and for the roofline.
        when: sizes of a run for which it is launched, where others of its group serve the rest; true for all. The host
            program gives it no tasks for other sizes (:meth:`if_launched`).

    Class attributes:
        needs: instruction sets beyond a level's that the kernel is made for.
    """

    kind: ClassVar[str] = ""
    template: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()

    buffers: tuple[Buffer, ...]
    tasks: Expr
    flops: Expr
    nbytes: Expr
    when: Expr = field(default=const(True), kw_only=True)

    def if_launched(self, size: Expr) -> Expr:
        """A size that counts where the kernel is launched, else 0."""
        return select(self.when, size, const(0))

    @property
    def trips(self) -> int:
        """What its loops come to, as far as sizes are known: points times terms of a sum, or arithmetic operations."""
        loops = (*getattr(self, "axes", ()), *getattr(self, "reduce", ()))
        extents = (as_int(a.args[0]) for a in loops if a.op == "axis")
        return max(math.prod(1 if e is None else e for e in extents), as_int(self.flops) or 0)

    @classmethod
    def of(cls, base: Kernel, **more: Any) -> Self:
        """A kernel of this kind made of a more general one: its fields, some of them other, and those that are new."""
        return cls(**{f.name: getattr(base, f.name) for f in fields(base)} | more)

    @property
    def scratch(self) -> Expr:
        return const(0)

    @property
    def counted(self) -> frozenset[Expr]:
        """Sizes that only a run knows and that are below 2^31 all the same, as a device has no memory for more."""
        return frozenset()

    @property
    def faults(self) -> str:
        """Of which operator it is, where it may fail in a run of its own accord; else empty."""
        return ""

    @property
    def collective(self) -> str:
        """Of which operator it is, where it exchanges tensors with other ranks; else empty."""
        return ""

    @property
    def shared(self) -> int:
        """Bytes of memory that the threads of a block share, on a device of blocks.

        Metal and WebGPU refuse a kernel with more than they allow. CUDA compares nothing here: a lowering keeps to
        what a block may have, which is 48 KiB where the text declares arrays, and more where the launch asks for it.
        """
        return 0

    @property
    def cooperative(self) -> bool:
        """Whether its blocks wait for each other, on a device of blocks: they have to run at the same time."""
        return False

    @property
    def reached(self) -> Collection[int]:
        """Numbers of the buffers that nothing reaches but the loads and stores in its expressions."""
        return ()

    @property
    def finishes(self) -> Sequence[tuple[Sequence[Store], Collection[int]]]:
        """Stores that one thread makes once at each point, having read what their values read; and the buffers that
        the kernel reads elsewhere. Such a store may replace what was read at its place.
        """
        return ()

    @property
    def few_rows(self) -> str:
        """What it does otherwise than kernels for more rows, where it is made for few; else empty."""
        return ""

    @property
    def appends(self) -> tuple[int, int] | None:
        """Numbers of a result's buffer and of an operand's that may be one, as all but some new rows are the same."""
        return None

    def expressions(self) -> list[Expr]:
        """Every expression of the kernel, so that its symbolic dimensions can be found and renamed."""
        return expressions_in([getattr(self, name) for name in text_fields(self)])


def buffers_read(*expressions: Expr) -> frozenset[int]:
    """Numbers of the buffers that expressions load from."""
    return frozenset(e.data for e in walk(*expressions) if e.op == "load" and isinstance(e.data, int))


_APART = ("buffers", "flops", "nbytes", "when")


def text_fields(kernel: Kernel) -> list[str]:
    """The fields that a kernel's text is made of."""
    return [f.name for f in fields(kernel) if f.name not in _APART]


def expressions_in(item: object) -> list[Expr]:
    """The expressions in fields and lists of something, not those inside expressions."""
    found: list[Expr] = []
    pending = [item]
    while pending:
        item = pending.pop()
        if isinstance(item, Expr):
            found.append(item)
        elif isinstance(item, (list, tuple)):
            pending += reversed(item)
        elif hasattr(item, "__dataclass_fields__"):
            pending += [getattr(item, name) for name in reversed(item.__dataclass_fields__)]
    return found
