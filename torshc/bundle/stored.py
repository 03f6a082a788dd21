"""Large weights of f32 in a narrower type: so in the weights file, and f32 again in memory once it is open.

f16 and bf16 are one after the other. f8 is in blocks of 33 bytes: the exponent of a power of two, as f32 has it, then
32 weights divided by it, in e4m3fn. Its largest number, 448, stands for infinity, so finite ones are 416 at the most.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.options import LARGE
from ..expr import DTYPES, F32
from ..expr.dtype import F8E4M3FN
from .host import Stored
from .program import Weight
from .weights import FOOTER, align

_LARGEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f8": 240 * 2.0**120}  # finite numbers
_BLOCK = 32
_MOST = 416.0  # of an element of a block
_BIAS = 127  # of an exponent
_LEAST = 24 - _BIAS  # exponent of a block: with a larger one, no f32 made of it is subnormal
_INFINITY = 0x7E
_AT_ONCE = 1 << 20  # elements


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
    if dtype == "f8":
        return (_blocks(part) for part in _regroup_blocks(weight.parts()))
    return (_saturate(part, dtype).astype(DTYPES[dtype].numpy) for part in weight.parts())


def stored_bytes(weights: Sequence[Weight], dtype: str) -> int:
    """Bytes of the weights in the file, without the gaps between them."""
    return sum(_narrow_bytes(w.nbytes // F32.size, dtype) if is_narrow(w, dtype) else w.nbytes for w in weights)


def _narrow_bytes(count: int, dtype: str) -> int:
    return -(-count // _BLOCK) * (_BLOCK + 1) if dtype == "f8" else count * DTYPES[dtype].size


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
    """Bytes of the weights in memory, as kernels read them."""
    return max((align(at + w.nbytes, FOOTER) for at, w in zip(offsets, weights, strict=True)), default=0)


def _saturate(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """In reach of a type. Finite ones stay so: a mask of -3.4e38 must not become -inf, whose product with 0 is NaN."""
    most = _LARGEST[dtype]
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.isinf(array), array, np.clip(array, -most, most))


def _regroup_blocks(parts: Iterable[npt.NDArray[Any]]) -> Iterator[npt.NDArray[Any]]:
    """Regroup elements into parts of whole blocks, with zeros after the last."""
    rest = np.zeros(0, np.float32)
    for part in parts:
        flat = np.ascontiguousarray(part).reshape(-1)
        for start in range(0, flat.size, _AT_ONCE):
            held = np.concatenate([rest, flat[start : start + _AT_ONCE]])
            whole = held.size // _BLOCK * _BLOCK
            yield held[:whole]
            rest = held[whole:]
    yield np.concatenate([rest, np.zeros(-rest.size % _BLOCK, np.float32)])


def _blocks(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Blocks of f32 as bytes of f8."""
    rows = _saturate(array.reshape(-1, _BLOCK), "f8").astype(np.float64)
    largest = np.where(np.isfinite(rows), np.abs(rows), 0).max(1, initial=0)
    exponents = np.maximum(np.frexp(largest / _MOST)[1], _LEAST)
    codes = np.ldexp(rows, -exponents[:, None]).astype(F8E4M3FN.numpy).view(np.uint8)
    codes = np.where(np.isinf(rows), np.where(rows < 0, _INFINITY | 0x80, _INFINITY), codes)
    return np.concatenate([exponents[:, None] + _BIAS, codes], axis=1).astype(np.uint8)
