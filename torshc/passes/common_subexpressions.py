"""Compute once what is written twice."""

from __future__ import annotations

from collections.abc import Hashable

from ..base.options import CompileOptions
from ..graph import Graph, Node, Rewriter, Value
from .manager import graph_pass

_HASHED = 1 << 14  # bytes; larger constants are told apart by where they lie in memory


@graph_pass("common_subexpressions")
def common_subexpressions(graph: Graph, options: CompileOptions) -> bool:
    """Make readers of equal nodes read the first of them.

    Before::

        %1 = Exp(%0)
        %2 = Exp(%0)
        %3 = Add(%1, %2)

    After::

        %1 = Exp(%0)
        %3 = Add(%1, %1)
    """
    first: dict[Hashable, Node] = {}
    contents: dict[Value, Hashable] = {}
    rewriter = Rewriter(graph, "common_subexpressions")
    for node in rewriter:
        key = _key(node, contents)
        twin = first.setdefault(key, node) if key is not None else node
        if twin is node:
            rewriter.keep(node)
        else:
            twin.inherit(node)
            for old, new in zip(node.outputs, twin.outputs, strict=True):
                rewriter.replace(old, new)
    rewriter.finish()
    return bool(rewriter.newest)


def _key(node: Node, contents: dict[Value, Hashable]) -> Hashable | None:
    """Equal for nodes that compute the same, None for a node that is never the same as another."""
    if node.op.family == "random":
        return None
    inputs = tuple(None if v is None else _identity(v, contents) for v in node.inputs)
    # Attributes that compare equal may differ in type (1, 1.0, True), as may the results of an operator.
    key = (type(node.op), str(node.op), inputs, tuple((v.type, v.layout) for v in node.outputs))
    return key if all(v.const is None or v.const.size for v in node.operands) else None


def _identity(value: Value, contents: dict[Value, Hashable]) -> Hashable:
    if value.const is None:
        return value
    known = contents.get(value)
    if known is None:
        array = value.const
        where = array.__array_interface__["data"][0]
        inside: Hashable = array.tobytes() if array.nbytes <= _HASHED else (where, array.strides)
        known = contents[value] = (value.dtype.name, array.shape, inside)
    return known
