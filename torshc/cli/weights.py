"""torshc weights: other weights for a bundle, without compiling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import flags


@click.command()
@click.argument("bundle", type=flags.FILE)
@click.argument("new", type=flags.FILE)
@click.option("--model", type=flags.FILE, help="The model that BUNDLE was made from, where NEW has weights alone.")
@click.option("-o", "out", type=flags.FILE, metavar="OUT", help="What to write; BUNDLE itself by default.")
@flags.add(*flags.PLAN)
def weights(bundle: Path, new: Path, model: Path | None, out: Path | None, **given: Any) -> None:
    """Give BUNDLE the weights of NEW, without compiling.

    NEW is a model that differs in its weights only; or with --model a file of weights by name: .npz, or .safetensors
    such as the states that training saves. Options of the compilation that changed its plan have to be given again.
    BUNDLE may be an ONNX model instead, and OUT the model with the weights of such a file.
    """
    from ..base.escaping import printable
    from ..workbench.reweigh import set_weights, write_model

    alone = new.suffix in (".npz", ".safetensors")
    if bundle.is_file():
        if not alone or model is not None or out is None:
            raise click.UsageError("give a model the weights of a .npz or .safetensors file, and -o OUT")
        write_model(bundle, new, out)
        click.echo(f"{printable(str(out))}: new weights")
        return
    if alone != (model is not None):
        raise click.UsageError("NEW is a .npz or .safetensors file and --model names the model, or NEW is a model")
    options = flags.compile_options(given)
    if model is not None:
        place = set_weights(bundle, model, options, new, out)
    else:
        place = set_weights(bundle, new, options, None, out)
    click.echo(f"{printable(str(place))}: new weights")
