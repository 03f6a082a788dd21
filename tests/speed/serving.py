"""What a profile gains a server of sentences: ``python -m tests.speed.serving [MODEL] [--target cuda] [--threads 1]``.

The model is compiled, serves requests while it writes what it saw (TORSHC_PROFILE), and is compiled again with
``--observed``. Both bundles then serve the same other requests in turns. MODEL has the inputs of an encoder: those with
"mask" in their names are ones where a word is, those with "type" are zeros, others are numbers of words. Without MODEL
it is that of :mod:`tests.speed.encoder_model`, of MiniLM's sizes, which gives the mean over the words of a sentence.

Numbers of words in a sentence are log-normal, as Williams found ("A note on the statistical analysis of
sentence-length as a criterion of literary style", Biometrika 31, 1940). Their mean is that of the Brown corpus,
1,161,192 words in 57,340 sentences; the deviation of their logarithm is taken to be 0.6. Two tokens begin and end a
sentence, and the longest has 256. ``--batch`` sentences at a time are padded to the longest of them; each batch size is
measured by itself.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import torshc
from torshc.base.manifest import sizes_text
from torshc.runtime import Model

from .beside import processor
from .encoder_model import Encoder, write_encoder

MEAN, DEVIATION = 1161192 / 57340, 0.6
ENDS, LONGEST = 2, 256  # tokens that begin and end a sentence; the most of one
Feeds = dict[str, np.ndarray[Any, Any]]


def draw_lengths(count: int, seed: int) -> np.ndarray[Any, Any]:
    """Numbers of tokens of so many sentences.

    A log-normal number whose mean is m has exp(mu + sigma^2 / 2) = m.
    """
    middle = math.log(MEAN) - DEVIATION**2 / 2
    words = np.random.default_rng(seed).lognormal(middle, DEVIATION, count)
    return np.clip(np.rint(words).astype(np.int64), 1, LONGEST - ENDS) + ENDS


def draw_requests(model: Model, count: int, batch: int, seed: int) -> list[Feeds]:
    """Inputs of runs, each for a batch of sentences."""
    rng = np.random.default_rng(seed + 1)
    return [_request(model, lengths, rng) for lengths in draw_lengths(count, seed).reshape(-1, batch)]


def _request(model: Model, lengths: np.ndarray[Any, Any], rng: np.random.Generator) -> Feeds:
    shape = (len(lengths), int(lengths.max()))
    seen = np.arange(shape[1]) < lengths[:, None]
    found: Feeds = {}
    for spec in model.inputs:
        if "mask" in spec.name:
            found[spec.name] = seen.astype(np.int64)
        elif "type" in spec.name:
            found[spec.name] = np.zeros(shape, np.int64)
        else:
            found[spec.name] = np.where(seen, rng.integers(1000, 20000, shape), 0)
    return found


def serve(model: Model, requests: list[Feeds]) -> float:
    """Seconds of all runs."""
    began = time.perf_counter()
    for feeds in requests:
        model.run(feeds)
    return time.perf_counter() - began


def forms_of(model: Model) -> Iterator[str]:
    """A line for each form that runs took."""
    for form in model.stats().forms:
        if form.runs:
            yield f"  {form.runs:6} runs of {form.sizes or 'the general form'}"


def _apart(answers: Feeds, others: Feeds) -> float:
    """The largest difference of two runs' outputs, as a part of the largest element."""
    pairs = [(answers[name], others[name]) for name in answers]
    return max(float(np.abs(x - y).max() / np.abs(x).max()) for x, y in pairs)


def in_turns(models: dict[str, Model], requests: list[Feeds], rounds: int) -> dict[str, float]:
    """Median seconds of each for all requests."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            times[name].append(serve(model, requests))
            print(f"  {name:9} {times[name][-1]:.3f} s", flush=True)
    return {name: statistics.median(taken) for name, taken in times.items()}


def compiled(name: str, path: Path, out: Path, **options: Any) -> None:
    """Compile unless it is there."""
    if out.exists():
        return
    began = time.perf_counter()
    done = torshc.compile(path, out, loose="none", **options)
    print(f"{name}: {time.perf_counter() - began:.0f} s to compile", flush=True)
    for variant in done.variants:
        print(f"  {sizes_text(variant.case)}: {variant.seen}; {variant.why or 'made'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--target", default="c")
    parser.add_argument("--arch", help="of a card, as sm_90a")
    parser.add_argument("--threads", type=int, default=1, help="of a run")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="sentences of a run")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where bundles and the profile stay, for a later call")
    parser.add_argument("--prepare", action="store_true", help="stop before the measurement")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torshc-serving-") as scratch:
        measure(args, args.folder or Path(scratch))


def measure(args: argparse.Namespace, folder: Path) -> None:
    """Print the times without and with the profile."""
    folder.mkdir(exist_ok=True)
    path: Path = args.model or folder / "encoder.onnx"
    if not path.exists():
        write_encoder(Encoder(), path, pooled=True)
    options: dict[str, Any] = {"target": args.target} | ({"arch": args.arch} if args.arch else {})
    plain = folder / "plain.tsc"
    compiled("without a profile", path, plain, **options)
    for batch in args.batch:
        profiled, seen = folder / f"profiled{batch}.tsc", folder / f"seen{batch}"
        if not profiled.exists():
            with torshc.load(plain, threads=args.threads, profile=seen) as model:
                serve(model, draw_requests(model, args.requests, batch, seed=1))
            compiled(f"with a profile of batches of {batch}", path, profiled, observed=[seen], **options)
    for batch in () if args.prepare else args.batch:
        compare(args, plain, folder / f"profiled{batch}.tsc", batch)


def compare(args: argparse.Namespace, plain: Path, profiled: Path, batch: int) -> None:
    """Print the times of batches of a size, and how far answers are apart."""
    load: Callable[[Path], Model] = partial(torshc.load, threads=args.threads)
    with load(plain) as without, load(profiled) as with_:
        requests = draw_requests(without, args.requests, batch, seed=2)
        print(f"{processor()}; {args.target}, {args.threads} threads, {len(requests)} runs of {batch} sentences")
        for model in (without, with_):
            serve(model, requests[: len(requests) // 4])
        apart = max(_apart(without.run(feeds), with_.run(feeds)) for feeds in requests[::10])
        taken = in_turns({"without": without, "with": with_}, requests, args.rounds)
        print(*forms_of(with_), sep="\n")
    ratio = taken["without"] / taken["with"]
    print(f"without {taken['without']:.3f} s, with {taken['with']:.3f} s: {ratio:.3f} times faster; {apart:.1e} apart")


if __name__ == "__main__":
    main()
