"""Training steps with Adam: compiled, checked against PyTorch in f64, timed beside PyTorch, and taken apart by kernel.

Of each network: how far the loss and the gradients of the first step are from f64, as part of the loss and as norms of
all weights together, ours and those of PyTorch's eager way at the same precision; milliseconds of a step and gigabytes;
the kernels that take most time, all launches of one together, beside the time that their bytes or their operations
take at an H200's rates; and the same step in PyTorch, channels last with fused Adam, eager and compiled.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import io
import json
import multiprocessing
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import torshc

from .networks import CLASSES, NETWORKS, network
from .timing import calls

_RATE, _BETA = 1e-3, 0.9
_STEP = f"weights: '*'\nloss: cross_entropy\noptimizer:\n  adam: {{learning_rate: {_RATE}, beta1: {_BETA}}}\n"
_MODES = {"eager": None, "compiled": "reduce-overhead"}
_BYTES = 4.3e6  # a microsecond: what copies of an H200 move
_FLOPS = {"f32": 130e6, "tf32": 400e6, "bf16": 800e6, "plain": 50e6}  # a microsecond
_TENSOR = ("contraction_group", "contraction_mma", "tf32", "wgmma")


@dataclass(frozen=True)
class Step:
    """A network's step, in a precision.

    Attributes:
        less: "recompute", the most gigabytes of memory, as text, or "" for a step that computes nothing again.
    """

    name: str
    precision: str
    less: str = ""

    @classmethod
    def listed(cls, options: argparse.Namespace) -> list[Step]:
        """The steps that options name, those of one network and precision after each other."""
        if options.steps:
            return sorted((cls(*text.split(":")) for text in options.steps.split(",")), key=lambda s: s.key)
        names = [name for name in NETWORKS if any(part in name for part in options.only.split(","))]
        again = [name for name in names if any(part in name for part in options.recompute.split(",") if part)]
        return [cls(n, options.precision, less) for n in names for less in ("", "recompute") if not less or n in again]

    @property
    def key(self) -> tuple[str, str]:
        """What steps share whose figures of PyTorch are the same."""
        return self.name, self.precision

    def __str__(self) -> str:
        return "-".join(filter(None, (self.name, self.precision, self.less)))


def training(options: argparse.Namespace, folder: Path, until: float) -> int:
    """The tables; PyTorch's compiled way has until ``until``. Returns how many networks have no figures.

    PyTorch compiles while ours are compiled. All processes that warm up are done before the first is timed.
    """
    began, faults, steps = time.monotonic(), 0, Step.listed(options)
    for less, more in (("", ""), ("recompute", "recompute: true\n")):
        (folder / f"step{less}.yaml").write_text(_STEP + more)
    alike: dict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in steps:
        alike[step.key].append(step)
    peers = [Peer.begin(*key, folder) for key in alike]
    os.environ["TORSHC_CACHE_DIR"] = str(folder / "cache")  # most kernels of a step that recomputes are the other's
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        jobs = max(1, 2 * options.jobs // max(1, len(alike)))  # some have compiled all before others have
        rules = [str(p.absolute()) for p in options.rules]
        works = [pool.submit(_build, part, str(folder), options.arch, jobs, rules) for part in alike.values()]
        built = {s: done for part, w in zip(alike.values(), works, strict=True) for s, done in _result(part, w).items()}
    print(f"\ntraining: {len(steps)} compiled in {time.monotonic() - began:.0f} s", flush=True)
    for peer in peers:
        peer.warmed.wait(max(0.0, until - time.monotonic()))
    faults += sum(peer.end(until) for peer in peers)
    for step in steps:
        done = built[step]
        print(f"\n{step}: {done.fault or f'compiled in {done.seconds:.0f} s'}"[:1000], flush=True)
        faults += bool(done.fault or _apart(_measure, step, folder, options.kernels))
    _show_table(steps, folder)
    return faults


def _show_table(steps: Sequence[Step], folder: Path) -> None:
    """Prints how each step stands to PyTorch's fastest way, and to the smaller of its peaks of memory."""
    print(
        f"\n{'step':28}{'ms':>8}{'compiled':>9}{'eager':>8}{'ratio':>7}{'GB':>7}{'compiled':>9}{'eager':>7}{'part':>6}"
    )
    for step in steps:
        figures = [_figures(folder, step, way) for way in ("ours", *_MODES)]
        (taken, held), *peers = [figures[k] for k in (0, 2, 1)]
        fastest, least = (min((p[k] for p in peers if p[k]), default=0.0) for k in (0, 1))
        ratio, part = fastest / taken if taken else 0.0, held / least if least else 0.0
        print(
            f"{step!s:28}{taken:8.2f}{peers[0][0]:9.2f}{peers[1][0]:8.2f}{ratio:7.3f}"
            f"{held:7.2f}{peers[0][1]:9.2f}{peers[1][1]:7.2f}{part:6.2f}"
        )


def _note(folder: Path, step: Step, way: str, taken: float, held: float) -> None:
    """Leaves milliseconds and gigabytes of a step for the table."""
    name = str(step if way == "ours" else Step(*step.key))
    (folder / f"{name}.{way}.json").write_text(json.dumps((taken, held)))


def _figures(folder: Path, step: Step, way: str) -> tuple[float, float]:
    """What was left, 0 where there is nothing."""
    path = folder / f"{step if way == 'ours' else Step(*step.key)}.{way}.json"
    return json.loads(path.read_text()) if path.exists() else (0.0, 0.0)


@dataclass(frozen=True)
class Peer:
    """A process with PyTorch's compiled step, which says when it is warm, and is timed when it may be."""

    name: str
    process: Any
    warmed: Any
    may_time: Any

    @classmethod
    def begin(cls, name: str, precision: str, folder: Path) -> Peer:
        """Let it compile."""
        context = multiprocessing.get_context("spawn")
        warmed, may_time = context.Event(), context.Event()
        arguments = (_torch_step, Step(name, precision), folder, "compiled", warmed, may_time)
        process = context.Process(target=_begin, args=arguments, daemon=False)
        process.start()
        return cls(f"{name} {precision}", process, warmed, may_time)

    def end(self, until: float) -> bool:
        """Let it time its step, if it is warm in time; whether there is no figure."""
        self.may_time.set()
        self.process.join(20.0 if self.warmed.is_set() else max(0.0, until - time.monotonic()))
        if self.process.is_alive():
            self.process.terminate()
            self.process.join()
            print(f"{self.name:13} compiled: not in time", flush=True)
        return bool(self.process.exitcode)


def _apart(work: Callable[..., None], step: Step, *arguments: Any) -> int | None:
    """Does something in a process of its own, so that one that dies takes no other's figures with it; how it ended."""
    child = multiprocessing.get_context("spawn").Process(target=_begin, args=(work, step, *arguments))
    child.start()
    child.join()
    if child.exitcode:
        print(f"\n{step}: the process ended with {child.exitcode}", flush=True)
    return child.exitcode


def _begin(work: Callable[..., None], step: Step, *arguments: Any) -> None:
    faulthandler.enable()
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)
    work(step, *arguments)


def _measure(step: Step, folder: Path, kernels: int) -> None:
    """Prints what a network's step does, ours and PyTorch's eager way."""
    name, precision = step.key
    torch = _torch(precision)
    x, target = _batch(torch, name)
    right = _gradients(torch, network(name).cuda().double(), x.double(), target, "f64")
    eager = _errors(_gradients(torch, network(name).cuda(), x, target, precision), right)
    print(f"{name:13} eager: loss off by {eager[0]:.0e}, gradients by {eager[1]:.0e}")
    _our_step(torch, step, folder, x, target, right, kernels)
    if not _figures(folder, step, "eager")[0]:
        _torch_step(step, folder, "eager")


def _torch(precision: str) -> Any:
    torch: Any = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
    return torch


def _result(steps: Sequence[Step], work: Future[dict[Step, Built]]) -> dict[Step, Built]:
    try:
        return work.result()
    except Exception as error:  # a process that was killed, an export that failed
        return dict.fromkeys(steps, Built(0.0, f"{type(error).__name__}: {error}"))


@dataclass(frozen=True)
class Built:
    """What became of a compilation: its seconds, and why there is no bundle."""

    seconds: float
    fault: str = ""


def _build(steps: Sequence[Step], folder: str, arch: str, jobs: int, rules: Sequence[str]) -> dict[Step, Built]:
    """What became of steps of one network in one precision."""
    name, precision = steps[0].key
    model, built = f"{folder}/{name}_{precision}.onnx", dict[Step, Built]()
    export(name, model)
    for step in steps:
        began, bound = time.monotonic(), step.less not in ("", "recompute")
        chosen: dict[str, Any] = {
            "shapes": {"x": (NETWORKS[name], 3, 224, 224)},
            "train": f"{folder}/step{'' if bound else step.less}.yaml",
            "train_memory": int(1e9 * float(step.less)) if bound else 0,
            "precision": precision,
            "rules": tuple(map(Path, rules)),
        }
        try:
            torshc.compile(model, f"{folder}/{step}.tsc", target="cuda", arch=arch, jobs=jobs, **chosen)
        except torshc.TorshcError as error:
            built[step] = Built(0.0, str(error))
        else:
            built[step] = Built(time.monotonic() - began)
    return built


def export(name: str, path: str) -> None:
    """Writes a network as ONNX, in training mode and for any number of pictures."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(2)
    made, x = network(name), torch.zeros(2, 3, 224, 224)
    chosen = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    torch.onnx.export(made, (x,), path, input_names=["x"], dynamic_axes={"x": {0: "batch"}}, verbose=False, **chosen)


def _batch(torch: Any, name: str) -> tuple[Any, Any]:
    """Pictures and their classes."""
    torch.manual_seed(1)
    x = torch.randn(NETWORKS[name], 3, 224, 224, device="cuda")
    return x, torch.randint(0, CLASSES, (NETWORKS[name],), device="cuda")


Gradients = tuple[float, Mapping[str, Any]]


def _our_step(torch: Any, made: Step, folder: Path, x: Any, target: Any, right: Gradients, kernels: int) -> None:
    """Prints the errors of our step, milliseconds, gigabytes, where its time goes, and whether states are kept."""
    name, bundle = made.name, folder / f"{made}.tsc"
    loss = torch.full((), float("nan"), device="cuda")
    torch.cuda.empty_cache()
    free, held = torch.cuda.mem_get_info()[0], list[float]()
    model = torshc.load(bundle, device=0, stream=torch.cuda.current_stream())

    def step() -> None:
        model.step({"x": x, "target": target}, out={"loss": loss})

    def hold() -> None:
        torch.cuda.synchronize()
        held.append((free - torch.cuda.mem_get_info()[0]) / 1e9)

    hold()
    step()
    hold()
    states, first = model.state_dict(), float(loss)
    taken, manifest = calls(torch, step, 1.0), json.loads((bundle / "manifest.json").read_text())
    hold()
    moments = {n: torch.tensor(states[f"torshc.first_moment/{n}"]).cuda() / (1 - _BETA) for n in right[1]}
    errors = _errors((first, moments), right)
    print(f"{name:13} ours: loss off by {errors[0]:.0e}, gradients by {errors[1]:.0e}")
    print(f"{name:13} ours {taken:.2f} ms, {held[-1]:.2f} GB; {held[0]:.3f} when opened, {held[1]:.3f} after a step")
    _note(folder, made, "ours", taken, held[-1])
    Profile.of(torch, step, manifest).show(made.precision, kernels)
    print(f"{name:13} states {_kept(torch, model, bundle, step, loss)}")


def _kept(torch: Any, model: Any, bundle: Path, step: Callable[[], Any], loss: Any) -> str:
    """Whether a model goes on from its saved states as it went on itself, bit by bit."""
    path, losses = bundle.with_suffix(".states"), list[float]()
    model.save_state(path)
    saved = model.state_dict()
    for _ in range(2):
        model.load_state(path)
        loaded = model.state_dict()
        step()
        torch.cuda.synchronize()
        losses.append(float(loss))
    path.unlink()
    same = saved.keys() == loaded.keys() and all(np.array_equal(v, loaded[n], equal_nan=True) for n, v in saved.items())
    next_losses = "alike" if losses[0] == losses[1] else f"DIFFERENT: {losses}"
    return f"saved and loaded {'alike' if same else 'DIFFERENT'}, losses of the next step {next_losses}"


def _gradients(torch: Any, made: Any, x: Any, target: Any, precision: str) -> Gradients:
    """The loss of a step, and the gradients by the names of the weights."""
    loss = _loss(torch, made, x, target, precision)
    loss.backward()
    return float(loss), {name: p.grad for name, p in made.named_parameters()}


def _loss(torch: Any, made: Any, x: Any, target: Any, precision: str) -> Any:
    with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
        return torch.nn.functional.cross_entropy(made(x), target)


def _errors(found: Gradients, right: Gradients) -> tuple[float, float]:
    """Of the loss, as part of it, and of all gradients, as norms."""
    off = sum(float((found[1][n].double() - g).norm()) ** 2 for n, g in right[1].items())
    return abs(found[0] / right[0] - 1), float(off / sum(float(g.norm()) ** 2 for g in right[1].values())) ** 0.5


def _torch_step(made: Step, folder: Path, way: str, warmed: Any = None, may_time: Any = None) -> None:
    """Prints milliseconds of PyTorch's step and gigabytes at its peak.

    Args:
        warmed, may_time: events: it is warm, and nobody else uses the card.
    """
    name, precision = made.key
    torch, mode = _torch(precision), _MODES[way]
    torch.cuda.empty_cache()
    x, target = _batch(torch, name)
    module, x = network(name).cuda().to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(module.parameters(), lr=_RATE, betas=(_BETA, 0.999), fused=True)
    run = module if mode is None else torch.compile(module, mode=mode)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        _loss(torch, run, x, target, precision).backward()
        optimizer.step()

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    if warmed is not None:
        warmed.set()
        may_time.wait()
    else:  # what graphs replay in was allocated when they were recorded
        torch.cuda.reset_peak_memory_stats()
    taken, held = calls(torch, step, 1.0), torch.cuda.max_memory_allocated() / 1e9
    _note(folder, made, way, taken, held)
    print(f"{name:13} {way} {taken:.2f} ms, {held:.2f} GB")


@dataclass(frozen=True)
class Profile:
    """Where the time of a step goes.

    Attributes:
        times: microseconds of a step by the symbol of a kernel, each from the end of all that began before it, as
            many begin early and wait for these.
        counts: launches of a step by symbol.
        kernels: what the manifest says of each.
        whole: microseconds of all that ran on the card.
    """

    times: Mapping[str, float]
    counts: Mapping[str, float]
    kernels: Mapping[str, Mapping[str, Any]]
    whole: float

    @classmethod
    def of(cls, torch: Any, step: Callable[[], None], manifest: Mapping[str, Any], runs: int = 3) -> Profile:
        """Of some steps."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
            for _ in range(runs):
                step()
            torch.cuda.synchronize()
        times, counts = defaultdict[str, float](float), defaultdict[str, float](float)
        on_card = (e for e in found.events() if e.device_type == torch.autograd.DeviceType.CUDA)
        end = 0.0
        for event in sorted(on_card, key=lambda e: e.time_range.start):
            symbol, began = event.name.split("(")[0].removesuffix("_kernel"), event.time_range.start
            last = began + event.device_time
            times[symbol] += max(last - max(began, end), 0.0) / runs
            counts[symbol] += 1 / runs
            end = max(end, last)
        return cls(times, counts, {k["symbol"]: k for k in manifest["kernels"]}, sum(times.values()))

    def show(self, precision: str, most: int) -> None:
        """The kernels that take most time, and the sums by template."""
        floors = {s: self._floor(s, precision) for s in self.times}
        launches = sum(self.counts.values())
        print(f"{self.whole / 1e3:.2f} ms of kernels in {launches:.0f} launches", flush=True)
        print(f"{'kernel':15}{'':19}{'n':>4}{'us':>8}{'floor':>8}{'MB':>8}{'GF':>7}  operators")
        for symbol in sorted(self.times, key=lambda s: -self.times[s])[:most]:
            kernel = self.kernels.get(symbol, {})
            shown = " ".join(kernel.get("ops", ()))[:40]
            flops, moved = ((kernel.get(n) or 0) for n in ("flops", "bytes"))
            print(
                f"{symbol[:14]:15}{kernel.get('template', '')[:18]:19}"
                f"{self.counts[symbol]:4.0f}{self.times[symbol]:8.0f}"
                f"{floors[symbol]:8.0f}{moved / 1e6:8.1f}{flops / 1e9:7.2f}  {shown}"
            )
        kinds, least, number = (defaultdict[str, float](float) for _ in range(3))
        for symbol, taken in self.times.items():
            kind = self.kernels.get(symbol, {}).get("template", "other")
            kinds[kind] += taken
            least[kind] += floors[symbol]
            number[kind] += self.counts[symbol]
        for kind, taken in sorted(kinds.items(), key=lambda k: -k[1]):
            print(f"{kind:34}{number[kind]:4.0f}{taken:8.0f}{least[kind]:8.0f}")

    def _floor(self, symbol: str, precision: str) -> float:
        """Microseconds that all launches of a kernel take at the card's rates."""
        kernel = self.kernels.get(symbol, {})
        fast = any(kernel.get("template", "").startswith(t) for t in _TENSOR)
        rate = _FLOPS[precision if fast else "plain"]
        return self.counts[symbol] * max((kernel.get("flops") or 0) / rate, (kernel.get("bytes") or 0) / _BYTES)
