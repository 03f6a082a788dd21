"""Speed on a card beside PyTorch: ``python -m tests.card products|convolutions|models [--precision f32|f16|tf32]``.

Needs an NVIDIA card, nvcc and PyTorch; for models torchvision, transformers and onnxscript too. Everything is compiled
first, in processes side by side, then checked and timed beside PyTorch. Products and convolutions show the time of
kernels alone and errors against f64, as norms; models what a caller sees with tensors on the card, and the largest
difference to PyTorch in f32 as part of the largest value.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

import torshc

from .cases import CONVOLUTIONS, MODELS, PRODUCTS, Case, convolution, network, product
from .timing import calls, kernels

_COMPILED = "reduce-overhead"  # the mode of torch.compile that replays CUDA graphs


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torshc-card-") as folder:
        if options.what == "models":
            return _models(options, Path(folder), began)
        makers = [partial(product, s) for s in PRODUCTS]
        if options.what == "convolutions":
            makers = [partial(convolution, s) for s in CONVOLUTIONS]
        cases = [m("f16" if options.precision == "f16" else "f32") for m in makers]
        return _kernels(cases, options, Path(folder))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.card", description=__doc__)
    parser.add_argument("what", choices=("products", "convolutions", "models"))
    parser.add_argument("--precision", choices=("f32", "f16", "tf32"), default="f32", help="f32")
    parser.add_argument("--arch", default="sm_90a", help="the card's architecture; sm_90a")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile; 12")
    parser.add_argument("--seconds", type=float, default=300, help="no torch.compile begins after them; 300")
    return parser.parse_args(arguments)


def _compile(model: onnx.ModelProto | str, to: str, arch: str, precision: str) -> str:
    """Why a model cannot be compiled, or nothing."""
    try:
        torshc.compile(model, to, target="cuda", arch=arch, precision=precision)
    except torshc.TorshcError as error:
        return str(error)
    return ""


# ---- kernels alone --------------------------------------------------------------------------------------------------


def _kernels(cases: Sequence[Case], options: argparse.Namespace, folder: Path) -> int:
    places = [str(folder / f"{k}.tsc") for k in range(len(cases))]
    precision = "tf32" if options.precision == "tf32" else "f32"
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        compiled = pool.map(_compile, [c.model for c in cases], places, *_all(len(cases), options.arch, precision))
        faults = list(compiled)
    torch: Any = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    print(f"{'case':28}{'PyTorch us':>11}{'torshc us':>11}{'ratio':>7}{'TFLOP/s':>9}{'errors':>18}")
    for case, place, fault in zip(cases, places, faults, strict=True):
        print(f"{case.name:28}{fault or _line(torch, case, place)}", flush=True)
    return any(faults)


def _all(count: int, *values: object) -> list[list[Any]]:
    return [[v] * count for v in values]


def _line(torch: Any, case: Case, place: str) -> str:
    weight = torch.tensor(numpy_helper.to_array(case.model.graph.initializer[0]).copy(), device="cuda")
    x = torch.randn(case.shape, device="cuda").to(weight.dtype)
    wanted, exact = case.peer(x, weight), case.peer(x.double(), weight.double())
    y = torch.full_like(wanted, float("nan"), memory_format=torch.contiguous_format)
    model = torshc.load(place, device=0)

    def run() -> None:
        model.run({"x": x}, out={"y": y})

    run()
    torch.cuda.synchronize()
    errors = [float((v.double() - exact).norm() / exact.norm()) for v in (wanted, y)]
    theirs, ours = kernels(torch, lambda: case.peer(x, weight)), kernels(torch, run)
    rate = case.flops / ours / 1e6
    return f"{theirs:11.1f}{ours:11.1f}{theirs / ours:7.2f}{rate:9.0f}{errors[0]:9.0e}{errors[1]:9.0e}"


# ---- whole models ---------------------------------------------------------------------------------------------------


def _models(options: argparse.Namespace, folder: Path, began: float) -> int:
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        work = pool.map(_export, MODELS, *_all(len(MODELS), str(folder), options.arch, options.precision))
        faults = dict(zip(MODELS, work, strict=True))
    torch: Any = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    print(f"{'model':16}{'eager ms':>10}{'compiled':>10}{'torshc':>10}{'ratio':>7}{'error':>9}")
    for name in MODELS:
        late = time.monotonic() - began > options.seconds
        print(f"{name:16}{faults[name] or _measured(torch, name, folder, options.precision, late)}", flush=True)
    return any(faults.values())


def _export(name: str, folder: str, arch: str, precision: str) -> str:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(2)
    made, x = network(name)
    path = f"{folder}/{name}.onnx"
    with torch.no_grad():
        torch.onnx.export(made, (x,), path, dynamo=True, verbose=False)
    return _compile(path, f"{folder}/{name}.tsc", arch, precision)


def _measured(torch: Any, name: str, folder: Path, precision: str, late: bool) -> str:
    """A line of the table; without torch.compile if it is late."""
    made, x = (v.cuda() for v in network(name))
    with torch.no_grad():
        wanted = made(x).float()
        model = torshc.load(folder / f"{name}.tsc", device=0, stream=torch.cuda.current_stream())
        y, (out,), (feed,) = torch.full_like(wanted, float("nan")), model.outputs, model.inputs
        ours = calls(torch, lambda: model.run({feed.name: x}, out={out.name: y}))
        error = float((y - wanted).abs().max() / wanted.abs().max())
        if precision == "f16":
            made, x = made.half(), x.half() if x.is_floating_point() else x
        eager = calls(torch, lambda: made(x))
        torch._dynamo.reset()
        fast = None if late else torch.compile(made, mode=_COMPILED)
        compiled = 0.0 if fast is None else calls(torch, lambda: fast(x))
    ratio = f"{compiled / ours:7.2f}" if compiled else " " * 7
    return f"{eager:10.3f}{f'{compiled:10.3f}' if compiled else ' ' * 10}{ours:10.3f}{ratio}{error:9.0e}"


if __name__ == "__main__":
    sys.exit(main())
