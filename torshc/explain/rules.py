"""What came of the fusion rules: where they joined, kept apart, limited, and what they could not have."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ..graph import Mark, Node, RuleName
from ..passes.fusion_rules import Fuse, FusionRule, Limit, Recompute, Separate
from ..plan.group import REASONS, Boundary, Group
from ..plan.place import Plan
from ..plan.views import behind_views, is_view


@dataclass(frozen=True)
class RuleInfo:
    """A rule and its effects.

    Attributes:
        name: as its file says.
        where: file and line of a user's rule.
        action: "fuse", "separate", "limit" or "recompute".
        places: where its pattern matched; for a rule without a pattern, groups in which it had a say.
        groups: the groups that it joined, or computes something again in.
        stops: boundaries that are due to it.
        unmet: what it asks for and cannot have, a line each: where, and why.
    """

    name: str
    where: str
    action: str
    places: int
    groups: tuple[int, ...]
    stops: int
    unmet: tuple[str, ...] = ()


_ACTIONS = {Fuse: "fuse", Separate: "separate", Limit: "limit", Recompute: "recompute"}


def rule_infos(plan: Plan, ran: Collection[str]) -> tuple[RuleInfo, ...]:
    """Every rule of the user's, and those of torshc's own that had an effect; the user's first.

    Args:
        ran: the passes that ran.
    """
    rules = sorted(plan.policy.rules, key=lambda r: not r.name.where)
    found = [_info(plan, rule, marks_of(plan), ran) for rule in rules]
    return tuple(i for i in found if i.where or i.groups or i.stops)


def marks_of(plan: Plan) -> dict[Mark, list[Node]]:
    """The nodes of each place, views apart."""
    out: dict[Mark, list[Node]] = {}
    for node in plan.graph.nodes:
        for m in node.marks if not is_view(node) else ():
            out.setdefault(m, []).append(node)
    return out


def standing(group: Group) -> Iterator[Boundary]:
    """The boundaries of a group that hold in the end: a later merge, or computing again, undoes an early one."""
    inside = {*group.nodes, *group.folded}
    seen = set()
    for b in group.boundaries:
        if behind_views(b.value)[0].producer not in inside and (b.value, b.consumer) not in seen:
            seen.add((b.value, b.consumer))
            yield b


def made_by(group: Group, rules: tuple[FusionRule, ...]) -> Iterator[RuleName]:
    """The rules by which nodes of a group are the operators that they are: attention that a model spelled out."""
    names = {r.name for r in rules if r.action == Fuse("attention")}
    return (m.rule for n in group.nodes for m in n.marks if m.rule in names)


def _info(plan: Plan, rule: FusionRule, marks: dict[Mark, list[Node]], ran: Collection[str]) -> RuleInfo:
    own = {m: nodes for m, nodes in marks.items() if m.rule == rule.name}
    groups = tuple(g.id for g in plan.groups if rule.name in (*g.rules, *made_by(g, (rule,))))
    stops = sum(b.rule == rule.name for g in plan.groups for b in standing(g))
    places = len(own)
    unmet: tuple[str, ...] = ()
    if isinstance(rule.action, Separate):
        places = stops = len({(a, b) for name, a, b in plan.apart if name == rule.name})
    elif rule.action == Fuse("force"):
        homes = {m: _home(plan, nodes) for m, nodes in own.items()}
        groups = tuple(sorted({g.id for g in homes.values() if g is not None}))
        unmet = tuple(_find_missed(plan, own[m]) for m, g in homes.items() if g is None)
    elif isinstance(rule.action, Recompute) and rule.match is not None and rule.action.nodes:
        unmet = tuple(line for nodes in own.values() for line in _find_stored(plan, nodes))
    elif rule.action == Fuse("attention") and rule.name.where and "recognise_attention" not in ran:
        unmet = ("the pass recognise_attention did not run; -O3 or --pass recognise_attention=on runs it",)
    elif rule.match is None or rule.action == Fuse("allow"):
        places = len(groups)
    return RuleInfo(
        rule.name.name, rule.name.where, _ACTIONS[type(rule.action)], places, groups, stops, tuple(dict.fromkeys(unmet))
    )


def _home(plan: Plan, nodes: list[Node]) -> Group | None:
    """The group that computes all of these nodes."""
    return next((g for g in plan.groups if {*g.nodes, *g.folded}.issuperset(nodes)), None)


def _find_missed(plan: Plan, nodes: list[Node]) -> str:
    """Between which nodes of a place a boundary is left, and why."""
    inside = set(nodes)
    for group in plan.groups:
        for b in standing(group):
            maker = behind_views(b.value)[0].producer
            if b.consumer in inside and maker in inside and maker is not None:
                why = f"{REASONS[b.reason]}{f': {b.rule}' if b.rule is not None else ''}"
                return f"{_name_node(maker)} -> {_name_node(b.consumer)}: {why}"
    return f"{' '.join(n.op.name for n in nodes)}: {REASONS['template']}"


def _find_stored(plan: Plan, nodes: list[Node]) -> Iterator[str]:
    """What a rule lets readers compute again, and is stored all the same."""
    for n in nodes:
        if any(v in g.outputs for g in plan.groups for v in n.outputs):
            yield f"{_name_node(n)}: {plan.stored.get(n, 'its readers take it from memory')}"


def _name_node(node: Node) -> str:
    return f"{node.op.name} {node.name!r}" if node.name else node.op.name
