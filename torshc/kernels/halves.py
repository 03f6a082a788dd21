"""Functions of a half's accuracy, for values of which memory keeps a half: most bits of f32's would be rounded away.

There are two, those of activations: sigmoid(x), and normal(x), the share of the normal distribution that lies below x.
Their errors are relative (:mod:`torshc.expr.formulas_halves` states them, or the prelude of a language that has
functions of its own), so they hold for products and choices of values too. Sums may cancel, and are computed as they
are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..expr import BF16, F16, DType, Expr, as_float, call, rebuild, walk
from .base import Kernel, Store, text_fields

_KEEPS = ("mul", "neg", "abs", "max", "min", "select", "as_f16", "as_bf16")  # what a relative error goes through
MOST = 8  # factors of a product that are looked at


def with_near(kernel: Kernel) -> Kernel:
    """The kernel with what it stores as halves made by functions of a half's accuracy."""
    stores = [*_stores([getattr(kernel, name) for name in text_fields(kernel)])]
    values = for_halves([s.value for s in stores], [kernel.buffers[s.buffer].dtype for s in stores])
    near = {s: dataclasses.replace(s, value=v) for s, v in zip(stores, values, strict=True) if v is not s.value}
    if not near:
        return kernel
    fields = {name: _replace(getattr(kernel, name), near) for name in text_fields(kernel)}
    return dataclasses.replace(kernel, **fields)


def _stores(item: object) -> Iterator[Store]:
    """The stores in lists of them."""
    if isinstance(item, Store):
        yield item
    elif isinstance(item, list | tuple):
        for x in item:
            yield from _stores(x)


def _replace(item: Any, by: Mapping[Store, Store]) -> Any:
    if isinstance(item, Store):
        return by.get(item, item)
    return type(item)(_replace(x, by) for x in item) if isinstance(item, list | tuple) else item


def for_halves(values: Sequence[Expr], stored: Sequence[DType]) -> list[Expr]:
    """Values that memory keeps in some types, by functions of a half's accuracy where nothing else is made of these.

    A function that is needed as it is too is computed once, and so are all.

    >>> from torshc.expr import F32, acc
    >>> x = acc("x", F32)
    >>> for_halves([x * call("sigmoid", x)], [F16])
    [x*near_sigmoid(x)]
    >>> for_halves([(x * 0.5) * (call("erf", x * math.sqrt(0.5)) + 1.0)], [F16])
    [x*near_normal_f16(x)]
    >>> for_halves([call("sigmoid", x) + 1.0], [F16])
    [sigmoid(x) + 1.0]
    """
    replaced: set[Expr] = set()

    def near(value: Expr, dtype: DType) -> Expr:
        def leaf(e: Expr) -> Expr | None:
            if e.op == "sigmoid":
                replaced.add(e)
                return call("near_sigmoid", *e.args)
            return _product(e, dtype, replaced) if e.op == "mul" else None if e.op in _KEEPS else e

        return rebuild(value, leaf)

    found = [near(e, t) if t in (F16, BF16) else e for e, t in zip(values, stored, strict=True)]
    return list(values) if any(x in replaced for x in walk(*found)) else found


def _product(e: Expr, dtype: DType, replaced: set[Expr]) -> Expr | None:
    """A product of 1/2 and 1 + erf(z), which is twice normal(z sqrt 2), or 1 + tanh(z), twice sigmoid(2 z)."""
    factors = _factors(e)
    half = next((x for x in factors if _is(x, 0.5)), None)
    if half is None:
        return None
    factors.remove(half)
    for k, x in enumerate(factors):
        inner = next((a for a, b in (x.args, x.args[::-1]) if _is(b, 1.0)), None) if _is_sum(x) else None
        if inner is None or inner.op not in ("erf", "tanh"):
            continue
        replaced.add(inner)
        erf = inner.op == "erf"
        place = _scale(inner.args[0], math.sqrt(2.0) if erf else 2.0)
        factors[k] = call(f"near_normal_{dtype.name}" if erf else "near_sigmoid", place)
        total = factors[0]
        for other in factors[1:]:
            total = call("mul", total, other)
        return total
    return None


def _factors(e: Expr) -> list[Expr]:
    """The factors of a product of products, in their order; none of one with more than a few."""
    found, pending = list[Expr](), [e]
    while pending and len(found) + len(pending) <= MOST:
        x = pending.pop()
        if x.op == "mul":
            pending += reversed(x.args)
        else:
            found.append(x)
    return [] if pending else found


def _is(e: Expr, number: float) -> bool:
    return as_float(e) == number


def _is_sum(e: Expr) -> bool:
    return e.op == "add" and len(e.args) == 2


def _scale(e: Expr, factor: float) -> Expr:
    """A value times a number; of one that is a multiple the number goes into that."""
    if e.op == "mul" and len(e.args) == 2:
        for x, by in (e.args, e.args[::-1]):
            if (number := as_float(by)) is not None:
                return _scale(x, factor * number)
    if e.op == "div" and (number := as_float(e.args[1])):
        return _scale(e.args[0], factor / number)
    return e if abs(factor - 1.0) < 2.0**-24 else call("mul", e, factor)
