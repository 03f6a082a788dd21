"""Gradients of the weights of convolutions on devices, where no pass has taken them apart: as plain loop nests."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Value
from ...kernels.base import Kernel
from ...kernels.machine import Machine
from ...plan.group import Group
from ...plan.storage import Storage
from .base import GridTarget
from .nests import lower_grid_generic


@GridTarget.lowers("conv_weights")
def lower_conv_weights(group: Group, storage: Mapping[Value, Storage], machine: Machine) -> list[Kernel]:
    """The kernels of the sums over all pixels."""
    return lower_grid_generic(group, storage, machine.device)
