"""torshc targets: what can be compiled for here, and with what."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ToolchainError
from . import flags
from .console import echo_json

if TYPE_CHECKING:
    from ..bundle.toolchain import Compiler


@click.command()
@click.option("--mcpu", default="native", show_default=True, help="Processor to ask about, by LLVM's name.")
@click.option("--cc", default="", help="C compiler to ask about, besides those that are found.")
@flags.JSON
def targets(mcpu: str, cc: str, as_json: bool) -> None:
    """List targets, compilers and instruction set."""
    import dataclasses

    from ..bundle.isa import resolve
    from ..bundle.toolchain import REMEDY
    from ..explain import printable

    found = _compilers(cc)
    isa = resolve(mcpu)
    if as_json:
        shown = [{"name": c.name, "kind": c.kind, "command": list(c.command), "version": c.version} for c in found]
        echo_json({"targets": [{"name": "c", "isa": dataclasses.asdict(isa), "compilers": shown}]})
        return
    vectors = f"vectors of {isa.lanes} f32" if isa.lanes > 1 else "no vectors"
    extras = "".join(f" +{extra}" for extra in isa.extras)
    click.echo(f"c  {isa.arch} {isa.mcpu}{extras}, {vectors}")
    for k, c in enumerate(found):
        click.echo(f"   {'*' if k == 0 else ' '} {c.name:10} {printable(c.version)}")
    click.echo("   * is what compile uses" if found else f"   no C compiler: {REMEDY}")


def _compilers(cc: str) -> list[Compiler]:
    """All compilers that answer, the one that compile would take first, each program once."""
    from ..bundle.toolchain import CLANGS, GCCS, find_compiler

    names = [n for n in (*CLANGS, "clang", *GCCS, "gcc", "cc") if shutil.which(n)]
    found: list[Compiler] = []
    for name in (cc, *names, "zig"):
        try:
            found.append(find_compiler(name or None))
        except ToolchainError:
            if name and name == cc:
                raise
    return list({Path(c.path).resolve(): c for c in reversed(found)}.values())[::-1]
