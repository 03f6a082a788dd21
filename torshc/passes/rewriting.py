"""Applying rewrites to a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ModelError
from ..graph import Graph, Patch, Value
from ..ops import Op
from .match import Match, build, covers, match
from .rewrite_rules import Rewrite
from .walk import Site, walk


def apply_rewrites(graph: Graph, table: Mapping[type[Op], Sequence[Rewrite]]) -> bool:
    """Replace what matches; whether anything did.

    Args:
        table: rewrites by the outermost operator of their patterns; the first that fits a node is taken.
    """

    def rule(site: Site) -> Patch | None:
        for candidate in table.get(type(site.node.op), ()):
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
