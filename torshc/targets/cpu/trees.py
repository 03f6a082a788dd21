"""Lowering of ensembles of trees: one kernel that walks tables, several ways at a time."""

from __future__ import annotations

from collections.abc import Mapping

from ...expr import as_int
from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.machine import Machine
from ...kernels.trees import lower_walks, trees_of, work_of
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget
from .tiles import TASK_FLOPS, clamp

ROWS = 256  # rows of a task at the most: they stay in L1 while all trees pass by
SUMS = 16384  # sums of a task at the most
WAYS = 16  # that the kernel follows at a time, as measured; rows of a task are a multiple
STEP_FLOPS = 8  # what a branch costs, in multiply-adds


@CpuTarget.lowers("trees")
def lower_trees(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernel of an ensemble with what follows it."""
    node, _ = trees_of(group)
    targets = as_int(node.output.shape[1]) or 1
    most = max(1, min(ROWS, SUMS // targets) // WAYS)
    least = min(most, -(-TASK_FLOPS // (STEP_FLOPS * work_of(node) * WAYS)))
    shared = node.operands[0].shape[0] // (4 * machine.threads * WAYS)
    return lower_walks(group, storage, clamp(shared, least, most) * WAYS, WAYS)
