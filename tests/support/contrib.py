"""Single nodes of ONNX Runtime's own domain, by our operators' own definitions, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from . import compare
from .compare import assert_close, evaluated, onnx_runtime
from .models import MICROSOFT, Array, feeds_of, node_model


def model_of(
    op: str, operands: Sequence[Array | None], fixed: Sequence[int] = (), outputs: int = 1, **form: Any
) -> onnx.ModelProto:
    """A model of one node, as of node_model()."""
    return node_model(op, operands, fixed, outputs, **({"domain": MICROSOFT} | form))


def check(
    op: str,
    *operands: Array | None,
    fixed: tuple[int, ...] = (),
    rtol: float = 2e-5,
    atol: float = 2e-6,
    only: int | None = None,
    **form: Any,
) -> list[Array]:
    """Compare a node's results, of which the first `only` count, with ONNX Runtime's."""
    made, feeds = model_of(op, operands, fixed, **form), feeds_of(operands, fixed)
    wanted = onnx_runtime(made, feeds)[:only]
    with np.errstate(all="ignore"):
        got = evaluated(made, feeds)[:only]
    assert_close(got, wanted, rtol, atol)
    return got


def some_bytes(*shape: int, seed: int = 0, dtype: Any = np.uint8) -> Array:
    """Integers of 8 bits; signed ones have 7, as ONNX Runtime wants it where processors lack VNNI.

    Its AVX2 kernels add two products of u8 and i8 in 16 bits and saturate: 2 * 255 * 64 just fits.
    """
    low, high = (-64, 63) if np.dtype(dtype) == np.int8 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return np.random.default_rng(seed + sum(shape)).integers(low, high + 1, shape).astype(dtype)


def compiled(made: onnx.ModelProto, feeds: dict[str, Array], folder: Path, level: int = 1) -> list[Array]:
    """The results of the compiled model."""
    folder.mkdir(exist_ok=True)
    return list(compare.compiled(made, feeds, folder, threads=1, opt_level=level).values())
