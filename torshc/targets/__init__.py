"""Targets, a package a family: how kernels are lowered and spelled for each kind of machine.

Who imports a module of this loads no more than it needs: tools need no targets. :func:`find_target` loads the families
up to the one that has the target, and who takes ``TARGETS`` loads them all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from .families import load_families

if TYPE_CHECKING:
    from .base import TARGETS, NoKernel, Rendered, Target, find_target, register, target_of
else:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "TARGETS":
            load_families()
        return getattr(import_module(f"{__name__}.base"), name)


__all__ = ["TARGETS", "NoKernel", "Rendered", "Target", "find_target", "register", "target_of"]
