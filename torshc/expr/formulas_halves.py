"""Functions as formulas of a half's accuracy, for what memory keeps as a half (:mod:`torshc.kernels.halves`).

They are of f32, and have no form in f64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .expr import Expr
from .formulas_parts import LOG2E, bell, elementary, keep_nan, nearest, power
from .functions import numpy_sigmoid
from .terms import absolute, over, polynomial, where

NEAR = frozenset({"near_normal_f16", "near_normal_bf16", "near_sigmoid"})

# 2^f on [-1/2, 1/2], with a relative error of 2^-13.7 and of 2^-18.5.
_SHORT_POWER = (5.51716685e-2, 2.42611125e-1, 6.93260968e-1, 9.99928057e-1)
_LONG_POWER = (9.5701021e-3, 5.5917859e-2, 2.40247443e-1, 6.93121791e-1, 9.99999285e-1)


def _near_power(p: Expr, factors: tuple[float, ...]) -> Expr:
    """2^p for p <= 0; 0 below 2^-126.5, where the exponent's bits are 0."""
    p = where(p < -127.0, -127.0, p)
    k, n = nearest(p, 127)
    return polynomial(p - k, *factors) * power(n)


def _numpy_normal(x: Any) -> Any:
    """The share of the normal distribution below x."""
    return np.vectorize(lambda v: 0.5 * math.erfc(-v * math.sqrt(0.5)), otypes=[np.asarray(x).dtype])(x)


def _of_normal(t: Expr, y: Expr, a: Expr) -> Expr:
    return bell(t, 1 / math.sqrt(2 * math.pi), -0.5, a)


def _normal(x: Expr, of_power: tuple[float, ...], *factors: float) -> Expr:
    """The share of the normal distribution below x, erfc(-x / sqrt 2) / 2.

    The logarithm of the share below -abs(x) is a polynomial, here from its leading coefficient on. That is negative, so
    that far away it falls faster than the logarithm does, and does not come back.
    """
    q = _near_power(polynomial(absolute(x), *factors), of_power)
    return keep_nan(x, where(x < 0.0, q, 1.0 - q))


@elementary(_numpy_normal, 14, _of_normal)
def _near_normal_f16(x: Expr) -> Expr:
    """With a relative error of 2^-16.4 from x = -6.5 on, where the share is 2^-34; below that at most as much."""
    return _normal(x, _LONG_POWER, -1.7577797e-6, 5.9936672e-5, -9.1636396e-4, 8.447391e-3, -5.3824518e-2,
                   -4.586157e-1, -1.1511801, -1.0000038)  # fmt: skip


@elementary(_numpy_normal, 14, _of_normal)
def _near_normal_bf16(x: Expr) -> Expr:
    """With a relative error of 2^-12.7 from x = -9 on, where the share is 2^-63; below that at most as much."""
    return _normal(x, _SHORT_POWER, -9.7775899e-7, 4.039743e-5, -7.2360894e-4, 7.5028935e-3, -5.1446352e-2,
                   -4.6146971e-1, -1.1498928, -1.0000985)  # fmt: skip


@elementary(numpy_sigmoid, 14, lambda t, y, a: t * (y * (1.0 - y)))
def _near_sigmoid(x: Expr) -> Expr:
    """With a relative error of 2^-17, and 0 below 2^-126.5."""
    q = _near_power(absolute(x) * -LOG2E, _LONG_POWER)
    return keep_nan(x, over(where(x < 0.0, q, 1.0), q + 1.0))
