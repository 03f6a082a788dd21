"""A training step on this processor beside PyTorch's four forms: ``python -m tests.speed.training [NAME ...]``.

Each network is exported from PyTorch, which has to be installed, and trained with Adam in f32, the systems in turns, a
step of each a round. It prints medians in milliseconds, and the ratio of PyTorch's fastest form to ours. The aims on
two cores: mobilenet_v2 1.8 times as fast, digits 2.5 times.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import torshc

from ..card.networks import network
from .beside import processor

SHAPES = {"digits": (64, 1, 8, 8), "mobilenet_v2": (16, 3, 224, 224)}
AIMS = {"digits": 2.5, "mobilenet_v2": 1.8}
CLASSES = {"digits": 10, "mobilenet_v2": 1000}
_STEP = "weights: '*'\nloss: cross_entropy\noptimizer:\n  adam: {learning_rate: 0.001}\n"
Step = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="a training step beside PyTorch's")
    parser.add_argument("names", nargs="*", default=[*SHAPES], help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30, help="of measuring a network")
    parser.add_argument("--folder", type=Path, help="where bundles are kept; those that are there are used again")
    options = parser.parse_args()
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(options.threads)
    print(f"on {processor()}, {options.threads} threads, PyTorch {torch.__version__}, f32, Adam", flush=True)
    with tempfile.TemporaryDirectory(prefix="torshc-training-") as scratch:
        for name in options.names:
            _compare(torch, name, options.folder or Path(scratch), options)


def _compare(torch: Any, name: str, folder: Path, options: argparse.Namespace) -> None:
    """Prints the figures of a network."""
    bundle = folder / f"{name}.tsc"
    if not bundle.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _compile(torch, name, bundle)
    torch.manual_seed(1)
    x, target = torch.randn(SHAPES[name]), torch.randint(0, CLASSES[name], (SHAPES[name][0],))
    with torshc.load(bundle, threads=options.threads) as model:
        feeds = {"x": x.numpy(), "target": target.numpy()}
        steps: dict[str, Step] = {"torshc": lambda: model.step(feeds)}
        for compiled in (False, True):
            for last in (False, True):
                words = ["compiled" if compiled else "eager", *(["channels last"] if last else [])]
                steps[" ".join(words)] = _torch_step(torch, name, x, target, compiled, last)
        losses = {system: float(np.asarray(step())) for system, step in _first_losses(steps).items()}
        times = _measure(steps, options.seconds)
    best = min(t for system, t in times.items() if system != "torshc")
    print(f"\n{name} {'x'.join(map(str, SHAPES[name]))}, losses {', '.join(f'{v:.4f}' for v in losses.values())}")
    print("  " + ", ".join(f"{system} {t * 1e3:.2f} ms" for system, t in times.items()))
    print(f"  {best / times['torshc']:.2f} times PyTorch's fastest, aim {AIMS[name]}", flush=True)


def _first_losses(steps: dict[str, Step]) -> dict[str, Step]:
    """The steps, ours as its loss: the first of each is made with the same weights."""
    ours = steps["torshc"]
    return {**steps, "torshc": lambda: next(iter(ours().values()))}


def _compile(torch: Any, name: str, bundle: Path) -> None:
    path, step = bundle.with_suffix(".onnx"), bundle.with_suffix(".yaml")
    chosen = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    torch.onnx.export(network(name), (torch.zeros(SHAPES[name]),), str(path), input_names=["x"], **chosen)
    step.write_text(_STEP)
    began = time.monotonic()
    torshc.compile(path, bundle, target="c", opt_level=3, train=str(step))
    print(f"{name} compiled in {time.monotonic() - began:.0f} s", flush=True)


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
    """Median seconds of each, in turns; at least three rounds after one that is not counted."""
    times: dict[str, list[float]] = {system: [] for system in steps}
    until, rounds = time.monotonic() + seconds, 0
    while rounds < 4 or time.monotonic() < until:
        for system, step in steps.items():
            began = time.perf_counter()
            step()
            times[system].append(time.perf_counter() - began)
        rounds += 1
    return {system: statistics.median(found[1:]) for system, found in times.items()}


if __name__ == "__main__":
    main()
