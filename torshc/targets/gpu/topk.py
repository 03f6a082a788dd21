"""TopK on devices: by counting how many come before each element."""

from __future__ import annotations

from collections.abc import Mapping

from ...expr import as_int
from ...graph import Builder, Graph, Value
from ...kernels.base import Kernel, NoKernel, Operand, Temporary
from ...kernels.machine import Machine
from ...kernels.recurrent import apart, moved
from ...ops.tensor.sort import TopK
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .nests import lower_grid

NEST = 4096  # the longest axis along which a device counts for each element


@GridTarget.lowers("topk")
def lower_grid_topk(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """On a device, by counting how many come before each element.

    Raises:
        NoKernel: when the axis is symbolic or long.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, TopK)
    length = node.operands[0].shape[node.op.axis]
    if (as_int(length) or 0) > NEST or as_int(length) is None:
        raise NoKernel(f"{node.op.name} along {length!r} elements; devices support up to {NEST}")
    op, x = node.op, node.operands[0]
    b = Builder(Graph())
    values, places = op.ranked(b, x)
    kernels: list[Kernel] = []
    for part in b.nodes:
        kernels += lower_grid(Group(group.id, "nest", [part], outputs=list(part.outputs)), storage, machine.device)
    homes: dict[object, Operand] = {values: node.outputs[0], places: node.outputs[1]}
    for k, v in enumerate(n.output for n in b.nodes):
        homes.setdefault(v, Temporary(f"part {k}", group.id, v.type.nbytes))
    return apart(group, node, lambda _: moved(kernels, homes), lambda g: lower_grid(g, storage, machine.device))
