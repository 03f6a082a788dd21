"""Lowering of operators with functions of the user's in C."""

from __future__ import annotations

from collections.abc import Mapping

from ...base.errors import UnsupportedError
from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.custom import lower_custom
from ...kernels.machine import Machine
from ...kernels.nest import lower_nest
from ...ops.core.custom_kernel import PlannedKernel
from ...plan.group import Group
from ...plan.storage import Storage
from .base import CpuTarget


@CpuTarget.lowers("custom")
def lower_function(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The call of the function, with copies around it.

    Raises:
        UnsupportedError: there is none in C.
    """
    node = group.anchor
    assert node is not None and isinstance(node.op, PlannedKernel)
    if node.op.sources.c is None:
        raise UnsupportedError(
            [f"{node.describe()}: {node.op.declared.place} names no function in C"],
            "name the file of one with c=, or compile with --target cuda",
        )
    return lower_custom(group, storage, lambda g: lower_nest(g, storage))
