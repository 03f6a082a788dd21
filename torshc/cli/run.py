"""torshc run: a bundle, inputs from files, outputs to files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import flags
from .console import echo_json


@click.command()
@click.argument("bundle", type=flags.FILE)
@flags.add(flags.INPUT, flags.DIMS, flags.SEED, flags.THREADS)
@click.option("--output", "-o", metavar="DIR|FILE.npz", help="Write the outputs here.")
@click.option("--repeat", type=click.IntRange(1), default=1, help="Number of runs; prints the median time.")
@flags.JSON
def run(
    bundle: Path,
    inputs: tuple[str, ...],
    dims: dict[str, int],
    seed: int,
    threads: int,
    output: str | None,
    repeat: int,
    as_json: bool,
) -> None:
    """Run BUNDLE and print ranges of its outputs.

    Inputs that no file gives are drawn at random; symbolic dimensions that nothing fixes are 1, or what the model can
    take. Under mpirun, BUNDLE is one that --shard cut into as many ranks as there are processes.
    """
    import dataclasses
    import statistics
    import time

    from ..runtime import load
    from ..workbench.feeds import make_inputs, ranges, write_outputs

    with load(bundle, threads or None) as model:
        feeds = make_inputs(model.inputs, inputs, dims, seed, needs=model.needs)
        times = []
        for _ in range(repeat):
            began = time.perf_counter()
            outputs = model.run(feeds.arrays)
            times.append(time.perf_counter() - began)
        isa, versions = model.stats().isa, list(model.versions)
    if model.rank:  # of several that share the model, the first one tells
        return
    files = [str(path) for path in write_outputs(output, outputs)] if output else []
    found: dict[str, Any] = {
        "inputs": [dataclasses.asdict(r) for r in ranges(feeds.arrays)],
        "outputs": [dataclasses.asdict(r) for r in ranges(outputs)],
        "random": list(feeds.random),
        "dims": dict(feeds.dims),
        "isa": isa,
        "versions": versions,
        "median_ms": statistics.median(times) * 1e3,
        "files": files,
    }
    echo_json(found) if as_json else _show(found, repeat)


def _show(found: dict[str, Any], repeat: int) -> None:
    from ..base.columns import Column, table
    from ..base.escaping import sizes_text

    columns = [Column("", 19), Column("type", 8), Column("shape", 18)]
    columns += [Column(title, 10, right=True) for title in ("least", "most", "mean")]
    rows = []
    for kind in ("inputs", "outputs"):
        rows += [_row(kind[:-1], r, r["name"] in found["random"] and kind == "inputs") for r in found[kind]]
    click.echo("\n".join(table(columns, rows)))
    for r in found["outputs"]:
        if r["nans"]:
            click.echo(f"{r['nans']} NaN in the outputs")
    if found["dims"]:
        click.echo(f"at {sizes_text(found['dims'])}")
    if repeat > 1:
        click.echo(f"median of {repeat} runs: {found['median_ms']:.3f} ms")
    if len(found["versions"]) > 1:
        click.echo(f"the library's version for {found['isa']} ran; it has {', '.join(found['versions'])}")
    for path in found["files"]:
        click.echo(f"written: {path}")


def _row(kind: str, r: dict[str, Any], random: bool) -> list[str]:
    from ..base.escaping import printable

    numbers = ["-" if r[k] is None else f"{r[k]:.4g}" for k in ("low", "high", "mean")]
    shape = f"[{', '.join(map(str, r['shape']))}]"
    return [f"{'random ' if random else ''}{kind} {printable(r['name'])}", r["dtype"], shape, *numbers]
