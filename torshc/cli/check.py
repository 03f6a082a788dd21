"""torshc check: all that is unsupported, at once, before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..base.errors import UnsupportedError
from . import flags
from .console import echo_json, show_warnings


@click.command()
@flags.MODEL_ARGUMENT
@flags.add(*flags.MODEL, flags.TRAIN, flags.TRAIN_MEMORY, flags.JSON)
def check(model: Path, as_json: bool, **given: Any) -> None:
    """List what is unsupported in MODEL, and what is ignored in it.

    Exit code 0: nothing is unsupported, 3: something.
    """
    from ..base.escaping import printable
    from ..pipeline.compiler import check as look

    found = look(model, flags.compile_options(given))
    problems = found.problems
    if not as_json:
        show_warnings(found.warnings)
    if as_json:
        echo_json({"ok": not problems, "problems": list(problems), "warnings": list(found.warnings)})
    elif problems:
        for problem in problems:
            click.echo(printable(problem, keep="\n"))
        click.echo(f"{len(problems)} unsupported")
    else:
        click.echo(f"{printable(str(model))}: everything is supported")
    if problems:
        raise click.exceptions.Exit(UnsupportedError.exit_code)
