"""Apply the rewrites of ``rules/rewrites`` and of the user's own files."""

from __future__ import annotations

from ..errors import ModelError
from ..graph import Graph, Patch, Value
from ..options import CompileOptions
from .manager import graph_pass
from .match import Match, build, covers, match
from .rewrite_rules import Rewrite
from .rules import rewrites_of
from .walk import Site, walk


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

    def rule(site: Site) -> Patch | None:
        for candidate in table.get(type(site.node.op), ()):
            if candidate.error == "rounding" and not rounding and not candidate.user:
                continue
            if (new := _try(candidate, site)) is not None:
                return site.replace(new)
        return None

    return walk(graph, rule, "rewrite")


def _try(rule: Rewrite, site: Site) -> Value | None:
    root = site.node.output
    for found in match(rule.match, root):
        if not rule.shared and not covers(found, root, site.uses):
            continue
        if not all(c.holds(found) for c in rule.where):
            continue
        before = site.builder.state()
        try:
            new = build(rule.replace, site.builder, found, _like(found, root))
        except ModelError:
            new = None
        # A replacement of another shape (a constant that widened its operand, say) is not a match after all.
        if new is not None and new.type == root.type:
            return new
        site.builder.back_to(before)
    return None


def _like(found: Match, root: Value) -> Value:
    """The value whose dtype numbers of the replacement take: an operand's, as a comparison's result is bool."""
    return next((v for v in found.values.values()), root)
