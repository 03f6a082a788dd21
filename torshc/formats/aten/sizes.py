"""Sizes, and floats computed of sizes, that PyTorch writes as expressions of SymPy, as expressions of torshc."""

from __future__ import annotations

from functools import reduce
from typing import Any

from ...expr import F64, Expr, as_int, call, cast, const, dim, max_of, min_of, substitute
from ...ops import Unsupported


def size_of(size: Any) -> Expr:
    """A size: an int, a ``torch.SymInt``, or a ``torch.SymFloat``, which is an expression of f64.

    Raises:
        Unsupported: it is made by a function that sizes here do not have.
    """
    return const(size) if isinstance(size, int) else _expression(size.node.expr)


def _expression(e: Any) -> Expr:
    """By the names of SymPy's classes, and of those that PyTorch adds to it."""
    kind = type(e).__name__
    if e.is_Integer:
        return const(int(e))
    if e.is_Symbol:
        return dim(str(e))
    if e.is_Float:
        return const(float(e), F64)
    args = [_expression(a) for a in e.args] if kind != "Pow" else []
    if kind in ("ToFloat", "IntTrueDiv", "FloatTrueDiv") or any(a.dtype is F64 for a in args):
        args = [cast(a, F64) for a in args]
    if kind == "ToFloat":
        return args[0]
    if kind in ("IntTrueDiv", "FloatTrueDiv"):
        return call("div", *args)
    if kind == "Add":
        return reduce(Expr.__add__, args)
    if kind == "Mul":
        return reduce(Expr.__mul__, args)
    if kind == "Pow" and e.args[1].is_Integer and int(e.args[1]) > 0:
        return reduce(Expr.__mul__, [_expression(e.args[0])] * int(e.args[1]))
    if kind in ("FloorDiv", "CleanDiv"):
        return args[0] // args[1]
    if kind in ("Mod", "PythonMod"):
        return args[0] % args[1]
    if kind in ("Max", "Min"):
        return reduce(max_of if kind == "Max" else min_of, args)
    raise Unsupported(f"the size {e}, made by {kind}")


def value_of(size: Expr, known: dict[Expr, Expr]) -> int:
    """A size in a run, whose symbols are known."""
    found = as_int(substitute(size, known))
    assert found is not None
    return found
