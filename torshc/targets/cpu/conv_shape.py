"""The geometry of a convolution: images of rows of pixels, of which a volume is a stack."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...expr import U8, DType, Expr, as_int, axis, cast, const, load
from ...graph import Node, Value
from ...kernels.base import Kernel, Temporary
from ...kernels.heavy import Strided, add_buffer, copy_kernel, strided_operand, temporary
from ...kernels.nest import Buffers
from ...ops.core.base import Index
from ...plan.group import Group
from ...plan.storage import Storage

ElementAt = Callable[..., Expr]
"""Makes the input's element in an argument list, at (image, channel, row, column); a volume has planes before rows."""


@dataclass(frozen=True)
class Planes:
    """The outermost dimension of volumes.

    Attributes:
        inside, outside: planes of the input and of the output.
        kernel, stride, dilation: as of rows and columns.
        pad: margin before the first plane.
    """

    inside: Expr
    outside: Expr
    kernel: int
    stride: int
    dilation: int
    pad: Expr


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution over images; a one-dimensional one is an image of one row, a volume a stack of them.

    Attributes:
        images: batch size.
        groups: independent groups of channels.
        ic, oc: channels of one group, in and out.
        ih, iw, oh, ow: rows and columns, in and out.
        kernel, stride, dilation: (rows, columns).
        pad: margin before the first row and column.
        flat: whether it is one-dimensional.
        planes: the dimension that volumes have before their rows.
        windows: rows and columns of which the largest of a convolution's results is kept.
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
    planes: Planes | None = None
    windows: tuple[int, int] = (1, 1)

    @property
    def extents(self) -> tuple[int, ...]:
        """The kernel's: (planes,) rows, columns."""
        return self.kernel if self.planes is None else (self.planes.kernel, *self.kernel)

    @property
    def taps(self) -> int:
        return math.prod(self.extents)

    @property
    def stack(self) -> Expr:
        """Images, a volume's being its planes."""
        return self.images if self.planes is None else self.images * self.planes.outside

    def axes(self, inside: bool) -> list[Expr]:
        """Axes of images, planes of volumes, rows and columns; of the input or of what is kept of the output."""
        (down, across) = self.windows
        n, h, w = (
            axis("n", self.images),
            axis("h", self.ih if inside else self.oh // down),
            axis("w", self.iw if inside else self.ow // across),
        )
        if self.planes is None:
            return [n, h, w]
        return [n, axis("d", self.planes.inside if inside else self.planes.outside), h, w]

    @property
    def depthwise(self) -> bool:
        return self.ic == 1 and self.oc == 1 and self.groups > 1

    def index(self, n: Expr, c: Expr, *at: Expr) -> Index:
        """Logical index of an element of the input or the output at a (plane,) row and column."""
        return (n, c, at[-1]) if self.flat else (n, c, *at)


def geometry(node: Node, oc: int, ic: int, volumes: bool = False) -> Geometry | None:
    """The geometry of a Conv or ConvTranspose; None where its rank is another.

    Args:
        oc, ic: channels of one group.
        volumes: whether three-dimensional ones are wanted.
    """
    x, w, y = node.operands[0], node.operands[1], node.output
    kernel, op = w.type.static_shape, node.op
    if x.type.rank not in ((3, 4, 5) if volumes else (3, 4)) or kernel is None:
        return None
    flat = x.type.rank == 3
    strides, dilations = (_pair(op.attributes()[name], flat) for name in ("strides", "dilations"))
    windows = _pair(op.attributes().get("windows") or (1,) * (x.type.rank - 2), flat)
    rows_in, rows_out = (const(1), const(1)) if flat else (x.shape[-2], y.shape[-2] * windows[0])
    pads: Sequence[Expr] = op.attributes()["pads"]
    before = pads[: x.type.rank - 2]
    planes = None
    if x.type.rank == 5:
        stride, dilation = (int(op.attributes()[name][0]) for name in ("strides", "dilations"))
        planes = Planes(x.shape[2], y.shape[2], kernel[2], stride, dilation, before[0])
    return Geometry(
        images=x.shape[0],
        groups=op.attributes()["group"],
        ic=ic,
        oc=oc,
        ih=rows_in,
        iw=x.shape[-1],
        oh=rows_out,
        ow=y.shape[-1] * windows[1],
        kernel=(1 if flat else kernel[-2], kernel[-1]),
        stride=strides,
        dilation=dilations,
        pad=(const(0) if flat else before[-2], before[-1]),
        flat=flat,
        planes=planes,
        windows=windows,
    )


def _pair(values: Sequence[int], flat: bool) -> tuple[int, int]:
    return (1, values[0]) if flat else (values[-2], values[-1])


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


def margin_of(node: Node, buffers: Buffers) -> Strided | None:
    """What taps of a convolution of bytes read in the margin; zeros when there is none."""
    value = bias_of(node)
    return None if value is None else strided_operand(buffers.resolve(load(value, (), U8)), [])


def channels_last(
    x: Value,
    size: Geometry,
    group: Group,
    storage: Mapping[Value, Storage],
    name: str = "channels_last",
    dtype: DType | None = None,
) -> tuple[ElementAt, list[Kernel]]:
    """The input with channels innermost: as it lies, or a copy and the kernel that makes it.

    Args:
        name: name of the copy; those of a group's operands have different ones.
        dtype: type of the copy's elements; by default that of the operand.
    """
    wanted = dtype or x.dtype

    def at(n: Expr, c: Expr, *spatial: Expr) -> Expr:
        return load(x, size.index(n, c, *spatial), x.dtype)

    axes = [*size.axes(inside=True), axis("c", x.shape[1])]
    n, *spatial, c = (const(0) if as_int(a.args[0]) == 1 else a for a in axes)
    found = strided_operand(Buffers(storage).resolve(at(n, c, *spatial)), [axes[-1]])
    if found is not None and wanted is x.dtype and (as_int(found.steps[0]) == 1 or c.op == "const"):
        return lambda buffers, n, c, *spatial: buffers.resolve(at(n, c, *spatial)), []
    to = Temporary(name, group.id, x.type.nbytes // x.dtype.size * wanted.size)

    def copied(buffers: Buffers, n: Expr, c: Expr, *spatial: Expr) -> Expr:
        place = n
        for extent, i in zip((a.args[0] for a in axes[1:]), (*spatial, c), strict=True):
            place = place * extent + i
        return temporary(add_buffer(buffers, to, dtype=wanted), place, wanted)

    def source(buffers: Buffers) -> Expr:
        return cast(buffers.resolve(at(n, c, *spatial)), wanted)

    return copied, [copy_kernel(source, axes, storage, to, wanted)]


def source_strides(element: ElementAt, size: Geometry, buffers: Buffers) -> Strided:
    """The input as strides of images, planes of volumes, rows and pixels."""
    axes = size.axes(inside=True)
    found = strided_operand(element(buffers, axes[0], const(0), *axes[1:]), axes)
    assert found is not None  # a value's own memory or a temporary, both of which have strides
    return found
