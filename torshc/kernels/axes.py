"""Choice of loop axes: one per dimension in memory order, ones dropped, neighbours joined where memory runs on."""

from __future__ import annotations

from collections.abc import Sequence

from ..expr import Expr, as_int, axis, const, substitute
from ..expr.affine import can_join, index_roots, join
from ..graph import Shape


def make_axes(shape: Shape, order: Sequence[int] | None, prefix: str) -> tuple[tuple[Expr, ...], list[Expr]]:
    """Index into a tensor of `shape`, and its axes from outermost to innermost in memory order.

    A dimension of size 1 has index 0 and no axis.
    """
    index: list[Expr] = [const(0)] * len(shape)
    axes: list[Expr] = []
    for d in order or range(len(shape)):
        if as_int(shape[d]) != 1:
            index[d] = axis(f"{prefix}{len(axes)}", shape[d])
            axes.append(index[d])
    return tuple(index), axes


def join_axes(axes: list[Expr], bodies: list[Expr]) -> tuple[list[Expr], list[Expr]]:
    """Join neighbouring axes wherever every index in the bodies runs on from one to the next.

    Returns:
        The axes, renumbered from outermost, and the bodies rewritten for them.
    """
    position = len(axes) - 1
    while position > 0:
        outer, inner = axes[position - 1], axes[position]
        if can_join(outer, inner, (r for b in bodies for r in index_roots(b))):
            joined = axis(str(_name(inner)), outer.args[0] * inner.args[0])
            bodies = [join(outer, inner, joined, b) for b in bodies]
            axes = [*axes[: position - 1], joined, *axes[position + 1 :]]
        position -= 1
    return rename(axes, bodies)


def rename(axes: list[Expr], bodies: list[Expr]) -> tuple[list[Expr], list[Expr]]:
    """Number the axes from 0 again, so that equal kernels have equal text."""
    prefix = str(_name(axes[0])).rstrip("0123456789") if axes else "i"
    fresh = [axis(f"{prefix}{k}", a.args[0]) for k, a in enumerate(axes)]
    mapping = {a: f for a, f in zip(axes, fresh, strict=True) if a is not f}
    return fresh, [substitute(b, mapping) for b in bodies]


def _name(a: Expr) -> object:
    return a.data
