"""Applying rewrites to a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.errors import ModelError
from ..graph import Graph, Patch, Value
from ..ops import Op
from .match import Match, Search, build, covers, match
from .rewrite_rules import Rewrite
from .walk import Site, walk

_MADE, _MADE_PER_NODE = 1 << 13, 64  # nodes that one rewrite may make: a base, and more per node that none of them made


def apply_rewrites(graph: Graph, table: Mapping[type[Op], Sequence[Rewrite]]) -> bool:
    """Replace what matches; return whether anything did.

    Args:
        table: rewrites by the outermost operator of their patterns; the first that fits a node is taken.
    """

    searches: dict[int, Search] = {}

    def rule(site: Site) -> Patch | None:
        for candidate in table.get(type(site.node.op), ()):
            if (search := searches.get(id(candidate))) is None:
                search = searches[id(candidate)] = Search(candidate.place, graph)
            if (new := _try(candidate, site, search)) is not None:
                _require_end(candidate, graph, len(site.nodes))
                return site.replace(new)
        return None

    return walk(graph, rule, "rewrite")


def _require_end(rule: Rewrite, graph: Graph, made: int) -> None:
    """Refuse a rule that applies to its own replacement, and so makes more nodes each time.

    Raises:
        ConfigError: it has made more nodes than one rewrite may.
    """
    by_rules = graph.numbers.by_rules
    by_rules[rule.place] += made
    if by_rules[rule.place] > _MADE + _MADE_PER_NODE * (graph.numbers.made - by_rules.total()):
        raise rule.item.error(
            f"the rewrite {rule.name!r} has made {by_rules[rule.place]} nodes: it applies to what it puts there",
            "leave its match out of its replacement, or add a condition",
        )


def _try(rule: Rewrite, site: Site, search: Search) -> Value | None:
    root = site.node.output
    for found in match(rule.match, root, search):
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
