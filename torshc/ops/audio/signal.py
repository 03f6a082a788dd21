"""Fourier transforms as products with constant matrices, and the constants of audio front ends.

A transform of length n takes a matrix of about 4 n^2 elements, so that long ones are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...base.errors import ModelError
from ...expr import DType, as_int, const, from_onnx, ne
from ...graph import Builder, Value
from ..core.axes import axis_at, constraints_of, pick, require
from ..core.base import Op, operator
from ..core.functions import gather
from ..core.source import SourceNode, Unsupported
from ..core.tensor import operand, optional
from ..math.linalg import MatMul
from ..tensor.parts import Slice
from ..tensor.scatter import product
from ..tensor.view import Reshape, Transpose
from .spectra import WindowOfSize, mel_filters, transform_at_run, weighed_frames

LARGEST = 1 << 24  # elements of a matrix
Array = np.ndarray[Any, Any]


def fourier(length: int, rows: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """The matrix of a discrete Fourier transform, f64[rows * parts, bins * 2], or [rows * 2, length] for real results.

    X[k] = sum over t of x[t] exp(-2 pi i t k / length); the inverse has the other sign and divides by the length.

    Args:
        rows: elements that are transformed; those up to the length that are missing count as 0.
        parts: 1 for real elements, 2 for real and imaginary parts.
        onesided: of a forward transform, only the first length // 2 + 1 results; of an inverse one, these are what is
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


def _matrix(b: Builder, array: Array, dtype: DType) -> Value:
    return b.constant(np.ascontiguousarray(array.astype(dtype.numpy)))


def _parts(x: Value, what: str) -> int:
    parts = as_int(x.shape[-1]) if x.type.rank > 1 else None
    if parts not in (1, 2):
        raise ModelError(f"{what} of {x.type!r}, whose last dimension is neither 1 nor 2")
    return parts


def _transform(
    b: Builder, x: Value, axis: int, length: int, inverse: bool, onesided: bool, dtype: DType, what: str
) -> Value:
    """The transform of x[..., n, ..., parts] along an axis."""
    size, parts, rank = as_int(x.shape[axis]), _parts(x, what), x.type.rank
    if size is None:
        raise Unsupported(f"{what} along a symbolic dimension")
    rows = min(size, length // 2 + 1 if inverse and onesided else length)
    if length < 1 or rows < 1:
        raise ModelError(f"{what} of length {length} of {x.type!r}")
    if 4 * rows * length > LARGEST:
        raise Unsupported(f"{what} of length {length}, whose matrix has more than {LARGEST} elements")
    if rows < size:
        zeros, steps = (const(0),) * rank, (1,) * rank
        x = b.one(Slice(zeros, tuple(const(rows) if k == axis else d for k, d in enumerate(x.shape)), steps), x)
    others = [k for k in range(rank - 1) if k != axis]
    perm = (*others, axis, rank - 1)
    x = b.one(Transpose(perm), x) if perm != tuple(range(rank)) else x
    outer = x.shape[:-2]
    table = fourier(length, rows, parts, inverse, onesided)
    x = b.one(MatMul(), b.one(Reshape((product(outer), const(rows * parts))), x), _matrix(b, table, dtype))
    kept = 1 if inverse and onesided else 2
    x = b.one(Reshape((*outer, const(table.shape[1] // kept), const(kept))), x)
    back = tuple(perm.index(k) for k in range(rank))
    return b.one(Transpose(back), x) if back != tuple(range(rank)) else x


@operator()
@dataclass(frozen=True)
class DFT(Op):
    """Discrete Fourier transform along an axis; a product with a constant matrix at import.

    Decided here where ONNX leaves it open: a one-sided inverse takes the first length // 2 + 1 elements, counts the
    imaginary part of those that must be real as 0, and is 2 * (n - 1) long by default.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, lengths = source.required(0), source.dims(1, "the length of DFT")
        inverse, onesided = bool(source.attribute("inverse", 0)), bool(source.attribute("onesided", 0))
        place: Any = source.attribute("axis", 1) if source.opset < 20 else None
        if place is None:
            found = source.dims(2, "the axis of DFT")
            place = found[0] if found else -2
        source.fields(cls)
        _parts(x, "DFT")
        constraints, rank = constraints_of(source), x.type.rank
        axis = axis_at(const(place) if isinstance(place, int) else place, rank, constraints)
        if isinstance(axis, int) and axis == rank - 1:
            raise ModelError("DFT along the dimension of real and imaginary parts")
        if not isinstance(axis, int):
            require(constraints, ne(axis, rank - 1), "DFT along the dimension of real and imaginary parts")
        extent = pick(axis, x.shape[:-1])
        whole = (extent - 1) * 2 if inverse and onesided else extent
        wanted = lengths[0] if lengths else whole
        length = as_int(wanted)
        if length is None or not isinstance(axis, int) or as_int(extent) is None:
            return [transform_at_run(source, x, axis, wanted, inverse, onesided)]
        return [_transform(source.builder, x, axis, length, inverse, onesided, x.dtype, "DFT")]


@operator()
@dataclass(frozen=True)
class STFT(Op):
    """Transforms of overlapping frames of signal[B, L, parts], perhaps weighed by a window: [B, frames, bins, 2].

    There are (L - length) // step + 1 frames; at import, a Gather, a Mul and a product with a constant matrix. A signal
    [B, L], as some exporters write it, is one of real numbers.
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x, window = operand(source, 0), optional(source, 2)
        steps, lengths = source.dims(1, "the frame step of STFT"), source.dims(3, "the frame length of STFT")
        onesided = bool(source.attribute("onesided", 1))
        source.fields(cls)
        if x.rank == 2:
            x = x.reshape(*x.shape, 1)
        if x.rank != 3 or not steps:
            raise ModelError(f"STFT of {x.type!r} in steps of {steps}")
        step = as_int(steps[0])
        if step is not None and step < 1:
            raise ModelError(f"STFT of {x.type!r} in steps of {step}")
        if window is not None and window.rank != 1:
            raise ModelError(f"STFT with a window {window.type!r}")
        weights = as_int(window.shape[0]) if window is not None else None
        each = lengths[0] if lengths else window.shape[0] if window is not None else x.shape[1]
        size, length = as_int(x.shape[1]), as_int(each)
        if size is None or length is None or step is None:
            _parts(x.value, "STFT")
            frames = weighed_frames(x, steps[0], each, window)
            if length is None:
                return [transform_at_run(source, frames.value, 2, each, False, onesided)]
            return [_transform(source.builder, frames.value, 2, length, False, onesided, x.dtype, "STFT")]
        if not 0 < length <= size or weights not in (None, length):
            raise ModelError(f"STFT of {x.type!r} in frames of {length} with a window of {weights}")
        count = (size - length) // step + 1
        places = np.arange(count)[:, None] * step + np.arange(length)
        if places.size > LARGEST:
            raise Unsupported(f"STFT of {count} frames of {length}")
        frames = gather(x, x.constant(places), axis=1)
        if window is not None:
            frames = frames * window.reshape(length, 1)
        return [_transform(source.builder, frames.value, 2, length, False, onesided, x.dtype, "STFT")]


def _dtype(source: SourceNode) -> DType:
    code = int(source.attribute("output_datatype", 1))
    dtype = from_onnx(code)
    if dtype is None:
        raise Unsupported(f"{source.op_type} of ONNX type {code}")
    return dtype


@operator()
@dataclass(frozen=True)
class MelWeightMatrix(Op):
    """Triangular filters, evenly spaced in mels, for the bins of a spectrum: a constant at import.

    mel(f) = 2595 log10(1 + f / 700). Filter m rises from edge m to edge m + 1 and falls to edge m + 2, where the edges
    are bins, rounded down; shape [length // 2 + 1, filters].
    """

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        dtype = _dtype(source)
        source.fields(cls)
        if any(source.required(k).const is None for k in range(5)):
            return [mel_filters(source, dtype)]
        found = [source.array(k, f"operand {k} of MelWeightMatrix") for k in range(5)]
        if any(a is None or a.size != 1 for a in found):
            raise ModelError("MelWeightMatrix needs five scalars")
        filters, length, rate, low, high = (a.reshape(-1)[0].item() for a in found if a is not None)
        bins = int(length) // 2 + 1
        if filters < 1 or length < 1 or rate < 1 or not 0 <= low < high or 2 * high > rate:
            raise ModelError(f"MelWeightMatrix of {filters} filters from {low} to {high} Hz at {rate} Hz")
        if bins * filters > LARGEST:
            raise Unsupported(f"MelWeightMatrix of {bins} x {filters}")
        low, high = (2595 * np.log10(1 + f / 700) for f in (low, high))
        mels = low + np.arange(filters + 2) * (high - low) / (filters + 2)
        edges = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
        return [_matrix(source.builder, _triangles(edges, bins), dtype)]


def _triangles(edges: Array, bins: int) -> Array:
    left, centre, right = (edges[k : len(edges) - 2 + k] for k in range(3))
    place = np.arange(bins)[:, None]
    rising = (place - left) / np.maximum(centre - left, 1)
    falling = (right - place) / np.maximum(right - centre, 1)
    up = np.where((place >= left) & (place <= centre), np.where(centre == left, 1.0, rising), 0.0)
    down = (place >= centre) & (place < right)
    return np.asarray(np.where(down, falling, up))


@dataclass(frozen=True)
class CosineWindow(Op):
    """Base of the windows a - b cos(t) + c cos(2 t), t from 0 to 2 pi; a constant at import."""

    @classmethod
    def terms(cls) -> tuple[float, float, float]:
        raise NotImplementedError(cls.name)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        sizes, dtype = source.dims(0, f"the size of {source.op_type}"), _dtype(source)
        periodic = int(source.attribute("periodic", 1))
        source.fields(cls)
        if sizes is None or len(sizes) != 1:
            raise ModelError(f"{source.op_type} of size {sizes}")
        size = as_int(sizes[0])
        if size is None:
            return [source.builder.one(WindowOfSize(cls.terms(), sizes[0], bool(periodic), dtype))]
        if size < 0:
            raise ModelError(f"{source.op_type} of size {size}")
        if size > LARGEST:
            raise Unsupported(f"{source.op_type} of {size} elements")
        with np.errstate(invalid="ignore"):  # a symmetric window of one element is 0 / 0, as ONNX defines it
            t = 2 * np.pi * np.arange(size) / np.float64(size - (not periodic))
        a, b, c = cls.terms()
        return [_matrix(source.builder, a - b * np.cos(t) + c * np.cos(2 * t), dtype)]


@operator()
@dataclass(frozen=True)
class HannWindow(CosineWindow):
    """Hann's window: 1/2 - 1/2 cos(t)."""

    @classmethod
    def terms(cls) -> tuple[float, float, float]:
        return 0.5, 0.5, 0.0


@operator()
@dataclass(frozen=True)
class HammingWindow(CosineWindow):
    """Hamming's window, with ONNX's 25/46."""

    @classmethod
    def terms(cls) -> tuple[float, float, float]:
        return 25 / 46, 21 / 46, 0.0


@operator()
@dataclass(frozen=True)
class BlackmanWindow(CosineWindow):
    """Blackman's window: 0.42 - 0.5 cos(t) + 0.08 cos(2 t)."""

    @classmethod
    def terms(cls) -> tuple[float, float, float]:
        return 0.42, 0.5, 0.08
