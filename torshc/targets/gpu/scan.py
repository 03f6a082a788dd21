"""Running sums and products on devices: a sum of its own for each element."""

from __future__ import annotations

from collections.abc import Mapping

from ...expr import Expr, as_int
from ...graph import Node, Value
from ...kernels.base import Kernel, NoKernel
from ...kernels.machine import Machine
from ...ops.tensor.index import Cumulative
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .nests import lower_grid_generic

NEST = 4096  # the longest axis along which a device sums again for each element


def require_short(node: Node, length: Expr) -> None:
    """Refuse an axis along which a device would do too much for each element.

    Raises:
        NoKernel: when it is symbolic or long.
    """
    if (as_int(length) or 0) > NEST or as_int(length) is None:
        raise NoKernel(f"{node.op.name} along {length!r} elements; devices support up to {NEST}")


@GridTarget.lowers("scan")
def lower_grid_scan(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """On a device, a sum of its own for each element.

    Raises:
        NoKernel: when the axis is symbolic or long.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, Cumulative)
    require_short(node, node.output.shape[node.op.axis])
    return lower_grid_generic(group, storage, machine.device)
