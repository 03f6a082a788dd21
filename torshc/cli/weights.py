"""torshc weights: other weights for a bundle, without compiling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import flags


@click.command()
@click.argument("bundle", type=flags.FILE)
@click.argument("new", type=flags.FILE)
@click.option("--model", type=flags.FILE, help="The model that BUNDLE was made from, where NEW is a .npz file.")
@click.option("-o", "out", type=flags.FILE, metavar="OUT", help="The bundle to write; BUNDLE itself by default.")
@flags.add(*flags.PLAN)
def weights(bundle: Path, new: Path, model: Path | None, out: Path | None, **given: Any) -> None:
    """Give BUNDLE the weights of NEW, without compiling.

    NEW is a model that differs in its weights only, or a .npz file of weights by name with --model. Options of the
    compilation that changed its plan have to be given again.
    """
    from ..explain import printable
    from ..workbench.reweigh import set_weights

    if (new.suffix == ".npz") != (model is not None):
        raise click.UsageError("NEW is a .npz file and --model names the model, or NEW is a model")
    options = flags.compile_options(given)
    if model is not None:
        place = set_weights(bundle, model, options, new, out)
    else:
        place = set_weights(bundle, new, options, None, out)
    click.echo(f"{printable(str(place))}: new weights")
