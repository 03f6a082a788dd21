"""torshc eject: a kernel's source to work on, with its contract and a program that checks and times it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import flags
from .console import Progress


@click.command()
@flags.MODEL_ARGUMENT
@click.option("--group", type=int, required=True, metavar="N", help="The group, as `torshc explain` numbers it.")
@click.option("-o", "out", type=flags.FILE, default=Path("kernels"), show_default=True, help="The folder to write to.")
@flags.add(flags.DIMS, *flags.MODEL)
def eject(model: Path, group: int, out: Path, dims: dict[str, int], **given: Any) -> None:
    """Write kernels of MODEL, to be edited and compiled in.

    Each has a folder with its source, its contract, and a Makefile: `make check` compares the edited kernel with the
    original, `make bench` times both. `torshc compile --kernels DIR` uses them.
    """
    from ..base.escaping import printable
    from ..pipeline.compiler import prepare
    from ..workbench.eject import eject as write

    with Progress() as progress:
        found = prepare(model, flags.compile_options(given), progress)
    for folder in write(found, group, out, dims):
        click.echo(printable(str(folder)))
