"""What follows a heavy anchor inside its kernel: from the accumulated element to the stores."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.errors import InternalError
from ..expr import Expr
from ..graph import Node, Value
from ..ops.core.base import Index
from ..plan.group import Group
from ..plan.inline import Inliner
from .base import Store
from .nest import Buffers


def lower_epilogue(
    group: Group, anchor: Node, results: Mapping[Value, tuple[Expr, Index]], buffers: Buffers
) -> list[Store]:
    """The stores of a heavy group.

    Args:
        group: its nodes; those that the anchor's results reach make up the epilogue, others are read through.
        anchor: the heavy node.
        results: for each result of the anchor the register that holds an element (an ``acc``) and the element's
            logical index in the kernel's axes.
        buffers: the argument list to add to.

    Returns:
        One store for each output of the group, its offset and value over the kernel's axes and buffers.
    """
    nodes = [n for n in (*group.folded, *group.nodes) if n not in group.totals]
    order = topological(nodes)
    inliner = Inliner(nodes, {v: e for v, (e, _) in results.items()})
    place: dict[Value, Index] = {v: i for v, (_, i) in results.items()}
    for node in order:
        reached = [v for v in node.operands if v in place]
        if node is anchor or not reached or node.outputs[0] in place:
            continue
        if node.op.family == "view":
            index = node.op.push(node, place[reached[0]])
            if index is None:
                raise InternalError(f"{node.describe()} cannot follow {anchor.describe()} in its kernel")
            inliner.known[node.output] = inliner.known[reached[0]]
        else:
            index = next((place[v] for v in reached if v.shape == node.output.shape), None)
            if index is None:
                raise InternalError(f"{node.describe()} changes the shape of {anchor.describe()}")
            inliner.known[node.output] = inliner.at(node.output, index)
        place[node.output] = index
    pairs = [(o, group.alias.get(o, o)) for o in group.outputs if o.producer not in group.totals]
    for _, inner in pairs:
        if inner not in place:  # computed beside the anchor, and needed in memory too
            place[inner] = _index_beside(inner, place)
            inliner.known[inner] = inliner.at(inner, place[inner])
    return [buffers.store(o, place[i], buffers.resolve(inliner.known[i])) for o, i in pairs]


def _index_beside(value: Value, place: Mapping[Value, Index]) -> Index:
    """The index of a value that the anchor does not reach, from one of equal shape that it does."""
    index = next((i for v, i in place.items() if v.shape == value.shape), None)
    if index is None:
        raise InternalError(f"{value!r} has another shape than all that its kernel computes")
    return index


def topological(nodes: list[Node]) -> list[Node]:
    made = {v: n for n in nodes for v in n.outputs}
    out: dict[Node, None] = {}

    pending = nodes[::-1]
    while pending:
        before = [made[v] for v in pending[-1].operands if v in made and made[v] not in out]
        if before and pending[-1] not in out:
            pending += before[::-1]
        else:
            out[pending.pop()] = None
    return list(out)
