"""Loads every module of the families of targets, so that a target or a lowering is known once its file is there."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path


@cache
def load_families() -> None:
    """Imports them all."""
    for found in pkgutil.walk_packages([str(Path(__file__).parent)], f"{__package__}."):
        import_module(found.name)
