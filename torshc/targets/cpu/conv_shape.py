"""The geometry of a convolution: one- and two-dimensional ones as images of rows of pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...expr import Expr, as_int, axis, const, load
from ...graph import Node, Value
from ...kernels.base import Kernel, Temporary
from ...kernels.heavy import Strided, add_buffer, copy_kernel, strided_operand, temporary
from ...kernels.nest import Buffers
from ...ops.core.base import Index
from ...plan.group import Group
from ...plan.storage import Storage

ElementAt = Callable[[Buffers, Expr, Expr, Expr, Expr], Expr]
"""Makes the input's element at (image, channel, row, column) in an argument list."""


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution over images; a one-dimensional one is an image of one row.

    Attributes:
        images: batch size.
        groups: independent groups of channels.
        ic, oc: channels of one group, in and out.
        ih, iw, oh, ow: rows and columns, in and out.
        kernel, stride, dilation: (rows, columns).
        pad: margin before the first row and column.
        flat: whether it is one-dimensional.
    """

    images: Expr
    groups: int
    ic: int
    oc: int
    ih: Expr
    iw: Expr
    oh: Expr
    ow: Expr
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad: tuple[Expr, Expr]
    flat: bool

    @property
    def taps(self) -> int:
        return self.kernel[0] * self.kernel[1]

    @property
    def depthwise(self) -> bool:
        return self.ic == 1 and self.oc == 1 and self.groups > 1

    def index(self, n: Expr, c: Expr, h: Expr, w: Expr) -> Index:
        """Logical index of an element of the input or the output."""
        return (n, c, w) if self.flat else (n, c, h, w)


def geometry(node: Node, oc: int, ic: int) -> Geometry | None:
    """The geometry of a Conv or ConvTranspose, None for a three-dimensional one.

    Args:
        oc, ic: channels of one group.
    """
    x, w, y = node.operands[0], node.operands[1], node.output
    kernel = w.type.static_shape
    if x.type.rank not in (3, 4) or kernel is None:
        return None
    flat, op = x.type.rank == 3, node.op
    strides, dilations = (_pair(op.attributes()[name], flat) for name in ("strides", "dilations"))
    rows_in, rows_out = (const(1), const(1)) if flat else (x.shape[2], y.shape[2])
    pads: Sequence[Expr] = op.attributes()["pads"]
    return Geometry(
        images=x.shape[0],
        groups=op.attributes()["group"],
        ic=ic,
        oc=oc,
        ih=rows_in,
        iw=x.shape[-1],
        oh=rows_out,
        ow=y.shape[-1],
        kernel=(1 if flat else kernel[2], kernel[-1]),
        stride=strides,
        dilation=dilations,
        pad=(const(0), pads[0]) if flat else (pads[0], pads[1]),
        flat=flat,
    )


def _pair(values: Sequence[int], flat: bool) -> tuple[int, int]:
    return (1, values[0]) if flat else (values[0], values[1])


def transposed_taps(size: Geometry, row: int, column: int) -> list[tuple[int, int]]:
    """The taps that reach the output pixels (row, column) + multiples of the stride."""
    first = [as_int(e) or 0 for e in size.pad]

    def reach(k: int, at: int, d: int) -> bool:
        return (at + first[d] - k * size.dilation[d]) % size.stride[d] == 0

    return [
        (r, c) for r in range(size.kernel[0]) for c in range(size.kernel[1]) if reach(r, row, 0) and reach(c, column, 1)
    ]


def bias_of(node: Node) -> Value | None:
    return node.inputs[2] if len(node.inputs) > 2 else None


def channels_last(
    x: Value, size: Geometry, group: Group, storage: Mapping[Value, Storage]
) -> tuple[ElementAt, list[Kernel]]:
    """The input with channels innermost: as it lies, or a copy and the kernel that makes it."""

    def at(n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        return load(x, size.index(n, c, h, w), x.dtype)

    axes = [axis("n", size.images), axis("h", size.ih), axis("w", size.iw), axis("c", x.shape[1])]
    n, h, w, c = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    found = strided_operand(Buffers(storage).resolve(at(n, c, h, w)), [axes[3]])
    if found is not None and (as_int(found.steps[0]) == 1 or c.op == "const"):
        return lambda buffers, n, c, h, w: buffers.resolve(at(n, c, h, w)), []
    to = Temporary("channels_last", group.id, x.type.nbytes)

    def copied(buffers: Buffers, n: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        place = ((n * size.ih + h) * size.iw + w) * x.shape[1] + c
        return temporary(add_buffer(buffers, to, dtype=x.dtype), place, x.dtype)

    return copied, [copy_kernel(lambda buffers: buffers.resolve(at(n, c, h, w)), axes, storage, to, x.dtype)]


def source_strides(element: ElementAt, size: Geometry, buffers: Buffers) -> Strided:
    """The input as strides of images, rows and pixels."""
    axes = [axis("n", size.images), axis("h", size.ih), axis("w", size.iw)]
    found = strided_operand(element(buffers, axes[0], const(0), axes[1], axes[2]), axes)
    assert found is not None  # a value's own memory or a temporary, both of which have strides
    return found
