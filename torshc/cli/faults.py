"""How errors end a command: a message with its remedy, an exit code, and never a traceback."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import click

from ..base.errors import InternalError, ResourceError, TorshcError, UnsupportedError, resource_error

INTERRUPTED = 130  # 128 + SIGINT, what shells use
BROKEN_PIPE = 141  # 128 + SIGPIPE
ISSUES = "please report it with the command and, if you can, the model"


class _PipeClosed(Exception):
    """Nobody reads our output any more."""


class GuardedGroup(click.Group):
    """A group of commands whose errors are turned into messages and exit codes.

    Usage errors keep click's own exit code, 2.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command and exits with its code."""
        code = guarded(lambda: super(GuardedGroup, self).main(args, prog_name, complete_var, False, **extra))
        _finish_stderr()
        if standalone_mode:
            sys.exit(code)
        return code

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a verb. A broken pipe gets past click, which would end the process by itself."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _PipeClosed from error

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of a user's way, not of the alphabet."""
        return list(self.commands)


def guarded(action: Callable[[], Any]) -> int:
    """Runs an action and gives the exit code; says on stderr what went wrong."""
    _open_streams()
    try:
        found = action()
        sys.stdout.flush()
        return found if isinstance(found, int) else 0
    except (OSError, MemoryError, _PipeClosed) as error:
        return _describe_refusal(error)
    except TorshcError as error:
        show(error)
        return error.exit_code
    except click.ClickException as error:
        with contextlib.suppress(OSError):  # as show() does
            error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("torshc: interrupted", err=True)
        return INTERRUPTED
    except Exception as error:
        return _report_unexpected(error)


def _open_streams() -> None:
    """Standard streams that are closed lead nowhere, so that nothing else is opened in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # for as long as the process runs


def _describe_refusal(error: OSError | MemoryError | _PipeClosed) -> int:
    """What the system refused: to read, to write, to give memory or files."""
    closed = isinstance(error, _PipeClosed | BrokenPipeError)
    no_output = closed or _is_of_output(error)
    if no_output:
        # Nothing may be written there any more, not even when Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if isinstance(error, _PipeClosed) or closed:
        return BROKEN_PIPE
    place = getattr(error, "filename", None)  # most of what writes files has errors of its own
    what = "torshc cannot go on" + (f" at {os.fsdecode(place)}" if isinstance(place, str | bytes) else "")
    found = resource_error(error, "cannot write to stdout" if no_output else what) or _homeless()
    if found is None:
        return _report_unexpected(error)
    show(found)
    return found.exit_code


def _homeless() -> ResourceError | None:
    """What explains an error where the folder is gone that torshc was started in: paths and compilers begin there."""
    try:
        Path.cwd()
    except OSError:
        return ResourceError("the folder that torshc was started in is no longer there", "change to one that is")
    return None


def _finish_stderr() -> None:
    """Writes what a buffer still holds. Where stderr is full, Python would end with a code of its own for that."""
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _is_of_output(error: BaseException) -> bool:
    """Whether it was raised where results are written, which is click's function; to stderr nothing can be said."""
    return any(frame.f_code is click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def _report_unexpected(error: Exception) -> int:
    show(InternalError(f"{type(error).__name__}: {error}", f"this is a fault of torshc; {ISSUES}"))
    if not debugging():
        click.echo("  TORSHC_DEBUG=1 shows where it happened", err=True)
    return InternalError.exit_code


def debugging(environment: MutableMapping[str, str] = os.environ) -> bool:
    """Whether tracebacks are wanted."""
    return environment.get("TORSHC_DEBUG", "") not in ("", "0")


def show(error: TorshcError) -> None:
    """An error on stderr: message, notes, remedy; the traceback too when TORSHC_DEBUG is set."""
    from ..base.escaping import printable
    from .console import show_warnings, style

    if isinstance(error, UnsupportedError):
        show_warnings(error.warnings)
    if debugging():
        traceback.print_exc()
    notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))
    remedy = f"\n  remedy: {error.remedy}" if error.remedy else ""
    text = printable(f"{error.message}{notes}{remedy}", keep="\n")
    with contextlib.suppress(OSError):  # nobody can be told that stderr is full; the exit code says enough
        click.echo(f"torshc: {style('error:', err=True, fg='red', bold=True)} {text}", err=True)
