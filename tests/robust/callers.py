"""Builds ``callers.c``, or another program, against a bundle; by itself, how long two contexts take at once.

    python -m tests.robust.callers MODEL... [--dims batch=2] [--rounds 21]

Two threads with a context each make as many runs as one thread does alone, in turns; 1.00 is twice the work in the same
time. By the clock that is what a user waits; by the threads' own processor time what else the machine does counts less.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import torshc
from torshc.base.folders import scratch_folder
from torshc.workbench.feeds import make_inputs, parse_dims

from ..support import compilers
from ..support.zoo import Array

SOURCE, SURROUNDINGS = (Path(__file__).with_name(name) for name in ("callers.c", "surroundings.c"))


def written(feeds: Mapping[str, Array], path: Path) -> Path:
    parts = [np.array([a.ndim, *a.shape], np.int64).tobytes() + a.tobytes() for a in feeds.values()]
    path.write_bytes(b"".join(parts))
    return path


def calls(
    bundle: Path,
    feeds: Path,
    mode: str,
    count: int,
    cc: str = "",
    flags: Sequence[str] = (),
    source: Path = SOURCE,
) -> dict[str, int]:
    """The figures of a program that calls the bundle."""
    program = bundle.parent / source.stem
    command = [cc or compilers.needed().cc, "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{bundle}", source]
    compilers.build(
        [*command, *flags, bundle / "libmodel.so", f"-Wl,-rpath,{bundle}", "-lpthread", "-lm", "-o", program]
    )
    weights = bundle / "weights.bin"
    arguments = [program, weights if weights.exists() else "", feeds, mode, str(count)]
    env = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=600, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return {name: int(value) for name, _, value in (line.rpartition(" ") for line in done.stdout.splitlines())}


def main() -> int:
    parser = argparse.ArgumentParser(description="Two contexts at once, against one alone.")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--dims", action="append", default=[], help="sizes of symbolic dimensions, batch=2,seq=64")
    parser.add_argument("--rounds", type=int, default=21)
    given = parser.parse_args()
    print(f"{'model':24} {'alone':>12} {'two, clock':>11} {'two, own time':>14}")
    for path in given.models:
        with scratch_folder() as folder:
            torshc.compile(path, folder / "m.tsc")
            with torshc.load(folder / "m.tsc") as model:
                feeds = make_inputs(model.inputs, (), parse_dims(given.dims), needs=model.needs).arrays
            found = calls(folder / "m.tsc", written(feeds, folder / "inputs"), "contexts", given.rounds, "", ["-O2"])
        clock, own = (found[f"thousandths by {what}"] / 1000 for what in ("the clock", "the threads' own time"))
        print(f"{path.stem:24} {found['nanoseconds'] / 1000:9.1f} us {clock:11.3f} {own:14.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
