"""The family of processors: threads of the host with vector registers, which need no copies of their operands."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Graph, Value
from ...kernels.base import Kernel
from ...kernels.halves import with_near
from ...kernels.machine import Machine
from ...kernels.nest import lower_nest
from ...plan.group import Group
from ...plan.storage import Storage
from ..base import HostFiles, Target
from ..cc import CToolchain


class CpuTarget(Target):
    """A target whose kernels run on the processor."""

    toolchain = CToolchain()
    options = frozenset({"cc", "mcpu", "triple", "exact_batches"})
    host = HostFiles(
        search=("c",),
        sources=(
            "t_host.c",
            "t_model.c",
            "t_open.c",
            "t_exchange.c",
            "t_observe.c",
            "t_check.c",
            "t_cpu.c",
            "t_pool.c",
        ),
        headers=("model.h", "t_program.h", "t_model.h", "t_host.h", "t_pool.h"),
    )

    def lower(self, graph: Graph, group: Group, storage: Mapping[Value, Storage]) -> list[Kernel]:
        """The kernels of a group; behind those of its anchor one for totals that these do not add up."""
        kernels = [with_near(k) for k in super().lower(graph, group, storage)]
        wanted = [v for n in group.totals for v in n.outputs if v in group.outputs]
        if not wanted or any(b.written and b.operand in wanted for k in kernels for b in k.buffers):
            return kernels
        behind = Group(group.id, "row", group.totals, folded=group.folded, outputs=wanted)
        return [*kernels, *map(with_near, super().lower(graph, behind, storage))]


@CpuTarget.lowers("nest")
def lower_loops(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of a group without a heavy node."""
    return lower_nest(group, storage)
