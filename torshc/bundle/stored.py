"""Large weights of f32 in a narrower type: so in the weights file, and f32 again in memory once it is open."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..expr import DTYPES, F32, DType
from .host import Stored
from .program import Weight
from .weights import FOOTER, align

LARGE = 4096  # elements; fewer would save little, and are scales and biases of channels as often as not
_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38}  # finite numbers


def is_narrow(weight: Weight, dtype: str) -> bool:
    """Whether a weight is stored as `dtype`: large matrices, kernels and tables of f32 are; "f32" changes none."""
    operand, source = weight.operand, weight.source
    if dtype == F32.name or source.dtype is not F32 or source.const is None:
        return False
    same = operand is source or getattr(operand, "dtype", None) is F32
    return same and source.const.ndim >= 2 and source.const.size >= LARGE


def stored_parts(weight: Weight, dtype: str) -> Iterable[npt.NDArray[Any]]:
    """A weight's contents for the file, a part at a time."""
    if not is_narrow(weight, dtype):
        return weight.parts()
    return (_rounded(part, DTYPES[dtype]) for part in weight.parts())


def stored_bytes(weights: Sequence[Weight], dtype: str) -> int:
    """What the weights take in the file, without what lies between them."""
    return sum(w.nbytes * DTYPES[dtype].size // F32.size if is_narrow(w, dtype) else w.nbytes for w in weights)


def stored_table(
    weights: Sequence[Weight], offsets: Sequence[int], places: Sequence[int], dtype: str
) -> tuple[Stored, ...]:
    """What opening the file has to do; nothing where all weights are used as they lie there.

    Args:
        offsets: where kernels read each weight.
        places: where it is in the file.
    """
    narrow = [is_narrow(w, dtype) for w in weights]
    if not any(narrow):
        return ()
    rows = zip(weights, narrow, places, offsets, strict=True)
    return tuple(Stored(dtype if n else "", place, to, w.nbytes) for w, n, place, to in rows)


def memory_bytes(weights: Sequence[Weight], offsets: Sequence[int]) -> int:
    """What the weights take as kernels read them."""
    return max((align(at + w.nbytes, FOOTER) for at, w in zip(offsets, weights, strict=True)), default=0)


def _rounded(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """To the nearest. Finite numbers stay so: a mask of -3.4e38 must not become -inf, whose product with 0 is NaN."""
    most = _LARGEST[dtype.name]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.isinf(array), array, np.clip(array, -most, most)).astype(dtype.numpy)
