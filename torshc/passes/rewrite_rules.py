"""The entries of ``rules/rewrites``: small changes of a graph, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..graph import RuleName
from .conditions import Condition, parse_condition
from .config import Item
from .pattern import Apply, Constant, Number, Part, Pattern, names_in, parse

KEYS = ("name", "about", "match", "where", "replace", "shared", "error", "example")


@dataclass(frozen=True)
class Rewrite:
    """A rewrite: what it looks for, what it puts there, and when.

    Attributes:
        name: unique among the rules of a file.
        match, replace: patterns; names of the replacement are bound by the match.
        where: conditions, all of which must hold.
        shared: whether inner values may have other readers.
        error: "exact", or "rounding" when results may differ by a few units in the last place.
        example: what the names are when the rule is tried: shapes of variables, values of constants and attributes.
        item: where the rule stands.
        user: whether that is a file of the user's.
    """

    name: str
    match: Apply
    replace: Pattern
    where: tuple[Condition, ...]
    shared: bool
    error: str
    example: dict[str, Any]
    item: Item
    user: bool = False

    @property
    def place(self) -> RuleName:
        """Its name, with file and line if it is the user's."""
        return RuleName(self.name, f"{self.item.file}:{self.item.line}" if self.user else "")


def parse_rewrite(item: Item, user: bool = False) -> Rewrite:
    """An entry from a file.

    Raises:
        ConfigError: with file and line, for what is wrong with it.
    """
    entries = item.mapping(required=("name", "match", "replace"))
    pattern, replacement = parse(entries["match"]), parse(entries["replace"])
    if not isinstance(pattern, Apply):
        raise entries["match"].error("a pattern must begin with an operator")
    bound = names_in(pattern)
    for name in sorted(names_in(replacement) - bound):
        raise entries["replace"].error(f"{name!r} is not bound by the match")
    for p in (*_below(pattern), *_below(replacement)):
        if isinstance(p, Part) or (isinstance(p, Constant) and p.many):
            raise entries["match"].error("a rewrite has no parts with alternatives")
    if any(isinstance(p, Apply) and p.families for p in _below(pattern)[:1]):
        raise entries["match"].error("the outermost operator of a rewrite must be named, not a family")
    if any(isinstance(p, Apply) and (p.more or p.families or len(p.ops) > 1) for p in _below(replacement)):
        raise entries["replace"].error("the replacement must name each operator and all its operands")
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
        user,
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
