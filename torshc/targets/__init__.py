"""Targets, a package a family: how kernels are lowered and spelled for each kind of machine.

Importing this finds every module of the families, so that a target or a lowering is known once its file is there.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from .base import TARGETS, NoKernel, Rendered, Target, find_target, register, target_of

for _found in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_found.name)

__all__ = ["TARGETS", "NoKernel", "Rendered", "Target", "find_target", "register", "target_of"]
