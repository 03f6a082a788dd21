"""torshc completion: what a shell has to know to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
        eval "$(torshc completion bash)"        in ~/.bashrc
        eval "$(torshc completion zsh)"         in ~/.zshrc
        torshc completion fish | source         in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "torshc", "_TORSHC_COMPLETE").source())
