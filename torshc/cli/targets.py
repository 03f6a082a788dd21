"""torshc targets: what can be compiled for here, and with what."""

from __future__ import annotations

import click

from . import flags
from .console import echo_json


@click.command()
@click.option("--mcpu", default="native", show_default=True, help="Processor to describe, by LLVM's name.")
@click.option("--cc", default="", help="C compiler to list, besides those that are found.")
@flags.JSON
def targets(mcpu: str, cc: str, as_json: bool) -> None:
    """List targets, with the tools and devices that are here.

    Says how to get what is missing.
    """
    import dataclasses

    from ..base.columns import WIDTH, broken
    from ..base.escaping import printable
    from ..bundle.host import CPU
    from ..targets import TARGETS
    from ..targets.isa import resolve

    isa = resolve(mcpu)
    found = {name: target.toolchain.survey(cc) for name, target in TARGETS.items()}
    if as_json:
        shown = [{"name": n, "title": TARGETS[n].title, **dataclasses.asdict(s)} for n, s in found.items()]
        echo_json({"isa": dataclasses.asdict(isa), "targets": shown})
        return
    vectors = f"vectors of {isa.lanes} f32" if isa.lanes > 1 else "no vectors"
    extras = "".join(f" +{extra}" for extra in isa.extras)
    for name, s in found.items():
        here = f": {isa.arch} {isa.processor}{extras}, {vectors}" if TARGETS[name].device == CPU else ""
        title = broken(f"{TARGETS[name].title}{here}", WIDTH - 7)
        click.echo(f"{name:6} " + ("\n" + " " * 7).join(title))
        for k, tool in enumerate(s.tools):
            version = broken(printable(tool.version), WIDTH - 18)
            click.echo(f"     {'*' if k == 0 else ' '} {tool.name:10} " + ("\n" + " " * 18).join(version))
        for line in (*s.devices, *s.missing):
            click.echo("\n".join(" " * 7 + part for part in broken(printable(line), WIDTH - 7)))
    click.echo("* is what compile uses")
