"""ONNX's operator Gradient: the gradients of a value of the graph with respect to others, all of them named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..gradient import gradients, replaced
from ..graph import Builder, Value
from .model import Misfit, SourceOp

OPERATOR = ("ai.onnx.preview.training", "Gradient")


def names_of(op: SourceOp) -> tuple[list[str], list[str], str]:
    """What a node of the operator differentiates with respect to, what else it replaces, and what it differentiates."""
    return [*op.attributes.get("xs", ())], [*op.attributes.get("zs", ())], op.attributes.get("y", "")


def differentiate(
    op: SourceOp, operands: Sequence[Value | None], values: Mapping[str, Value | None], builder: Builder
) -> list[Value]:
    """The gradients of y with respect to xs where xs and zs are what the node is given; of the sum of y's elements.

    Where a node is given other values than those it names, what lies between them and y is computed again from these.

    Args:
        values: the graph's values by name.

    Raises:
        Misfit: operands and names do not fit.
        UnsupportedError: operators between them have no gradient, or cannot be computed again.
    """
    xs, zs, target = names_of(op)
    if len(operands) != len(xs) + len(zs):
        raise Misfit(f"xs and zs name {len(xs) + len(zs)} values, and it has {len(operands)} inputs")
    named: list[Value] = []
    for name in (*xs, *zs, target):
        found = values[name]
        if found is None:  # what could not be imported is told already
            return []
        if not found.dtype.is_float and name not in zs:
            raise Misfit(f"{name!r} is {found.type!r}, and gradients are of floats")
        named.append(found)
    y = named.pop()
    pairs: dict[Value, Value] = {}
    for name, old, new in zip((*xs, *zs), named, operands, strict=True):
        if new is None or new.dtype is not old.dtype or new.type.rank != old.type.rank:
            raise Misfit(
                f"{name!r} is {old.type!r}, and {'nothing' if new is None else repr(new.type)} is given for it"
            )
        pairs[old] = new
    y, independent = replaced(builder, y, pairs)
    return gradients(builder, y, [v for v in independent if v.dtype.is_float])[: len(xs)]
