"""Trees as kernels: one that walks their tables, which targets lay out as suits them, or plain loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from ..expr import DType, Expr, acc, as_int, axis, ceil_div, const
from ..graph import Builder, Graph, Node, Value
from ..ops.core.scalar import Scalar
from ..ops.ml.forest import COMBINE, DEEPEST, EQUAL, LANES, LESS, MISSING, NEUTRAL, Trees, finished
from ..plan.group import Group
from ..plan.storage import Storage
from .base import Kernel, NoKernel, Operand, Temporary
from .heavy import (
    HeavyKernel,
    Strided,
    add_buffer,
    copy_kernel,
    epilogue_flops,
    finish,
    is_empty,
    join_stores,
    read_through,
    strided_operand,
    traffic,
)
from .nest import Buffers
from .recurrent import apart, moved


@dataclass(frozen=True)
class TreesKernel(HeavyKernel):
    """What the leaves say that rows reach, aggregated; its stores make their values from ``acc``.

    Attributes:
        axes: axes of the epilogue: rows and targets, or one axis for both where memory runs on.
        x: the rows, stepping along rows; the features of a row lie side by side.
        nodes, roots, weights: buffers of the tables, as the operator describes them.
        trees, targets: their number.
        count, features: number of rows, and of features of a row.
        rows: rows of a task.
        ways: from roots to leaves, that are followed at a time.
        combine: scalar function that accumulates.
        start: what an accumulation starts from.
        compare, missing: as in the operator.
    """

    kind: ClassVar[str] = "trees"
    template: ClassVar[str] = "trees.c.j2"

    axes: tuple[Expr, ...]
    x: Strided
    nodes: int
    roots: int
    weights: int
    trees: int
    targets: int
    count: Expr
    features: Expr
    rows: Expr
    ways: int
    combine: str
    start: Expr
    compare: str
    missing: bool

    @property
    def dtype(self) -> DType:
        """Type of the features and of the sums."""
        return self.buffers[self.weights].dtype

    @property
    def scratch(self) -> Expr:
        return (self.rows * self.targets + LANES) * self.dtype.size

    @property
    def bits(self) -> dict[str, int]:
        """Places of a branch's bits, by what goes to "true"."""
        return {"less": LESS, "equal": EQUAL, "missing": MISSING}


def trees_of(group: Group) -> tuple[Node, Trees]:
    """The ensemble of a group."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Trees)
    return node, node.op


def work_of(node: Node) -> int:
    """Branches on the longest ways, for a row."""
    roots = node.operands[2].const
    assert roots is not None
    return int(roots[:, 1].sum()) + len(roots)


def lower_walks(group: Group, storage: Mapping[Value, Storage], rows: Expr, ways: int) -> list[Kernel]:
    """The kernel that walks the tables, behind a copy of the features where these do not lie side by side.

    Args:
        rows: rows of a task.
        ways: that the kernel follows at a time.
    """
    node, op = trees_of(group)
    if all(is_empty(v) for v in group.outputs):
        return []
    x, *constants = node.operands
    row = axis("n", x.shape[0])
    axes = (row, axis("f", x.shape[1]))
    kernels: list[Kernel] = []
    buffers = Buffers(storage)
    source = strided_operand(buffers.resolve(read_through(group, x, axes)), axes)
    if source is None or as_int(source.steps[1]) != 1:
        whole = Temporary("features", group.id, x.type.nbytes)
        kernels.append(copy_kernel(lambda b: b.resolve(read_through(group, x, axes)), axes, storage, whole, x.dtype))
        buffers = Buffers(storage)
        source = Strided(add_buffer(buffers, whole, dtype=x.dtype), const(0), (x.shape[1], const(1)))
    nodes, roots, weights = (add_buffer(buffers, v, dtype=v.dtype) for v in constants)
    trees, targets = (as_int(constants[k].shape[j]) or 0 for k, j in ((1, 0), (2, 1)))
    target = axis("target", targets)
    result = finished(Scalar(acc("acc", x.dtype)), op.aggregate, trees).expr
    stores = finish(group, node, result, (row, target if targets > 1 else const(0)), buffers)
    joined, stores = join_stores([row, target] if targets > 1 else [row], stores)
    kernel = TreesKernel(
        buffers=tuple(buffers.list),
        tasks=ceil_div(x.shape[0], rows),
        flops=op.flops(node) + epilogue_flops(stores, node.output.type.size),
        nbytes=traffic(buffers.list, group.outputs),
        stores=tuple(stores),
        axes=tuple(joined),
        x=source,
        nodes=nodes,
        roots=roots,
        weights=weights,
        trees=trees,
        targets=targets,
        count=x.shape[0],
        features=x.shape[1],
        rows=rows,
        ways=ways,
        combine=COMBINE[op.aggregate],
        start=const(NEUTRAL.get(op.aggregate, 0.0), x.dtype),
        compare=op.compare,
        missing=op.missing,
    )
    return [*kernels, kernel]


def lower_by_nests(group: Group, nests: Callable[[Group], list[Kernel]]) -> list[Kernel]:
    """Trees as plain loops: which leaves are reached, and then the sums of what these say.

    Raises:
        NoKernel: for trees that are too deep to be written out.
    """
    node, op = trees_of(group)
    roots = node.operands[2].const
    assert roots is not None
    if roots[:, 1].max() > DEEPEST:
        raise NoKernel(f"{node.op.name} deeper than {DEEPEST}")
    b = Builder(Graph())
    made = op.decompose(b, node.inputs)
    assert made is not None
    kernels: list[Kernel] = []
    for part in b.nodes:
        kernels += nests(Group(group.id, "nest", [part], outputs=list(part.outputs)))
    homes: dict[object, Operand] = {made[0]: node.output}
    for k, v in enumerate(n.output for n in b.nodes):
        homes.setdefault(v, Temporary(f"part {k}", group.id, v.type.nbytes))
    return apart(group, node, lambda _: moved(kernels, homes), nests)
