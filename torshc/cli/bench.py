"""torshc bench: latency, compared with other levels and other systems."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import flags
from .console import Progress, echo_json, show_warnings

if TYPE_CHECKING:
    from ..workbench.bench import Result, Step
    from ..workbench.roofline import Roof

NAMES = 66  # characters of a step's nodes in a profile: three lines of a column


def _levels(ctx: click.Context, parameter: click.Parameter, word: str | None) -> tuple[int, ...]:
    levels = tuple(int(part) for part in (word or "").split(",") if part in ("0", "1", "2", "3"))
    if word is not None and len(levels) != len(word.split(",")):
        raise click.BadParameter(f"{word!r} is not a list of levels such as 0,3")
    return levels


@click.command()
@flags.MODEL_ARGUMENT
@click.option(
    "--against",
    type=click.Choice(["ort", "torch", "torch-compile", "torch-max-autotune"]),
    multiple=True,
    help="Other system to measure, if installed; torch-compile records CUDA graphs on a card. Repeatable.",
)
@click.option("--torch-module", default="", metavar="FILE.pt2|FILE.py:NAME",
              help="PyTorch's module of the model; by default a .pt2 beside it.")  # fmt: skip
@click.option("--levels", callback=_levels, metavar="0,3", help="Optimisation levels to compare.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=7,
    show_default=True,
    help="Rounds of measurement for each system.",
)
@click.option("--seconds", type=flags.Number(0, 600), default=0.3, show_default=True, help="Seconds per measurement.")
@click.option("--flush-l2/--no-flush-l2", "flush", help="Write a card's second cache before each call.")
@flags.add(flags.THREADS, flags.PROFILE, flags.INPUT, flags.DIMS, flags.SEED, *flags.MODEL, *flags.BUILD, flags.JSON)
def bench(
    model: Path,
    against: tuple[str, ...],
    torch_module: str,
    levels: tuple[int, ...],
    rounds: int,
    seconds: float,
    threads: int,
    inputs: tuple[str, ...],
    dims: dict[str, int],
    seed: int,
    flush: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Compile MODEL and time its runs.

    Levels and other systems take turns. Printed are the median of the rounds, and the times within which 90 and 99 % of
    all calls end.

    With --profile a table says where the time goes, kernel by kernel, and how near each comes to what the machine's
    bandwidth and arithmetic allow (roof).
    """
    import dataclasses

    from ..workbench.bench import bench_model

    options = flags.compile_options(given)
    with Progress(quiet=as_json) as progress:
        result = bench_model(
            model,
            options,
            levels=levels or (options.opt_level,),
            against=against,
            torch_module=torch_module,
            threads=threads,
            rounds=rounds,
            seconds=seconds,
            dims=dims,
            inputs=inputs,
            seed=seed,
            flush=flush,
            observer=progress,
        )
    echo_json(dataclasses.asdict(result)) if as_json else _show(result)


def _show(result: Result) -> None:
    from ..base.columns import Column, table
    from ..base.escaping import printable, sizes_text

    threads = f"{result.threads} thread{'s' if result.threads != 1 else ''}" if result.threads else "all processors"
    at = f", {sizes_text(result.dims)}" if result.dims else ""
    flushed = ", second cache written before each call" if result.flushed else ""
    click.echo(f"{printable(result.model)}: {threads}{at}, {len(result.figures[0].rounds)} rounds{flushed}")
    columns = [Column("system", 22), *(Column(t, 12, right=True) for t in ("median ms", "90 % ms", "99 % ms"))]
    columns.append(Column("times as long", 15, right=True))
    rows = [
        [f.system, f"{f.ms:.3f}", *(f"{f.percentiles[p]:.3f}" for p in ("p90", "p99")), f"{f.ratio:.2f}"]
        for f in result.figures
    ]
    click.echo("\n".join(table(columns, rows)))
    if result.differing:
        show_warnings(
            [*result.differing, "they do not compute the same; torshc verify compares torshc with a reference"]
        )
    if result.steps:
        click.echo("\n" + "\n".join(_profile(result.steps)))
    if result.roof is not None:
        click.echo("\n".join(_roof(result.roof)))


def _roof(roof: Roof) -> list[str]:
    from ..base.columns import paragraph

    rates = [f"{roof.bytes / 1e9:.0f} GB/s", *(f"{rate / 1e9:.0f} GFLOP/s {unit}" for unit, rate in roof.flops.items())]
    return paragraph("roof", f"{', '.join(rates)} ({roof.how}); what lies in a cache may be above it", 0, 6)


def _profile(steps: tuple[Step, ...]) -> list[str]:
    from ..base.columns import Column, table
    from ..base.quantities import bytes_text, flops_text

    total = sum(s.seconds for s in steps) or 1.0
    columns = [Column("step", 4, right=True), Column("kernel", 12)]
    columns += [Column(t, w, right=True) for t, w in (("us", 8), ("%", 4), ("bytes", 7), ("flops", 11), ("roof", 5))]
    columns.append(Column("nodes", 22))
    order = sorted(enumerate(steps), key=lambda pair: -pair[1].seconds)
    rows = [
        [
            str(k),
            s.template.partition(".")[0],
            f"{s.seconds / max(s.calls, 1) * 1e6:.1f}",
            f"{100 * s.seconds / total:.0f}",
            "" if s.bytes is None else bytes_text(s.bytes),
            "" if s.flops is None else flops_text(s.flops),
            "" if s.share is None else f"{100 * s.share:.0f} %",
            _names([name for name in s.nodes if name]),
        ]
        for k, s in order
    ]
    return list(table(columns, rows))


def _names(names: Sequence[str]) -> str:
    """Names of nodes, whole, as many as go into some lines and one at the least, and how many more there are."""
    from ..base.escaping import printable

    shown = [printable(name) for name in names]
    count = len(shown)
    while count > 1 and len(", ".join(shown[:count])) > NAMES:
        count -= 1
    more = len(shown) - count
    return ", ".join(shown[:count]) + (f", and {more} more" if more else "")
