"""Apply the rewrites of ``rules/rewrites`` and of the user's own files."""

from __future__ import annotations

from ..base.options import CompileOptions
from ..graph import Graph
from .manager import graph_pass
from .rewriting import apply_rewrites
from .rules import rewrites_of


@graph_pass("rewrite")
def rewrite(graph: Graph, options: CompileOptions, *, rounding: bool = True) -> bool:
    """Replace what matches a rule.

    Args:
        rounding: apply rules whose results may differ in the last place; those of the user's files apply always.

    Before::

        %1 = Sigmoid(%0)
        %2 = Mul(%0, %1)

    After::

        %2 = Swish(%0)
    """
    table = rewrites_of(options.rules)
    if not rounding:
        table = {op: tuple(r for r in rules if r.error == "exact" or r.user) for op, rules in table.items()}
    return apply_rewrites(graph, table)
