"""torshc explain: the fusion plan, and why it is as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import flags
from .console import Progress


@click.command()
@flags.MODEL_ARGUMENT
@flags.add(*flags.MODEL, flags.DIMS)
@click.option("--format", "form", type=click.Choice(["text", "json", "dot"]), default="text", show_default=True)
@click.option("--all", "everything", is_flag=True, help="List every place where fusion stopped.")
@click.option("--group", type=int, metavar="N", help="Show one group in full.")
def explain(model: Path, dims: dict[str, int], form: str, everything: bool, group: int | None, **given: Any) -> None:
    """Show what MODEL becomes, and why.

    Prints passes, launches with their work and traffic, and where fusion stopped. Runs no compiler. Sizes with
    symbolic dimensions are evaluated at --dims, or 1.
    """
    from .. import explain as explanation
    from ..compiler import prepare

    with Progress() as progress:
        found = explanation.explain(prepare(model, flags.compile_options(given), progress), dims)
    if form == "json":
        click.echo(explanation.to_json(found))
    elif form == "dot":
        click.echo(explanation.to_dot(found), nl=False)
    elif group is not None:
        click.echo(explanation.group_text(found, group), nl=False)
    else:
        click.echo(explanation.to_text(found, everything), nl=False)
