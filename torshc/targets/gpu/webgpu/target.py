"""The WebGPU target: what differs from other devices of blocks of threads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from ....expr import F32, as_int, ceil_div, const, load, product, walk
from ....graph import Graph, Value
from ....kernels.attention import AttentionBase, attention_base, walked_operand
from ....kernels.base import Buffer, Kernel, Store, Temporary
from ....kernels.generic import lower_generic
from ....kernels.heavy import Strided, add_buffer, is_empty
from ....kernels.lower import idle_when_empty
from ....kernels.machine import Device, Machine
from ....kernels.nest import Buffers, MapKernel, RowKernel, lower_nest
from ....kernels.recurrent import apart, moved, needs_all_states, recurrent_node
from ....kernels.scan import read_scan
from ....kernels.scatter import require_searchable
from ....ops.core.base import Index
from ....ops.nn.recurrent import GRU
from ....plan.group import Group
from ....plan.storage import Storage
from ...base import SUBGROUPS, NoKernel, Rendered, kernel_text, named, register
from ..base import HOST, GridTarget, Words
from ..contraction import contract
from ..contraction_kernels import ContractionKernel
from ..grid import GridMap, GridRow, with_axis
from ..recurrent import GridRecurrent, StepsLowering
from ..scan import grid_scan
from ..topk import by_counting
from .blocks import in_blocks
from .functions import needed
from .text import WgslPrinter
from .tools import WebGpuToolchain
from .words import register_type

BINDING = 128 << 20  # bytes of a buffer that a kernel of every adapter sees
SHARED = 16 << 10  # bytes of workgroup memory that every adapter has
THREADS = 64  # of a block with a point each; every adapter runs 256
LONG = 64  # elements of a row from which on threads share it
WIDER = 8  # times as many rows as elements of one from which on each row has a thread of its own
FEW = 16384  # rows from which on each has a thread of its own, whatever its length


@register
class WebGpuTarget(GridTarget):
    """WGSL kernels for WebGPU, in a browser or through a library of ``webgpu.h``."""

    name = "webgpu"
    title = "WGSL for WebGPU, in browsers and natively"
    suffix = ".wgsl"
    device = 15
    guards = False  # a page chooses a form by sizes
    toolchain = WebGpuToolchain()
    options = frozenset({"mcpu", "train"})
    search = ("webgpu", "gpu", "c")
    preludes = ()
    host = replace(
        HOST,
        search=search,
        sources=(*HOST.sources, "t_device.c", "t_gpu.c"),
        headers=(*HOST.headers, "t_gpu.h", "t_webgpu.h", "t_kernel.c"),
        launchers=False,
    )
    words = Words(
        shared="var<workgroup>",
        barrier="workgroupBarrier();",
        pointer=None,
        leave="{ return; }",
        int="var",
        float="let",
        unroll="",
    )
    alignment = 1 << 48  # bindings begin where operands do
    max_buffers = 8  # as every adapter allows
    browser = True
    explicit_bindings = True  # no two bindings of a dispatch may overlap

    @classmethod
    def capabilities(cls, archs: object) -> Device:
        return Device(units=16, shared=SHARED, stages=1)

    def lower(self, graph: Graph, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        kernels = [_in_parts(k) for k in super().lower(graph, group, storage)]
        for kernel in kernels:
            _check(kernel)
        return kernels

    def render(self, kernel: Kernel) -> Rendered:
        printer, threads = WgslPrinter(kernel, self.words), self.threads(kernel)
        text = kernel_text(self.search, kernel.template, printer, w=self.words, T=threads)
        called = [*needed(printer.needs, threads)]
        made = named("\n".join([text, *(f.text for f in called)]), printer, self.name)
        if all(f.subgroups is None for f in called):
            return made
        return replace(made, forms={SUBGROUPS: "\n".join([text, *(f.subgroups or f.text for f in called)])})


def _in_parts(kernel: Kernel) -> Kernel:
    """The kernel with more than one argument for weights that are larger than a binding may be."""
    large = {b.operand: b for b in kernel.buffers if b.constant and not b.written and _bytes(b) > BINDING}
    if not large:
        return kernel
    size = {operand: BINDING // b.dtype.size for operand, b in large.items()}
    buffers = [replace(b, length=size.get(b.operand, 0)) for b in kernel.buffers]
    for operand, b in large.items():
        starts = range(BINDING, _bytes(b), BINDING)
        buffers += [replace(b, start=at // b.dtype.size, length=size[operand]) for at in starts]
    return replace(kernel, buffers=tuple(buffers))


def _bytes(b: Buffer) -> int:
    """Bytes of an operand; 0 where known only at run time."""
    size = b.operand.type.nbytes if isinstance(b.operand, Value) else b.operand.nbytes
    return size if isinstance(size, int) else as_int(size) or 0


def _check(kernel: Kernel) -> None:
    """Raises NoKernel for what not every adapter has."""
    for dtype in {b.dtype: None for b in kernel.buffers} | {e.dtype: None for e in walk(*kernel.expressions())}:
        register_type(dtype)
    operands = {(b.operand, b.start) for b in kernel.buffers}
    if len(operands) > WebGpuTarget.max_buffers:
        raise NoKernel(f"a kernel of {len(operands)} buffers; WebGPU allows {WebGpuTarget.max_buffers}")
    if len({(b.operand, b.start, b.dtype) for b in kernel.buffers}) > len(operands):
        raise NoKernel("an operand that is read as two types")
    if kernel.shared > SHARED:
        raise NoKernel(f"a kernel of {kernel.shared} bytes of workgroup memory; WebGPU allows {SHARED}")


@WebGpuTarget.lowers("nest", "scatter", "conv_weights")
def lower_loops(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The group as loops, dealt out to threads.

    Raises:
        NoKernel: for a scatter in which the search for updates would take too long.
    """
    if group.kind == "scatter":
        require_searchable(group)
    make = lower_nest if group.anchor is None else lower_generic
    return [idle_when_empty(_dealt(k)) for k in make(group, storage, keep=None)]


@WebGpuTarget.lowers("gemm", "conv", "conv_transpose")
def lower_products(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """Products and convolutions, tile by tile through workgroup memory where they are large enough."""
    kernels = contract(group, storage, machine)
    if kernels is None:
        return lower_loops(group, storage, machine)
    return [idle_when_empty(k if isinstance(k, ContractionKernel) else _dealt(k)) for k in kernels]


@dataclass(frozen=True)
class WgslAttention(AttentionBase):
    """Online softmax of one query a block."""

    template: ClassVar[str] = "attention_row.j2"
    height: ClassVar[int] = 1  # queries a block

    threads: int = THREADS

    @property
    def shared(self) -> int:
        return 4 * (self.threads + self.depth)


@WebGpuTarget.lowers("attention")
def lower_attention(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of an attention group.

    Raises:
        UnsupportedError: as of :func:`attention_base`.
    """
    if any(is_empty(v) for v in group.outputs):
        return []

    def operand(value: Value, batch: Index, name: str, buffers: Buffers) -> Strided:
        return walked_operand(group, value, batch, name, buffers)

    base = attention_base(group, storage, operand)
    return [idle_when_empty(WgslAttention.of(base, tasks=base.points * base.row.args[0]))]


@WebGpuTarget.lowers("scan")
def lower_scan(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """A running sum or product, a thread for each row."""
    if all(is_empty(v) for v in group.outputs):
        return []
    kernel = grid_scan(group, read_scan(group, storage), False, THREADS)
    return [idle_when_empty(replace(kernel, tasks=kernel.columns))]


@WebGpuTarget.lowers("topk")
def lower_topk(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """TopK by counting.

    Raises:
        NoKernel: as of :func:`by_counting`.
    """
    node = group.anchor
    assert node is not None
    if all(is_empty(v) for v in group.outputs):
        return []
    return by_counting(group, node, storage, lambda g: lower_loops(g, storage, machine))


@dataclass(frozen=True)
class WgslRecurrent(GridRecurrent):
    """All steps of a direction for a row of the batch, by one block, each hidden unit by one thread.

    Workgroup memory does not hold every state: those of other blocks lie in memory.
    """

    lanes: ClassVar[int] = 1

    @property
    def shared(self) -> int:
        return 0 if self.in_memory else self.row_bytes


@WebGpuTarget.lowers("recurrent")
def lower_recurrent(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a recurrent network: a product for all steps, then one for the steps.

    Raises:
        UnsupportedError: for elements that are not f32.
    """
    node, op = recurrent_node(group)
    if all(is_empty(v) for v in group.outputs):
        return []

    if needs_all_states(group, node):
        return apart(
            group, node, lambda g: lower_recurrent(g, storage, machine), lambda g: lower_loops(g, storage, machine)
        )
    lowering = StepsLowering(group, node, op, storage, lambda g: lower_products(g, storage, machine))
    whole = not (isinstance(op, GRU) and op.linear_before_reset)  # each bias is a buffer less for the steps
    inputs, phases, weights = lowering.inputs(whole), lowering.phases(), lowering.recurrent_weights()
    biases = () if whole else lowering.biases()
    kernel = WgslRecurrent.of(
        lowering.base(lowering.gates, phases, lowering.row.args[0] * op.directions),
        phases=phases,
        weights=weights,
        biases=biases,
        threads=min(256, -(-op.hidden_size // 32) * 32),
    )
    if len({b.operand for b in kernel.buffers}) > WebGpuTarget.max_buffers and len(kernel.starts) > 1:
        copy, kernel = _starts_together(lowering, kernel)
        inputs.append(copy)
    if kernel.shared <= SHARED:
        return [*inputs, idle_when_empty(kernel)]
    buffers = (replace(b, written=b.written or b.operand is lowering.gates) for b in kernel.buffers)
    size = lowering.gates.nbytes + kernel.tasks * kernel.row_bytes
    kernel = replace(kernel, in_memory=True, buffers=tuple(buffers))
    return moved([*inputs, idle_when_empty(kernel)], {lowering.gates: replace(lowering.gates, nbytes=size)})


def _starts_together(lowering: StepsLowering, kernel: WgslRecurrent) -> tuple[Kernel, WgslRecurrent]:
    """A kernel that brings the given states into one buffer, and the steps from there, which have a buffer less.

    Raises:
        NoKernel: where what follows the steps reads these states too.
    """
    old = {e.data: name for name, e in kernel.starts}
    if any(e.op == "load" and e.data in old for e in walk(*replace(kernel, starts=()).expressions())):
        raise NoKernel(f"a network of {len(kernel.buffers)} buffers; WebGPU allows {WebGpuTarget.max_buffers}")
    axes = lowering.direction, lowering.row, lowering.unit
    size = product([a.args[0] for a in axes])
    place = (axes[0] * axes[1].args[0] + axes[1]) * kernel.hidden + axes[2]
    memory = Temporary("starts", lowering.group.id, 2 * 4 * size)
    places = {name: place + k * size for k, (name, _) in enumerate(kernel.starts)}
    buffers = Buffers(lowering.storage)
    given = [(places[name], start) for name, start in lowering.starts(buffers)]
    number = add_buffer(buffers, memory, written=True)
    copy = MapKernel(
        buffers=tuple(buffers.list),
        tasks=const(1),
        flops=const(0),
        nbytes=2 * memory.nbytes,
        axes=axes,
        stores=tuple(Store(number, offset, start) for offset, start in given),
        rows=1,
        chunk=16,
    )
    moved_buffers = (replace(b, operand=memory) if k in old else b for k, b in enumerate(kernel.buffers))
    starts = tuple((name, load(e.data, (places[name],), F32)) for name, e in kernel.starts)
    return idle_when_empty(_dealt(copy)), replace(kernel, buffers=tuple(moved_buffers), starts=starts)


def _dealt(kernel: Kernel) -> Kernel:
    """A map or row kernel with its work dealt out to blocks of threads."""
    kernel = with_axis(kernel)
    if isinstance(kernel, MapKernel):
        points = product([a.args[0] for a in kernel.axes])
        return GridMap.of(kernel, tasks=ceil_div(points, THREADS), threads=THREADS, packet=1)
    assert isinstance(kernel, RowKernel)
    share = _share(kernel)
    if share == 1:
        kernel = in_blocks(kernel)
    points = product([a.args[0] for a in kernel.axes])
    threads = THREADS if share == 1 else share
    tasks = ceil_div(points, THREADS) if share == 1 else points
    return GridRow.of(kernel, tasks=tasks, threads=threads, share=share, packet=1)


def _share(kernel: RowKernel) -> int:
    """Threads that share a row: a block where few rows are long, else each has one of its own."""
    size = as_int(product([r.args[0] for r in kernel.reduce]))
    points = math.prod(as_int(a.args[0]) or 1 for a in kernel.axes)  # at least: a batch of any size may be 1
    if points >= FEW or (size is not None and (size < LONG or points >= WIDER * size)):
        return 1
    return 256 if size is None or size >= 1024 else 64
