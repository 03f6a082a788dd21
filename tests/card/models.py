"""Models of PyTorch's libraries: calls with tensors on the card beside PyTorch, eager and compiled."""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import time
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torshc

from .timing import calls

MODELS = (
    "bert_32x128", "gpt2_4x1024", "vit_32", "resnet50_32", "bert_1x128", "gpt2_1x128", "vit_1", "resnet50_1",
    "mobilenet_1", "vgg19_1", "efficientnet_1",
)  # fmt: skip
_COMPILED = "reduce-overhead"  # the mode of torch.compile that replays CUDA graphs


def models(options: argparse.Namespace, folder: Path, until: float) -> int:
    """The table; no torch.compile begins after ``until``. Returns how many have no figures."""
    began = time.monotonic()
    names = [name for name in MODELS if options.only in name]
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        work = {n: pool.submit(_export, n, str(folder), options.arch, options.precision) for n in names}
        faults = {n: _fault(w) for n, w in work.items()}
    print(f"\nmodels: {len(names)} exported and compiled in {time.monotonic() - began:.0f} s", flush=True)
    torch: Any = importlib.import_module("torch")
    print(f"{'model':16}{'eager ms':>10}{'compiled':>10}{'torshc':>10}{'ratio':>7}{'error':>9}  eager's")
    for name in names:
        late = time.monotonic() > until
        try:
            line = faults[name] or _measured(torch, name, folder, options.precision, late)
        except Exception as error:  # the others go on
            line = faults[name] = f"{type(error).__name__}: {error}"
        print(f"{name:16}{line}", flush=True)
    return sum(map(bool, faults.values()))


def _fault(work: Future[str]) -> str:
    try:
        return work.result()
    except Exception as error:  # a process that was killed, an export that failed
        return f"{type(error).__name__}: {error}"


def _export(name: str, folder: str, arch: str, precision: str) -> str:
    export(name, f"{folder}/{name}.onnx")
    try:
        torshc.compile(f"{folder}/{name}.onnx", f"{folder}/{name}.tsc", target="cuda", arch=arch, precision=precision)
    except torshc.TorshcError as error:
        return str(error)
    return ""


def export(name: str, path: str, symbolic: bool = False) -> None:
    """Writes a model as ONNX, of any batch and number of words if it is symbolic."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(2)
    made, x = network(name)
    with torch.no_grad():
        names = ("batch", "seq") if x.dtype is torch.int64 else ("batch",)
        dims = ({k: torch.export.Dim(n) for k, n in enumerate(names)},) if symbolic else None
        torch.onnx.export(made, (x,), path, dynamo=True, verbose=False, dynamic_shapes=dims)


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
        beside = float((made(x).float() - wanted).abs().max() / wanted.abs().max())
        eager = calls(torch, lambda: made(x))
        torch._dynamo.reset()
        fast = None if late else torch.compile(made, mode=_COMPILED)
        compiled = 0.0 if fast is None else calls(torch, lambda: fast(x))
    ratio = f"{compiled / ours:7.2f}" if compiled else " " * 7
    return f"{eager:10.3f}{f'{compiled:10.3f}' if compiled else ' ' * 10}{ours:10.3f}{ratio}{error:9.0e}{beside:9.0e}"


def network(name: str) -> tuple[Any, Any]:
    """A model of torchvision or transformers with random weights, on the processor, and an input for it."""
    torch, models = (importlib.import_module(m) for m in ("torch", "torchvision.models"))
    torch.manual_seed(0)
    kind, _, size = name.partition("_")
    dims = tuple(map(int, size.split("x")))
    images = {"mobilenet": "mobilenet_v2", "efficientnet": "efficientnet_b0"}
    made = _text(torch, kind) if kind in ("bert", "gpt2", "vit") else getattr(models, images.get(kind, kind))()
    x = torch.randint(0, 30000, dims) if len(dims) > 1 else torch.randn(dims[0], 3, 224, 224)
    _normalise(torch, made.eval(), x)
    return made, x


def _normalise(torch: Any, made: Any, x: Any) -> None:
    """Statistics as training leaves them: with those of new networks, values of some lie below all that f16 has."""
    norms = [m for m in made.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.train().momentum = None  # the mean over what it has seen
    with torch.no_grad():
        if norms:
            made(x[:2])
    for norm in norms:
        norm.eval()


def _text(torch: Any, kind: str) -> Any:
    hugging: Any = importlib.import_module("transformers")
    if kind == "bert":
        return _chosen(torch, hugging.BertModel(hugging.BertConfig(), add_pooling_layer=False), "last_hidden_state", {})
    if kind == "gpt2":
        return _chosen(torch, hugging.GPT2LMHeadModel(hugging.GPT2Config()), "logits", {"use_cache": False})
    return _chosen(torch, hugging.ViTForImageClassification(hugging.ViTConfig()), "logits", {})


def _chosen(torch: Any, model: Any, field: str, more: dict[str, Any]) -> Any:
    """A module that gives one field of what a model of transformers gives."""

    class Chosen(torch.nn.Module):  # type: ignore[misc]  # PyTorch is no dependency
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: Any) -> Any:
            return getattr(self.model(x, **more), field)

    return Chosen()
