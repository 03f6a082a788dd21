"""Random nodes of com.microsoft against ONNX Runtime's kernels: ``python -m tests.robust.contrib_check --count N``."""

from __future__ import annotations

import argparse
import zlib
from collections import Counter

import numpy as np

from tests.support.compare import onnx_runtime
from tests.support.contrib import model_of
from tests.support.evaluate import run
from tests.support.models import feeds_of
from torshc.base.errors import TorshcError, UnsupportedError
from torshc.formats import import_model

from .contrib_nodes import DRAWS, Array, Drawn

RELATIVE = 2e-4


def drawn(op: str, seed: int) -> Drawn:
    return DRAWS[op](np.random.default_rng([zlib.crc32(op.encode()), seed]))


def compare(op: str, seed: int) -> str:
    """What becomes of a node: "same", "refused by ONNX Runtime", "unsupported", or the difference."""
    it = drawn(op, seed)
    operands = tuple(it.operands)
    fixed = tuple(k for k in it.fixed if k < len(operands) and operands[k] is not None)
    model, feeds = model_of(op, operands, fixed, it.outputs, **it.attributes), feeds_of(operands, fixed)
    try:
        wanted = onnx_runtime(model, feeds)
    except Exception:
        return "refused by ONNX Runtime"
    try:
        with np.errstate(all="ignore"):
            got = run(import_model(model.SerializeToString()), feeds)
    except UnsupportedError:
        return "unsupported"
    except TorshcError as e:
        return f"refused, and ONNX Runtime answers: {e}"
    return next(filter(None, (difference(it, g, w) for g, w in zip(got, wanted, strict=True))), "same")


def difference(it: Drawn, got: Array, wanted: Array) -> str:
    """How two results differ, or nothing."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"{got.dtype}{got.shape} and not {wanted.dtype}{wanted.shape}"
    a, b = (x.astype(np.float64) for x in (got, wanted))
    atol = 1.0 if it.quantum and not np.issubdtype(got.dtype, np.floating) else it.atol
    wrong = ~np.isclose(a, b, RELATIVE, atol, equal_nan=True)
    return f"{wrong.sum()} of {wrong.size} differ, by {np.nanmax(np.abs(a - b))}" if wrong.any() else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50, help="nodes of each operator")
    parser.add_argument("--only", default="", help="an operator")
    args = parser.parse_args()
    failed = False
    for op in [args.only] if args.only else sorted(DRAWS):
        found = Counter(compare(op, seed) for seed in range(args.count))
        told = [f"{n} {what}" for what, n in found.most_common()]
        print(f"{op:36}{'; '.join(told)[:600]}", flush=True)
        failed |= any(what not in ("same", "unsupported", "refused by ONNX Runtime") for what in found)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
