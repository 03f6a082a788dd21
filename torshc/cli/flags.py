"""Options that several commands share, and how they become :class:`CompileOptions`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from .console import QUIET

if TYPE_CHECKING:
    from ..base.options import CompileOptions

Command = TypeVar("Command", bound=Callable[..., Any])
Option = Callable[[Any], Any]

FILE = click.Path(path_type=Path)


class ModelFile(click.Path):
    """A model's file; of ``-``, standard input's bytes in a file that the command's end removes."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The file's path."""
        if value != "-" or ctx is None:
            found: Path = super().convert(value, param, ctx)  # type: ignore[assignment]
            return found
        # start-up: most models are files
        from ..base.errors import ModelError
        from ..base.folders import scratch_folder

        file = ctx.meta[STDIN] = ctx.with_resource(scratch_folder()) / STDIN
        size = 0
        with file.open("wb") as out:
            while part := sys.stdin.buffer.read(_AT_ONCE):
                size += out.write(part)
                if size > STDIN_MAX:
                    raise ModelError(
                        f"standard input has more than {STDIN_MAX} bytes", "keep the model in a file, and pass its path"
                    )
        if not size:
            raise click.BadParameter("standard input is empty; it has to be the model", ctx, param)
        return file


STDIN_MAX = 1 << 31  # bytes, the most that ONNX's binary form takes in one piece
_AT_ONCE = 1 << 20
STDIN = "stdin"  # what the file is called, the bundle that is made of it, and where a context keeps it
MODEL_ARGUMENT: Option = click.argument("model", type=ModelFile())


def _shapes(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, Any]:
    from ..base.options import parse_shape

    return dict(map(parse_shape, words))


def _levels(ctx: click.Context, parameter: click.Parameter, words: str) -> tuple[str, ...]:
    return tuple(words.split(",")) if words else ()


def _switches(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, bool]:
    from ..base.options import parse_switch

    return dict(map(parse_switch, words))


def _tell_successor(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    from ..base.errors import ConfigError
    from ..base.options import REMOVED

    if given:
        raise ConfigError(f"there is no option --{parameter.name} any more", REMOVED[str(parameter.name)])


def _budget(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, int]:
    from ..base.budget import parse_budget

    return dict(map(parse_budget, words))


def _bytes(ctx: click.Context, parameter: click.Parameter, word: str | None) -> int:
    from ..base.options import parse_bytes

    return parse_bytes(word) if word is not None else 0


class Number(click.FloatRange):
    """A number in a range, which NaN is not: comparing with it says nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        return self.fail("nan is not a number", param, ctx) if found != found else found


def _dims(ctx: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> dict[str, int]:
    from ..workbench.feeds import parse_dims

    return parse_dims(words)


RECORDS: Option = click.option("--tuning-records", type=FILE, metavar="FILE",
                               help="Use the choices in this file, as `torshc tune` writes it.")  # fmt: skip
BUDGET: Option = click.option(
    "--budget", multiple=True, callback=_budget, metavar="NAME=NUMBER",
    help="Limit what a model may ask for: outputs, nodes, steps, memory and others. Repeatable.",
)  # fmt: skip

MACHINE: list[Option] = [
    click.option("-O", "opt_level", type=click.IntRange(0, 3), default=3, show_default=True, metavar="LEVEL",
                 help="Optimise: -O0 makes each node a kernel, -O1 is quick, -O2 is exact, -O3 may change rounding."),
    click.option("--target", default="c", show_default=True, help="Target; `torshc targets` lists them."),
    click.option("--mcpu", default="native", show_default=True,
                 help="Processor to compile for, or of the host of a GPU, by LLVM's name."),
    click.option("--isa", default="", callback=_levels, metavar="LEVEL,...",
                 help="Instruction sets, as x86-64-v3,x86-64-v4: the library has a version of each and runs the best "
                      "that the processor has."),
    click.option("--triple", default="", help="Machine to compile for, as aarch64-linux-gnu; by default this one."),
]  # fmt: skip

PLAN: list[Option] = [
    click.option("--arch", default="", help="Architectures of cards to compile for, as sm_80,sm_90a."),
    click.option("--shapes", multiple=True, callback=_shapes, metavar="NAME:1x3x224x224",
                 help="Pin the dimensions of an input; `?` leaves one as it is, a word names it. Repeatable."),
    click.option("--pipeline", type=FILE, help="Passes to run, in place of the level's own (YAML)."),
    click.option("--rules", type=FILE, multiple=True, help="More rewrites or fusion rules (YAML). Repeatable."),
    click.option("--ops", type=FILE, multiple=True, metavar="FILE.py",
                 help="Operators declared in Python, which is run. Repeatable."),
    click.option("--kernels", type=FILE, metavar="DIR",
                 help="Use edited kernels of this folder, as `torshc eject` writes them."),
    RECORDS,
    click.option("--pass", "passes", multiple=True, callback=_switches, metavar="NAME=on|off",
                 help="Switch a pass on or off. Repeatable."),
    click.option("--fusion", type=click.Choice(["none", "conservative", "default", "aggressive"]),
                 help="How many nodes are fused; by default as the optimisation level says."),
    click.option("--max-fusion-size", type=click.IntRange(1, 4096),
                 help="Most nodes in one kernel; by default 64, or as rules say."),
    click.option("--accuracy", type=click.Choice(["exact", "rounding", "1e-5", "2e-5", "1e-3", "1e-2"]),
                 help="Largest expected error of outputs, relative to their largest element, that faster kernels may "
                      "cause (-O3: 2e-5); rounding: no more than plain sums do; exact: plain sums. Bounds "
                      "--precision too."),
    click.option("--winograd", is_flag=True, hidden=True, expose_value=False, callback=_tell_successor),
    click.option("--exact-batches", is_flag=True,
                 help="Compute a row to the same bits in batches of any size; attention of one query takes longer."),
    click.option("--precision", type=click.Choice(["f32", "tf32", "f16", "bf16"]), default="f32", show_default=True,
                 help="Type that operands of products, convolutions and attention are rounded to; all else stays f32."),
    click.option("--weights-dtype", type=click.Choice(["f32", "f16", "bf16", "f8"]), default="f32", show_default=True,
                 help="Type in which the bundle stores large weights of f32; loading widens them again."),
    click.option("--loose", type=click.Choice(["auto", "none"]), default="auto", show_default=True,
                 help="A second form of the model, for runs in which a symbolic size is 1 and broadcasts."),
    click.option("--specialize", multiple=True, metavar="NAME=SIZE,...",
                 help='Compile variants of the model for these sizes, and values of inputs, in all combinations, '
                      'as "batch=1,8 seq=64..128 mask=1"; or @FILE. Repeatable.'),
    click.option("--drop-padding", default="", metavar="MASK",
                 help="Compile a variant that skips rows of padding, where this input is 0; outputs are 0 there."),
    click.option("--observed", type=FILE, multiple=True, metavar="FILE",
                 help="Compile variants for the sizes that took most time, and for values that inputs had, as runs "
                      "with TORSHC_PROFILE wrote them to this file. Repeatable."),
    BUDGET,
    click.option("--dump", type=FILE, metavar="DIR", help="Write the graph after each pass that changed it."),
]  # fmt: skip

MODEL = [*MACHINE, *PLAN]

BUILD: list[Option] = [
    click.option("-j", "jobs", type=click.IntRange(0, 1024), default=0,
                 help="Compilers to run at once; 0: one per processor."),
    click.option("--cc", default="", help="C compiler; by default the newest clang, else gcc."),
    click.option("--no-fallback", is_flag=True, help="Refuse what the target has no kernel for."),
    click.option("--no-cache", is_flag=True, help="Do not use the kernel cache."),
    click.option("--workdir", type=FILE, metavar="DIR", envvar="TORSHC_WORKDIR", show_envvar=True,
                 help="Build in this folder, new or empty, and keep sources and objects."),
    click.option("--keep-intermediates", is_flag=True, envvar="TORSHC_KEEP_INTERMEDIATES", show_envvar=True,
                 help="Keep generated sources, in the bundle's src/; all files where a build failed."),
    click.option("--embed-weights", is_flag=True, help="Put the weights inside the library."),
]  # fmt: skip

TRAIN: Option = click.option(
    "--train",
    type=FILE,
    metavar="FILE",
    help="Train the model's weights by the step in this file (YAML); c, cuda, llvm, webgpu.",
)
TRAIN_MEMORY: Option = click.option(
    "--train-memory",
    callback=_bytes,
    metavar="SIZE",
    help="Limit the memory of an open model that trains, as 4GiB: activations beyond it are computed again.",
)
SHARD: Option = click.option(
    "--shard",
    type=FILE,
    metavar="FILE|auto:N|model",
    help="Cut the model into ranks, processes or cards that share it: as FILE says (YAML), by a cost model (auto:N), "
    "or by the model's own device configurations (model, or model:NAME of several); c, cuda.",
)
PROFILE: Option = click.option("--profile", is_flag=True, help="Make the library time its kernels.")
DIMS: Option = click.option(
    "--dims", multiple=True, callback=_dims, metavar="NAME=SIZE,...", help="Sizes of symbolic dimensions. Repeatable."
)
JSON: Option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
THREADS: Option = click.option(
    "--threads", type=click.IntRange(0, 1024), default=1, show_default=True, help="Threads; 0: one per processor."
)
SEED: Option = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of random inputs."
)
INPUT: Option = click.option(
    "--input", "inputs", multiple=True, metavar="[NAME=]FILE",
    help="An input: NAME=x.npy, NAME=all.npz:KEY, or all.npz with all of them. Repeatable.",
)  # fmt: skip


def _silence(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        ctx.meta[QUIET] = True


def _tell_commands(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr, force=True)


def add_to_all(command: click.Command) -> None:
    """Give a command the options that every verb has."""
    quiet = click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=_silence,
                         help="Say nothing but results and errors: no progress, no warnings.")  # fmt: skip
    verbose = click.Option(["-v", "--verbose"], is_flag=True, expose_value=False, callback=_tell_commands,
                           help="Print each compiler's command on stderr as it is run.")  # fmt: skip
    command.params += [quiet, verbose]


def add(*options: Option) -> Callable[[Command], Command]:
    """Decorator: adds options in the order in which help shows them."""

    def apply(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return apply


def given_here(names: Iterable[str]) -> list[str]:
    """Those of some options that are on the command line, as it spells them."""
    ctx = click.get_current_context()
    parameters = [p for p in ctx.command.params if p.name in names]
    return [p.opts[0] for p in parameters if ctx.get_parameter_source(str(p.name)) is ParameterSource.COMMANDLINE]


def compile_options(given: dict[str, Any]) -> CompileOptions:
    """Takes what belongs to :class:`CompileOptions` out of a command's parameters."""
    import dataclasses

    from ..base.options import CompileOptions

    for name in ("fusion", "accuracy"):
        given[name] = given.pop(name, None) or ""
    given["cache"] = not given.pop("no_cache", False)
    given["fallback"] = not given.pop("no_fallback", False)
    names = [f.name for f in dataclasses.fields(CompileOptions) if f.name in given]
    return CompileOptions(**{name: given.pop(name) for name in names})
