"""A training step on this processor beside PyTorch's four forms: ``python -m tests.speed.training [NAME ...]``.

Each network is exported from PyTorch, which has to be installed, and trained with Adam in f32. Each form takes turns
of some steps with ours, so that both meet the same machine, and is printed as soon as it is measured, since PyTorch may
compile the next for minutes: medians in milliseconds, and how many times as long as ours. The least of these is judged.
The aims on two cores: mobilenet_v2 1.8 times as fast, digits 2.5 times. With ``--levels`` it compares -O3 with -O0
instead, of networks that MegBrain's page has, on a card too by ``--target cuda``; the aims are its gains.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import torshc

from ..card.networks import network
from .beside import processor

AIMS = {"digits": 2.5, "mobilenet_v2": 1.8}
GAINS = {"alexnet": 1.14, "resnet18": 1.24}
SHAPES = {"digits": (64, 1, 8, 8), "mobilenet_v2": (16, 3, 224, 224)} | dict.fromkeys(GAINS, (16, 3, 224, 224))
FORMS = {  # of PyTorch: whether it is compiled, and whether channels come last
    "eager": (False, False),
    "eager channels last": (False, True),
    "compiled": (True, False),
    "compiled channels last": (True, True),
}
_STEP = "weights: '*'\nloss: cross_entropy\noptimizer:\n  adam: {learning_rate: 0.001}\n"
TURN, UNCOUNTED = 0.05, 1  # seconds of a system's turn, and how many of its steps come first
Step = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="a training step beside PyTorch's")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(AIMS)}; with --levels of {', '.join(GAINS)}")
    parser.add_argument("--levels", action="store_true", help="-O3 beside -O0")
    parser.add_argument("--target", choices=("c", "cuda"), default="c", help="of --levels")
    parser.add_argument("--compile", action="store_true", help="nothing else; what --folder has is there then")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30, help="of measuring a network")
    parser.add_argument("--folder", type=Path, help="where bundles are kept; those that are there are used again")
    options = parser.parse_args()
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(options.threads)
    print(f"on {processor()}, {options.threads} threads, PyTorch {torch.__version__}, f32, Adam", flush=True)
    with tempfile.TemporaryDirectory(prefix="torshc-training-") as scratch:
        for name in options.names or (GAINS if options.levels else AIMS):
            levels = (0, 3) if options.levels else (3,)
            bundles = {k: _bundle(torch, name, options.folder or Path(scratch), k, options.target) for k in levels}
            if not options.compile:
                (_compare_levels if options.levels else _compare)(torch, name, bundles, options)


def _compare_levels(torch: Any, name: str, bundles: Mapping[int, Path], options: argparse.Namespace) -> None:
    """Prints the figures of a network at both levels."""
    x, target = _batch(torch, name)
    feeds: dict[str, Any] = {"x": x.numpy(), "target": target.numpy()}
    threads = options.threads
    if options.target == "cuda":
        feeds, threads = {"x": x.cuda(), "target": target.cuda()}, None

    def step(model: Any) -> float:
        return float(torch.from_dlpack(model.step(feeds)["loss"]))  # known when a card is done

    with ExitStack() as opened:
        models = {k: opened.enter_context(torshc.load(b, threads=threads)) for k, b in bundles.items()}
        times = _measure({f"-O{k}": partial(step, m) for k, m in models.items()}, options.seconds)
    shown = ", ".join(f"{system} {t * 1e3:.2f} ms" for system, t in times.items())
    print(f"\n{name} {'x'.join(map(str, SHAPES[name]))}: {shown}")
    print(f"  -O3 {times['-O0'] / times['-O3']:.2f} times -O0, aim {GAINS[name]}", flush=True)


def _batch(torch: Any, name: str) -> tuple[Any, Any]:
    torch.manual_seed(1)
    return torch.randn(SHAPES[name]), torch.randint(0, 10 if name == "digits" else 1000, (SHAPES[name][0],))


def _compare(torch: Any, name: str, bundles: Mapping[int, Path], options: argparse.Namespace) -> None:
    """Prints the figures of a network, each as it is found."""
    x, target = _batch(torch, name)
    feeds, before = {"x": x.numpy(), "target": target.numpy()}, _resident_bytes()
    ratios = dict[str, float]()
    with torshc.load(bundles[3], threads=options.threads) as model:
        first = float(np.asarray(model.step(feeds)["loss"]))
        memory = f"{(_resident_bytes() - before) / 1e6:.1f} MB resident, {_planned_bytes(bundles[3]) / 1e6:.1f} planned"
        print(f"\n{name} {'x'.join(map(str, SHAPES[name]))}: first loss {first:.4f}, {memory}", flush=True)
        for form, (compiled, last) in FORMS.items():
            step = _torch_step(torch, name, x, target, compiled, last)
            began = time.monotonic()
            loss, ready = step(), time.monotonic() - began
            times = _measure({form: step, "torshc": lambda: model.step(feeds)}, options.seconds / len(FORMS))
            ratios[form] = times[form] / times["torshc"]
            print(f"  {form} {times[form] * 1e3:.2f} ms, torshc {times['torshc'] * 1e3:.2f}: {ratios[form]:.2f} times; "
                  f"first loss {loss:.4f} after {ready:.0f} s", flush=True)  # fmt: skip
    best = min(ratios, key=lambda form: ratios[form])
    print(f"  {ratios[best]:.2f} times PyTorch's fastest, {best}; aim {AIMS[name]}", flush=True)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _planned_bytes(bundle: Path) -> int:
    """What a step has in memory: states, the weights that they began with, and the arena."""
    manifest = json.loads((bundle / "manifest.json").read_text())
    states = sum(math.prod(s["dims"]) * (8 if s["dtype"].endswith("64") else 4) for s in manifest["training"]["states"])
    return int(manifest["arena_bytes"] + manifest["weights"]["bytes"] + states)


def _bundle(torch: Any, name: str, folder: Path, level: int, target: str) -> Path:
    """A bundle of a folder, which is compiled if it is not there."""
    bundle = folder / f"{name}{'' if target == 'c' else f'-{target}'}{'' if level == 3 else f'-O{level}'}.tsc"
    if bundle.exists():
        return bundle
    folder.mkdir(parents=True, exist_ok=True)
    path, step = bundle.with_suffix(".onnx"), bundle.with_suffix(".yaml")
    chosen = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    torch.onnx.export(network(name), (torch.zeros(SHAPES[name]),), str(path), input_names=["x"], **chosen)
    step.write_text(_STEP)
    began = time.monotonic()
    torshc.compile(path, bundle, target=target, opt_level=level, train=str(step))
    print(f"{name} compiled at -O{level} in {time.monotonic() - began:.0f} s", flush=True)
    return bundle


def _torch_step(torch: Any, name: str, x: Any, target: Any, compiled: bool, channels_last: bool) -> Step:
    """A step of PyTorch in one of its forms, with fused Adam; gives the loss."""
    made = network(name)
    if channels_last:
        made, x = made.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(made.parameters(), lr=1e-3, fused=True)
    run = torch.compile(made) if compiled else made

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(run(x), target)
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return step


def _measure(steps: dict[str, Step], seconds: float) -> dict[str, float]:
    """Median seconds of each, which take turns of several steps; at least three turns after one that is not counted.

    The first steps of a turn are not counted either: threads of the system before still wait for work in a loop then,
    and caches are full of its values.
    """
    times: dict[str, list[float]] = {system: [] for system in steps}
    until, rounds = time.monotonic() + seconds, 0
    while rounds < 4 or time.monotonic() < until:
        for system, step in steps.items():
            turn = list[float]()
            while sum(turn) < TURN or len(turn) <= UNCOUNTED:
                began = time.perf_counter()
                step()
                turn.append(time.perf_counter() - began)
            times[system] += turn[UNCOUNTED:] if rounds else []
        rounds += 1
    return {system: statistics.median(found) for system, found in times.items()}


if __name__ == "__main__":
    main()
