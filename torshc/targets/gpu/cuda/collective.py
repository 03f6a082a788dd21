"""Lowering of exchanges between ranks on cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....graph import Value
from ....kernels.base import Kernel
from ....kernels.collective import CollectiveKernel, lower_collective
from ....kernels.machine import Machine
from ....plan.group import Group
from ....plan.storage import Storage
from ..base import lower_loops
from .target import CudaTarget


@dataclass(frozen=True)
class CudaCollectiveKernel(CollectiveKernel):
    """An exchange that NCCL puts into the stream."""

    template: ClassVar[str] = "collective.cu.j2"

    threads: int = 1

    @property
    def peer(self) -> int:
        """The other rank; -1 for all."""
        return self.numbers[0] if self.numbers else -1


@CudaTarget.lowers("collective")
def lower_exchange(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The exchange, with copies around it."""
    made = lower_collective(group, storage, lambda g: lower_loops(g, storage, machine))
    return [CudaCollectiveKernel.of(k) if isinstance(k, CollectiveKernel) else k for k in made]
