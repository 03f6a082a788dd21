"""Scatters on devices: each element of the result looks for its updates, in any order of threads."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.machine import Machine
from ...kernels.scatter import require_searchable
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .nests import lower_grid_generic


@GridTarget.lowers("scatter")
def lower_grid_scatter(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a scatter.

    Raises:
        NoKernel: where the search would take too long; the processor writes the updates one after the other.
    """
    require_searchable(group)
    return lower_grid_generic(group, storage, machine.device)
