"""Speed on a card beside PyTorch: ``python -m tests.card WHAT``; ``--help`` lists what there is, ``all`` is everything.

Needs an NVIDIA card, nvcc and PyTorch; for models torchvision, transformers and onnxscript too. Everything is compiled
first, in processes side by side, then checked and timed beside PyTorch. All but models show the time of kernels alone,
of the fastest of PyTorch's ways, and errors against f64, as norms; models what a caller sees with tensors on the card,
and the largest difference to PyTorch in f32 as part of the largest value, torshc's and that of PyTorch's eager way.
What is asked as a share of a copy's bandwidth is measured over tensors that are larger than the card's second cache,
or over several that take turns.

``training`` shows steps with Adam in milliseconds, and which kernels they spend them in. ``symbolic`` shows one library
for all sizes beside one for each; ``--profiled bert_1x128_f16`` their kernels.

``--dry`` tries everything but models and training on the processor, at small sizes; its times mean nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from .attention import attention_cases
from .calls import calls
from .case import Case
from .cases import convolution_cases, product_cases
from .llama import decoder_cases
from .measure import kernels_of, pool
from .memory import memory_cases
from .models import models
from .report import Report
from .symbolic import symbolic
from .timing import Card, Processor
from .training import training

_DRY = 24  # the largest dimension of a dry run


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    until = time.monotonic() + options.seconds
    slices = _slices(options)
    wanted = [*slices, "calls", "models", "symbolic", "training"] if options.what == "all" else [options.what]
    card = Processor() if options.dry else Card()
    matmul, cudnn = card.torch.backends.cuda.matmul, card.torch.backends.cudnn
    matmul.allow_tf32 = cudnn.allow_tf32 = options.precision == "tf32"
    cudnn.benchmark = True
    faults = 0
    with tempfile.TemporaryDirectory(prefix="torshc-card-") as folder:
        for name in wanted:
            if name == "calls":
                report = Report(name, card.name, options.json)
                calls(card, Path(folder), report, options.arch, until)
                faults += report.faults
            elif name in ("training", "symbolic"):
                measured = training if name == "training" else symbolic
                faults += 0 if options.dry else measured(options, Path(folder), until)
            elif name != "models":
                cases = [c for c in slices[name]() if options.only in c.name]
                report = Report(name, card.name, options.json)
                with pool(options.jobs, Path(folder), card.target, options.arch) as compilers:
                    kernels_of(cases, card, compilers, report, until)
                faults += report.faults
            elif not options.dry:
                faults += models(options, Path(folder), until)
    return bool(faults)


def _slices(options: argparse.Namespace) -> dict[str, Callable[[], list[Case]]]:
    most = _DRY if options.dry else None
    return {
        "attention": partial(attention_cases, most),
        "memory": partial(memory_cases, most),
        "llama": partial(decoder_cases, most),
        "products": partial(product_cases, most, options.precision),
        "convolutions": partial(convolution_cases, most, options.precision),
    }


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.card", description=__doc__)
    parser.add_argument(
        "what",
        choices=(
            "attention",
            "memory",
            "llama",
            "products",
            "convolutions",
            "calls",
            "models",
            "symbolic",
            "training",
            "all",
        ),
    )
    parser.add_argument(
        "--precision",
        choices=("f32", "f16", "tf32", "bf16", "both"),
        default="f32",
        help="of products, models, symbolic and training, both: f16 and f32, of symbolic; f32",
    )
    parser.add_argument("--arch", default="sm_90a", help="the card's architecture; sm_90a")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile; 12")
    parser.add_argument(
        "--seconds", type=float, default=300, help="no case and no torch.compile begins after them; 300"
    )
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--rules", type=Path, action="append", default=[], help="more fusion rules, of training")
    parser.add_argument("--kernels", type=int, default=15, help="kernels that training shows of each network; 15")
    parser.add_argument("--recompute", default="", help="networks that training also compiles with `recompute: true`")
    parser.add_argument(
        "--steps", default="", help="of training, in place of these: NETWORK:PRECISION[:recompute|:GIGABYTES],..."
    )
    parser.add_argument("--models", type=Path, help="a folder of models of symbolic sizes, which else are exported")
    parser.add_argument("--specialized", default="", help="cases of symbolic that are measured with a variant, too")
    parser.add_argument("--profiled", default="", help="cases of symbolic whose kernels are shown")
    parser.add_argument("--json", type=Path, help="a file that gets a line for each figure")
    parser.add_argument("--dry", action="store_true", help="on the processor at small sizes, for trying this out")
    options = parser.parse_args(arguments)
    if options.precision == "bf16" and options.what != "training":
        parser.error("--precision bf16 is for training")
    if options.precision == "both" and options.what != "symbolic":
        parser.error("--precision both is for symbolic")
    return options


if __name__ == "__main__":
    sys.exit(main())
