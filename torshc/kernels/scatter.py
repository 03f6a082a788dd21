"""What kernels of scatters share: the axes of the updates, the places that they name, and what is stored there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..expr import Expr, as_int, axis, const, walk
from ..graph import Builder, Graph, Node, Value
from ..ops import REGISTRY
from ..ops.core.base import Index, searchable
from ..ops.core.scalar import Scalar
from ..ops.tensor.scatter import Scattering
from ..plan.group import Group
from ..plan.storage import Storage
from .axes import join_axes
from .base import Kernel, NoKernel, Store
from .heavy import read_through, temporary
from .nest import Buffers, lower_nest


@dataclass(frozen=True)
class Place:
    """Where an update goes along one dimension of the result.

    Attributes:
        axis: stands for the index in offsets; its extent is the dimension.
        index: what the indices say, negative from the end.
    """

    axis: Expr
    index: Expr


@dataclass(frozen=True)
class Updates:
    """The updates of a scatter, one after the other along `step` and side by side along the other axes.

    Attributes:
        axes: parallel axes, outermost first, without `lane`.
        step: the axis along which a later update of an element comes after an earlier one.
        lane: the innermost parallel axis, None where there is none.
        places: dimensions of the result that indices choose.
        store: writes the element that an update makes of the one there.
        buffers: the argument list.
    """

    axes: tuple[Expr, ...]
    step: Expr
    lane: Expr | None
    places: tuple[Place, ...]
    store: Store
    buffers: Buffers

    @property
    def along(self) -> bool:
        """Whether all places are the same along the lane axis."""
        return self.lane is not None and not any(self.lane in walk(p.index) for p in self.places)


def scatter_of(group: Group) -> tuple[Node, Scattering]:
    """The scatter of a group."""
    node = group.anchor
    assert node is not None and isinstance(node.op, Scattering)
    return node, node.op


def read_updates(group: Group, storage: Mapping[Value, Storage]) -> Updates:
    """The updates of a scatter and what they do."""
    node, op = scatter_of(group)
    data, _, updates = node.operands
    indexed = op.indexed_axes(node)
    order = node.output.layout or range(node.output.type.rank)
    step, extents = op.extents(node)
    step = axis("u", step)
    fixed = {d: axis(f"i{d}", extents[d]) for d in order if d not in indexed and as_int(extents[d]) != 1}
    spots = {d: axis(f"at{d}", data.shape[d]) for d in indexed}
    beside: Index = tuple(fixed.get(d, const(0)) for d in range(data.type.rank))
    buffers = Buffers(storage)

    def read(k: int, index: Index) -> Scalar:
        return Scalar(read_through(group, node.operands[k], index))

    indices, where = op.locate(node, step if as_int(step.args[0]) != 1 else const(0), beside, read)
    found = [buffers.resolve(e) for e in indices]
    update = buffers.resolve(read_through(group, updates, where))
    to = buffers.store(node.output, tuple(spots.get(d, i) for d, i in enumerate(beside)), update)
    value = op.combine(Scalar(temporary(to.buffer, to.offset, update.dtype)), Scalar(update)).expr
    axes, (offset, value, *found) = join_axes(list(fixed.values()), [to.offset, value, *found])
    return Updates(
        axes=tuple(axes[:-1]),
        step=step,
        lane=axes[-1] if axes else None,
        places=tuple(Place(a, e) for a, e in zip(spots.values(), found, strict=True)),
        store=Store(to.buffer, offset, value),
        buffers=buffers,
    )


def lower_copy(group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
    """The kernels that fill a scatter's result with its data."""
    node, _ = scatter_of(group)
    b = Builder(Graph())
    copied = b.one(REGISTRY["", "Identity"](), node.operands[0])
    whole = Group(group.id, "nest", list(b.nodes), folded=group.folded, outputs=[node.output])
    whole.alias[node.output] = copied
    return lower_nest(whole, storage)


def require_searchable(group: Group) -> None:
    """Refuse a scatter as a loop in which each element of the result looks for its updates.

    Raises:
        NoKernel: when that would take too long.
    """
    node, op = scatter_of(group)
    step, _ = op.extents(node)
    if not searchable(step, node.output.type.size):
        raise NoKernel(f"{op.name} that searches {step!r} updates for each of {node.output.type.size!r} elements")
