"""Marks: what rules say about nodes, carried through all passes to the one that forms groups."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RuleName:
    """A rule and where it stands.

    Attributes:
        name: as its file says.
        where: file and line of a rule of the user's, empty for one that comes with torshc.
    """

    name: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.where})" if self.where else self.name


@dataclass(frozen=True)
class Mark:
    """One place at which the pattern of a rule matched; all nodes of that place bear the same mark.

    Attributes:
        place: number of the place among those of the rule, in one graph.
    """

    rule: RuleName
    place: int
