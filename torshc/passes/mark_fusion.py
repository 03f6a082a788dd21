"""Mark the places where fusion rules match while operators are as the model has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..base.options import CompileOptions
from ..graph import Graph, Node, Rewriter, Value, relayout, rewire
from ..ops.math.pointwise import Separator
from .fusion_rules import Fuse, FusionRule, Separate
from .manager import graph_pass
from .match import Match, Search, behind_views, match
from .rules import rules_of


@graph_pass("mark_fusion")
def mark_fusion(graph: Graph, options: CompileOptions) -> bool:
    """Nodes of a place remember the rule, and values to be kept apart get a Separator, which no pass looks through.

    The passes that follow take operators apart and put others in their place, which bear the marks of those before.
    `finalise` looks for the patterns once more, in what the passes have left, and takes the separators out.

    Before::

        %2 = Softmax(%0)
        %3 = MatMul(%2, %1)

    After::

        %2 = Softmax(%0)
        %4 = Separator[rule='softmax apart'](%2)
        %3 = MatMul(%4, %1)
    """
    # What may be fused is asked when it comes to that; the rest is about operators as people write them.
    rules = [r for r in rules_of(options.rules).fusion if r.name.where or r.action != Fuse("allow")]
    return mark(graph, (r for r in rules if not r.fusion or (options.fusion or "default") in r.fusion))


def mark(graph: Graph, rules: Iterable[FusionRule], through: bool = False) -> bool:
    """Mark the places of rules that have a pattern.

    Args:
        through: look through views for operators that are none.

    Returns:
        Whether separators were put into the graph.
    """
    separated = False
    matching = [r for r in rules if r.match is not None and r.action != Fuse("attention")]
    for rule in sorted(matching, key=lambda r: isinstance(r.action, Separate)):  # no pattern sees through separators
        for found in places(graph, rule, through):
            if isinstance(rule.action, Separate):
                separated = _separate(graph, rule, found, through) or separated
            else:
                _mark(rule, found, graph)
    return separated


def places(graph: Graph, rule: FusionRule, through: bool = False) -> Iterator[Match]:
    """The places where a rule matches, each once."""
    assert rule.match is not None
    search = Search(rule.name, graph, rule.parts, through)
    for node in list(graph.nodes):
        if not rule.match.fits(node.op):
            continue
        seen: set[frozenset[Node]] = set()
        for found in match(rule.match, node.output, search):
            covered = frozenset(found.nodes)
            if covered not in seen and all(c.holds(found) for c in rule.where):
                seen.add(covered)
                yield found


def _mark(rule: FusionRule, found: Match, graph: Graph) -> None:
    nodes = list(dict.fromkeys(found.nodes))
    if any(m.rule == rule.name and all(m in n.marks for n in nodes) for m in nodes[0].marks):
        return  # the place is known from an earlier look
    mark = graph.new_mark(rule.name)
    for node in nodes:
        node.mark(mark)


def _separate(graph: Graph, rule: FusionRule, found: Match, through: bool) -> bool:
    assert isinstance(rule.action, Separate)
    root = found.nodes[0]
    changed = False
    for name in rule.action.names:
        value = found.values.get(name)
        if value is None or value.const is not None or value.producer is None:
            continue  # nothing computes it
        readers = graph.nodes if value is root.output else found.nodes
        for node in list(dict.fromkeys(readers)):
            changed = _put_before(graph, node, value, rule, through) or changed
    return changed


def _put_before(graph: Graph, node: Node, value: Value, rule: FusionRule, through: bool) -> bool:
    """Let a node read a value behind a separator."""
    read = [v for v in node.operands if v is value or (through and behind_views(v)[0] is value)]
    if not read or isinstance(node.op, Separator) or (through and node.op.family == "view"):
        return False
    rewriter = Rewriter(graph, "mark_fusion")
    for other in rewriter:
        if other is node:
            op = Separator(rule.name.name, rule.name.where)
            copies = {v: _separator(rewriter, op, v) for v in dict.fromkeys(read)}
            rewire(node, tuple(copies.get(v, v) if v is not None else None for v in node.inputs))
        rewriter.keep(other)
    rewriter.finish()
    return True


def _separator(rewriter: Rewriter, op: Separator, value: Value) -> Value:
    out = rewriter.builder(value.producer.name if value.producer is not None else "").one(op, value)
    relayout(out, value.layout)
    return out
