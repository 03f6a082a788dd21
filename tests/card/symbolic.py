"""Libraries of sizes that only a run knows beside those for these sizes alone: time of runs, and of compilation.

Runs of both take turns, several in a row, so that what the host does between them is hidden. The ratio of compilation
is that of processor seconds, compilers included and caches left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import resource
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import torshc

from .models import export
from .training import Profile

CASES = {
    "bert": ("1x128", "32x128"),
    "gpt2": ("1x128", "4x1024"),
    "vit": ("1", "32"),
    "resnet50": ("1", "32"),
}
LENGTHS = ("1x17", "1x77", "1x200", "8x33", "8x256", "32x60", "4x384", "16x100")  # more cases of bert
_PIXELS = (3, 224, 224)
VARIANT = "v"  # before the sizes of a library for all sizes that has a variant for these
_ROUNDS, _ROW = 50, 4  # turns, and runs of each
_SHOWN = 12  # kernels


def symbolic(options: argparse.Namespace, folder: Path, until: float) -> int:
    """The tables; no case begins after ``until``. Returns how many have no figures."""
    precisions = ("f16", "f32") if options.precision == "both" else (options.precision,)
    found = [(m, s) for m, sizes in CASES.items() for s in sizes] + [("bert", s) for s in LENGTHS]
    cases = [(m, s, p) for p in precisions for m, s in found]
    cases = [c for c in cases if any(part in "_".join(c) for part in options.only.split(","))]
    began, faults = time.monotonic(), 0
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, context) as pool:
        kinds = dict.fromkeys(m for m, _, _ in cases)
        list(pool.map(partial(_prepare, folder=str(folder), models=str(options.models or "")), kinds))
        chosen = [c for c in cases if "_".join(c) in options.specialized.split(",")]
        special = [(m, f"{VARIANT}{s}", p) for m, s, p in chosen]
        wanted = list(dict.fromkeys([*((m, "", p) for m, _, p in cases), *cases, *special]))
        work = {c: pool.submit(_build, *c, str(folder), options.arch) for c in wanted}
        built = {c: _taken(w.result) for c, w in work.items()}
    print(f"\nsymbolic: {len(wanted)} compiled in {time.monotonic() - began:.0f} s", flush=True)
    print(
        f"{'case':20}{'static us':>10}{'least':>9}{'symbolic':>10}{'least':>9}{'ratio':>7}{'differ':>8}{'compile':>9}"
    )
    for model, precision in dict.fromkeys((m, p) for m, _, p in cases):
        own = [s for m, s, p in [*cases, *special] if (m, p) == (model, precision)]
        lines = _lines(built, model, own, precision, str(folder), until)
        for sizes, (line, sound) in zip(own, lines, strict=True):
            print(f"{'_'.join((model, sizes, precision)):20}{line}", flush=True)
            faults += not sound
    for case in [c for c in cases if "_".join(c) in options.profiled.split(",")]:
        print(f"\n{'_'.join(case)}: microseconds of a run, static and symbolic", flush=True)
        print(_apart(_compare_kernels, *case, str(folder)), flush=True)
    return faults


def _lines(
    built: dict[tuple[str, str, str], Any], model: str, cases: Sequence[str], precision: str, folder: str, until: float
) -> list[tuple[str, bool]]:
    """What is shown of some sizes of a model, and whether it is figures: else it is why there are none."""
    libraries = [(built[model, _library(s), precision], built[model, s.lstrip(VARIANT), precision]) for s in cases]
    faults = [next((b for b in both if isinstance(b, str)), "") for both in libraries]
    sound = [s for s, fault in zip(cases, faults, strict=True) if not fault]
    left = until - time.monotonic()
    found = _apart(_measure, model, sound, precision, folder, left) if left > 0 and sound else {}
    lines: list[tuple[str, bool]] = []
    for sizes, fault, (every, one) in zip(cases, faults, libraries, strict=True):
        x = found if isinstance(found, str) else found.get(sizes, "left out: the time is spent")
        if fault or isinstance(x, str):
            lines.append((fault or x, False))
            continue
        times = f"{x['static']:10.1f}{x['static_least']:9.1f}{x['symbolic']:10.1f}{x['symbolic_least']:9.1f}"
        compiled = f"{every[0] / one[0]:6.1f} of {one[0]:.0f} s, {every[1]}/{one[1]} kernels"
        lines.append((f"{times}{x['ratio']:7.3f}{x['differ']:8.0e}{compiled}", True))
    return lines


def _library(sizes: str) -> str:
    """The sizes by which the library for all sizes is named that is measured at some."""
    return sizes if sizes.startswith(VARIANT) else ""


def _taken(result: Callable[[], Any]) -> Any:
    """A result, or why there is none."""
    try:
        return result()
    except Exception as error:  # a process that was killed; the others go on
        return f"{type(error).__name__}: {error}"[:1000]


def _apart(what: Callable[..., Any], *given: Any) -> Any:
    """What a function returns in a process of its own, whose card is in order."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return _taken(pool.submit(what, *given).result)


def _prepare(model: str, folder: str, models: str) -> None:
    """Has a model of symbolic sizes in a folder: exports it, or draws the weights that its file leaves out.

    The file lists these in its metadata, as ``drawn``: names, means and deviations.
    """
    path = f"{folder}/{model}.onnx"
    if not models:
        export(f"{model}_2x64" if model in ("bert", "gpt2") else f"{model}_2", path, symbolic=True)
        return
    made = onnx.load(f"{models}/{model}.onnx")
    listed = json.loads({p.key: p.value for p in made.metadata_props}.get("drawn", "[]"))
    drawn = {name: (mean, deviation) for name, mean, deviation in listed}
    random = np.random.default_rng(0)
    for x in made.graph.initializer:
        if x.name in drawn:
            mean, deviation = drawn[x.name]
            values = random.standard_normal(tuple(x.dims), dtype=np.float32) * deviation + mean
            x.CopyFrom(numpy_helper.from_array(values.astype(np.float32), x.name))
    onnx.save(made, path)


def _build(model: str, sizes: str, precision: str, folder: str, arch: str) -> tuple[float, int]:
    """Processor seconds and kernels of a library for some sizes, or for all, with a variant or without."""
    path, variant = f"{folder}/{model}.onnx", sizes.startswith(VARIANT)
    shapes = {n: list(x.shape) for n, x in _inputs(path, sizes)} if sizes and not variant else None
    named = zip(("batch", "seq"), sizes.lstrip(VARIANT).split("x"), strict=False)
    special = " ".join(f"{name}={size}" for name, size in named) if variant else None
    before = _processor_seconds()
    out = f"{folder}/{model}_{sizes}_{precision}.tsc"
    given: dict[str, Any] = {"specialize": special, "arch": arch, "precision": precision}
    torshc.compile(path, out, "cuda", shapes=shapes, cache=False, jobs=4, **given)
    manifest = json.loads(Path(f"{out}/manifest.json").read_text())
    return _processor_seconds() - before, len(manifest["kernels"])


def _processor_seconds() -> float:
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(f.ru_utime + f.ru_stime for f in found)


def _inputs(path: str, sizes: str) -> list[tuple[str, Any]]:
    """Names of the inputs, and tensors of NumPy for some sizes."""
    random, dims = np.random.default_rng(1), tuple(map(int, sizes.lstrip(VARIANT).split("x")))
    graph = onnx.load(path, load_external_data=False).graph
    name = graph.input[0].name
    if len(dims) > 1:
        return [(name, random.integers(0, 30000, dims))]
    return [(name, random.standard_normal((*dims, *_PIXELS), dtype=np.float32))]


def _opened(model: str, sizes: str, precision: str, folder: str) -> tuple[Any, list[Callable[[], None]], list[Any]]:
    """PyTorch, a run of the static and of the symbolic library, and what they write to."""
    torch: Any = importlib.import_module("torch")
    feeds = {n: torch.from_numpy(x).cuda() for n, x in _inputs(f"{folder}/{model}.onnx", sizes)}
    runs, outs = list[Callable[[], None]](), list[Any]()
    shape: Sequence[Any] = ()
    static = sizes.lstrip(VARIANT)
    for own in (static, _library(sizes)):
        library = torshc.load(f"{folder}/{model}_{own}_{precision}.tsc", device=0, stream=torch.cuda.current_stream())
        (output,) = library.outputs
        shape = output.shape if own == static else shape
        y = torch.full(tuple(shape), float("nan"), device="cuda")

        def run(library: Any = library, y: Any = y, output: str = output.name) -> None:
            library.run(feeds, out={output: y})

        runs.append(run)
        outs.append(y)
    return torch, runs, outs


def _measure(model: str, cases: Sequence[str], precision: str, folder: str, left: float) -> dict[str, Any]:
    """Figures of the cases that begin within so many seconds, or why there are none."""
    end, found = time.monotonic() + left, dict[str, Any]()
    for sizes in cases:
        if time.monotonic() < end:
            found[sizes] = _taken(partial(_measure_case, model, sizes, precision, folder))
    return found


def _measure_case(model: str, sizes: str, precision: str, folder: str) -> dict[str, float]:
    """Microseconds of a run of both, and how far their results differ as part of the largest value."""
    torch, runs, outs = _opened(model, sizes, precision, folder)
    for run in runs * 4:
        run()
    torch.cuda.synchronize()
    times: list[list[float]] = [[], []]
    for turn in range(_ROUNDS):
        for k in (0, 1) if turn % 2 else (1, 0):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            runs[k]()  # the card is busy while the next are put in its queue
            first.record()
            for _ in range(_ROW):
                runs[k]()
            last.record()
            last.synchronize()
            times[k].append(1000 * first.elapsed_time(last) / _ROW)
    static, dynamic = (statistics.median(t) for t in times)
    ratio = statistics.median(b / a for a, b in zip(*times, strict=True))
    differ = float((outs[0] - outs[1]).abs().max() / outs[0].abs().max())
    least = [min(t) for t in times]
    return {
        "static": static, "symbolic": dynamic, "static_least": least[0], "symbolic_least": least[1],
        "ratio": ratio, "differ": differ,
    }  # fmt: skip


def _compare_kernels(model: str, sizes: str, precision: str, folder: str) -> str:
    """The kernels whose times differ most, those of the same nodes together."""
    torch, runs, _ = _opened(model, sizes, precision, folder)
    found = list[dict[str, tuple[float, float, str]]]()
    for run, own in zip(runs, (sizes, ""), strict=True):
        for _ in range(4):
            run()
        manifest = json.loads(Path(f"{folder}/{model}_{own}_{precision}.tsc/manifest.json").read_text())
        profile = Profile.of(torch, run, manifest, runs=10)
        sums = defaultdict[str, tuple[float, float, str]](lambda: (0.0, 0.0, ""))
        for symbol, taken in profile.times.items():
            kernel = profile.kernels.get(symbol, {})
            node = next(iter(kernel.get("nodes", ())), symbol)
            before = sums[node]
            short = f"{before[2]} {symbol[1:5]}:{kernel.get('template', '')[:-3]}".strip()
            sums[node] = before[0] + taken, before[1] + profile.counts[symbol], short
        found.append(dict(sums))
    none = (0.0, 0.0, "")
    rows = [(n, found[0].get(n, none), found[1].get(n, none)) for n in dict.fromkeys([*found[0], *found[1]])]
    lines = [f"{'all':34}{sum(r[1][0] for r in rows):8.1f}{sum(r[2][0] for r in rows):8.1f}"]
    for node, a, b in sorted(rows, key=lambda r: r[1][0] - r[2][0])[:_SHOWN]:
        same = "" if a[2] == b[2] else f"{a[2]} | {b[2]}"
        lines.append(f"{node[:33]:34}{a[0]:8.1f}{b[0]:8.1f}  {a[1]:.0f}/{b[1]:.0f} {same[:110]}")
    return "\n".join(lines)
