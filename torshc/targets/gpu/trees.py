"""Ensembles of trees on devices: as plain loops, a thread for each row and tree."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.machine import Machine
from ...kernels.trees import lower_by_nests
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .nests import lower_grid


@GridTarget.lowers("trees")
def lower_grid_trees(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of an ensemble with what follows it."""
    return lower_by_nests(group, lambda g: lower_grid(g, storage, machine.device))
