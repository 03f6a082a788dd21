"""torshc bisect: where a wrong answer comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import flags
from .console import Progress, echo_json
from .verify import show_outputs

if TYPE_CHECKING:
    from ..workbench.bisect import Place


@click.command()
@flags.MODEL_ARGUMENT
@click.option(
    "--against",
    default="reference",
    show_default=True,
    metavar="reference|ort|O0",
    help="What to compare with: onnx's evaluator, ONNX Runtime, or torshc itself at -O0.",
)
@click.option(
    "--rtol",
    type=flags.Number(min=0),
    help="Largest max|a-b| / max|b| of a value; by default as for verify, for the nodes that lead to it.",
)
@click.option(
    "-o",
    "out",
    type=flags.FILE,
    default=Path("bisected.onnx"),
    show_default=True,
    help="Where the smallest model that shows the fault goes; its inputs go beside it, as .npz.",
)
@flags.add(flags.INPUT, flags.DIMS, flags.SEED, flags.THREADS, *flags.MODEL, *flags.BUILD, flags.JSON)
def bisect(
    model: Path,
    against: str,
    rtol: float | None,
    out: Path,
    inputs: tuple[str, ...],
    dims: dict[str, int],
    seed: int,
    threads: int,
    as_json: bool,
    **given: Any,
) -> None:
    """Find where MODEL, compiled, differs from a reference.

    Names the first pass, node and kernel with which an answer is wrong, and writes the smallest part of MODEL that
    shows it. Inputs that no file gives are random. Exit code 1: an output differs, or random inputs left nothing in it
    to compare.
    """
    import dataclasses

    from ..workbench.bisect import bisect_model

    options = flags.compile_options(given)
    how: dict[str, Any] = {"dims": dims, "inputs": inputs, "seed": seed, "rtol": rtol, "threads": threads}
    with Progress(quiet=as_json) as progress:
        found = bisect_model(model, options, out, against, progress, **how)
    if as_json:
        echo_json({"ok": found.ok, **dataclasses.asdict(found)})
    else:
        show_outputs(found)
    if found.place is not None:
        _show(found.place, as_json)
    if not found.ok:
        raise click.exceptions.Exit(1)


def _show(place: Place, as_json: bool) -> None:
    """Where it goes wrong, a line or more each."""
    from ..base.columns import paragraph
    from ..base.escaping import printable

    if as_json:
        return
    named = {"fusion": "fusion", "kernels": "edited kernels", "": "none: wrong without passes too"}
    step = named.get(place.step, f"pass {place.step}")
    right = f"; right with {place.without}" if place.without else ""
    wrong = place.check.problem or f"max|a-b|/max|b| is {place.check.error:.2e}"
    lines = [("step", step + right), ("node", f"{place.node}: {wrong}")]
    lines += [("kernel", f"{k.symbol} ({k.edited or k.template}) of {', '.join(k.nodes)}") for k in place.kernels]
    nodes = f"{place.nodes} node{'s' if place.nodes > 1 else ''}"
    lines.append(("model", f"{place.model}, {nodes}; inputs in {Path(place.model).with_suffix('.npz')}"))
    for label, text in lines:
        click.echo("\n".join(paragraph(label, printable(text), indent=0, hang=8)))
