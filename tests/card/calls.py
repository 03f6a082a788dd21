"""What a call takes in C and from Python, and what compiling and tuning take."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import torshc
from torshc.targets.cc import find_compiler

from .case import Feed, model
from .models import export
from .report import Report
from .timing import Card

OVER = 10.0  # microseconds that a call from Python may take more than in C
COMPILE, TUNE = 15.0, 120.0  # seconds that are asked for
_CALLS, _ROUNDS = 500, 21
_HERE = Path(__file__).parent
_NETWORK = "resnet50_1"


def small() -> onnx.ModelProto:
    """A network of two layers, whose kernels take a few microseconds."""
    rng = np.random.default_rng(1)
    shapes = {"w": (64, 128), "b": (128,), "v": (128, 16)}
    constants = [numpy_helper.from_array(rng.standard_normal(s, np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["y"]),
    ]
    return model(nodes, {"x": Feed((1, 64))}, {"y": Feed((1, 16))}, constants, 20)


def calls(card: Card, folder: Path, report: Report, arch: str, until: float) -> None:
    """The table; what fails is a line, and nothing begins after ``until``."""
    print(f"\ncalls, on {card.name}; above what is asked: <")
    for part in (_calls, _compiled, _tuned):
        if time.monotonic() > until:
            report.told(part.__name__.strip("_"), "left out: the time is spent")
            continue
        try:
            part(card, folder, report, arch)
        except Exception as error:  # the others go on
            report.told(part.__name__.strip("_"), f"{type(error).__name__}: {error}")


def _options(card: Card, arch: str) -> list[str]:
    return ["--target", card.target, *(["--arch", arch] if card.target == "cuda" else [])]


def _calls(card: Card, folder: Path, report: Report, arch: str) -> None:
    place = folder / "small.tsc"
    onnx.save(small(), folder / "small.onnx")
    _torshc("compile", folder / "small.onnx", "-o", place, *_options(card, arch))
    in_c = in_c_of(place, folder)
    report.figure("call in C", in_c, "us")
    torch = card.torch
    x, y = torch.zeros(1, 64, device=card.device), torch.zeros(1, 16, device=card.device)
    loaded = torshc.load(place, **card.options())
    waiting = _each(loaded, {"x": x}, {"y": y})
    report.figure("call from Python, with out=", waiting, "us")
    report.figure("call from Python, more than in C", waiting - in_c, "us", OVER)
    if card.device == "cuda":
        loaded = torshc.load(place, device=0, stream=torch.cuda.current_stream())
        report.figure("the same in a stream of PyTorch's", _each(loaded, {"x": x}, {"y": y}), "us")
        torch.cuda.synchronize()
    layers = [torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 16, bias=False)]
    eager = torch.nn.Sequential(*layers).to(card.device)
    with torch.no_grad():
        report.figure("PyTorch, eager", _median(lambda: eager(x)), "us")


def in_c_of(place: Path, folder: Path, calls: int = _CALLS) -> float:
    """Microseconds of a call in a program of C; a library links itself by its place."""
    program, library = folder / "calls", place / "libmodel.so"
    words = ["-std=c11", "-O2", f"-I{place}", _HERE / "calls.c", library, f"-Wl,-rpath,{place}", "-o", program]
    find_compiler().run([str(word) for word in words], folder)
    done = subprocess.run([program, place / "weights.bin", str(calls)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def _each(loaded: Any, inputs: dict[str, Any], out: dict[str, Any]) -> float:
    return _median(lambda: loaded.run(inputs, out=out))


def _median(call: Any) -> float:
    """Microseconds of a call, the median of rounds of many."""
    times = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        for _ in range(_CALLS):
            call()
        times.append((time.perf_counter() - began) / _CALLS)
    return 1e6 * statistics.median(times)


def _compiled(card: Card, folder: Path, report: Report, arch: str) -> None:
    path = _network(card, folder)
    for precision in ("f32", "f16") if card.device == "cuda" else ("f32",):
        began = time.monotonic()
        _torshc("compile", path, "-o", folder / f"{precision}.tsc", *_options(card, arch), "--precision", precision,
                "--no-cache", "-j", "0")  # fmt: skip
        report.figure(f"compiling {path.stem}, {precision}", time.monotonic() - began, "s", COMPILE)


def _tuned(card: Card, folder: Path, report: Report, arch: str) -> None:
    path, records = _network(card, folder), folder / "records.tuning"
    precision = "f16" if card.device == "cuda" else "f32"
    how = [*_options(card, arch), "--precision", precision]
    budget = TUNE if card.device == "cuda" else 2.0
    began = time.monotonic()
    said = _torshc("tune", path, "--budget", budget, "--tuning-records", records, *how)
    # Preparing the model comes before the budget begins, and a kernel that is measured when it ends is finished.
    report.figure(f"tuning {path.stem}, {precision}, of which {budget:.0f} s are given", time.monotonic() - began, "s")
    print("    " + re.sub(r"\s+", " ", said.strip().splitlines()[-1])[:76])
    figures = []
    for name, more in (("usual", []), ("tuned", ["--tuning-records", records])):
        place = folder / f"{name}.tsc"
        _torshc("compile", path, "-o", place, *how, *more)
        figures.append(_kernels(card, place))
        report.figure(f"{path.stem}, {precision}, kernels, {name}", figures[-1], "us")
    report.figure("usual choices behind tuned ones", 100 * (figures[0] / figures[1] - 1), "%", 10)


def _kernels(card: Card, place: Path) -> float:
    """Microseconds of the kernels of a bundle of one input of f32."""
    loaded = torshc.load(place, **card.options())
    ((name, shape, dtype),) = [(s.name, s.shape, s.dtype) for s in loaded.inputs]
    assert dtype == "f32"
    feed = {name: card.torch.zeros(shape, device=card.device)}
    out = {s.name: card.torch.zeros(s.shape, device=card.device) for s in loaded.outputs}
    return card.kernels(lambda _: loaded.run(feed, out=out), 1)


def _network(card: Card, folder: Path) -> Path:
    path = folder / (f"{_NETWORK}.onnx" if card.device == "cuda" else "small.onnx")
    if not path.exists():
        export(_NETWORK, str(path))
    return path


def _torshc(*arguments: object) -> str:
    """What the command prints.

    Raises:
        RuntimeError: it fails; with the end of what it says.
    """
    command: list[str | Path] = [sys.executable, "-m", "torshc", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"torshc {arguments[0]}: {done.stderr.strip()[-600:]}")
    return done.stdout
