"""Replace an operator by a cheaper one with the same result."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from ..base.options import CompileOptions
from ..expr import const
from ..graph import Graph, Patch, Value
from ..ops import REGISTRY
from ..ops.nn.pool import MaxPool
from .manager import graph_pass
from .walk import Site, walk


@graph_pass("strength_reduction")
def strength_reduction(graph: Graph, options: CompileOptions) -> bool:
    """Small whole powers become products, division by a power of two becomes a product, large maxima go by dimension.

    Only exact forms: 1 / 3 is not a float, so x / 3 stays a division.

    Before::

        %1 = Pow(%0, 2.0)
        %2 = Div(%1, 8.0)

    After::

        %1 = Mul(%0, %0)
        %2 = Mul(%1, 0.125)
    """
    return walk(graph, _rule, "strength_reduction")


def _rule(site: Site) -> Patch | None:
    if site.node.op.name == "Pow":
        return _power(site)
    if site.node.op.name == "Div":
        return _divide(site)
    if isinstance(site.node.op, MaxPool):
        return _slide(site, site.node.op)
    return None


def _slide(site: Site, op: MaxPool) -> Patch | None:
    """Maxima along the last dimension, then of these along the others, where that is half of the comparisons."""
    whole, last = math.prod(op.kernel), op.kernel[-1]
    if 2 * (last * math.prod(op.strides[:-1]) + whole // last) > whole or last == whole:
        return None
    count, none = len(op.kernel), const(0)
    along = dataclasses.replace(
        op,
        kernel=(*(1,) * (count - 1), last),
        strides=(*(1,) * (count - 1), op.strides[-1]),
        pads=tuple(p if n % count == count - 1 else none for n, p in enumerate(op.pads)),
    )
    others = dataclasses.replace(
        op,
        kernel=(*op.kernel[:-1], 1),
        strides=(*op.strides[:-1], 1),
        pads=tuple(none if n % count == count - 1 else p for n, p in enumerate(op.pads)),
    )
    return site.replace(site.builder.one(others, site.builder.one(along, *site.node.operands)))


def _power(site: Site) -> Patch | None:
    x, y = site.node.operands
    if not x.dtype.is_float or x.type != site.node.output.type:
        return None
    exponent = _scalar(y)
    mul = REGISTRY["", "Mul"]()
    if exponent == 1:
        return site.replace(x)
    if exponent == 2:
        return site.replace(site.builder.one(mul, x, x))
    if exponent == 3:
        return site.replace(site.builder.one(mul, site.builder.one(mul, x, x), x))
    if exponent == -1:
        return site.replace(site.builder.one(REGISTRY["", "Reciprocal"](), x))
    return None


def _divide(site: Site) -> Patch | None:
    a, b = site.node.operands
    if not site.node.output.dtype.is_float:
        return None
    if _scalar(a) == 1 and b.type == site.node.output.type:
        return site.replace(site.builder.one(REGISTRY["", "Reciprocal"](), b))
    if b.const is None or a.const is not None or b.const.size == 0:
        return None
    mantissa, exponent = np.frexp(np.abs(b.const.astype(np.float64)))
    # Reciprocals of the smallest and largest powers of two are subnormal or infinite, and not exact.
    limit = np.finfo(b.const.dtype).maxexp - 3 if b.const.dtype.kind == "f" else 0
    if not (np.all(mantissa == 0.5) and np.all(np.abs(exponent) < limit)):
        return None
    inverse = np.reciprocal(b.const.astype(np.float64)).astype(b.const.dtype)
    return site.replace(site.builder.one(REGISTRY["", "Mul"](), a, site.graph.constant(inverse)))


def _scalar(v: Value) -> float | None:
    """The one number that a constant holds."""
    return float(v.const.reshape(-1)[0]) if v.const is not None and v.const.size == 1 else None
