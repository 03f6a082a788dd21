"""Compiles random graphs of broadcasts and compares runs with ONNX Runtime: each symbolic size is 1 in turn.

python -m tests.robust.broadcast_check --count 500 --seed 0 --target llvm
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

import torshc
from torshc.base.errors import ModelError, RunError
from torshc.base.folders import scratch_folder
from torshc.entry.inprocess import load_model

from .broadcast_graphs import Graph

IN_PROCESS = "in-process"  # for --target: LLVM, without a file
Feeds = dict[str, np.ndarray]


@contextmanager
def opened(graph: Graph, folder: Path, target: str, **options: Any) -> Iterator[Any]:
    """The graph compiled for a target, or into this process."""
    if target == IN_PROCESS:
        yield load_model(graph.model.SerializeToString(), **options)
        return
    onnx.save(graph.model, folder / "m.onnx")
    torshc.compile(folder / "m.onnx", folder / "m.tsc", target=target, threads=1, **options)
    with torshc.load(folder / "m.tsc", threads=1) as model:
        yield model


def runtime_of(graph: Graph) -> onnxruntime.InferenceSession | None:
    """ONNX Runtime's, None where it takes no sizes at all."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.enable_mem_reuse = False  # it takes PRelu's result to be as large as its operand
    try:
        return onnxruntime.InferenceSession(graph.model.SerializeToString(), options, ["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
        return None


def faults(graph: Graph, folder: Path, target: str = "c", **options: Any) -> Iterator[str]:
    """What differs from ONNX Runtime: what it answers is answered in one of the forms, what it refuses is refused.

    Not so without elements, which some of its kernels refuse, such as a normalisation of none.
    """
    session = runtime_of(graph)
    if session is None:
        return
    runs = [(sizes, feeds := graph.feeds(sizes), _answer(session, feeds)) for sizes in graph.bindings()]
    try:
        with opened(graph, folder, target, **options) as model:
            for sizes, feeds, want in runs:
                if want is not None or 0 not in sizes.values():
                    yield from (f"{sizes}: {fault}" for fault in _faults_of(model, feeds, want))
    except ModelError as error:
        if any(want is not None for _, _, want in runs):
            yield str(error)


def _answer(session: onnxruntime.InferenceSession, feeds: Feeds) -> list[np.ndarray] | None:
    try:
        found: list[np.ndarray] = session.run(None, feeds)
    except Exception:  # ONNX Runtime's own, of several kinds
        return None
    return found


def _faults_of(model: Any, feeds: Feeds, want: list[np.ndarray] | None) -> Iterator[str]:
    try:
        found = model.run(feeds)
    except RunError as error:
        if want is not None:
            yield str(error)
        return
    if want is None:
        yield "ONNX Runtime refuses it"
        return
    for (name, a), b in zip(found.items(), want, strict=True):
        if a.shape != b.shape or not np.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True):
            yield f"{name} is {a!r}; ONNX Runtime has {b!r}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Random broadcasts against ONNX Runtime, each symbolic size 1 in turn."
    )
    parser.add_argument("--count", type=int, default=500, help="graphs")
    parser.add_argument("--seed", type=int, default=0, help="the first graph's")
    parser.add_argument("--target", default="c", help=f"or {IN_PROCESS}")
    given = parser.parse_args()
    wrong = 0
    for seed in range(given.seed, given.seed + given.count):
        with scratch_folder() as folder:
            found = [*faults(Graph(seed, given.target != IN_PROCESS), folder, given.target, opt_level=3 * (seed % 2))]
        wrong += bool(found)
        for fault in found[:2]:
            print(f"seed {seed}: {fault[:400]}", flush=True)
    print(f"{given.count} graphs, {wrong} wrong", flush=True)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
