"""torshc cache: the kernel cache's size, and how to empty it."""

from __future__ import annotations

import click

from . import flags
from .console import echo_json


@click.group()
def cache() -> None:
    """Look at or empty the kernel cache.

    It lies in TORSHC_CACHE_DIR, else in torshc in XDG_CACHE_HOME or ~/.cache.
    """


@cache.command()
@flags.JSON
def info(as_json: bool) -> None:
    """Print the cache's folder, number of objects and size."""
    from ..base.cache import Cache
    from ..base.quantities import bytes_text
    from ..base.resources import cache_folder

    folder = cache_folder()
    entries = Cache(folder).entries()
    size = sum(entry.size for entry in entries)
    if as_json:
        echo_json({"folder": str(folder), "objects": len(entries), "bytes": size})
    else:
        click.echo(f"{folder}: {len(entries)} objects, {bytes_text(size)}")


@cache.command()
@flags.JSON
def clear(as_json: bool) -> None:
    """Delete all objects, and the precompiled headers beside them."""
    from ..base.cache import Cache
    from ..base.resources import cache_folder

    found = Cache(cache_folder())
    deleted = found.clear()
    if as_json:
        echo_json({"deleted": deleted, "problem": found.problem})
    else:
        click.echo(f"{deleted} objects deleted" + (f"; {found.problem}" if found.problem else ""))
