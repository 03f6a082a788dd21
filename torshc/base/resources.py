"""Where files lie: templates and rules beside the package in a checkout, in ``torshc/_data`` in an installed wheel.

And the folder of the cache, which every tool that keeps something shares.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from .errors import InternalError

_PACKAGE = Path(__file__).resolve().parents[1]


@cache
def _find(kind: str) -> Path:
    # The wheel's copy comes first: a checkout has no _data, and an installed package may lie beside anything.
    for place in (_PACKAGE / "_data" / kind, _PACKAGE.parent / kind):
        if place.is_dir():
            return place
    raise InternalError(f"the folder {kind!r} of torshc is missing", "reinstall torshc")


def rules(kind: str = "") -> Path:
    """The folder of the rules, or one of its folders: "pipelines", "rewrites", "fusion"."""
    return _find("rules") / kind


def templates(target: str = "") -> Path:
    """The folder of the templates, or that of a target."""
    return _find("templates") / target


@cache
def template_folders(search: tuple[str, ...]) -> tuple[Path, ...]:
    """Where the templates of some folders lie, in order: in each one itself, then in its folders by trade."""
    places = (templates(name) for name in search)
    return tuple(f for place in places for f in (place, *sorted(p for p in place.iterdir() if p.is_dir())))


def find_template(search: Iterable[str], name: str) -> Path:
    """The first file of this name in some folders of templates.

    Raises:
        InternalError: there is none.
    """
    for folder in template_folders(tuple(search)):
        if (path := folder / name).is_file():
            return path
    raise InternalError(f"no template {name!r} in {', '.join(search)}", "reinstall torshc")


def rule_files(kind: str) -> tuple[Path, ...]:
    """The YAML files of a kind of rules, in the order of their names."""
    return tuple(sorted(rules(kind).glob("*.yaml")))


def own_folders() -> tuple[Path, ...]:
    """The folders of all that torshc consists of."""
    return _PACKAGE, rules(), templates()


def cache_folder() -> Path:
    """Where the cache lies: ``TORSHC_CACHE_DIR``, else ``torshc`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
    if named := os.environ.get("TORSHC_CACHE_DIR"):
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or ""
    if not Path(base).is_absolute():  # the XDG standard: relative paths are to be ignored
        base = str(Path("~/.cache").expanduser())
    return Path(base).absolute() / "torshc"
