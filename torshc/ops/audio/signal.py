"""Fourier transforms as products with constant matrices, and the constants of audio front ends.

A transform of length n takes a matrix of about 4 n^2 elements, so that long ones are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import ModelError
from ...expr import DType, as_int, const, from_onnx, ne, product
from ..core.axes import axis_at, constraints_of, pick, require
from ..core.composite import composite
from ..core.functions import gather
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, operand
from .spectra import WindowOfSize, mel_filters, transform_at_run, weighed_frames

LARGEST = 1 << 24  # elements of a matrix
Array = np.ndarray[Any, Any]


def fourier(length: int, rows: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """The matrix of a discrete Fourier transform, f64[rows * parts, bins * 2], or [rows * 2, length] for real results.

    X[k] = sum over t of x[t] exp(-2 pi i t k / length); the inverse has the other sign and divides by the length.

    Args:
        rows: elements that are transformed; those up to the length that are missing count as 0.
        parts: 1 for real elements, 2 for real and imaginary parts.
        onesided: for a forward transform, only the first length // 2 + 1 results; of an inverse one, these are what is
            transformed, and the results are real.
    """
    bins = length if inverse or not onesided else length // 2 + 1
    turns = np.outer(np.arange(rows), np.arange(bins)) % length
    angles = 2 * np.pi / length * turns * (1 if inverse else -1)
    real, imaginary = np.cos(angles), np.sin(angles)
    if inverse:
        real, imaginary = real / length, imaginary / length
    if inverse and onesided:  # the other half of the operand is the conjugate of this one
        twice = np.where((np.arange(rows) == 0) | (2 * np.arange(rows) == length), 1, 2)[:, None]
        pairs = np.stack([real * twice, -imaginary * twice], axis=1)
        pairs[twice[:, 0] == 1, 1] = 0  # these are real
        return np.asarray(pairs[:, :parts].reshape(rows * parts, bins))
    whole = np.stack([np.stack([real, imaginary], axis=-1), np.stack([-imaginary, real], axis=-1)], axis=1)
    return np.asarray(whole[:, :parts].reshape(rows * parts, bins * 2))


def _parts(x: Tensor, what: str) -> int:
    parts = x.size(-1) if x.rank > 1 else None
    if parts not in (1, 2):
        raise ModelError(f"{what} of {x.type!r}, whose last dimension is neither 1 nor 2")
    return parts


def _transform(x: Tensor, axis: int, length: int, inverse: bool, onesided: bool, what: str) -> Tensor:
    """The transform of x[..., n, ..., parts] along an axis."""
    size, parts, rank = x.size(axis), _parts(x, what), x.rank
    if size is None:
        raise Unsupported(f"{what} along a symbolic dimension")
    rows = min(size, length // 2 + 1 if inverse and onesided else length)
    if length < 1 or rows < 1:
        raise ModelError(f"{what} of length {length} of {x.type!r}, where a length has to be 1 or more")
    if 4 * rows * length > LARGEST:
        raise Unsupported(f"{what} of length {length}, whose matrix has more than {LARGEST} elements")
    if rows < size:
        x = x.part(axis, 0, rows)
    perm = (*(k for k in range(rank - 1) if k != axis), axis, rank - 1)
    is_last = perm == tuple(range(rank))
    x = x if is_last else x.transpose(*perm)
    outer, table = x.shape[:-2], fourier(length, rows, parts, inverse, onesided)
    x = x.reshape(product(outer), rows * parts) @ x.constant(table.astype(x.dtype.numpy))
    kept = 1 if inverse and onesided else 2
    x = x.reshape(*outer, table.shape[1] // kept, kept)
    return x if is_last else x.transpose(*(perm.index(k) for k in range(rank)))


@composite("DFT", floats=False)
def dft(
    source: SourceNode, x: Tensor, length: Tensor | None = None, place: Tensor | None = None, *, axis: int = 1,
    inverse: int = 0, onesided: int = 0,
) -> Tensor:  # fmt: skip
    """Discrete Fourier transform along an axis; a product with a constant matrix.

    Decided here where ONNX leaves it open: a one-sided inverse takes the first length // 2 + 1 elements, counts the
    imaginary part of those that must be real as 0, and is 2 * (n - 1) long by default.
    """
    lengths, both = source.dims(1, "the length of DFT"), bool(inverse and onesided)
    given = const(axis)
    if source.opset >= 20:
        found = source.dims(2, "the axis of DFT")
        given = found[0] if found else const(-2)
    _parts(x, "DFT")
    constraints = constraints_of(source)
    along = axis_at(given, x.rank, constraints)
    if isinstance(along, int) and along == x.rank - 1:
        raise ModelError(
            "DFT along the dimension of real and imaginary parts, which is the last one; the transform is along another"
        )
    if not isinstance(along, int):
        require(constraints, ne(along, x.rank - 1), "DFT along the dimension of real and imaginary parts")
    extent = pick(along, x.shape[:-1])
    wanted = lengths[0] if lengths else (extent - 1) * 2 if both else extent
    known = as_int(wanted)
    if known is None or not isinstance(along, int) or as_int(extent) is None:
        return transform_at_run(x, along, wanted, bool(inverse), bool(onesided))
    return _transform(x, along, known, bool(inverse), bool(onesided), "DFT")


@composite("STFT", floats=False)
def stft(
    source: SourceNode, x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None, *,
    onesided: int = 1,
) -> Tensor:  # fmt: skip
    """Transforms of overlapping frames of signal[B, L, parts], perhaps weighed by a window: [B, frames, bins, 2].

    There are (L - length) // step + 1 frames; a Gather, a Mul and a product with a constant matrix. A signal [B, L], as
    some exporters write it, is one of real numbers.
    """
    steps, lengths = source.dims(1, "the frame step of STFT"), source.dims(3, "the frame length of STFT")
    if x.rank == 2:
        x = x.reshape(*x.shape, 1)
    if x.rank != 3 or not steps:
        raise ModelError(
            f"STFT of {x.type!r} in steps of {steps}"
            "; a signal has to be [batch, samples] or [batch, samples, 1 or 2], with one frame step"
        )
    by = as_int(steps[0])
    if by is not None and by < 1:
        raise ModelError(f"STFT of {x.type!r} in steps of {by}, where a step has to be 1 or more")
    if window is not None and window.rank != 1:
        raise ModelError(f"STFT with a window {window.type!r}, which is not a vector")
    weights = window.size(0) if window is not None else None
    each = lengths[0] if lengths else window.shape[0] if window is not None else x.shape[1]
    size, known = x.size(1), as_int(each)
    if size is None or known is None or by is None:
        _parts(x, "STFT")
        frames = weighed_frames(x, steps[0], each, window)
        if known is None:
            return transform_at_run(frames, 2, each, False, bool(onesided))
        return _transform(frames, 2, known, False, bool(onesided), "STFT")
    if not 0 < known <= size or weights not in (None, known):
        raise ModelError(
            f"STFT of {x.type!r} in frames of {known} with a window of {weights}"
            "; a frame has to be 1 sample at least, the signal at most, and as long as its window"
        )
    count = (size - known) // by + 1
    places = np.arange(count)[:, None] * by + np.arange(known)
    if places.size > LARGEST:
        raise Unsupported(f"STFT of {count} frames of {known}")
    frames = gather(x, x.constant(places), axis=1)
    if window is not None:
        frames = frames * window.reshape(known, 1)
    return _transform(frames, 2, known, False, bool(onesided), "STFT")


def _dtype(source: SourceNode, code: int) -> DType:
    dtype = from_onnx(code)
    if dtype is None:
        raise Unsupported(f"{source.op_type} of ONNX type {code}")
    return dtype


@composite("MelWeightMatrix", floats=False, mixed=True)
def mel_weight_matrix(
    source: SourceNode, filters: Tensor, length: Tensor, rate: Tensor, low: Tensor, high: Tensor, *,
    output_datatype: int = 1,
) -> Tensor:  # fmt: skip
    """Triangular filters, evenly spaced in mels, for the bins of a spectrum: a constant where they are known.

    mel(f) = 2595 log10(1 + f / 700). Filter m rises from edge m to edge m + 1 and falls to edge m + 2, where the edges
    are bins, rounded down; shape [length // 2 + 1, filters].
    """
    dtype, operands = _dtype(source, output_datatype), (filters, length, rate, low, high)
    if any(v.const is None for v in operands):
        return mel_filters(source, dtype)
    found = [v.const for v in operands]
    if any(a is None or a.size != 1 for a in found):
        raise ModelError("MelWeightMatrix needs five scalars")
    count, size, speed, least, most = (a.reshape(-1)[0].item() for a in found if a is not None)
    bins = int(size) // 2 + 1
    if count < 1 or size < 1 or speed < 1 or not 0 <= least < most or 2 * most > speed:
        raise ModelError(
            f"MelWeightMatrix of {count} filters from {least} to {most} Hz at {speed} Hz"
            "; counts have to be 1 or more, and frequencies to rise from 0 to half the sample rate at most"
        )
    if bins * count > LARGEST:
        raise Unsupported(f"MelWeightMatrix of {bins} x {count}")
    first, last = (2595 * np.log10(1 + f / 700) for f in (least, most))
    mels = first + np.arange(count + 2) * (last - first) / (count + 2)
    edges = ((size + 1) * (700 * (10 ** (mels / 2595) - 1)) // speed).astype(np.int64)
    return filters.constant(_triangles(edges, bins).astype(dtype.numpy))


def _triangles(edges: Array, bins: int) -> Array:
    left, centre, right = (edges[k : len(edges) - 2 + k] for k in range(3))
    place = np.arange(bins)[:, None]
    rising = (place - left) / np.maximum(centre - left, 1)
    falling = (right - place) / np.maximum(right - centre, 1)
    up = np.where((place >= left) & (place <= centre), np.where(centre == left, 1.0, rising), 0.0)
    down = (place >= centre) & (place < right)
    return np.asarray(np.where(down, falling, up))


def _window(source: SourceNode, code: int, periodic: int, a: float, b: float, c: float) -> Tensor:
    """a - b cos(t) + c cos(2 t), t from 0 to 2 pi, of a size that operand 0 gives; a constant where it is known."""
    sizes, dtype = source.dims(0, f"the size of {source.op_type}"), _dtype(source, code)
    if sizes is None or len(sizes) != 1:
        raise ModelError(f"{source.op_type} of size {sizes}, where one number is needed")
    size, given = as_int(sizes[0]), operand(source, 0)
    if size is None:
        made = source.builder.one(WindowOfSize((a, b, c), sizes[0], bool(periodic), dtype))
        return Tensor(source.builder, made)
    if size < 0:
        raise ModelError(f"{source.op_type} of size {size}, which has to be 0 or more")
    if size > LARGEST:
        raise Unsupported(f"{source.op_type} of {size} elements")
    with np.errstate(invalid="ignore"):  # a symmetric window of one element is 0 / 0, as ONNX defines it
        t = 2 * np.pi * np.arange(size) / np.float64(size - (not periodic))
    return given.constant((a - b * np.cos(t) + c * np.cos(2 * t)).astype(dtype.numpy))


@composite("HannWindow", floats=False)
def hann_window(source: SourceNode, size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    """Hann's window: 1/2 - 1/2 cos(t)."""
    return _window(source, output_datatype, periodic, 0.5, 0.5, 0.0)


@composite("HammingWindow", floats=False)
def hamming_window(source: SourceNode, size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    """Hamming's window, with ONNX's 25/46."""
    return _window(source, output_datatype, periodic, 25 / 46, 21 / 46, 0.0)


@composite("BlackmanWindow", floats=False)
def blackman_window(source: SourceNode, size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    """Blackman's window: 0.42 - 0.5 cos(t) + 0.08 cos(2 t)."""
    return _window(source, output_datatype, periodic, 0.42, 0.5, 0.08)
