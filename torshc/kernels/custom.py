"""Kernels that call a function of the user's: operands and results in memory of their own, compact and row-major."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..base.manifest import DLPACK
from ..expr import U8, DType, Expr, as_expr, as_int
from ..graph import Builder, Graph, Shape, TensorType, Value
from ..ops import REGISTRY
from ..ops.core.custom_kernel import PlannedKernel, attribute_words, word_text
from ..plan.group import Group
from ..plan.inline import address
from ..plan.storage import Storage
from .axes import make_axes
from .base import Buffer, Kernel, Temporary
from .heavy import row_major, traffic
from .recurrent import moved

Nests = Callable[[Group], list[Kernel]]


@dataclass(frozen=True)
class CustomTensor:
    """An operand or result: its number among the buffers, -1 for one that is absent, and its type."""

    buffer: int
    dtype: DType
    shape: Shape

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type code and bits."""
        return DLPACK[self.dtype.name]


@dataclass(frozen=True)
class CustomKernel(Kernel):
    """A call of a user's function.

    Attributes:
        function: its name.
        operator: the operator that it computes.
        inputs, outputs: what it gets.
        words: the attributes.
        private: bytes of scratch for each thread; on a device for the call.
        room: the buffer of that scratch on a device; -1 without.
    """

    kind: ClassVar[str] = "custom"
    template: ClassVar[str] = "custom.c.j2"

    function: str
    operator: str
    inputs: tuple[CustomTensor, ...]
    outputs: tuple[CustomTensor, ...]
    words: tuple[int, ...]
    private: Expr
    room: int = -1

    @property
    def scratch(self) -> Expr:
        return self.private

    @property
    def faults(self) -> str:
        return self.operator

    @property
    def words_text(self) -> str:
        """The attributes' words in C."""
        return ", ".join(map(word_text, self.words))

    @property
    def sizes(self) -> list[Expr]:
        """The dimensions of all operands and results, in order."""
        return [d for t in (*self.inputs, *self.outputs) for d in t.shape]

    @property
    def firsts(self) -> list[int]:
        """Where the dimensions of each begin among them."""
        places, at = [], 0
        for t in (*self.inputs, *self.outputs):
            places.append(at)
            at += len(t.shape)
        return places


def lower_custom(group: Group, storage: Mapping[Value, Storage], nests: Nests, device: bool = False) -> list[Kernel]:
    """The call, between copies of operands and results that do not lie as the function wants them.

    Args:
        nests: lowers a group of nests on the same target.
        device: whether scratch is memory of the call.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, PlannedKernel)
    op, work = node.op, node.op.described_here(node.inputs)
    operands = [*node.inputs, *[None] * (len(op.operands.optional) - len(node.inputs))]
    before: list[Kernel] = []
    after: list[Kernel] = []
    buffers: list[Buffer] = []
    for k, v in enumerate(operands):
        if v is None:
            continue
        found = in_place(v, storage)
        if found is None:
            found = Buffer(Temporary(f"operand {k}", group.id, v.type.nbytes), v.dtype, written=False)
            before += copy_kernels(group, v, None, found, nests)
        buffers.append(found)
    for k, v in enumerate(node.outputs):
        found = in_place(v, storage) if v in group.outputs else None
        if found is None:
            found = Buffer(Temporary(f"result {k}", group.id, v.type.nbytes), v.dtype, written=True)
            after += copy_kernels(group, None, v, found, nests) if v in group.outputs else []
        buffers.append(Buffer(found.operand, v.dtype, True, found.start))
    present = iter(range(len(buffers)))
    inputs = tuple(_tensor(-1 if v is None else next(present), v) for v in operands)
    outputs = tuple(_tensor(next(present), v) for v in node.outputs)
    private = as_expr(work.scratch)
    room = -1
    if device and as_int(private) != 0:
        room = len(buffers)
        buffers.append(Buffer(Temporary("scratch", group.id, private), U8, written=True))
    call = CustomKernel(
        buffers=tuple(buffers),
        tasks=as_expr(work.tasks),
        flops=as_expr(0),
        nbytes=traffic(buffers, node.outputs),
        function=op.sources.function,
        operator=op.name,
        inputs=inputs,
        outputs=outputs,
        words=attribute_words(op),
        private=private,
        room=room,
    )
    return [*before, call, *after]


def _tensor(buffer: int, v: Value | None) -> CustomTensor:
    return CustomTensor(buffer, U8, ()) if v is None else CustomTensor(buffer, v.dtype, v.shape)


def in_place(v: Value, storage: Mapping[Value, Storage]) -> Buffer | None:
    """The memory of a value; None where its elements do not lie one after the other, row by row."""
    index, axes = make_axes(v.shape, None, "i")
    root, offset = address(v, index, storage)
    start = as_int(offset - row_major(axes))
    return None if start is None or root.dtype is not v.dtype else Buffer(root, v.dtype, False, start)


def copy_kernels(group: Group, source: Value | None, result: Value | None, made: Buffer, nests: Nests) -> list[Kernel]:
    """The kernels that copy an operand to temporary memory, or a result from there."""
    b = Builder(Graph())
    v = source or result
    assert v is not None
    read = source or b.graph.new_value(TensorType(v.dtype, v.shape))
    copied = b.one(REGISTRY["", "Identity"](), read)
    copies = Group(group.id, "nest", list(b.nodes), outputs=[result or copied])
    if result is not None:
        copies.alias[result] = copied
    return moved(nests(copies), {(copied if result is None else read): made.operand})
