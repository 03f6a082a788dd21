"""Gradients of depthwise convolutions' weights on devices of blocks of threads.

Threads side by side have channels side by side, and each sums for all taps of its channels: the gradient is read once,
and data that one tap brought is in the first cache for the next. Sums of pieces of the pixels are joined in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product as cartesian

from ...expr import F32, Expr, acc, as_int, axis, const, load, product, walk
from ...expr.affine import split_axis
from ...graph import Node, Value
from ...kernels.axes import join_axes
from ...kernels.base import Kernel, Store, Temporary
from ...kernels.heavy import add_buffer, epilogue_flops, finish, join_bodies, row_major, traffic
from ...kernels.machine import Device
from ...kernels.nest import Accumulator, Buffers, RowKernel, Stage
from ...ops.core.base import Index, LoopNest
from ...plan.group import Group
from ...plan.inline import Inliner
from ...plan.storage import Storage
from .depthwise import take_runs
from .grid import PACKET, deal_columns, to_grid
from .nests import count_pieces

THREADS = 128  # of a block: they pass the sums of all taps through shared memory
LANES = 32  # threads side by side along the channels
MOST_TAPS = 25  # sums that a thread has registers for
PACKET_TAPS = 9  # up to which it has them for a packet of channels
UNROLL = 4  # pixels that a thread reads ahead


def lower_depthwise_weights(group: Group, storage: Mapping[Value, Storage], device: Device) -> list[Kernel] | None:
    """The kernel that sums, and the one that joins its pieces; None where channels do not lie side by side."""
    node = group.anchor
    assert node is not None
    nest, shape = node.op.nest(node, 0), [as_int(d) for d in node.output.shape]
    channels, each, *taps = shape
    if nest is None or not channels or None in taps or node.output.dtype is not F32:
        return None
    if each != 1 or node.op.attributes().get("group") != channels:
        return None
    places = list(cartesian(*(range(t or 0) for t in taps)))
    if not 1 < len(places) <= MOST_TAPS:
        return None
    channel, reduce, terms, buffers = _terms(group, node, nest, places, storage)
    if channel.op != "axis" or not all(_steps(t, channel) for t in terms):
        return None
    run, terms = take_runs(reduce[-1], terms)
    reduce, together = [*reduce[:-1], run], (as_int(reduce[-1].args[0]) or 1) // (as_int(run.args[0]) or 1)
    to = Temporary("sums", group.id, const(0))
    kernel = RowKernel(
        buffers=tuple(buffers.list),
        tasks=const(0),
        flops=node.op.flops(node),
        nbytes=traffic(buffers.list, ()),
        axes=(channel,),
        reduce=tuple(reduce),
        across=False,
        stages=(Stage(tuple(Accumulator(f"{k}", "add", t, acc(f"a{k}", F32)) for k, t in enumerate(terms))),),
        element=(),
        row=(),
        kept=0,
        rows=1,
        chunk=1,
    )
    packet = PACKET if channels % PACKET == 0 and len(places) <= PACKET_TAPS else 1
    packets = channels // packet
    lanes = -(-packets // -(-packets // LANES))
    dealt = replace(deal_columns(kernel, lanes, THREADS // lanes, packet), unroll=max(1, UNROLL // together))
    count, length = count_pieces(dealt, device, 0)
    piece, to = axis("piece", count), replace(to, nbytes=const(channels * len(places) * count * F32.size))
    target = add_buffer(buffers, to, written=True)
    at = (channel * len(places)) * count + (piece if count > 1 else 0)
    row = tuple(Store(target, at + k * count, acc(f"x{k}", F32)) for k in range(len(terms)))
    cut = replace(dealt, piece=piece, length=length) if count > 1 else dealt
    partial = replace(cut, buffers=tuple(buffers.list), tasks=dealt.tasks * count, row=row)
    return [partial, _total(group, node, nest, to, count, storage, device)]


def _terms(
    group: Group, node: Node, nest: LoopNest, places: list[tuple[int, ...]], storage: Mapping[Value, Storage]
) -> tuple[Expr, list[Expr], list[Expr], Buffers]:
    """The axis of the channels, those of the sum, and for each tap what is summed, with the memory that it reads."""
    inliner, buffers = Inliner(group.folded), Buffers(storage)
    channel = axis("i0", node.output.shape[0])
    inner = [const(0) if as_int(e) == 1 else axis(f"r{k}", e) for k, e in enumerate(nest.reduce)]

    def read(operand: int, index: Index) -> Expr:
        value = node.inputs[operand]
        assert value is not None
        return inliner.at(value, index)

    bodies = [nest.body((channel, const(0), *map(const, place)), tuple(inner), read) for place in places]
    reduce, terms = join_axes([r for r in inner if r.op == "axis"], [buffers.resolve(b) for b in bodies])
    return channel, reduce or [axis("r0", 1)], terms, buffers


def _steps(term: Expr, channel: Expr) -> bool:
    """Whether both factors of a term lie along the channels."""
    loads = [x for x in walk(term) if x.op == "load"]
    parts = [split_axis(x.args[0], channel) for x in loads]
    return len(loads) == 2 and all(p is not None and as_int(p[0]) == 1 for p in parts)


def _total(
    group: Group,
    node: Node,
    nest: LoopNest,
    pieces: Temporary,
    count: int,
    storage: Mapping[Value, Storage],
    device: Device,
) -> Kernel:
    """The pieces of each sum joined, and what follows from it."""
    buffers = Buffers(storage)
    index = [const(0) if as_int(d) == 1 else axis(f"i{k}", d) for k, d in enumerate(node.output.shape)]
    outer, inner = [a for a in index if a.op == "axis"], axis("r0", count)

    def read(operand: int, at: Index) -> Expr:
        value = node.inputs[operand]
        assert value is not None
        return Inliner(group.folded).at(value, at)

    result = nest.finish(acc("x0", F32), tuple(index), read)
    source = add_buffer(buffers, pieces)
    body = load(source, (row_major([*outer, inner]),), F32)
    stores = finish(group, node, result, tuple(index), buffers)
    axes, stores, (body,) = join_bodies(outer, stores, body)
    points = product([a.args[0] for a in axes])
    return to_grid(
        RowKernel(
            buffers=tuple(buffers.list),
            tasks=points,
            flops=points * count + epilogue_flops(stores, points),
            nbytes=traffic(buffers.list, group.outputs),
            axes=tuple(axes),
            reduce=(inner,),
            across=True,
            stages=(Stage((Accumulator("0", "add", body, acc("a0", F32)),)),),
            element=(),
            row=tuple(stores),
            kept=0,
            rows=1,
            chunk=1,
        ),
        device,
    )
