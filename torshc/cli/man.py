"""torshc man: the manual page, made from the same help."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import click

from ..base.errors import TorshcError


@click.command()
@click.pass_context
def man(ctx: click.Context) -> None:
    """Print the manual page, for `man -l -` or a folder of MANPATH.

    \b
        torshc man | man -l -
        torshc man > ~/.local/share/man/man1/torshc.1
    """
    import jinja2  # start-up: no other command needs it before it works

    from .._version import __version__

    group = ctx.find_root().command
    assert isinstance(group, click.Group)
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["roff"] = _roff
    template = environment.from_string(Path(__file__).with_name("man.1.j2").read_text())
    verbs = [_verb(name, command) for name, command in group.commands.items()]
    click.echo(template.render(about=_paragraphs(group), version=__version__, verbs=verbs, codes=_codes()), nl=False)


def _codes() -> list[tuple[int, str]]:
    """The exit codes and what each means, as the error family says."""
    kinds = {kind.exit_code: inspect.getdoc(kind) or "" for kind in TorshcError.__subclasses__()}
    return [(0, "It is done."), (1, "An output differs from the reference (verify, bisect)."),
            *((code, text.splitlines()[0]) for code, text in sorted(kinds.items()))]  # fmt: skip


def _verb(name: str, command: click.Command) -> dict[str, Any]:
    ctx = click.Context(command, info_name=name)
    records = [p.get_help_record(ctx) for p in command.get_params(ctx)]
    return {
        "usage": " ".join([name, *command.collect_usage_pieces(ctx)]),
        "about": _paragraphs(command),
        "options": [record for record in records if record is not None and record[1]],
        "verbs": [_verb(f"{name} {n}", c) for n, c in command.commands.items()] if hasattr(command, "commands") else [],
    }


def _paragraphs(command: click.Command) -> list[tuple[bool, str]]:
    """The paragraphs of a command's help, and whether each keeps its lines."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    return [(p.startswith("\b"), p.removeprefix("\b\n")) for p in parts]


def _roff(text: str) -> str:
    """Text as roff's input: its escape character, and what would begin a request, spelled out."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").splitlines()
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in lines)
