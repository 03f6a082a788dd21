"""A decoder's step beside the rate of memory: ``python -m tests.speed.decoder [--bits 4] [--threads 1 2]``.

The model is :mod:`tests.speed.decoder_model`'s, 1 B parameters by default, which takes some gigabytes of a disk;
``--folder`` keeps it, compiled, for later calls. What has to be read is counted: weights with their scales, those of
the last product, keys and values. ``read`` is the faster of two loops (`read.c`) of the same number of threads that
read as much of the very memory that the step reads: the end of the mapped weights, before which the table of words
lies, and the caches. So pages are the same, huge or not; how many of the weights' are huge is printed, since small ones
take up to twice as long. Steps and loops take turns, and a share is of the median read by the median step, with the
least and the most of what neighbours in time give.

``torshc`` writes a new row into the caches that it reads, ``copied`` whole caches beside them. With ``--profile`` a
library that times its kernels runs, and a line for each kind says what it reads, takes, and at which rate.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import re
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

import torshc
from torshc.runtime.stats import Stats
from torshc.targets.cc import find_compiler
from torshc.workbench.onnx_runtime import ort_session

from .beside import processor
from .decoder_model import Decoder, write_decoder

BYTES = {4: 0.5 + 4 / 32, 16: 2.0, 32: 4.0}  # of a weight
SECONDS = 6.0  # of steps and reads in turns
STREAMS = (1, 4)  # of a thread that reads


class Area(ctypes.Structure):
    """Memory to read, as read.c has it."""

    _fields_ = (("at", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, choices=BYTES, default=4, help="of weights: 4 are MatMulNBits, 16 bf16")
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--folder", type=Path, help="where the model is kept")
    parser.add_argument("--prepare", action="store_true", help="write and compile the model only")
    parser.add_argument("--profile", action="store_true", help="with what kernels take, and their rates")
    parser.add_argument("--copied", action="store_true", help="with caches that are copied too, in turns")
    parser.add_argument("--against", choices=("ort",), help="ONNX Runtime too, in turns")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="torshc-decoder-") as scratch:
        measure(args, args.folder or Path(scratch))


def measure(args: argparse.Namespace, folder: Path) -> None:
    """Print a line for each number of threads."""
    size = Decoder(layers=args.layers, bits=4 if args.bits == 4 else 32)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"decoder_{size.bits}_{args.layers}.onnx"
    bundle = folder / f"decoder_{args.bits}_{args.layers}{'_profile' if args.profile else ''}.tsc"
    if not path.exists():
        write_decoder(size, path)
    if not bundle.exists():
        torshc.compile(path, bundle, precision="bf16" if args.bits == 16 else "f32", profile=args.profile)
    reader = reading(folder)
    if args.prepare:
        return
    moved = size.bytes_of_step(BYTES[args.bits])
    print(f"{processor()}; {args.layers} layers, weights of {args.bits} bits, {moved / 1e6:.0f} MB a step")
    rng = np.random.default_rng(0)
    feeds = {"ids": np.array([[7]]), "last": np.array([size.past - 1], np.int32)}
    caches = rng.standard_normal((args.layers, 2, *size.cache), np.float32)  # one array, in huge pages
    feeds |= {f"past_{n}{k}": caches[k, i] for k in range(args.layers) for i, n in enumerate("kv")}
    for threads in args.threads:
        with torshc.load(bundle, threads=threads) as loaded:
            copied = {n: np.array(a) for n, a in loaded.run(feeds).items()}
            there = copied | {n: feeds[past] for n, past in loaded.shared.items()}
            calls = {"torshc": lambda loaded=loaded, there=there: loaded.run(feeds, out=there)}
            if args.copied:
                calls["copied"] = lambda loaded=loaded, copied=copied: loaded.run(feeds, out=copied)
            if args.against:
                session = ort_session(path, threads)
                calls["ONNX Runtime"] = lambda session=session: session.run(None, feeds)
            weights, huge = mapped(bundle / "weights.bin", int(moved) - caches.nbytes)
            areas = (Area * 2)(weights, Area(caches.ctypes.data, caches.nbytes))
            for n in STREAMS:
                calls[f"read {n}"] = lambda n=n, areas=areas, threads=threads: reader(areas, len(areas), threads, n)
            before = loaded.stats()
            times = take_turns(calls, SECONDS)
            after = loaded.stats()
        print(f"{threads} threads, weights in huge pages: {huge:.0%}")
        print_times(times, moved)
        print_kernels(before, after, size, BYTES[args.bits])


def take_turns(calls: dict[str, Callable[[], object]], seconds: float) -> dict[str, list[float]]:
    """Seconds of each call, in rounds, for so long."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    return times


def print_times(times: dict[str, list[float]], moved: float) -> None:
    """A line for each call, and how much of the rate of reading it has."""
    read = min((taken for name, taken in times.items() if name.startswith("read")), key=statistics.median)
    for name, taken in times.items():
        shares = sorted(r / t for r, t in zip(read, taken, strict=True))
        print(
            f"    {name}: median {statistics.median(taken) * 1e3:.2f} ms, {min(taken) * 1e3:.2f} to "
            f"{max(taken) * 1e3:.2f}, {moved / statistics.median(taken) / 1e9:.1f} GB/s; share "
            f"{statistics.median(read) / statistics.median(taken):.0%} (of rounds {shares[0]:.0%} to {shares[-1]:.0%}, "
            f"median {statistics.median(shares):.0%} of {len(shares)})"
        )


def print_kernels(before: Stats, after: Stats, size: Decoder, weight: float) -> None:
    """A line for each kind of kernel that the library timed: what it reads in a step, of `weight` bytes a weight."""
    kinds: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for old, new in zip(before.steps, after.steps, strict=True):
        kind = kinds[new.template, re.sub(r"\d", "", "+".join(new.nodes))]
        moved = 0.0
        if new.template.startswith("gemm"):
            names = ["words" if n == "logits" else n for n in new.nodes]
            moved = weight * sum(math.prod(size.products[n]) for n in names if n in size.products)
        elif new.template.startswith("attention_few.c"):
            moved = size.bytes_of_step(0) / size.layers
        taken = (new.seconds - old.seconds) / (after.runs - before.runs)
        kind[:] = kind[0] + 1, kind[1] + moved, kind[2] + taken
    for (template, nodes), (launches, moved, taken) in sorted(kinds.items(), key=lambda pair: -pair[1][2]):
        rate = f", {moved / 1e6:.1f} MB at {moved / taken / 1e9:.1f} GB/s" if moved else ""
        print(f"    {template} {nodes} {taken * 1e3:.3f} ms, {launches:.0f} launches{rate}")


def mapped(file: Path, count: int) -> tuple[Area, float]:
    """The last `count` bytes of a file that is mapped, and how much of what is there of it lies in huge pages."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    found = next(m for m in maps if m.splitlines()[:1] and m.splitlines()[0].endswith(f" {file.resolve()}"))
    first, end = (int(x, 16) for x in found.split(maxsplit=1)[0].split("-"))
    there, huge = (int(re.findall(rf"^{name}: *(\d+)", found, re.MULTILINE)[0]) for name in ("Rss", "FilePmdMapped"))
    count = min(count, end - first)
    return Area(end - count, count), huge / max(1, there)


def reading(folder: Path) -> ctypes._NamedFuncPointer:
    """The function of read.c."""
    library = folder / "read.so"
    source = Path(__file__).with_name("read.c")
    cc = find_compiler().command
    subprocess.run([*cc, "-O3", "-march=native", "-shared", "-fPIC", "-pthread", source, "-o", library], check=True)
    found = ctypes.CDLL(str(library)).read_seconds
    found.restype, found.argtypes = ctypes.c_double, (ctypes.POINTER(Area), ctypes.c_int, ctypes.c_int, ctypes.c_int)
    return found


if __name__ == "__main__":
    main()
