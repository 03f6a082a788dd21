"""Convolutions. Logical layout is N, C, spatial...; the physical one is a property of the values."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from numpy import ndindex

from ...base.errors import ModelError
from ...expr import F32, Expr, as_int, ceil_div, const, eq, max_of, select
from ...graph import Builder, Node, Shape, TensorType, Value
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator, same_dim
from ..core.gradient import Backward, NoGradient, as_shape, gradient_of
from ..core.scalar import Scalar, where
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_named, apply_op
from ..math.linalg import fit, product_type

Ints = tuple[int, ...]
# Input channels of a group up to which a convolution copies its pixels to planes, whatever their layout, instead of
# reading channels-last data in place. Passes leave the layout of such operands alone, and there is no kernel of bytes.
FEW_CHANNELS = 4
_TAPS = 64  # of a kernel whose gradient is a product for each
KernelShape = tuple[int | Expr, ...]
"""Spatial shape of a kernel: numbers, or expressions where it is known only at run time."""


@dataclass(frozen=True)
class Window:
    """How a kernel slides over the spatial dimensions: what convolutions and pools share.

    Attributes:
        strides, dilations: of each spatial dimension.
        pads: margins, first all begins, then all ends.
    """

    strides: Ints
    pads: Shape
    dilations: Ints


def window(source: SourceNode, size: Shape, kernel: KernelShape) -> Window:
    """Strides, margins and dilations of a node, with ``auto_pad`` resolved.

    Args:
        size: spatial shape of the input.
        kernel: spatial shape of the kernel.
    """
    rank = len(kernel)
    if not 1 <= rank <= 3 or len(size) != rank:
        raise Unsupported(f"{source.op_type} over {len(size)} spatial dimensions with a kernel of rank {rank}")
    strides = _spatial(source, "strides", rank, 1)
    dilations = _spatial(source, "dilations", rank, 1)
    auto = str(source.attribute("auto_pad", "NOTSET") or "NOTSET")
    given = source.attribute("pads")
    pads: Shape = tuple(const(int(p)) for p in given) if given is not None else (const(0),) * (2 * rank)
    if len(pads) != 2 * rank:
        raise ModelError(f"{source.op_type} over {rank} dimensions needs {2 * rank} pads, and {len(pads)} are given")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = same_pads(size, kernel, strides, dilations, upper=auto == "SAME_UPPER")
    elif auto == "VALID":
        pads = (const(0),) * (2 * rank)
    if any(v < 1 for v in kernel if isinstance(v, int)):
        raise ModelError(f"{source.op_type} with a kernel of {list(kernel)}, where sizes have to be 1 or more")
    return Window(strides, pads, dilations)


def _spatial(source: SourceNode, name: str, rank: int, default: int) -> Ints:
    given = source.attribute(name)
    values = tuple(int(v) for v in given) if given is not None else (default,) * rank
    if len(values) != rank:
        raise ModelError(f"{source.op_type} over {rank} dimensions has {len(values)} {name}")
    return values


def same_pads(size: Shape, kernel: KernelShape, strides: Ints, dilations: Ints, upper: bool) -> Shape:
    """Margins that make the output ceil(size / stride), the odd one at the end (upper) or at the beginning."""
    begins, ends = [], []
    for d, k, s, dilation in zip(size, kernel, strides, dilations, strict=True):
        out = ceil_div(d, s)
        total = max_of((out - 1) * s + (k - 1) * dilation + 1 - d, 0)
        half = total // 2
        begins.append(half if upper else total - half)
        ends.append(total - half if upper else half)
    return (*begins, *ends)


def slide(size: Shape, kernel: KernelShape, w: Window, ceil: bool = False) -> Shape:
    """Spatial shape of the output of a window that slides over `size`."""
    out = []
    rank = len(kernel)
    for i, (d, k) in enumerate(zip(size, kernel, strict=True)):
        before, after, s, apart = w.pads[i], w.pads[rank + i], w.strides[i], w.dilations[i]
        span = d + before + after - (k - 1) * apart - 1
        if ceil:  # the last window may reach beyond the margin, by less than a step
            span = span + (s - 1)
        if span.op == "const" and isinstance(span.data, int) and span.data < 0:
            what = f"a kernel of {k}" if apart == 1 else f"a kernel of {k} with a dilation of {apart}"
            raise ModelError(f"{what} does not fit into {d!r} with margins {before!r} and {after!r}")
        count = span // s + 1
        if ceil:  # a last window that starts in the margin after the data is dropped
            count = select((count - 1) * s >= d + before, count - 1, count)
        out.append(count)
    return tuple(out)


def inside(position: Expr, size: Expr) -> Expr:
    """Whether 0 <= position < size."""
    return (position >= 0) & (position < size)


def bias_of(inputs: Inputs, channels: Expr, constraints: Constraints, name: str) -> None:
    """Check the optional bias, operand 2."""
    bias = inputs[2] if len(inputs) > 2 else None
    if bias is None:
        return
    if bias.type.rank != 1:
        raise ModelError(f"{name} has a bias {bias.type!r}, which is not a vector")
    same_dim(bias.shape[0], channels, constraints, f"the bias of {name}")


def operands(inputs: Inputs, name: str, out: str = "") -> tuple[Value, Value]:
    """The data and the weights, with ranks and dtypes that fit each other."""
    x, w = need(inputs[0], f"input 0 of {name}"), need(inputs[1], f"input 1 of {name}")
    if x.type.rank != w.type.rank or x.type.rank < 3:
        raise ModelError(
            f"{name} of {x.type!r} with weights {w.type!r}; both need the same number of dimensions, 3 or more"
        )
    if not fit(x.dtype, w.dtype, out) or not x.dtype.is_float:
        raise ModelError(f"{name} of {x.dtype!r} with weights {w.dtype!r}, which have to be floats of one type")
    return x, w


def kernel_of(source: SourceNode, w: Value) -> KernelShape:
    """Spatial shape of the weights, which must agree with ``kernel_shape``; that counts where a size is symbolic."""
    kernel: KernelShape = spatial_of(w)
    given = source.attribute("kernel_shape")
    if given is None:
        return kernel
    if len(given) != len(kernel) or any(isinstance(k, int) and k != g for k, g in zip(kernel, given, strict=True)):
        raise ModelError(f"kernel_shape {list(given)} and weights {w.type!r} contradict each other")
    constraints = source.builder.graph.constraints
    constraints += [(k, const(int(g))) for k, g in zip(kernel, given, strict=True) if isinstance(k, Expr)]
    return tuple(int(g) for g in given)


def spatial_of(w: Value) -> KernelShape:
    """Spatial shape of the weights."""
    return tuple(d if (size := as_int(d)) is None else size for d in w.shape[2:])


def grouped(channels: Expr, group: int | Expr, constraints: Constraints, what: str) -> None:
    """The channels that come first in the weights must be a multiple of the groups.

    Raises:
        ModelError: when they are known not to be.
    """
    same_dim(channels // group * group, channels, constraints, what)


@operator()
@dataclass(frozen=True)
class Conv(Op):
    """Convolution of x[N, C, spatial] with w[M, C/group, kernel], and an optional bias[M].

    Attributes:
        strides, dilations: of each spatial dimension (1 to 3 of them).
        pads: margins, first all begins, then all ends.
        group: number of independent groups of channels; an expression where it is known only at run time.
        out: element type of the result where it is not that of the data; the bias may be of either.
        windows: in each spatial dimension, how many neighbours have one result, the largest; () for one each. Only
            passes set it, for kernels that have it (`passes/pool_sums.py`).
    """

    family: ClassVar[str] = "conv"
    strides: Ints = ()
    pads: Shape = ()
    dilations: Ints = ()
    group: int | Expr = 1
    out: str = ""
    windows: Ints = ()

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, w = operands(inputs, "Conv", self.out)
        same_dim(x.shape[1], w.shape[1] * self.group, constraints, f"channels of Conv of {x.type!r} with {w.type!r}")
        grouped(w.shape[0], self.group, constraints, f"Conv in {self.group} groups with weights {w.type!r}")
        bias_of(inputs, w.shape[0], constraints, "Conv")
        spatial = slide(x.shape[2:], spatial_of(w), Window(self.strides, self.pads, self.dilations))
        if self.windows:
            spatial = tuple(d // count for d, count in zip(spatial, self.windows, strict=True))
        return [TensorType(product_type(x.dtype, self.out), (x.shape[0], w.shape[0], *spatial))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x, w = node.operands[0].shape, node.operands[1].shape
        has_bias = len(node.operands) > 2

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            assert not self.windows  # the largest of several sums is not one
            index, ok = self.place(at, inner, x, w)
            value = read(0, index)
            return where(ok, value, 0) * read(1, (at[1], *inner))

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            return total + read(2, (at[1],)) if has_bias else total

        return LoopNest(body, w[1:], "add", finish)

    def place(self, at: Index, inner: Index, x: Shape, w: Shape) -> tuple[Index, Expr]:
        """Index in the data of a term of the sum at an output index, and whether it is in there or in the margin.

        Args:
            inner: channel of the group and place in the kernel.
            x, w: shapes of the data and the weights.
        """
        index, ok = [], const(True)
        for i, k in enumerate(inner[1:]):
            position = at[2 + i] * self.strides[i] - self.pads[i] + k * self.dilations[i]
            ok = ok & inside(position, x[2 + i])
            index.append(position)
        per_group = w[0] // self.group
        channel = inner[0] if self.group == 1 else at[1] // per_group * w[1] + inner[0]
        return (at[0], channel, *index), ok

    def flops(self, node: Node) -> Expr:
        taps = const(2 * prod(self.windows))
        for d in node.operands[1].shape[1:]:
            taps = taps * d
        return node.output.type.size * taps

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, w = operands(source.inputs, "Conv")
        slid = window(source, x.shape[2:], kernel_of(source, w))
        group = int(source.attribute("group", 1))
        out = str(source.fields(cls).get("out", ""))
        return source.emit(cls(slid.strides, slid.pads, slid.dilations, group, out), source.inputs)


@operator("DepthwiseConv", "torshc")
@dataclass(frozen=True)
class DepthwiseConv(Conv):
    """A Conv in as many groups as there are output channels, which may be symbolic; it becomes one at import."""

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, w = operands(source.inputs, "DepthwiseConv")
        slid = window(source, x.shape[2:], kernel_of(source, w))
        group = as_int(w.shape[0]) or w.shape[0]
        return source.emit(Conv(slid.strides, slid.pads, slid.dilations, group), source.inputs)


@operator()
@dataclass(frozen=True)
class ConvTranspose(Op):
    """Transposed convolution of x[N, C, spatial] with w[C, M/group, kernel], and an optional bias[M].

    Output size of a dimension: (size - 1) * stride + output_padding + (kernel - 1) * dilation + 1 - begin - end.

    Attributes:
        margins: whether a tap that reaches no element multiplies a zero, as those of a convolution's margins do; else
            it adds nothing, be its weight NaN or infinite. With it, sums are products without conditions.
    """

    family: ClassVar[str] = "conv_transpose"
    strides: Ints = ()
    pads: Shape = ()
    dilations: Ints = ()
    group: int = 1
    output_padding: Ints = ()
    out: str = ""
    margins: bool = False

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, w = operands(inputs, "ConvTranspose", self.out)
        same_dim(x.shape[1], w.shape[0], constraints, f"channels of ConvTranspose of {x.type!r} with {w.type!r}")
        grouped(w.shape[0], self.group, constraints, f"ConvTranspose in {self.group} groups with weights {w.type!r}")
        channels = w.shape[1] * self.group
        bias_of(inputs, channels, constraints, "ConvTranspose")
        full = unslide(x.shape[2:], spatial_of(w), self.strides, self.dilations, self.output_padding)
        rank = len(full)
        spatial = tuple(d - self.pads[i] - self.pads[rank + i] for i, d in enumerate(full))
        return [TensorType(product_type(x.dtype, self.out), (x.shape[0], channels, *spatial))]

    def nest(self, node: Node, output: int) -> LoopNest:
        x, w = node.operands[0].shape, node.operands[1].shape
        has_bias = len(node.operands) > 2
        per_group = x[1] // self.group

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            index, ok = [], const(True)
            for i, k in enumerate(inner[1:]):
                reach = at[2 + i] + self.pads[i] - k * self.dilations[i]
                position = reach // self.strides[i]
                ok = ok & eq(reach % self.strides[i], 0) & inside(position, x[2 + i])
                index.append(position)
            channel = at[1] // w[1] * per_group + inner[0] if self.group > 1 else inner[0]
            column = at[1] % w[1] if self.group > 1 else at[1]
            data, weight = read(0, (at[0], channel, *index)), read(1, (channel, column, *inner[1:]))
            return where(ok, data, 0) * weight if self.margins else where(ok, data * weight, 0)

        def finish(total: Scalar, at: Index, read: Read) -> Scalar:
            return total + read(2, (at[1],)) if has_bias else total

        return LoopNest(body, (per_group, *w[2:]), "add", finish)

    def flops(self, node: Node) -> Expr:
        taps = const(2)
        for d in node.operands[1].shape[1:]:
            taps = taps * d
        return node.operands[0].type.size * taps

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, w = operands(source.inputs, "ConvTranspose")
        kernel = kernel_of(source, w)
        auto = str(source.attribute("auto_pad", "NOTSET") or "NOTSET")
        plain = {k: v for k, v in source.attributes.items() if k != "auto_pad"}
        slid = window(SourceNode(source.op_type, source.opset, plain, [], 1, source.builder), x.shape[2:], kernel)
        extra = _spatial(source, "output_padding", len(kernel), 0)
        wanted, group = source.attribute("output_shape"), int(source.attribute("group", 1))
        for name in ("strides", "pads", "dilations", "kernel_shape"):
            source.attribute(name)
        out = str(source.fields(cls).get("out", ""))
        if wanted is None and auto not in ("SAME_UPPER", "SAME_LOWER"):
            return source.emit(cls(slid.strides, slid.pads, slid.dilations, group, extra, out), source.inputs)
        full = unslide(x.shape[2:], kernel, slid.strides, slid.dilations, extra)
        sizes: Shape = tuple(d * s for d, s in zip(x.shape[2:], slid.strides, strict=True))
        if wanted is not None:
            if len(wanted) < len(kernel):
                raise ModelError(
                    f"ConvTranspose over {len(kernel)} dimensions with output_shape {list(wanted)}"
                    ", which needs a size for each"
                )
            sizes = tuple(const(int(v)) for v in wanted[-len(kernel) :])
        pads = _split_margins(full, sizes, upper=auto == "SAME_UPPER")
        return source.emit(cls(slid.strides, pads, slid.dilations, group, extra, out), source.inputs)


def unslide(size: Shape, kernel: KernelShape, strides: Ints, dilations: Ints, extra: Ints) -> Shape:
    """Spatial shape of a transposed convolution before its margins are cut off."""
    return tuple(
        (d - 1) * s + (k - 1) * dilation + 1 + e
        for d, k, s, dilation, e in zip(size, kernel, strides, dilations, extra, strict=True)
    )


def _split_margins(full: Shape, wanted: Shape, upper: bool) -> Shape:
    """Margins that leave the wanted shape; the odd one at the end (upper) or at the beginning."""
    begins, ends = [], []
    for f, w in zip(full, wanted, strict=True):
        total = f - w
        half = total // 2
        begins.append(half if upper else total - half)
        ends.append(total - half if upper else half)
    return (*begins, *ends)


@gradient_of(Conv)
def _conv_gradient(op: Conv, at: Backward) -> list[Tensor | None]:
    """Of the data a transposed convolution of the gradient; of the weights a convolution of the data with it."""
    x, w, g = at.operand(0), at.operand(1), at.gradient.cast(at.operand(0).dtype)
    if isinstance(op.group, Expr):
        raise NoGradient("the number of groups is known only at run time")
    found: list[Tensor | None] = [None, None]
    if at.wants(0):
        slid = Window(op.strides, op.pads, op.dilations)
        turned = _turned_back(g, w, slid, op.group)
        found[0] = turned if turned is not None else slid_back(g, w, x.shape[2:], slid, op.group)
    if at.wants(1):
        made = apply_op(ConvWeights(w.shape, op.strides, op.pads, op.dilations, op.group), x, g)
        found[1] = made.cast(w.dtype)
    return [*found, *_bias_gradient(at)]


@operator("ConvWeights", "torshc")
@dataclass(frozen=True)
class ConvWeights(Op):
    """The gradient of a convolution's weights: of each, the sum over pixels of the gradient times the data under it.

    Operands: the data x[N, C, spatial] and the gradient g[N, M, spatial] of the convolution.

    Attributes:
        shape: shape of the weights.
        strides, pads, dilations, group: as of :class:`Conv`.
        out: element type of the result where it is not that of the operands.
    """

    family: ClassVar[str] = "conv_weights"
    shape: Shape = ()
    strides: Ints = ()
    pads: Shape = ()
    dilations: Ints = ()
    group: int = 1
    out: str = ""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, g = (need(v, "an operand of ConvWeights") for v in inputs[:2])
        same_dim(g.shape[0], x.shape[0], constraints, f"images of {x.type!r} and {g.type!r}")
        return [TensorType(product_type(x.dtype, self.out), self.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        x, g = node.operands[0].shape, node.operands[1].shape
        per_group = self.shape[0] // self.group

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            index, ok = [], const(True)
            for i, k in enumerate(inner[1:]):
                position = k * self.strides[i] + at[2 + i] * self.dilations[i] - self.pads[i]
                ok = ok & inside(position, x[2 + i])
                index.append(position)
            channel = at[0] // per_group * self.shape[1] + at[1] if self.group > 1 else at[1]
            return where(ok, read(0, (inner[0], channel, *index)), 0) * read(1, (inner[0], at[0], *inner[1:]))

        return LoopNest(body, (x[0], *g[2:]), "add")

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value]:
        """By products or a convolution, for targets whose kernels do not take these operands as they are."""
        x, g = (Tensor(b, need(v, "an operand of ConvWeights")) for v in inputs[:2])
        products = _weights_by_products(x, g, self.shape, self)
        return [(_weights_gradient(x, g, self.shape, self, self.group) if products is None else products).value]

    def flops(self, node: Node) -> Expr:
        taps = const(2)
        for d in self.shape[1:]:
            taps = taps * d
        return node.operands[1].type.size * taps


def has_weights_kernel(node: Node) -> bool:
    """Whether a kernel may sum for the weights of a convolution: of images, f32, dense or depthwise, of known sizes."""
    op = node.op
    known = isinstance(op, ConvWeights) and all(as_int(d) for d in op.shape) and len(op.shape) == 4
    if not known or node.operands[0].dtype is not F32 or node.operands[1].dtype is not F32:
        return False
    assert isinstance(op, ConvWeights)
    return op.group == 1 or (as_int(op.shape[0]) == op.group and as_int(op.shape[1]) == 1)


@gradient_of(ConvWeights)
def _conv_weights_gradient(op: ConvWeights, at: Backward) -> list[Tensor | None]:
    """It is linear in both: of the data the convolution's gradient with the change as weights; of g the convolution."""
    x, g, w = at.operand(0), at.operand(1), at.gradient
    slid = Window(op.strides, op.pads, op.dilations)
    found: list[Tensor | None] = [None, None]
    if at.wants(0):
        turned = _turned_back(g, w, slid, op.group)
        found[0] = turned if turned is not None else slid_back(g, w, x.shape[2:], slid, op.group)
    if at.wants(1):
        found[1] = apply_op(Conv(op.strides, op.pads, op.dilations, op.group), x, w)
    return found


def _turned_back(g: Tensor, w: Tensor, slid: Window, group: int) -> Tensor | None:
    """As :func:`slid_back`, by a convolution with the weights turned around, which has the faster kernels.

    None where steps are longer than 1, or margins wider than the kernel reaches.
    """
    reach = _reach(w.shape, slid)
    ends = [as_int(p) for p in slid.pads]
    if reach is None or any(p is None or p > r for p, r in zip(ends, reach * 2, strict=True)):
        return None
    pads = tuple(const(r - (p or 0)) for p, r in zip(ends, reach * 2, strict=True))
    kernel = w.shape[2:]
    parts = w.reshape(group, w.shape[0] // group, w.shape[1], *kernel).transpose(0, 2, 1, *range(3, 1 + w.rank))
    turned = parts.reshape(w.shape[1] * group, w.shape[0] // group, *kernel)
    if all(as_int(d) == 1 for d in kernel):
        return apply_op(Conv(slid.strides, pads, slid.dilations, group), g, turned)
    last = (const(0), const(0), *(d - 1 for d in kernel))
    turned = apply_named("Slice", turned, starts=last, sizes=turned.shape, steps=(1, 1, *(-1 for _ in kernel)))
    return apply_op(Conv(slid.strides, pads, slid.dilations, group), g, turned)


def _reach(weights: Shape, slid: Window) -> list[int] | None:
    """How far a kernel reaches from its first tap in each dimension; None where its steps are longer than 1."""
    kernel = [as_int(d) for d in weights[2:]]
    if any(s != 1 for s in slid.strides) or not all(kernel):
        return None
    return [((k or 1) - 1) * d for k, d in zip(kernel, slid.dilations, strict=True)]


def _weights_by_products(x: Tensor, g: Tensor, shape: Shape, op: Conv | ConvWeights) -> Tensor | None:
    """As :func:`_weights_gradient`, by a product for each tap.

    Rows of pixels follow each other without gaps in the padded data and in the gradient, which is padded with zeros to
    as many. So a tap is a distance in the data, and the sums over all pixels are a product with the data from there on.
    None where steps are longer than 1, for groups, and for many taps.
    """
    reach = _reach(shape, Window(op.strides, op.pads, op.dilations))
    kernel, ends = [as_int(d) or 0 for d in shape[2:]], [as_int(p) for p in op.pads]
    if reach is None or op.group != 1 or prod(kernel) > _TAPS or any(p is None or p < 0 for p in ends):
        return None
    rest, count = range(2, x.rank), len(kernel)
    zeros, none = (const(0), const(0)), (const(0),) * count
    data = _pad_zeros(x, (*zeros, *op.pads[:count]), (*zeros, *op.pads[count:]))
    pixels = x.shape[0]
    for d in data.shape[2:]:
        pixels = pixels * d
    strides = [const(1)] * count
    for k in range(count - 1, 0, -1):
        strides[k - 1] = strides[k] * data.shape[k + 2]
    most = const(0)
    for r, stride in zip(reach, strides, strict=True):
        most = most + stride * r
    rows = data.transpose(0, *rest, 1).reshape(pixels, x.shape[1])
    rows = _pad_zeros(rows, zeros, (most, const(0)))
    wide = _pad_zeros(g, (*zeros, *none), (*zeros, *map(const, reach)))
    left = wide.transpose(1, 0, *rest).reshape(g.shape[1], pixels)
    made = []
    for tap in ndindex(*kernel):
        start = const(0)
        for t, dilation, stride in zip(tap, op.dilations, strides, strict=True):
            start = start + stride * (t * dilation)
        made.append((left @ rows.slice((start, const(0)), (pixels, x.shape[1]))).reshape(*shape[:2], 1))
    found = apply_named("Concat", *made, axis=2) if len(made) > 1 else made[0]
    return found.reshape(*shape)


def _pad_zeros(x: Tensor, before: Shape, after: Shape) -> Tensor:
    """Margins of zeros."""
    return apply_named("Pad", x, before=before, after=after)


@gradient_of(ConvTranspose)
def _conv_transpose_gradient(op: ConvTranspose, at: Backward) -> list[Tensor | None]:
    """Of the data the convolution that it is the transpose of."""
    x, w, g = at.operand(0), at.operand(1), at.gradient.cast(at.operand(0).dtype)
    found: list[Tensor | None] = [None, None]
    if at.wants(0):
        made = apply_op(Conv(op.strides, op.pads, op.dilations, op.group), g, w)
        found[0] = made.slice((const(0),) * x.rank, x.shape)
    if at.wants(1):
        found[1] = _weights_gradient(g, x, w.shape, op, op.group)
    return [*found, *_bias_gradient(at)]


def slid_back(g: Tensor, w: Tensor, size: Shape, slid: Window, group: int) -> Tensor:
    """The transposed convolution with the weights of a convolution, that gives tensors of a spatial size."""
    full = unslide(g.shape[2:], spatial_of(w.value), slid.strides, slid.dilations, (0,) * len(size))
    before = slid.pads[: len(size)]
    after = tuple(f - b - d for f, b, d in zip(full, before, size, strict=True))
    extra = tuple(max(-(as_int(a) or 0), 0) for a in after)
    pads = (*before, *(a + e for a, e in zip(after, extra, strict=True)))
    return apply_op(ConvTranspose(slid.strides, pads, slid.dilations, group, extra, margins=True), g, w)


def _weights_gradient(x: Tensor, g: Tensor, shape: Shape, op: Conv | ConvTranspose | ConvWeights, group: int) -> Tensor:
    """The convolution of the data with the gradient, over the batch: steps become dilations, and dilations steps.

    A last part of the data that no step reaches makes the result longer, and is cut off.
    """
    batch, channels = x.shape[:2]
    rest = tuple(range(2, x.rank))
    inner = channels // group
    data = x.reshape(batch, group, inner, *x.shape[2:]).transpose(2, 1, 0, *(k + 1 for k in rest))
    data = data.reshape(inner, batch * group, *x.shape[2:])
    made = apply_op(Conv(op.dilations, op.pads, op.strides, group), data, g.transpose(1, 0, *rest))
    return as_shape(made.transpose(1, 0, *rest).slice((const(0),) * x.rank, shape), shape)


def _bias_gradient(at: Backward) -> list[Tensor | None]:
    if not at.wants(2):
        return []
    g = at.gradient
    return [g.sum((0, *range(2, g.rank)), keep=False).cast(at.operand(2).dtype)]
