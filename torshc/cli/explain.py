"""torshc explain: the fusion plan, and why it is as it is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import flags
from .console import Progress

if TYPE_CHECKING:
    from ..base.options import CompileOptions
    from ..explain import Shown


@click.command()
@flags.MODEL_ARGUMENT
@flags.add(*flags.MODEL, flags.TRAIN, flags.TRAIN_MEMORY, flags.SHARD, flags.DIMS)
@click.option("--format", "form", type=click.Choice(["text", "json", "dot", "html"]), help="text by default.")
@click.option("-o", "--output", "out", type=flags.FILE, metavar="FILE", help="Write to this file.")
@click.option("--open", "opened", is_flag=True, help="Open the page of --format html in the browser.")
@click.option("--against", type=flags.ModelFile(), metavar="MODEL", help="Show another model beside it (html).")
@click.option("--measured", type=flags.FILE, metavar="FILE", help="What `bench --profile --json` printed (html).")
@click.option("--all", "everything", is_flag=True, help="List every place where fusion stopped (text).")
@click.option("--group", type=int, metavar="N", help="Show one group in full (text).")
def explain(
    model: Path,
    dims: dict[str, int],
    form: str | None,
    out: Path | None,
    opened: bool,
    against: Path | None,
    measured: Path | None,
    everything: bool,
    group: int | None,
    **given: Any,
) -> None:
    """Show what MODEL becomes, and why.

    Prints passes, launches with their work and traffic, and where fusion stopped. Runs no compiler. Sizes with
    symbolic dimensions are evaluated at --dims, or 1, or what the model can take. --format html makes one page for a
    browser.
    """
    from .. import explain as explanation
    from ..pipeline.compiler import prepare

    form = form or ("html" if opened or against or measured else "text")
    if form != "html" and (opened or against or measured):
        raise click.UsageError("--open, --against and --measured are for --format html")
    if form != "text" and (everything or group is not None):
        raise click.UsageError("--all and --group are for --format text")
    if everything and group is not None:
        raise click.UsageError("--all lists the places of all groups, --group shows one: give one of them")
    if form == "html" and not (out or opened) and sys.stdout.isatty():
        raise click.UsageError("a page is for a browser: add --open, or name its file with -o")
    options = flags.compile_options(given)
    if options.shard is not None:
        _write(_ranks(model, options, form, dims), out, opened)
        return
    with Progress() as progress:
        done = prepare(model, options, progress)
        found = explanation.explain(done, dims)
        other = prepare(against, options, progress) if against else None
    if form == "html":
        shown = [_make_page(model, done, dims, measured)] + (
            [_make_page(against, other, dims, None)] if against else []
        )
        text = explanation.to_html(shown)
    elif form == "json":
        text = explanation.to_json(found) + "\n"
    elif form == "dot":
        text = explanation.to_dot(found)
    elif group is not None:
        text = explanation.group_text(found, group)
    else:
        text = explanation.to_text(found, everything)
    _write(text, out, opened)


def _ranks(model: Path, options: CompileOptions, form: str, dims: dict[str, int]) -> str:
    """What a model becomes that several processes share."""
    from ..explain.ranks import ranks_json, ranks_text
    from ..pipeline.ranks import prepare_ranks

    if form not in ("text", "json"):
        raise click.UsageError(f"--format {form} is for models that are whole, and --shard cuts")
    with Progress() as progress:
        done = prepare_ranks(model, options, progress)
    if form == "text":
        return ranks_text(done, dims)
    import json

    return json.dumps(ranks_json(done, dims), indent=1) + "\n"


def _make_page(model: Path, done: Any, dims: dict[str, int], measured: Path | None) -> Shown:
    from ..base.escaping import printable
    from ..explain import Shown, explain, read_measured, read_roof
    from ..pipeline.compilation import commented_sources

    found = explain(
        done, {n: size for n, size in dims.items() if n in done.program.sizes} if measured is None else dims
    )
    sources = {Path(file).stem: text for file, text in commented_sources(done).items()}
    if measured is None:
        return Shown(printable(model.name), found, sources)
    return Shown(printable(model.name), found, sources, read_measured(measured, found), read_roof(measured))


def _write(text: str, out: Path | None, opened: bool) -> None:
    """Prints, or writes to a file; shows that in the browser when asked to."""
    import tempfile
    import webbrowser

    from ..base.errors import OutputError
    from ..base.escaping import printable

    if out is None and not opened:
        click.echo(text, nl=False)
        return
    try:
        place = out or Path(tempfile.mkdtemp(prefix="torshc-page-")) / "explain.html"
        place.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {out}: {error.strerror or error}", "name another file with -o") from error
    click.echo(f"written: {printable(str(place))}", err=True)
    if opened and not webbrowser.open(place.absolute().as_uri()):
        raise OutputError("no browser was found", f"open {place} yourself")
