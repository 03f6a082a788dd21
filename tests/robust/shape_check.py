"""Compiles random shape arithmetic and compares runs with ONNX Runtime and onnx's evaluator.

    python -m tests.robust.shape_check --count 5000 --seed 0

A graph that fails is made smaller and written to ``build/shape-graphs``.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import torshc
from torshc.base.folders import scratch_folder

from .reduce import least
from .shape_graphs import Array, Part, feeds_of, make_part, model_of, trim

BATCH = 20  # graphs that are compiled as one model
FAILURES = Path("build/shape-graphs")


class Differs(AssertionError):
    """A run gave another answer."""


def batch_of(seed: int, count: int) -> list[Part]:
    """Graphs that make a model together; a symbol may be 0 in half of such batches."""
    return [make_part(s, seed // BATCH % 2 == 0) for s in range(seed, seed + count)]


def check(parts: Sequence[Part], folder: Path, **options: Any) -> None:
    """Compile graphs as one model, once, and run it with all bindings.

    Raises:
        Exception: whatever the compiler or the run raises; `Differs` for a wrong answer.
    """
    made = model_of(parts)
    onnx.save(made, folder / "m.onnx")
    torshc.compile(folder / "m.onnx", folder / "m.tsc", threads=1, **options)
    runtime, evaluator = _session(made), ReferenceEvaluator(made)
    with torshc.load(folder / "m.tsc", threads=1) as compiled:
        for binding in parts[0].bindings:
            feeds = feeds_of(made, binding)
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                answers = list(zip(runtime.run(None, feeds), map(np.asarray, evaluator.run(None, feeds)), strict=True))
            got = compiled.run(feeds)
            for name, (first, second) in zip((o.name for o in made.graph.output), answers, strict=True):
                if not same(got[name], first) and not same(got[name], second):
                    raise Differs(f"{name}, symbols {binding}: {got[name]!r}, ONNX Runtime has {first!r}")


def same(a: Array, b: Array) -> bool:
    """Whether two results are one: all arithmetic of sizes is exact."""
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b))


def _session(made: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])


def fault(parts: Sequence[Part], folder: Path, **options: Any) -> Exception | None:
    """What goes wrong with graphs, None when nothing does."""
    try:
        check(parts, folder, **options)
    except Exception as e:
        return e
    return None


def failures(parts: Sequence[Part], folder: Path, **options: Any) -> Iterator[tuple[Part, Exception]]:
    """The graphs of a batch that fail, found by halves, and how."""
    wrong = fault(parts, folder, **options)
    if wrong is None:
        return
    if len(parts) == 1:
        yield parts[0], wrong
        return
    half = len(parts) // 2
    yield from failures(parts[:half], folder, **options)
    yield from failures(parts[half:], folder, **options)


def shrink(part: Part, wrong: Exception, folder: Path, **options: Any) -> Part:
    """A smaller graph that fails in the same way: fewer outputs, then nodes bypassed where types allow it."""

    def still(p: Part) -> bool:
        found = fault([p], folder, **options)
        return type(found) is type(wrong)

    for output in part.outputs:
        if still(alone := trim(replace(part, outputs=(output,)))):
            part = alone
            break
    return least(part, still, _smaller)


def _smaller(part: Part) -> Iterator[Part]:
    """The graph with one node left out, its readers reading what it read; or with one of its values as the output."""
    for n in part.nodes:
        if n.output[0] not in part.outputs:
            yield trim(replace(part, outputs=(n.output[0],)))
    for k, n in enumerate(part.nodes):
        for name in dict.fromkeys(i for i in n.input if i):
            yield trim(_bypassed(part, k, name))


def _bypassed(part: Part, k: int, name: str) -> Part:
    old = part.nodes[k].output[0]
    nodes = []
    for n in (*part.nodes[:k], *part.nodes[k + 1 :]):
        copy = onnx.NodeProto()
        copy.CopyFrom(n)
        copy.input[:] = [name if i == old else i for i in n.input]
        nodes.append(copy)
    outputs = tuple(dict.fromkeys(name if o == old else o for o in part.outputs))
    return replace(part, nodes=tuple(nodes), outputs=outputs)


def keep(part: Part, wrong: Exception) -> Path:
    """Write a failing graph, and say why it fails, in a file beside it."""
    FAILURES.mkdir(parents=True, exist_ok=True)
    path = FAILURES / f"{part.seed}{'z' if part.zeros else ''}.onnx"
    try:
        onnx.save(model_of([part]), path)
    except Exception as e:
        return path.with_name(f"unwritable: {e}")
    path.with_suffix(".txt").write_text(f"{type(wrong).__name__}: {wrong}\n{onnx.printer.to_text(model_of([part]))}\n")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description="Random shape arithmetic against ONNX Runtime and onnx's evaluator.")
    parser.add_argument("--count", type=int, default=5000, help="graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first graph's")
    parser.add_argument("--target", default="c")
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="do not make failing graphs smaller")
    given = parser.parse_args()
    options = {"target": given.target, "opt_level": given.level}
    wrong = 0
    print(f"seeds {given.seed} to {given.seed + given.count - 1}", flush=True)
    with scratch_folder() as folder:
        for first in range(given.seed, given.seed + given.count, BATCH):
            parts = batch_of(first, min(BATCH, given.seed + given.count - first))
            for part, error in failures(parts, folder, **options):
                wrong += 1
                small = part if given.whole else shrink(part, error, folder, **options)
                line = str(error).strip().splitlines()[0][:300]
                print(f"{keep(small, error)}: {type(error).__name__}: {line}", flush=True)
            if (first - given.seed) // BATCH % 25 == 24:
                print(f"{first - given.seed + BATCH} graphs", flush=True)
    print(f"{given.count} graphs, {wrong} wrong", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
