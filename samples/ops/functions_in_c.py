"""Operators by functions in C: two in the plan, which libm computes, and one of the host, which needs zlib (-lz)."""

from __future__ import annotations

import zlib

import numpy as np

from torshc import ops


def _integral(x):
    """J0(x) is the mean of cos(x sin t) for t from 0 to pi."""
    t = (np.arange(256) + 0.5) * (np.pi / 256)
    return np.cos(x[..., None].astype(np.float64) * np.sin(t)).mean(-1).astype(x.dtype)


@ops.kernel("BesselJ0", "com.example", c="bessel.c", libraries=["m"], reference=_integral)
def bessel_j0(x):
    """The Bessel function of order 0. A task is a part of all elements, of which threads take some."""
    if x.dtype is not ops.F32:
        raise TypeError(f"BesselJ0 of {x.dtype!r}; cast it to float32")
    return ops.Work(x.type, tasks=16)


def _integral_of_order_1(x):
    """J1(x) is the mean of cos(t - x sin t) for t from 0 to pi."""
    t = (np.arange(256) + 0.5) * (np.pi / 256)
    return np.cos(t - x[..., None].astype(np.float64) * np.sin(t)).mean(-1).astype(x.dtype)


@ops.kernel("BesselJ1", "com.example", c="bessel.c", libraries=["m"], reference=_integral_of_order_1)
def bessel_j1(x):
    """The Bessel function of order 1."""
    return ops.Work(x.type, tasks=16)


@ops.gradient_of(bessel_j0)
def slope_of_j0(gradient, x):
    """The derivative of J0 is -J1."""
    return -bessel_j1(x) * gradient


@ops.gradient_of(bessel_j1)
def slope_of_j1(gradient, x):
    """The derivative of J1 is J0 - J1 / x, and 1/2 at 0."""
    slope = bessel_j0(x) - bessel_j1(x) / x
    return ops.where(ops.equal(x, 0.0), 0.5, slope) * gradient


@ops.kernel(
    "Inflate", "com.example", c="inflate.c", function="inflate_bytes", host=True, libraries=["z"],
    reference=lambda x, limit: np.frombuffer(zlib.decompress(x.tobytes()), np.uint8),
)  # fmt: skip
def inflate(x, *, limit: int = 1 << 24):
    """What zlib compressed, as bytes; how many there are only the run shows."""
    return ops.Result(ops.U8, (None,))
