"""The ``torshc`` command: a file for each verb, without logic of its own.

Only click and the error family are imported here; a command imports what it needs when it runs, so that ``--help``
comes at once.
"""

from __future__ import annotations

import atexit
import gc

import click

from .._version import __version__
from . import flags
from .bench import bench
from .bisect import bisect
from .cache import cache
from .check import check
from .compile import compile
from .completion import completion
from .eject import eject
from .explain import explain
from .faults import GuardedGroup
from .man import man
from .run import run
from .targets import targets
from .tune import tune
from .verify import verify
from .weights import weights


@click.group(cls=GuardedGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="torshc")
def cli() -> None:
    """Compile tensor graphs (ONNX or JSON) ahead of time into a shared library.

    \b
        torshc compile model.onnx -O3 -o model.tsc
        torshc explain model.onnx
        torshc run model.tsc --input x=x.npy --output y.npz
    """


for command in (
    compile,
    run,
    explain,
    verify,
    bisect,
    check,
    bench,
    tune,
    eject,
    weights,
    targets,
    cache,
    completion,
    man,
):
    flags.add_to_all(command)
    cli.add_command(command)


def main() -> None:
    """Entry point of the console script."""
    # A compilation makes millions of small objects, and few that only the collector frees; at Python's own threshold of
    # 700 it spends about a tenth of a training step's preparation on looking.
    gc.set_threshold(50_000, 10, 10)
    # When Python ends, it would look at all of them once more, a quarter of a second after a compilation, for memory
    # that the system takes back at once.
    atexit.register(gc.freeze)
    cli(prog_name="torshc")


__all__ = ["cli", "main"]
