"""torshc verify: does the compiled model say what the reference says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import flags
from .console import Progress, echo_json, style

if TYPE_CHECKING:
    from ..workbench.bisect import Bisection
    from ..workbench.verify import OutputCheck, Verdict


@click.command()
@flags.MODEL_ARGUMENT
@click.option(
    "--against",
    default="reference",
    show_default=True,
    metavar="reference|ort|FILE.npz",
    help="What to compare with: onnx's evaluator, ONNX Runtime, or a .npz file of outputs.",
)
@click.option("--bundle", type=flags.FILE, help="Check this bundle of MODEL instead of compiling one.")
@click.option(
    "--rtol",
    type=flags.Number(min=0),
    help="Largest max|a-b| / max|b| of an output; by default what the rounding of its types explains, 1e-4 for f32.",
)
@flags.add(
    flags.INPUT,
    flags.DIMS,
    flags.SEED,
    flags.THREADS,
    *flags.MODEL,
    *flags.BUILD,
    flags.TRAIN,
    flags.TRAIN_MEMORY,
    flags.JSON,
)
def verify(
    model: Path,
    against: str,
    bundle: Path | None,
    rtol: float | None,
    inputs: tuple[str, ...],
    dims: dict[str, int],
    seed: int,
    threads: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Compare MODEL, compiled, with a reference.

    Inputs that no file gives are random. Exit code 1: an output differs, or random inputs left nothing in it to
    compare. With --train the outputs are the loss and the gradients of a step's weights, which are compared with those
    in f64, and these with central differences.
    """
    from ..workbench.verify import verify_bundle, verify_model

    if bundle is not None and (idle := flags.given_here(given.keys() - {"ops"})):
        raise click.UsageError(f"--bundle is compiled already; leave out {', '.join(idle)}")
    options = flags.compile_options(given)
    if options.train is not None and against != "reference":
        raise click.UsageError("--against compares outputs; leave it out with --train")
    how: dict[str, Any] = {"dims": dims, "inputs": inputs, "seed": seed, "rtol": rtol, "threads": threads}
    with Progress(quiet=as_json) as progress:
        if bundle is not None:
            verdict = verify_bundle(model, bundle, against, **how, ops=options.ops)
        elif options.train is not None:
            from ..workbench.verify_training import verify_training

            verdict = verify_training(model, options, progress, **how)
        else:
            verdict = verify_model(model, options, against, progress, **how)
    report(verdict, as_json)


def report(verdict: Verdict, as_json: bool) -> None:
    """Prints a verdict; exits with 1 when it is bad."""
    import dataclasses

    from ..base.columns import paragraph
    from ..base.escaping import printable

    if as_json:
        echo_json({"ok": verdict.ok, **dataclasses.asdict(verdict)})
    else:
        for part in (dataclasses.replace(verdict, variants=()), *verdict.variants):
            if part.form:
                click.echo(f"the variant for {printable(part.form)}:")
            show_outputs(part)
        if verdict.why:
            click.echo("\n".join(paragraph("cause", verdict.why, indent=0, hang=7)))
    if not verdict.ok:
        raise click.exceptions.Exit(1)


def show_outputs(verdict: Verdict | Bisection) -> None:
    """Each output with its error, and whether all agree."""
    from ..base.columns import Column, table
    from ..base.escaping import shortened, sizes_text

    def status(o: OutputCheck) -> str:
        return "ok" if o.ok else "DIFFERS" if o.checked else "unchecked"

    columns = [Column("output", 30), Column("shape", 20), Column("max|a-b|/max|b|", 15, right=True), Column("", 10)]
    rows = [
        [shortened(o.name, 30), f"[{', '.join(map(str, o.shape))}]", f"{o.error:.2e}", status(o)]
        for o in verdict.outputs
    ]
    click.echo("\n".join(table(columns, rows)))
    for o in verdict.outputs:
        if said := o.problem or o.note:
            click.echo(f"{shortened(o.name, 30)}: {said}")
    at = f", at {sizes_text(verdict.dims)}" if verdict.dims else ""
    if verdict.ok:
        outcome = style("agrees", fg="green") + " with"
    elif all(o.ok or not o.checked for o in verdict.outputs):
        outcome = style("nothing to compare", fg="red", bold=True) + " in some outputs with"
    else:
        outcome = style("differs", fg="red", bold=True) + " from"
    click.echo(f"{outcome} {verdict.against}, tolerance {verdict.rtol:.2g}{at}")
    if not all(o.checked for o in verdict.outputs):
        click.echo("other inputs may show more: give them with --input, other sizes with --dims, or another --seed")
