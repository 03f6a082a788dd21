"""Where shared parts of expressions are computed, when some parts are looked at only under a condition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .expr import Expr, const, walk
from .functions import call


class Scope:
    """A place where values are computed: under a condition, within another scope.

    Attributes:
        parent: the scope around it, or None.
        condition: when it is entered, given that its parent is.
        other: the other side of the same choice, or None.
    """

    __slots__ = ("condition", "other", "parent")

    def __init__(self, parent: Scope | None = None, condition: Expr | None = None) -> None:
        self.parent, self.condition = parent, const(True) if condition is None else condition
        self.other: Scope | None = None


Sides = tuple[Scope, Scope]


def sides_of(choice: Expr, scope: Scope) -> Sides:
    """The scopes of what a select chooses between."""
    yes, no = Scope(scope, choice.args[0]), Scope(scope, call("not", choice.args[0]))
    yes.other, no.other = no, yes
    return yes, no


def place(
    roots: Sequence[Expr], top: Scope, guards: Callable[[Expr], bool], reads: Callable[[Expr], bool]
) -> tuple[dict[Expr, Scope], dict[Expr, Sides]]:
    """The innermost scope that serves all users of each part of some expressions, and the scopes of guarded choices.

    What several scopes use, and none around them, has one of its own, entered when one of them is; what reads nothing
    may be computed in any case and needs none.

    Args:
        guards: whether a select keeps what it chooses between from being computed.
        reads: whether a part reads memory.
    """
    users: dict[Expr, list[Scope]] = {}
    for e in roots:
        users.setdefault(e, []).append(top)
    homes: dict[Expr, Scope] = {}
    sides: dict[Expr, Sides] = {}
    joined: dict[tuple[Scope, ...], Scope] = {}
    for e in reversed(list(walk(*roots))):
        if not e.args or e.op == "axis":
            continue
        found = _outermost(users.pop(e))
        if len(found) > 1:
            around = _common(found)
            found = [joined.setdefault(tuple(found), _join(around, found)) if reads(e) else around]
        home = homes[e] = found[0]
        scopes = [home] * len(e.args)
        if e.op == "select" and guards(e):
            sides[e] = sides_of(e, home)
            scopes[1:] = sides[e]
        for a, scope in zip(e.args, scopes, strict=True):
            users.setdefault(a, []).append(scope)
    return homes, sides


def _outermost(scopes: Sequence[Scope]) -> list[Scope]:
    """Scopes without those within others of them; two sides of a choice are the scope around it."""
    found = dict.fromkeys(scopes)
    pending = list(found)
    while pending:
        s = pending.pop()
        if s.other is not None and s in found and s.other in found and s.parent is not None:
            del found[s], found[s.other]
            found[s.parent] = None
            pending.append(s.parent)
    return [s for s in found if not any(a in found for a in _around(s))] if len(found) > 1 else list(found)


def _around(s: Scope) -> Iterator[Scope]:
    while s.parent is not None:
        s = s.parent
        yield s


def _common(scopes: Sequence[Scope]) -> Scope:
    """The innermost scope around all of several, none of which is around another."""
    first, *rest = scopes
    around = list(_around(first))
    for x in rest:
        others = set(_around(x))
        around = [s for s in around if s in others]
    return around[0]


def _join(around: Scope, scopes: Sequence[Scope]) -> Scope:
    """A scope that is entered when one of several is."""
    either: Expr | None = None
    for s in scopes:
        path = s.condition
        while s.parent is not None and s.parent is not around:
            s = s.parent
            path = call("and", s.condition, path)
        either = path if either is None else call("or", either, path)
    return Scope(around, either)


__all__ = ["Scope", "Sides", "place", "sides_of"]
