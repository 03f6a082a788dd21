"""Steps of Adam beside PyTorch's in f64 and in f32: ``python -m tests.learning [NAME ...]``.

PyTorch has to be installed, and for some networks transformers. Each network is exported as ONNX and trained on the
same batches from the same weights by all three, which run on the card with ``--target cuda``; PyTorch's f32 has no tf32
there, and takes algorithms that give the same bits each time where it has them. Two lines a network: how far the
gradients of the first step are from those of f64, all together and of the weight that does worst, as norms and as parts
of twice PyTorch's distance in f32; and how far the losses are, in the mean of all steps and at the most, as such parts.
The exit code tells of parts above 1 of all weights together.

Where a value lies at the corner of a Relu as near as it is rounded, ours or PyTorch's f32 has another slope than f64,
which is more than all roundings together and leaves the losses further and further apart; whom this meets is a matter
of the batch. ``--draws 9`` compares from nine draws of batches, and judges the means of their distances.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import torshc

from ..speed.beside import processor
from .foreign import FOREIGN
from .networks import CROSS, LESSONS, Lesson

ALL = LESSONS | FOREIGN
Array = np.ndarray[Any, Any]
Off = tuple[float, float]  # how far ours is from f64, and PyTorch's f32
_RATE, _BETA, _BATCHES, _SMALL = 1e-3, 0.9, 8, 1e-7
_MOMENT = "torshc.first_moment/"


@dataclass(frozen=True)
class Learned:
    """What some steps showed: the gradients of the first by weight, and the loss of each."""

    gradients: Mapping[str, Array]
    losses: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description="steps of training beside PyTorch's in f64")
    parser.add_argument("names", nargs="*", default=[*ALL], help=f"of {', '.join(ALL)}")
    parser.add_argument("--steps", type=int, help="fewer or more than each network's own")
    parser.add_argument("--draws", type=int, default=1, help="of batches, from each of which learning begins anew")
    parser.add_argument("--target", choices=("c", "llvm", "cuda"), default="c")
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where models and bundles are kept")
    options = parser.parse_args()
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(options.threads)
    place = _repeatable_card(torch) if options.target == "cuda" else f"{processor()}, {options.threads} threads"
    print(f"{options.target} -O{options.level} on {place}, PyTorch {torch.__version__}", flush=True)
    with tempfile.TemporaryDirectory(prefix="torshc-learning-") as scratch:
        good = [_compare(torch, name, options.folder or Path(scratch), options) for name in options.names]
    sys.exit(not all(good))


def _repeatable_card(torch: Any) -> str:
    """Lets PyTorch compute in full f32 on a card, with the same bits each time where it can; the card's name."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return str(torch.cuda.get_device_name())


def _compare(torch: Any, name: str, folder: Path, options: argparse.Namespace) -> bool:
    """Prints how far a network's gradients and losses are; whether they are near enough."""
    lesson, folder = ALL[name], folder / name
    folder.mkdir(parents=True, exist_ok=True)
    steps = options.steps or lesson.steps
    batch = lesson.batch(torch, 0)
    made = _network(torch, lesson, batch)
    began = time.monotonic()
    weights = _compile(torch, lesson, made, batch, folder, options)
    print(f"\n{name}: {len(weights)} weights, {sum(p.numel() for p in made.parameters())} numbers, {steps} steps, "
          f"compiled in {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    on_card = options.target == "cuda"
    device, threads = torch.device("cuda" if on_card else "cpu"), None if on_card else options.threads
    found = list[tuple[Off, Off, Off]]()
    for draw in range(options.draws):
        batches = [lesson.batch(torch, draw * _BATCHES + k) for k in range(_BATCHES)]
        ours = _ours(folder / "m.tsc", batches, weights, steps, threads)
        right, theirs = (
            _theirs(torch, _network(torch, lesson, batch).to(device, dtype), batches, lesson.loss, steps)
            for dtype in (torch.float64, torch.float32)
        )
        gc.collect()
        found.append((_show_gradients(ours, theirs, right), *_show_losses(ours, theirs, right)))
    parts = [_part(*np.mean([draw[k] for draw in found], axis=0)) for k in range(3)]
    if options.draws > 1:
        print("  means of {} draws: gradients {:.2f}, losses {:.2f} and {:.2f}".format(len(found), *parts), flush=True)
    return max(parts) <= 1


def _show_gradients(ours: Learned, theirs: Learned, right: Learned) -> Off:
    whole = _norm(right.gradients.values())
    off = {n: (_far(ours.gradients[n], g), _far(theirs.gradients[n], g)) for n, g in right.gradients.items()}
    both = [float(np.hypot.reduce([pair[k] for pair in off.values()])) / whole for k in (0, 1)]
    # A gradient that is 0, as of a bias before a normalisation, is a rounding of all the others.
    parts = {n: a / max(2 * b, _SMALL * whole, _SMALL * _norm([right.gradients[n]])) for n, (a, b) in off.items()}
    worst = max(parts, key=lambda n: parts[n])
    print(f"  gradients off by {both[0]:.1e}, PyTorch's f32 by {both[1]:.1e}: part {_part(*both):.2f}; "
          f"worst weight {worst}: {off[worst][0]:.1e}, {off[worst][1]:.1e}, part {parts[worst]:.2f}")  # fmt: skip
    return both[0], both[1]


def _show_losses(ours: Learned, theirs: Learned, right: Learned) -> tuple[Off, Off]:
    """Of the mean, and of the step that is furthest off."""
    a, b = (np.abs(np.subtract(found.losses, right.losses)) for found in (ours, theirs))
    mean, most = (float(a.mean()), float(b.mean())), (float(a.max()), float(b.max()))
    print(f"  losses {right.losses[0]:.4f} to {right.losses[-1]:.4f}, off by {mean[0]:.1e} (most {most[0]:.1e}), "
          f"PyTorch's f32 by {mean[1]:.1e} ({most[1]:.1e}): parts {_part(*mean):.2f} and {_part(*most):.2f}",
          flush=True)  # fmt: skip
    return mean, most


def _part(ours: float, theirs: float) -> float:
    return ours / (2 * theirs)


def _far(found: Array, right: Array) -> float:
    return float(np.linalg.norm((found - right).ravel()))


def _norm(arrays: Any) -> float:
    return float(np.sqrt(sum(float(np.linalg.norm(a.ravel())) ** 2 for a in arrays)))


def _network(torch: Any, lesson: Lesson, batch: Mapping[str, Any]) -> Any:
    """The network, with its masks drawn."""
    torch.manual_seed(0)
    made = lesson.make(torch).train()
    kept = {n: b.clone() for n, b in made.named_buffers()}
    with torch.no_grad():
        made(*(x for n, x in batch.items() if n != "target"))
        for name, b in made.named_buffers():  # statistics of batches as before
            if name in kept:
                b.copy_(kept[name])
    return made


def _compile(
    torch: Any, lesson: Lesson, made: Any, batch: Mapping[str, Any], folder: Path, options: argparse.Namespace
) -> dict[str, str]:
    """Compiles a network's step; what the file calls each parameter, of which some are shared by several modules."""
    path, step = folder / "m.onnx", folder / "step.yaml"
    inputs = [n for n in batch if n != "target"]
    chosen: dict[str, Any] = {"dynamo": True, "optimize": False, "verbose": False, "opset_version": 20}
    if lesson.traced:
        chosen = {"dynamo": False, "training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False}
    torch.onnx.export(made, tuple(batch[n] for n in inputs), str(path), input_names=inputs, **chosen)
    written = {w.name for w in onnx.load(path, load_external_data=False).graph.initializer}
    names = {p: n for n, p in made.named_parameters(remove_duplicate=False) if n in written}
    weights = {n: names[p] for n, p in made.named_parameters()}
    listed = "".join(f"  - '{n}'\n" for n in weights.values())
    step.write_text(f"weights:\n{listed}loss: {lesson.loss}\noptimizer:\n  adam: {{learning_rate: {_RATE}}}\n")
    torshc.compile(path, folder / "m.tsc", target=options.target, opt_level=options.level, train=str(step))
    return weights


def _ours(
    bundle: Path, batches: list[dict[str, Any]], weights: Mapping[str, str], steps: int, threads: int | None
) -> Learned:
    gradients, losses = dict[str, Array](), list[float]()
    with torshc.load(bundle, threads=threads) as model:
        for k in range(steps):
            feeds = {n: x.numpy() for n, x in batches[k % len(batches)].items()}
            losses.append(float(np.asarray(model.step(feeds)["loss"])))
            if k == 0:
                states = model.state_dict()
                gradients = {n: states[_MOMENT + w].astype(np.float64) / (1 - _BETA) for n, w in weights.items()}
    return Learned(gradients, losses)


def _theirs(torch: Any, made: Any, batches: list[dict[str, Any]], loss: str, steps: int) -> Learned:
    """Gradients too as moments show them, with the rounding of a product by 0.1."""
    first = next(made.parameters())
    functions = torch.nn.functional
    judge = functions.cross_entropy if loss == CROSS else functions.mse_loss
    optimizer = torch.optim.Adam(made.parameters(), lr=_RATE, betas=(_BETA, 0.999))
    gradients, losses = dict[str, Array](), list[float]()
    for k in range(steps):
        batch = {
            n: x.to(first) if x.is_floating_point() else x.to(first.device)
            for n, x in batches[k % len(batches)].items()
        }
        target = batch.pop("target")
        optimizer.zero_grad(set_to_none=True)
        with first.device:
            found = judge(made(*batch.values()), target)
        found.backward()
        optimizer.step()
        losses.append(found.item())
        if k == 0:
            moments = {n: optimizer.state[p]["exp_avg"] for n, p in made.named_parameters()}
            gradients = {n: m.double().cpu().numpy() / (1 - _BETA) for n, m in moments.items()}
    return Learned(gradients, losses)


if __name__ == "__main__":
    main()
