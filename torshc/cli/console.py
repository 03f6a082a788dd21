"""What people see: colours on terminals, progress on one line there and on plain lines elsewhere."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import click

PLAIN_SECONDS = 2.0  # seconds between plain lines of progress, at least
_COLUMNS = 79
_SHOWN = 20  # warnings
_CLEAR = "\r\x1b[2K"
QUIET = "quiet"  # where a context keeps it


def on_terminal(err: bool = False) -> bool:
    """Whether the stream is a terminal that may be written to as one."""
    return (sys.stderr if err else sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def style(text: str, err: bool = False, **how: Any) -> str:
    """Text in colour where the stream is a terminal and NO_COLOR is not set (https://no-color.org)."""
    return click.style(text, **how) if on_terminal(err) and not os.environ.get("NO_COLOR") else text


def echo_json(value: Any) -> None:
    """A value as one JSON document on stdout."""
    click.echo(json.dumps(value, indent=1, ensure_ascii=True))


def show_warnings(lines: Sequence[str]) -> None:
    """Warnings on stderr, a line each; of many only the first."""
    from ..base.escaping import printable

    if is_quiet():
        return
    for line in lines[:_SHOWN]:
        click.echo(f"{style('warning', err=True, fg='yellow')}: {printable(line)}", err=True)
    if len(lines) > _SHOWN:
        click.echo(f"{len(lines) - _SHOWN} more warnings; --json shows all", err=True)


def is_quiet() -> bool:
    """Whether the command was told to say nothing but its results and errors."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


class Progress:
    """Tells on stderr what long work is at; an observer of :func:`torshc.pipeline.compiler.compile_model`.

    On a terminal one line is rewritten and removed at the end. Elsewhere a line is written for a stage that starts
    when nothing was said for some seconds, so that short work stays silent.

    Args:
        quiet: say nothing at all.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet or is_quiet()
        self.terminal = on_terminal(err=True)
        self.began = self.said = time.monotonic()

    def __call__(self, stage: str, seconds: float) -> None:
        if self.quiet or seconds > 0:  # a stage that ended says nothing: the next one follows at once
            return
        now = time.monotonic()
        line = f"torshc: {stage} ({now - self.began:.0f} s)"
        if self.terminal:
            click.echo(_CLEAR + line[:_COLUMNS], nl=False, err=True)
        elif now - self.said >= PLAIN_SECONDS:
            self.said = now
            click.echo(line, err=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.terminal and not self.quiet:
            click.echo(_CLEAR, nl=False, err=True)
