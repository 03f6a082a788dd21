"""The family of processors: threads of the host with vector registers, which need no copies of their operands."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.machine import Machine
from ...kernels.nest import lower_nest
from ...plan.group import Group
from ...plan.storage import Storage
from ..base import Target


class CpuTarget(Target):
    """A target whose kernels run on the processor."""


@CpuTarget.lowers("nest")
def lower_loops(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a group without a heavy node."""
    return lower_nest(group, storage)
