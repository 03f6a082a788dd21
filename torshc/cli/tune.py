"""torshc tune: what kernels are rendered with, measured here and written down."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import flags
from .console import Progress, echo_json, show_warnings
from .faults import INTERRUPTED

if TYPE_CHECKING:
    from ..workbench.tune import Outcome
    from ..workbench.tune_kernel import Tuned


@click.command()
@flags.MODEL_ARGUMENT
@click.option("--budget", "seconds", type=flags.Number(min=0, min_open=True), default=120, show_default=True,
              metavar="SECONDS", help="How long it may measure.")  # fmt: skip
@click.option("--tuning-records", "records", type=flags.FILE, metavar="FILE",
              help="Where to write what was found; by default MODEL's name with .tuning, here.")  # fmt: skip
@click.option(
    "--scheduler",
    default="",
    metavar="tcp://HOST:PORT",
    help="Measure on the workers of this Dask scheduler that have the resource `processor`, or `card`.",
)
@flags.add(flags.DIMS, *(o for o in flags.MODEL if o not in (flags.BUDGET, flags.RECORDS)), *flags.BUILD, flags.JSON)
def tune(
    model: Path, seconds: float, records: Path | None, dims: dict[str, int], as_json: bool, **given: Any
) -> int | None:
    """Measure variants of MODEL's kernels, and record the fastest.

    `torshc compile --tuning-records FILE` uses the record, for this model and others with the same kernels. A kernel
    with a record is left alone, so that the command goes on where it stopped. With --scheduler other machines measure,
    a kernel each at a time.
    """
    from ..workbench.tune import tune_model

    options = flags.compile_options(given)
    with Progress(quiet=as_json) as progress:
        done = tune_model(model, options, records or Path(f"{model.stem}.tuning"), seconds, dims, progress)
    echo_json(_json(done)) if as_json else _show(done)
    return INTERRUPTED if done.interrupted else None


def _json(done: Outcome) -> dict[str, Any]:
    return {**dataclasses.asdict(done), "place": str(done.place), "tuned": [_kernel(t) for t in done.tuned]}


def _kernel(t: Tuned) -> dict[str, Any]:
    body = dataclasses.asdict(t)
    return {**body.pop("record"), **body, "choices": dict(t.record.choices)}


def _show(done: Outcome) -> None:
    from ..base.columns import Column, table
    from ..base.escaping import printable
    from ..pipeline.records import USUAL, choices_text

    columns = [Column("kernel", 13), Column("template", 12), Column("sizes", 20), Column("us", 9, right=True)]
    columns += [Column("tuned", 9, right=True), Column("with", 12)]
    rows = [
        [
            t.record.kernel,
            t.record.template.partition(".")[0],
            t.record.shape,
            f"{t.usual * 1e6:.1f}",
            f"{t.best * 1e6:.1f}",
            choices_text(t.record.choices) or USUAL,
        ]
        for t in done.tuned
    ]
    if rows:
        click.echo("\n".join(table(columns, rows)))
    show_warnings(done.skipped)
    if done.interrupted:
        click.echo("torshc: interrupted; what was measured by then is kept", err=True)
    click.echo(f"{printable(done.path)}: {_summary(done)}")


def _summary(done: Outcome) -> str:
    better = sum(bool(t.record.choices) for t in done.tuned)
    usual, best = (
        sum(t.launches * x for t, x in ((t, getattr(t, name)) for t in done.tuned)) for name in ("usual", "best")
    )
    parts = [f"{better} of {len(done.tuned)} kernels are faster tuned"]
    if better:
        parts.append(f"their launches take {usual * 1e3:.2f} ms untuned, {best * 1e3:.2f} ms tuned")
    if done.known:
        parts.append(f"{done.known} had a record before")
    if done.workers:
        parts.append(f"measured by {len(done.workers)} worker{'s' if len(done.workers) != 1 else ''}")
    if done.left:
        parts.append(f"no time was left for {done.left}")
    return f"{'; '.join(parts)}; {done.seconds:.0f} s"
