"""A decoder's step beside the rate of memory: ``python -m tests.speed.decoder [--bits 4] [--threads 1 2]``.

The model is :mod:`tests.speed.decoder_model`'s, 1 B parameters by default, which takes some gigabytes of a disk;
``--folder`` keeps it, compiled, for later calls. What has to be read is counted: weights with their scales, those of
the last product, keys and values. ``read`` is what a loop of the same number of threads takes to read as much, from
huge pages, as weights and caches lie. ``torshc`` writes a new row into the caches that it reads, ``copied`` whole
caches beside them. With ``--profile`` a library that times its kernels runs, and a line for each kind says what it
takes of a step, and at which rate products read weights and attention keys and values.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import torshc
from torshc.runtime.stats import Stats
from torshc.workbench.verify import ort_session

from ..support.compilers import needed
from .beside import processor
from .decoder_model import Decoder, write_decoder

BYTES = {4: 0.5 + 4 / 32, 16: 2.0, 32: 4.0}  # of a weight
READ, ROUNDS, SECONDS = 1 << 30, 7, 3.0
LONG = 2e-4  # seconds that a kind of kernels takes whose rate is printed: what joins parts is none


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
            times: dict[str, list[float]] = {name: [] for name in calls}
            before = loaded.stats()
            end = time.perf_counter() + SECONDS * len(calls)
            while time.perf_counter() < end:
                for name, call in calls.items():
                    began = time.perf_counter()
                    call()
                    times[name].append(time.perf_counter() - began)
            after = loaded.stats()
        rate = READ / reader(READ, threads, ROUNDS)
        for name, taken in times.items():
            median = statistics.median(taken)
            share = moved / rate / median
            print(
                f"{threads} threads: {name} {median * 1e3:.2f} ms, least {min(taken) * 1e3:.2f}; read "
                f"{moved / rate * 1e3:.2f} ms at {rate / 1e9:.1f} GB/s, {share:.0%}"
            )
        print_kernels(before, after, {"attention": caches.nbytes, "gemm": moved - caches.nbytes})


def print_kernels(before: Stats, after: Stats, read: dict[str, float]) -> None:
    """A line for each kind of kernel that the library timed; `read`: bytes of a step by how templates' names begin."""
    seconds: dict[str, float] = defaultdict(float)
    for old, new in zip(before.steps, after.steps, strict=True):
        seconds[new.template] += (new.seconds - old.seconds) / (after.runs - before.runs)
    for template, spent in sorted(seconds.items(), key=lambda pair: -pair[1]):
        moved = next((n for kind, n in read.items() if template.startswith(kind)), 0)
        rate = f", {moved / spent / 1e9:.1f} GB/s" if moved and spent > LONG else ""
        print(f"    {template} {spent * 1e3:.3f} ms{rate}")


def reading(folder: Path) -> ctypes._NamedFuncPointer:
    """The function of read.c."""
    library = folder / "read.so"
    source = Path(__file__).with_name("read.c")
    cc = needed().cc
    subprocess.run([cc, "-O3", "-march=native", "-shared", "-fPIC", "-pthread", source, "-o", library], check=True)
    found = ctypes.CDLL(str(library)).read_seconds
    found.restype, found.argtypes = ctypes.c_double, (ctypes.c_size_t, ctypes.c_int, ctypes.c_int)
    return found


if __name__ == "__main__":
    main()
