"""Lowering of operators with functions of the user's in CUDA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from ....graph import Value
from ....kernels.base import Kernel, NoKernel
from ....kernels.custom import CustomKernel, lower_custom
from ....kernels.machine import Machine
from ....ops.core.custom_kernel import PlannedKernel
from ....plan.group import Group
from ....plan.storage import Storage
from ..base import lower_loops
from .target import CudaTarget


@dataclass(frozen=True)
class CudaCustomKernel(CustomKernel):
    """A call of a user's function, which launches kernels of its own."""

    template: ClassVar[str] = "custom.cu.j2"

    threads: int = 1


@CudaTarget.lowers("custom")
def lower_function(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The call of the function, with copies around it.

    Raises:
        NoKernel: there is none in CUDA.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, PlannedKernel)
    if node.op.sources.cuda is None:
        raise NoKernel(f"{node.op.declared.place} names no function in CUDA (cuda=)")
    made = lower_custom(group, storage, lambda g: lower_loops(g, storage, machine), device=True)
    return [CudaCustomKernel.of(k) if isinstance(k, CustomKernel) else k for k in made]
