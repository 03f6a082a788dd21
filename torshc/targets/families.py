"""Loads the modules of families of targets, so that a target or a lowering is known once its file is there."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

_FOLDER = Path(__file__).parent


@cache
def families() -> tuple[str, ...]:
    """The names of the families' packages."""
    return tuple(found.name for found in pkgutil.iter_modules([str(_FOLDER)]) if found.ispkg)


@cache
def load_family(name: str) -> None:
    """Imports every module of a family."""
    for found in pkgutil.walk_packages([str(_FOLDER / name)], f"{__package__}.{name}."):
        import_module(found.name)


def load_family_of(module: str) -> None:
    """Imports the family that a module is of; all of them for one from elsewhere, which may extend any."""
    name = module.removeprefix(f"{__package__}.").partition(".")[0]
    for family in (name,) if name in families() else families():
        load_family(family)


def load_families() -> None:
    """Imports them all."""
    for family in families():
        load_family(family)
