"""Apply the rewrites of ``rules/rewrites`` and of the user's own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .. import resources
from ..errors import ModelError
from ..graph import Graph, Patch, Value
from ..ops import Op
from ..options import CompileOptions
from .conditions import Condition, parse_condition
from .config import Item, read_yaml
from .manager import graph_pass
from .match import Match, build, covers, match
from .pattern import Apply, Constant, Number, Part, Pattern, names_in, parse
from .walk import Site, walk

_KEYS = ("name", "about", "match", "where", "replace", "shared", "error", "example")


@dataclass(frozen=True)
class Rewrite:
    """A rewrite: what it looks for, what it puts there, and when.

    Attributes:
        name: unique among the rules of a file.
        match, replace: patterns; names of the replacement are bound by the match.
        where: conditions, all of which must hold.
        shared: whether inner values may have other readers.
        error: "exact", or "rounding" when results may differ by a few units in the last place.
        example: what the test fills the names with: shapes of variables, values of constants and attributes.
        item: where the rule stands.
    """

    name: str
    match: Apply
    replace: Pattern
    where: tuple[Condition, ...]
    shared: bool
    error: str
    example: dict[str, Any]
    item: Item


@graph_pass("rewrite")
def rewrite(graph: Graph, options: CompileOptions) -> bool:
    """Replace what matches a rule.

    Before::

        %1 = Sigmoid(%0)
        %2 = Mul(%0, %1)

    After::

        %2 = Swish(%0)
    """
    table = _by_root(tuple((f, _changed(f)) for f in (*resources.rule_files("rewrites"), *options.rules)))

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
        noted = len(site.graph.constraints)
        try:
            new = build(rule.replace, site.builder, found, _like(found, root))
        except ModelError:
            new = None
        # A replacement of another shape (a constant that widened its operand, say) is no match after all.
        if new is not None and new.type == root.type:
            return new
        site.nodes.clear()
        del site.graph.constraints[noted:]
    return None


def _like(found: Match, root: Value) -> Value:
    """The value whose dtype numbers of the replacement take: an operand's, as a comparison's result is bool."""
    return next((v for v in found.values.values()), root)


def _changed(file: Path) -> int:
    """When the file last changed, so that a table made of an older one is not used."""
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0  # reading it says what is wrong


@cache
def _by_root(files: tuple[tuple[Path, int], ...]) -> dict[type[Op], tuple[Rewrite, ...]]:
    table: dict[type[Op], list[Rewrite]] = {}
    for file, _ in files:
        for rule in read_rewrites(file):
            for op in rule.match.ops:
                table.setdefault(op, []).append(rule)
    return {op: tuple(rules) for op, rules in table.items()}


def read_rewrites(file: Path) -> list[Rewrite]:
    """The rewrites of a file.

    Raises:
        ConfigError: with file and line, for whatever is wrong with one.
    """
    top = read_yaml(file)
    rules = [_rewrite(item) for item in (top.sequence() if top.value is not None else [])]
    for k, rule in enumerate(rules):
        if any(r.name == rule.name for r in rules[:k]):
            raise rule.item.error(f"two rewrites are called {rule.name!r}")
    return rules


def _rewrite(item: Item) -> Rewrite:
    entries = item.mapping(known=_KEYS, required=("name", "match", "replace"))
    pattern, replacement = parse(entries["match"]), parse(entries["replace"])
    if not isinstance(pattern, Apply):
        raise entries["match"].error("a rewrite must begin with an operator")
    bound = names_in(pattern)
    for name in sorted(names_in(replacement) - bound):
        raise entries["replace"].error(f"{name!r} is not bound by the match")
    for p in (*_below(pattern), *_below(replacement)):
        if isinstance(p, Part) or (isinstance(p, Constant) and p.many):
            raise entries["match"].error("a rewrite has no parts with alternatives")
    if any(isinstance(p, Number) and p.tolerance for p in _below(replacement)):
        raise entries["replace"].error("a number of the replacement must be exact")
    where = entries["where"].sequence() if "where" in entries else []
    return Rewrite(
        entries["name"].text(),
        pattern,
        replacement,
        tuple(parse_condition(c, bound) for c in where),
        _one_of(entries, "shared", ("forbid", "allow")) == "allow",
        _one_of(entries, "error", ("exact", "rounding")),
        _plain(entries["example"]) if "example" in entries else {},
        item,
    )


def _below(pattern: Pattern) -> list[Pattern]:
    return [pattern, *(q for a in pattern.args for q in _below(a))] if isinstance(pattern, Apply) else [pattern]


def _one_of(entries: dict[str, Item], key: str, known: Sequence[str]) -> str:
    if key not in entries:
        return known[0]
    word = entries[key].text()
    if word not in known:
        raise entries[key].error(f"{key} is {' or '.join(known)}, not {word!r}")
    return word


def _plain(item: Item) -> Any:
    """The value of an item without its places in the file."""
    if isinstance(item.value, dict):
        return {k: _plain(v) for k, v in item.value.items()}
    return [_plain(v) for v in item.value] if isinstance(item.value, list) else item.value
