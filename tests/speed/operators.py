"""Speed of each operator beside ONNX Runtime: ``python -m tests.speed.operators [WORD ...] [--threads 1] [--store F]``.

A row is an operator with operands of one type and shape, of :mod:`tests.speed.rows`. Words choose rows that have them
all; ``Reduce*`` and ``1x64*`` are patterns; ``--rows 80:160`` takes a part of those. ``copy`` is what copying as many
bytes as are read and written would take, a call included, as part of our time. A row in which ONNX Runtime is faster is
measured three times more, and the least times count. ``--folder DIR`` keeps bundles, and measures those that an earlier
call left there, as ``--compile`` does, which measures nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from torshc.base.errors import TorshcError

from ..support.models import feeds_of, node_model
from .beside import Times, Tolerance, compiled, empty_call, measured, processor
from .operands import drawn
from .rows import Row, all_rows

ROUNDS, SECONDS = 3, 0.02
LOW = 0.9
TOLERANCES = {"f16": Tolerance(2e-2, 2e-2), "u8": Tolerance(1e-3, 1.0), "i8": Tolerance(1e-3, 1.0)}
HEAD = f"{'operator':22} {'type':4} {'shape':22}{'ours ms':>9}{'ort ms':>9}{'ratio':>6}{'copy':>6}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="rows that have these words")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", default=":", metavar="FIRST:END", help="which of the rows that have these words")
    parser.add_argument("--folder", type=Path, help="a folder for bundles; those there are measured as they are")
    parser.add_argument("--compile", action="store_true", help="compile what --folder lacks, measure nothing")
    parser.add_argument("--store", type=Path, help="a file for the table: JSON where its name ends so, text otherwise")
    args = parser.parse_args()
    if args.compile and args.folder is None:
        parser.error("--compile needs a --folder")
    first, end = (int(n) if n else None for n in args.rows.split(":"))
    rows = [r for r in all_rows() if chosen(r, args.words)][first:end]
    if args.compile:
        return compile_rows(rows, args.folder)
    empty = empty_call(args.threads)
    head = [f"{processor()}, {args.threads} threads; a call takes {empty * 1e3:.4f} ms", HEAD]
    print("\n".join(head), flush=True)
    entries: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="torshc-operators-") as folder:
        for row in rows:
            entries.append(entry(row, folder_of(row, args.folder or Path(folder)), args.threads, empty))
            print(line(entries[-1]), flush=True)
    print("\n".join(summary(entries)))
    if args.store:
        text = "\n".join([*head, *map(line, entries), *summary(entries)]) + "\n"
        whole = {"processor": processor(), "threads": args.threads, "call_ms": empty * 1e3, "rows": entries}
        args.store.write_text(json.dumps(whole, indent=1) + "\n" if args.store.suffix == ".json" else text)
    return 0


def chosen(row: Row, words: list[str]) -> bool:
    """Whether a row has all words."""
    own = [row.op, row.type, *row.label.split()]
    return all(any(fnmatchcase(o, w) for o in own) for w in words)


def folder_of(row: Row, folder: Path) -> Path:
    """Where a row's bundle lies."""
    return folder / "-".join([row.domain, row.op, row.type, *row.label.split()])


def compile_rows(rows: list[Row], folder: Path) -> int:
    """Compile rows into folders of their own; what fails is told when it is measured."""
    for row in rows:
        with contextlib.suppress(TorshcError):
            compiled(model_of(row)[0], folder_of(row, folder))
    return 0


def model_of(row: Row) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A row's model, and what it is run with."""
    operands, fixed = drawn(row.operands, row.type)
    made = node_model(row.op, operands, fixed, row.outputs, domain=row.domain, version=row.version, **row.attributes)
    return made, feeds_of(operands, fixed)


def entry(row: Row, folder: Path, threads: int, empty: float) -> dict[str, Any]:
    """A row with its times, or with why it has none."""
    found: dict[str, Any] = {"operator": row.op, "type": row.type, "shape": row.label}
    try:
        times = timed(row, folder, threads)
    except TorshcError as error:
        return found | {"failed": " ".join(str(error).split())}
    except AssertionError as error:
        return found | {"failed": "results differ: " + " ".join(str(error).split())}
    share = min(1.0, (times.copy + empty) / times.ours)
    return found | {"ours_ms": times.ours * 1e3, "ort_ms": times.theirs * 1e3, "ratio": times.ratio, "copy": share}


def timed(row: Row, folder: Path, threads: int) -> Times:
    """The times of a row."""
    made, feeds = model_of(row)
    tolerance = TOLERANCES.get(row.type, Tolerance()) if row.compared else Tolerance(compared=False)
    with np.errstate(all="ignore"):
        return measured(
            made,
            feeds,
            folder,
            threads=threads,
            rounds=ROUNDS,
            seconds=SECONDS,
            tolerance=tolerance,
            again=lambda times: times.ratio < 1.0,
        )


def line(found: dict[str, Any]) -> str:
    """A row of the table, at most 80 columns."""
    name = f"{found['operator'][:22]:22} {found['type']:4} {found['shape'][:22]:22}"
    if "failed" in found:
        return f"{name} {found['failed'][:28]}"
    ratio = f"{found['ratio']:6.{2 if found['ratio'] < 100 else 1}f}"
    return f"{name}{found['ours_ms']:9.4f}{found['ort_ms']:9.4f}{ratio}{found['copy']:6.0%}"


def summary(entries: list[dict[str, Any]]) -> list[str]:
    """The mean of the ratios, and how many are low."""
    ratios = [e["ratio"] for e in entries if "ratio" in e]
    if not ratios:
        return ["no row has times"]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    low, failed = sum(r < LOW for r in ratios), len(entries) - len(ratios)
    return [f"{len(ratios)} rows: geometric mean {mean:.2f}, {low} below {LOW}; {failed} without times"]


if __name__ == "__main__":
    sys.exit(main())
