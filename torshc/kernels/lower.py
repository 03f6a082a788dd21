"""What lowerings of all targets share: groups without composite nodes, kernels without tasks where nothing is made."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ..expr import Expr, call, const, min_of
from ..graph import Graph, Value
from ..plan.group import Group, expand
from .base import Kernel


def idle_when_empty(kernel: Kernel) -> Kernel:
    """The kernel without a task where its results have no elements, so that templates may divide by their sizes."""
    total = const(0)
    for b in kernel.buffers:
        if b.written:
            total = total + (b.operand.type.size if isinstance(b.operand, Value) else b.operand.nbytes)
    tasks = kernel.tasks * min_of(total, const(1))
    return kernel if tasks is kernel.tasks else dataclasses.replace(kernel, tasks=tasks)


def first_of(choices: Sequence[tuple[Expr, Sequence[Kernel]]], by_size: bool) -> list[Kernel]:
    """Kernels of which a run launches the first whose condition holds for its sizes, which `Kernel.when` then says.

    Args:
        by_size: whether there may be several; else what only a run's sizes decide does not hold.
    """
    choices = [(holds, kernels) for holds, kernels in choices if by_size or holds.op == "const"]
    found: list[Kernel] = []
    left = const(True)
    for holds, kernels in choices:
        when = left & holds
        if when is not const(False):
            found += [dataclasses.replace(kernel, when=when) for kernel in kernels]
        left = left & call("not", holds)
    return found


def expanded(graph: Graph, group: Group) -> Group:
    """The group with its composite nodes replaced by simpler ones (only -O0 leaves any)."""
    if not any(n.op.family == "composite" for n in group.nodes):
        return group
    nodes, alias = expand(graph, group.nodes)
    anchor = next((n for n in nodes if n.op.heavy), None)
    before = nodes[: nodes.index(anchor)] if anchor is not None else []
    views = [n for n in before if n.op.family == "view"]
    kept = [n for n in nodes if n not in views]
    return dataclasses.replace(group, nodes=kept, folded=[*group.folded, *views], anchor=anchor, alias=alias)
