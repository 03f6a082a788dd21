#!/usr/bin/env python3
"""What ``make demo`` runs: a model goes in, a shared library comes out, and it classifies images it has never seen.

Compiles ``digits.onnx`` with the command line, shows the fusion plan, classifies the held-back test images through the
bundle and prints accuracy and latency; beside ONNX Runtime's where that is installed.

    demo.py [FOLDER]        where the bundle goes; build/ if not given
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import torshc

SAMPLES = Path(__file__).resolve().parent
ROOT = SAMPLES.parent
MODEL = "samples/digits.onnx"
SHADES = " .:-=+*#%"
BATCHES = (1, 64)
ROUNDS = 5

Images = NDArray[np.float32]
Classifier = Callable[[Images], NDArray[np.float32]]


def heading(text: str) -> None:
    """One line that says what comes next."""
    print(f"\n\033[1m== {text}\033[0m" if sys.stdout.isatty() else f"\n== {text}", flush=True)


def torshc_command(*arguments: str) -> None:
    """Show a torshc command and run it in the checkout's root; a failure ends the demo with the command's exit code."""
    print(f"$ torshc {' '.join(arguments)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "torshc", *arguments], cwd=ROOT, check=False).returncode
    if code:
        raise SystemExit(code)


def sketch(images: Images) -> str:
    """Images [n, 1, 8, 8] in [0, 1] as text, side by side."""
    shade = np.array(list(SHADES))[np.rint(images[:, 0] * (len(SHADES) - 1)).astype(int)]
    return "\n".join("   " + "   ".join("".join(row) for row in line) for line in shade.transpose(1, 0, 2))


def microseconds_per_image(classify: Classifier, images: Images, batch: int) -> float:
    """Median over calls of one call's time, divided by the images in a call; the first call is not counted."""
    slices = [np.ascontiguousarray(images[i : i + batch]) for i in range(0, len(images) - batch + 1, batch)]
    classify(slices[0])
    times = []
    for part in slices * ROUNDS:
        start = time.perf_counter()
        classify(part)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6 / batch


def onnxruntime_classifier() -> tuple[str, Classifier] | None:
    """ONNX Runtime on the same model with one thread, or None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(ROOT / MODEL), options, providers=["CPUExecutionProvider"])
    return f"ONNX Runtime {onnxruntime.__version__}", lambda images: session.run(None, {"image": images})[0]


def show_latency(classifiers: dict[str, Classifier], images: Images) -> None:
    """The table of latencies, a row for each system."""
    print(f"{'us per image, 1 thread, median':34}" + "".join(f"{f'batch {batch}':>10}" for batch in BATCHES))
    for name, classify in classifiers.items():
        figures = [microseconds_per_image(classify, images, batch) for batch in BATCHES]
        print(f"  {name:32}" + "".join(f"{figure:10.1f}" for figure in figures))


def main(folder: str = "build") -> None:
    """The demo, step by step; the bundle is left in ``folder``, which is relative to the checkout."""
    os.chdir(ROOT)
    Path(folder).mkdir(parents=True, exist_ok=True)
    bundle = f"{folder}/digits.tsc"

    heading("1. Compile: an ONNX model goes in, a shared library comes out")
    torshc_command("compile", MODEL, "-O3", "-o", bundle)
    for file in sorted(Path(bundle).iterdir()):
        print(f"  {file.stat().st_size / 1024:8.1f} KiB  {file}")

    heading("2. Explain: which nodes became one kernel, and why not more")
    torshc_command("explain", MODEL, "-O3")

    heading("3. Run: images that training never saw")
    with np.load(SAMPLES / "digits_test.npz") as data:
        images, labels = data["images"], data["labels"]
    model = torshc.load(bundle, threads=1)

    def classify(part: Images) -> NDArray[np.float32]:
        return np.asarray(model.run({"image": part})["probability"])

    answers = classify(images).argmax(axis=1)
    print(sketch(images[:6]))
    print("   " + "   ".join(f"{f'says {answer}':8}" for answer in answers[:6]))
    right = int((answers == labels).sum())
    print(f"\naccuracy: {right} of {len(labels)} held-back images, {right / len(labels):.1%}\n")
    classifiers: dict[str, Classifier] = {"torshc, this bundle": classify}
    if (peer := onnxruntime_classifier()) is not None:
        classifiers[peer[0]] = peer[1]
    show_latency(classifiers, images)
    if peer is None:
        print(f"  ({sys.executable} -m pip install onnxruntime, and the demo puts it beside)")

    heading("What next")
    header = f"{bundle}/model.h"
    print(f"""  {header:27}the C interface of what was just built
  samples/c/                 a C program that calls it, and its Makefile
  samples/mlp.json           a model written by hand
  torshc/cli/README.md       every command and option
  torshc/README.md           how the compiler works, and where to add things
  make test                  the tests; `make` lists the rest""")


if __name__ == "__main__":
    main(*sys.argv[1:2])
