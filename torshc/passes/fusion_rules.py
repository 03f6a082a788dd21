"""Fusion rules: which patterns share a kernel, what is kept apart, how large a group may be, what is computed again.

An entry has a name, a pattern with conditions as rewrites have them, and one of four actions::

    - name: softmax apart from its product
      match: "MatMul(weights=Softmax(scores), v)"
      separate: weights
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..base.errors import did_you_mean
from ..base.options import FUSION_MODES
from ..graph import RuleName
from .conditions import Condition, parse_condition
from .config import Item, Problems
from .pattern import DEPTH, Apply, Named, Part, Pattern, names_in, parse

UNLIMITED = 1 << 30
FUSE_KINDS = ("allow", "force", "attention")
ACTIONS = ("fuse", "separate", "limit", "recompute")
KEYS = ("name", "about", "match", "parts", "where", "fusion", *ACTIONS)


@dataclass(frozen=True)
class Fuse:
    """The nodes of the pattern may share a kernel ("allow"), must ("force"), or become Attention ("attention")."""

    kind: str


@dataclass(frozen=True)
class Separate:
    """These values of the pattern are stored: who makes one and who reads it in the pattern share no kernel."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Limit:
    """Bounds of a group; None leaves one as it is.

    Attributes:
        nodes: most nodes, views apart.
        inputs: most tensors that it reads, views and scalar constants apart.
        readers: most groups that read a value through which it grows; 1 joins nothing that another group reads.
    """

    nodes: int | None = None
    inputs: int | None = None
    readers: int | None = None


@dataclass(frozen=True)
class Recompute:
    """Up to what cost each reader computes a value again, instead of one storing it; None leaves a bound as it is.

    Attributes:
        nodes: most nodes.
        loads: most elements read from memory for one of the value.
        work: most work for one element, in multiply-adds.
    """

    nodes: int | None = None
    loads: int | None = None
    work: int | None = None


Action = Fuse | Separate | Limit | Recompute


@dataclass(frozen=True)
class FusionRule:
    """An entry.

    Attributes:
        name: with file and line when it is the user's.
        action: what it asks for.
        match: where; None, for a limit or what is computed again, is everywhere.
        parts: alternatives of the parts that the pattern names.
        where: conditions, all of which must hold.
        fusion: the values of ``--fusion`` for which the entry is there; all when empty.
    """

    name: RuleName
    action: Action
    match: Apply | None = None
    parts: Mapping[str, tuple[Pattern, ...]] = field(default_factory=dict)
    where: tuple[Condition, ...] = ()
    fusion: tuple[str, ...] = ()


def parse_fusion_rule(item: Item, user: bool) -> FusionRule:
    """An entry from a file.

    Args:
        user: whether the file is the user's, so that its lines are shown.

    Raises:
        ConfigError: with all that is wrong with it.
    """
    entries = item.mapping()
    problems = Problems()
    pattern: Apply | None = None
    parts: dict[str, tuple[Pattern, ...]] = {}
    where: list[Condition] = []
    name, fusion, action = "", (), Fuse("allow")  # type: tuple[str, tuple[str, ...], Action]
    with problems.gather():
        name = item.mapping(required=("name",))["name"].text()
    with problems.gather():
        pattern, parts = _pattern(entries)
    bound = (
        names_in(pattern).union(*(names_in(a) for alternatives in parts.values() for a in alternatives))
        if (pattern)
        else set()
    )
    for condition in _list(entries.get("where"), problems) if "where" in entries else ():
        with problems.gather():
            if "match" not in entries:
                raise condition.error("a condition needs a match")
            if pattern is not None:
                where.append(parse_condition(condition, bound))
    with problems.gather():
        fusion = _modes(entries["fusion"]) if "fusion" in entries else ()
    with problems.gather():
        action = _action(entries, pattern, parts, bound)
    problems.settle()
    return FusionRule(
        RuleName(name, f"{item.file}:{item.line}" if user else ""), action, pattern, parts, tuple(where), fusion
    )


def parse_limit(item: Item) -> Limit:
    """The bounds of a group.

    Raises:
        ConfigError: for an unknown bound or a number that is none.
    """
    found = item.mapping(known=("nodes", "inputs", "readers"))
    if not found:
        raise item.error("a limit says nothing", "give nodes, inputs or readers")
    return Limit(**{k: v.integer(1, UNLIMITED) for k, v in found.items()})


def parse_recompute(item: Item) -> Recompute:
    """What may be computed again: "allow", "forbid", or bounds.

    Raises:
        ConfigError: when it is none of them.
    """
    if isinstance(item.value, str):
        word = parse_word(item, ("allow", "forbid"), "recompute")
        most = UNLIMITED if word == "allow" else 0
        return Recompute(most, most, most)
    found = item.mapping(known=("nodes", "loads", "work"))
    if not found:
        raise item.error("recompute says nothing", "write allow, forbid, or give nodes, loads or work")
    return Recompute(**{k: v.integer(0, UNLIMITED) for k, v in found.items()})


def _action(
    entries: Mapping[str, Item], pattern: Apply | None, parts: Mapping[str, tuple[Pattern, ...]], bound: set[str]
) -> Action:
    (key,) = (k for k in ACTIONS if k in entries)
    item = entries[key]
    if key in ("fuse", "separate") and "match" not in entries:
        raise item.error(f"{key} needs a match")
    if key == "limit":
        return parse_limit(item)
    if key == "recompute":
        return parse_recompute(item)
    if key == "separate":
        return _separate(item, pattern, bound)
    kind = parse_word(item, FUSE_KINDS, "fuse")
    if kind == "attention" and pattern is not None:
        _check_attention(entries["match"], (pattern, *(a for found in parts.values() for a in found)), bound)
    return Fuse(kind)


def _separate(item: Item, pattern: Apply | None, bound: set[str]) -> Separate:
    items = item.sequence() if isinstance(item.value, list) else [item]
    names = tuple(i.text() for i in items)
    if not names:
        raise item.error("separate names nothing", "name values of the match, such as weights=Softmax(x)")
    for i, name in zip(items, names, strict=True):
        if pattern is not None and name not in bound:
            raise i.error(f"{name!r} is not bound by the match{did_you_mean(name, sorted(bound))}",
                          "name a value there: weights=Softmax(x)")  # fmt: skip
    return Separate(names)


def _check_attention(item: Item, patterns: tuple[Pattern, ...], bound: set[str]) -> None:
    """Whether a form of attention names what the pass ``recognise_attention`` needs."""
    for name in ("q", "k", "v", "axis"):
        if name not in bound:
            raise item.error(f"a form of attention must bind {name!r}", "rules/fusion/attention.yaml lists the names")
    if not any(isinstance(p, Apply) and any(op.name == "Softmax" for op in p.ops) for p in _all(patterns)):
        raise item.error("a form of attention must have a Softmax")


def _pattern(entries: Mapping[str, Item]) -> tuple[Apply | None, dict[str, tuple[Pattern, ...]]]:
    if "match" not in entries:
        if "parts" in entries:
            raise entries["parts"].error("parts belong to a match")
        return None, {}
    problems = Problems()
    parts: dict[str, tuple[Pattern, ...]] = {}
    pattern: Pattern | None = None
    with problems.gather():
        pattern = parse(entries["match"])
        if not isinstance(pattern, Apply):
            raise entries["match"].error("a pattern must begin with an operator")
    for name, item in entries["parts"].mapping().items() if "parts" in entries else ():
        alternatives: list[Pattern] = []
        for i in _list(item, problems):
            with problems.gather():
                alternatives.append(parse(i))
        parts[name] = tuple(alternatives)
    problems.settle()
    assert isinstance(pattern, Apply)
    for p in _all((pattern, *(a for found in parts.values() for a in found))):
        if isinstance(p, Part) and p.name not in parts:
            raise entries["match"].error(f"the part @{p.name} is not defined{did_you_mean(p.name, sorted(parts))}")
    ending: set[str] = set()
    for name in parts:
        _check_ends(entries["parts"], parts, name, (), ending)
    return pattern, parts


def _check_ends(
    item: Item, parts: Mapping[str, tuple[Pattern, ...]], name: str, around: tuple[str, ...], ending: set[str]
) -> None:
    """Whether a part leads to itself without an operator between, so that matching would not end.

    Args:
        around: the parts that lead to this one.
        ending: parts that do not; grows.
    """
    if name in around:
        raise item.error(f"the part @{name} refers to itself")
    if len(around) > DEPTH:
        raise item.error(f"more than {DEPTH} parts lead to @{name}, one after the other")
    if name in ending:
        return
    for p in parts[name]:
        inside = p.inside if isinstance(p, Named) else p
        if isinstance(inside, Part):
            _check_ends(item, parts, inside.name, (*around, name), ending)
    ending.add(name)


def _all(patterns: tuple[Pattern, ...]) -> Iterator[Pattern]:
    """Patterns and what is inside them."""
    for p in patterns:
        yield p
        if isinstance(p, Apply):
            yield from _all(p.args)
        elif isinstance(p, Named):
            yield p.inside


def _modes(item: Item) -> tuple[str, ...]:
    items = item.sequence() if isinstance(item.value, list) else [item]
    return tuple(parse_word(i, FUSION_MODES, "fusion") for i in items)


def parse_word(item: Item, known: tuple[str, ...], what: str) -> str:
    """One of some words.

    Raises:
        ConfigError: when it is another, with the one that was meant.
    """
    word = item.text()
    if word not in known:
        raise item.error(f"{what} is {', '.join(known[:-1])} or {known[-1]}, not {word!r}{did_you_mean(word, known)}")
    return word


def _list(item: Item | None, problems: Problems) -> list[Item]:
    with problems.gather():
        return item.sequence() if item is not None else []
    return []
