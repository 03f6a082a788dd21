"""torshc check: all that is unsupported, at once, before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import UnsupportedError
from . import flags
from .console import echo_json


@click.command()
@click.argument("model", type=flags.FILE)
@flags.add(*flags.MODEL, flags.JSON)
def check(model: Path, as_json: bool, **given: Any) -> None:
    """List all that is unsupported in MODEL.

    Exit code 0: nothing, 3: something.
    """
    from ..compiler import check as problems_of
    from ..explain import printable

    problems = problems_of(model, flags.compile_options(given))
    if as_json:
        echo_json({"ok": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            click.echo(printable(problem, keep="\n"))
        click.echo(f"{len(problems)} unsupported")
    else:
        click.echo(f"{printable(str(model))}: everything is supported")
    if problems:
        raise click.exceptions.Exit(UnsupportedError.exit_code)
