"""Evaluate at compile time what depends on constants alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..base.budget import budget
from ..base.options import CompileOptions
from ..expr import as_int
from ..graph import Graph, Node, Patch, Value
from ..ops.tensor.random import Draw
from ..ops.tensor.view import Expand, Reshape, Transpose
from .interpret import CannotEvaluate, run_node, scatters
from .manager import graph_pass
from .walk import Site, walk

_MIB = 1 << 20
_COPIED = 64 << 10  # bytes of a result of the model from which on computing it takes less time than copying a constant
_TERMS = 1 << 26  # elements that a reduction may visit; the interpreter holds them all at once
_PRODUCTS = 1 << 34  # multiplications of a matrix product
_SPREADS = (Expand, Reshape, Transpose)  # of one element: all elements are still that one


@graph_pass("fold_constants")
def fold_constants(graph: Graph, options: CompileOptions, *, budget_mib: int = 0, growth_mib: int = 1) -> bool:
    """Replace nodes of constants by their results.

    A result above `budget_mib`, where 0 stands for the budget of folding, is left to run time; so is one above
    `growth_mib` that is larger than its operands together, such as a broadcast zero: a constant would only make the
    weights larger. Of a result of the model, which would be a copy of the constant, and of a single element, which its
    readers need not load, 64 KiB are such growth.

    Before::

        %1 = Transpose[perm=(1, 0)](@0:f32[64, 32])

    After::

        @1:f32[32, 64]
    """

    most = budget_mib * _MIB or budget().folding

    def rule(site: Site) -> Patch | None:
        node = site.node
        if isinstance(node.op, Draw):  # its numbers are those of the target's own logarithm and cosine
            return None
        spread = isinstance(node.op, Expand) and as_int(node.operands[0].type.size) == 1
        copied = any(v in graph.outputs for v in node.outputs)
        growth = _COPIED if spread or copied else growth_mib * _MIB
        beside = any(v.const is not None and v.const.size > 1 for v in node.operands)
        contents = {v: _contents(v) if beside else v.const for v in node.operands}
        if any(x is None for x in contents.values()) or not _affordable(node, most, growth):
            return None
        try:
            arrays = run_node(node, [None if v is None else contents[v] for v in node.inputs])
        except CannotEvaluate:
            return None
        for array in arrays:
            array.flags.writeable = False
        made = [graph.constant(a) for a in arrays]
        for k, v in enumerate(made if options.named_weights else ()):
            v.folded = node, k
        return site.replace(*made)

    return walk(graph, rule, "fold_constants")


def _contents(v: Value) -> np.ndarray[Any, Any] | None:
    """The elements of a constant, or of one element that is spread, which constants beside it make worth having."""
    source = v
    while source.producer is not None and isinstance(source.producer.op, _SPREADS):
        source = source.producer.operands[0]
    if source is v or source.const is None:
        return v.const
    shape = v.type.static_shape
    return np.broadcast_to(source.const.reshape(()), shape) if source.const.size == 1 and shape is not None else None


def _affordable(node: Node, most: int, growth: int) -> bool:
    made = [as_int(v.type.nbytes) for v in node.outputs]
    if any(n is None for n in made):
        return False
    total = sum(n for n in made if n is not None)
    read = sum(v.const.nbytes for v in node.operands if v.const is not None)
    if node.op.family == "view" and total <= read:
        return True  # a view of what is there already
    if total > most or (total > growth and total > 2 * read):
        return False
    if scatters(node):
        return True
    nests = [node.op.nest(node, k) for k in range(len(node.outputs))]
    for v, nest in zip(node.outputs, nests, strict=True):
        steps = as_int(v.type.size) or 0
        for e in nest.reduce if nest is not None else ():
            steps *= as_int(e) or 0
        if steps > (_PRODUCTS if node.op.name == "MatMul" else _TERMS):
            return False
    return True
