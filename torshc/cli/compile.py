"""torshc compile: a model file in, a bundle out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import flags
from .console import Progress, echo_json, is_quiet, show_warnings, style

if TYPE_CHECKING:
    from ..base.options import CompileOptions
    from ..pipeline.compilation import Compilation
    from ..workbench.kept import Report


@click.command()
@click.argument("models", type=flags.ModelFile(), nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "-o",
    "--output",
    metavar="OUT",
    help="The bundle, or of several MODELs the folder for theirs; by default MODEL's name with .tsc, here.",
)
@flags.add(*flags.MODEL, *flags.BUILD, flags.PROFILE, flags.THREADS, flags.TRAIN, flags.TRAIN_MEMORY, flags.SHARD)
@click.option(
    "--emit",
    type=click.Choice(["source", "objects", "bundle", "archive", "page"]),
    default="bundle",
    show_default=True,
    help="Kind of output.",
)
@click.option(
    "--prefix",
    default="",
    metavar="NAME",
    help="Prefix of the model's own C functions, and its header's name; by default OUT's name.",
)
@click.option(
    "--scheduler",
    default="",
    metavar="tcp://HOST:PORT",
    help="Compile on the workers of this Dask scheduler, which have the same torshc and compiler.",
)
@click.option(
    "--serve-while-training",
    is_flag=True,
    help="With --train: also write OUT/serve, a bundle that runs the model with weights that training hands over.",
)
@click.option("--named-weights", is_flag=True, help="Let the library take other weights by the model's names.")
@click.option("--sbom", is_flag=True, help="Write a bill of materials (CycloneDX) into the bundle.")
@click.option(
    "--MT",
    "targets",
    multiple=True,
    metavar="FILE",
    help="With --MD: the target that OUT.d names in place of OUT. Repeatable.",
)
@click.option("--MD", "depfile", is_flag=True, help="Write OUT.d for make: all files that were read.")
@click.option(
    "--with-test",
    "tested",
    is_flag=True,
    help="Add a program that compares the model with the reference, and times it, on the machine where it runs.",
)
@click.option("--time", "timed", is_flag=True, help="Print how long each stage and pass took.")
@click.option("--verify", "verified", is_flag=True, help="Compare the bundle with the reference; exit 1 if it differs.")
@flags.JSON
def compile(
    models: tuple[Path, ...],
    output: str | None,
    depfile: bool,
    targets: tuple[str, ...],
    tested: bool,
    timed: bool,
    verified: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Compile each MODEL (ONNX or JSON) to a bundle.

    A bundle is a folder with the library, its C headers, its weights and manifest.json, and a package for CMake and
    pkg-config. With --train the library trains the model instead of running it.
    """
    from ..base.digest import FileDigest

    whole = tested or timed or verified  # compiled whatever is kept
    digest = None if given["no_cache"] or whole else FileDigest(models[0])  # beside the imports
    from ..workbench.kept import compile_or_copy, report_of

    options = flags.compile_options(given)
    if targets and not depfile:
        raise click.UsageError("--MT goes with --MD")
    if depfile and flags.STDIN in click.get_current_context().meta:
        raise click.UsageError("--MD needs a model file; standard input has no name")
    for flag, value in (("--MT", targets), ("--prefix", options.prefix), ("--workdir", options.workdir)):
        if value and len(models) > 1:
            raise click.UsageError(f"{flag} goes with one MODEL")
    for flag, given_too in (("--verify", verified), ("--with-test", tested and options.emit == "page")):
        if given_too and options.emit in ("source", "objects", "page"):
            raise click.UsageError(f"{flag} needs a library, which --emit {options.emit} does not make")
        if given_too and options.train is not None:
            raise click.UsageError(f"{flag} compares runs, and with --train there are none")
    if options.shard is not None:
        for flag, asked in (("--verify", verified), ("--with-test", tested), ("--MD", depfile), ("--time", timed)):
            if asked:
                raise click.UsageError(f"{flag} is for models that are whole, and --shard cuts")
        for model, out in _places(models, output).items():
            with _naming(model, len(models) > 1):
                _compile_ranks(model, out, options, as_json)
        return
    made, summaries = [], []
    for model, out in _places(models, output).items():
        began = time.perf_counter()
        done = None
        with _naming(model, len(models) > 1), Progress(quiet=as_json) as progress:
            if whole:
                done = _compile(model, out, options, progress, tested)
                report = report_of(done)
            else:
                report = compile_or_copy(model, out, options, progress, digest if model == models[0] else None)
        seconds = time.perf_counter() - began
        summaries.append(_summary(report, out, seconds))
        if depfile:
            from ..workbench.depfile import write_depfile

            write_depfile(out, model, options, targets)
        if not as_json and not is_quiet():
            _say(report, out, seconds, options)
        if done is not None:
            made.append((model, out, done))
            if timed:
                _show_times(done)
    if as_json:
        echo_json(summaries if len(models) > 1 else summaries[0])
    for each in made if verified else []:
        _verify(*each)


def _compile(model: Path, out: str, options: CompileOptions, progress: Progress, tested: bool) -> Compilation:
    """Compile a model whatever is kept, with a program that tests it on request."""
    from ..pipeline.compiler import compile_model

    if not tested:
        return compile_model(model, out, options, progress)
    from ..workbench.trial import trial_files

    return compile_model(model, out, options, progress, partial(trial_files, model))


def _compile_ranks(model: Path, out: str, options: CompileOptions, as_json: bool) -> None:
    """Compile a model that several processes share."""
    from ..base.escaping import printable
    from ..explain.ranks import ranks_json, ranks_text
    from ..pipeline.ranks import compile_ranks

    began = time.perf_counter()
    with Progress(quiet=as_json) as progress:
        done = compile_ranks(model, out, options, progress)
    seconds = time.perf_counter() - began
    if as_json:
        echo_json({"bundle": out, "seconds": seconds, **ranks_json(done), "warnings": list(done.warnings)})
    elif not is_quiet():
        click.echo(f"{style(printable(out), bold=True)}: {len(done.compilations)} ranks, {seconds:.2f} s")
        click.echo(ranks_text(done), nl=False)
    show_warnings(done.warnings)


def _places(models: Sequence[Path], output: str | None) -> dict[Path, str]:
    """Where the bundle of each model goes.

    Raises:
        OutputError: the folder for several cannot be made.
    """
    from ..base.errors import OutputError
    from ..base.manifest import FILE

    if len(models) == 1:
        return {models[0]: output or f"{models[0].stem}.tsc"}
    if len({model.stem for model in models}) < len(models):
        raise click.UsageError("two MODELs have one name, and their bundles would have one place")
    if output is None:
        return {model: f"{model.stem}.tsc" for model in models}
    folder = Path(output)
    if (folder / FILE).exists():
        raise click.UsageError(f"-o {output} is a bundle; of several MODELs it is the folder for theirs")
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {folder}: {error.strerror}", "name another with -o") from error
    return {model: str(folder / f"{model.stem}.tsc") for model in models}


@contextmanager
def _naming(model: Path, several: bool) -> Iterator[None]:
    """Errors say which model of several they are about."""
    from ..base.errors import TorshcError

    try:
        yield
    except TorshcError as error:
        if several:
            error.add_note(f"while compiling {model}")
        raise


def _say(report: Report, out: str, seconds: float, options: CompileOptions) -> None:
    from ..base.escaping import printable
    from ..bundle.names import STAND_IN, prefix_of

    click.echo(f"{style(printable(out), bold=True)}: {_line(report, seconds, options)}")
    lacking = (f"no variant for {sizes}: {why}" for sizes, why in report.variants.items() if why)
    show_warnings((*report.warnings, *report.refusals, *lacking))
    if not options.prefix and prefix_of(Path(out)) == STAND_IN and Path(out).stem != "model":
        why = f"as {Path(out).stem!r} holds characters that C's names cannot have"
        show_warnings([f"its C functions and its header are called {STAND_IN}, {why}; --prefix NAME names them"])


def _summary(report: Report, out: str, seconds: float) -> dict[str, Any]:
    return {
        "bundle": out,
        "launches": report.launches,
        "kernels": report.kernels,
        "compiled": report.compiled,
        "on_the_processor": list(report.refusals),
        "warnings": list(report.warnings),
        "weights_bytes": report.weights_bytes,
        "weights_by_name": dict(report.weights_by_name),
        "variants": dict(report.variants),
        "seconds": seconds,
        "stages": dict(report.stages),
    }


def _line(report: Report, seconds: float, options: CompileOptions) -> str:
    from ..base.quantities import bytes_text

    launches = f"{report.launches} launch{'es' if report.launches != 1 else ''}"
    kernels = f"{report.kernels} kernel{'s' if report.kernels != 1 else ''}"
    weights = f"{bytes_text(report.weights_bytes)} weights"
    if report.copied_bytes:
        weights += f" ({bytes_text(report.copied_bytes)} of them in a second layout)"
    if options.named_weights:
        names = report.weights_by_name.values()
        weights += f", {sum(not why for why in names)} of {len(names)} by name"
    return f"{launches}, {kernels}, {weights}; {report.compiled} compiled, {seconds:.2f} s"


def _show_times(done: Compilation) -> None:
    from ..explain.data import pass_infos

    for name, seconds in done.seconds.items():
        click.echo(f"{seconds:9.3f} s  {name}", err=True)
        if name == "optimise":
            for p in pass_infos(done.records):
                click.echo(f"{p.seconds:9.3f} s    {p.name} ({p.changes} of {p.runs} runs changed something)", err=True)


def _verify(model: Path, out: str, done: Compilation) -> None:
    from ..workbench.verify import verify_bundle, with_cause
    from .verify import report

    report(with_cause(verify_bundle(model, out, ops=done.options.ops), model, done), as_json=False)
