"""Sums of quantised numbers with one factor for each, where the model subtracts zero points and scales step by step."""

from __future__ import annotations

import dataclasses

from ...expr import F32, I8, I32, U8, Expr, as_float, as_int, call, cast, const, rebuild
from ...kernels.base import Kernel, Store
from ...kernels.nest import MapKernel
from .vector import whole_byte

MOST = 16.0  # of all factors, in steps of the result: the errors of sums of 255 times as much are 2^-12 of a step
LEAST = 2.0**-64  # of a factor
SAME = 2.0**-12  # from 1: such a factor changes no byte


def in_factors(kernel: Kernel) -> Kernel:
    """A map kernel with sums of bytes in place of what it rounds to bytes, where it is one; any other as it is."""
    if type(kernel) is not MapKernel:
        return kernel
    return dataclasses.replace(kernel, stores=tuple(map(_in_factors, kernel.stores)))


def _in_factors(s: Store) -> Store:
    byte = whole_byte(s.value)
    found = None if byte is None else scaled(byte.number, 1.0)
    if byte is None or found is None:
        return s
    taken, *terms = _single(found)
    factor, rest = map(as_float, terms) if terms else (None, None)
    if factor and rest is not None and abs(factor - 1.0) < SAME and abs(rest + (byte.zero or 0)) < 256 * SAME:
        as_it_is = _byte_of(taken)
        if as_it_is.dtype is s.value.dtype:
            return dataclasses.replace(s, value=as_it_is)
    return dataclasses.replace(s, value=rebuild(s.value, {byte.number: found}.get))


def _byte_of(e: Expr) -> Expr:
    """A byte that is an i32, or a choice of two, as it is in memory."""
    return call("select", e.args[0], *map(_byte_of, e.args[1:])) if e.op == "select" else e.args[0]


def scaled(e: Expr, factor: float) -> Expr | None:
    """A number times a factor as sums of bytes with factors, or choices of these; None where it is something else.

    >>> from torshc.expr import load
    >>> x = load(0, (const(0),), U8)
    >>> scaled(cast(cast(x, I32) - 128, F32) * 0.5, 4.0)
    f32(i32(0[0]))*2.0 - 256.0
    """
    if e.op == "select":
        sides = [scaled(x, factor) for x in e.args[1:]]
        return None if None in sides else _choice(e.args[0], *(x for x in sides if x is not None))
    if e.op == "mul" and (number := as_float(e.args[1])) is not None:
        return scaled(e.args[0], factor * number)
    terms = _terms(e)
    if terms is None:
        return None
    *factors, rest = (f * factor for f in (*terms[0].values(), terms[1]))
    if sum(map(abs, factors)) > MOST or any(abs(f) < LEAST for f in factors):
        return None
    total = const(rest, F32)
    for byte, f in zip(terms[0], factors, strict=True):
        total = cast(cast(byte, I32), F32) * f + total
    return total


def _choice(condition: Expr, a: Expr, b: Expr) -> Expr:
    """One of two sums; of two bytes with equal factors and rests the byte is chosen."""
    (x, *of_x), (y, *of_y) = _single(a), _single(b)
    if of_x and of_x == of_y:
        return cast(call("select", condition, x, y), F32) * of_x[0] + of_x[1]
    return call("select", condition, a, b)


def _single(e: Expr) -> tuple[Expr, *tuple[Expr, ...]]:
    """A sum of one byte as that in i32, its factor and the rest; otherwise the sum."""
    if e.op == "add" and e.args[0].op == "mul" and e.args[1].op == e.args[0].args[1].op == "const":
        return e.args[0].args[0].args[0], e.args[0].args[1], e.args[1]
    return (e,)


def _terms(e: Expr) -> tuple[dict[Expr, float], float] | None:
    """Bytes with factors, and a constant, of which a number is the sum."""
    if (number := as_float(e)) is not None:
        return {}, number
    if e.op == "mul" and (factor := as_float(e.args[1])) is not None:
        found = _terms(e.args[0])
        return found and ({x: f * factor for x, f in found[0].items()}, found[1] * factor)
    if e.op in ("add", "sub") and e.dtype is F32:
        a, b = map(_terms, e.args)
        if a is None or b is None or a[0].keys() & b[0].keys():
            return None
        sign = 1.0 if e.op == "add" else -1.0
        return a[0] | {x: sign * f for x, f in b[0].items()}, a[1] + sign * b[1]
    return _byte(e.args[0]) if e.op == "cast" and e.dtype is F32 else None


def _byte(e: Expr) -> tuple[dict[Expr, float], float] | None:
    """A byte less its zero point, as integers."""
    zero = 0
    if e.op == "sub" and e.dtype is I32 and (taken := as_int(e.args[1])) is not None:
        e, zero = e.args[0], taken
    byte = e.args[0] if e.op == "cast" and e.dtype is I32 else e
    return ({byte: 1.0}, -float(zero)) if byte.op == "load" and byte.dtype in (U8, I8) and abs(zero) < 256 else None
