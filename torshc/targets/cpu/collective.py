"""Lowering of exchanges between ranks."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.collective import lower_collective
from ...kernels.machine import Machine
from ...kernels.nest import lower_nest
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget


@CpuTarget.lowers("collective")
def lower_exchange(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The exchange, with copies around it."""
    return lower_collective(group, storage, lambda g: lower_nest(g, storage))
