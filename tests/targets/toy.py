"""A target as somebody might add one: plain C, an element at a time. This file and ``toy/kernel.j2`` are all of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torshc.graph import Value
from torshc.kernels.axes import product
from torshc.kernels.base import Kernel
from torshc.kernels.generic import lower_generic
from torshc.kernels.lower import idle_when_empty
from torshc.kernels.machine import Machine
from torshc.kernels.nest import MapKernel, RowKernel, lower_nest
from torshc.plan.group import Group
from torshc.plan.storage import Storage
from torshc.targets import NoKernel, register
from torshc.targets.gpu.base import GridTarget, Words
from torshc.targets.gpu.grid import GridMap, GridRow


@register
class ToyTarget(GridTarget):
    """C without vectors: a device whose blocks have one thread, which the threads of a run share as tasks."""

    name = "toy"
    title = "plain C"
    search = (str(Path(__file__).parent / "toy"), "gpu", "c")
    preludes = ("gpu",)
    words = Words(shared="", barrier="")

    def threads(self, kernel: Kernel) -> int:
        return 0


@ToyTarget.lowers("nest", "gemm", "conv", "conv_transpose")
def lower_toy(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The group as plain loops."""
    make = lower_nest if group.anchor is None else lower_generic
    return [idle_when_empty(_serial(k)) for k in make(group, storage, keep=None)]


@ToyTarget.lowers("attention", "recurrent", "scan", "topk")
def refuse(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """What blocks of one thread cannot compute."""
    raise NoKernel(f"no kernel of family {group.kind}")


def _serial(kernel: Kernel) -> Kernel:
    """A task for each point of the parallel axes."""
    assert isinstance(kernel, MapKernel | RowKernel)
    tasks = product([a.args[0] for a in kernel.axes])
    kind = GridMap if isinstance(kernel, MapKernel) else GridRow
    return kind.of(kernel, tasks=tasks, threads=1)
