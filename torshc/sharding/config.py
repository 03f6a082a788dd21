"""How a model is cut into ranks as a user writes it (YAML), read into typed data; mistakes are told with their lines.

stages: 2                       # by the bytes of weights; or a list, of each stage what it begins with

stages:
  - embedding*
  - ["layer.2/*", "layer.3/*"]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ..base.errors import ConfigError, did_you_mean
from ..passes.config import Item, Problems, read_yaml

KEYS = ("stages",)
RANKS_MOST = 1024


@dataclass(frozen=True)
class Choice:
    """A name or a pattern of names (`*`, `?`, `[ab]`), and where it stands."""

    text: str
    where: str

    def among(self, names: Collection[str]) -> set[str]:
        """The names that it matches.

        Raises:
            ConfigError: there are none.
        """
        found = {name for name in names if fnmatchcase(name, self.text)}
        if self.text in names:
            found.add(self.text)
        if not found:
            raise ConfigError(
                f"{self.where}: no node and no tensor is called {self.text!r}{did_you_mean(self.text, [*names])}",
                "name one of the model, or a pattern such as '*layer.0*'; `torshc explain` lists the nodes",
            )
        return found


@dataclass(frozen=True)
class Stages:
    """A model as stages, one behind the other.

    Attributes:
        count: how many there are.
        names: of each stage, which nodes are its, by their names or those of what they make; empty where the bytes of
            weights decide.
        where: file and line.
    """

    count: int
    names: tuple[tuple[Choice, ...], ...] = ()
    where: str = ""


@dataclass(frozen=True)
class Sharding:
    """How a model is cut into ranks.

    Attributes:
        stages: stages one behind the other.
        file: where it was read.
    """

    stages: Stages
    file: str = ""

    @property
    def ranks(self) -> int:
        """How many processes share the model."""
        return self.stages.count


def read_sharding(path: Path) -> Sharding:
    """The cut in a file.

    Raises:
        ConfigError: with all that is wrong with it, each with its line.
    """
    top = read_yaml(path)
    problems, found = Problems(), dict[str, Any]()
    with problems.gather():
        items = top.mapping(KEYS)
        if not items:
            raise top.error("nothing says how the model is cut", f"one of: {', '.join(KEYS)}")
        for key, item in items.items():
            with problems.gather():
                found[key] = _READERS[key](item)
    problems.settle()
    return Sharding(file=top.file, **found)


def _place(item: Item) -> str:
    return f"{item.file}:{item.line}"


def _stages(item: Item) -> Stages:
    if not isinstance(item.value, list):
        return Stages(item.integer(2, RANKS_MOST), where=_place(item))
    stages = item.sequence()
    if not 2 <= len(stages) <= RANKS_MOST:
        raise item.error(f"{len(stages)} stages", f"a list of 2 to {RANKS_MOST}, or their number")
    return Stages(len(stages), tuple(tuple(_choices(stage)) for stage in stages), _place(item))


def _choices(item: Item) -> Iterable[Choice]:
    items: Sequence[Item] = item.sequence() if isinstance(item.value, list) else [item]
    if not items:
        raise item.error("no names", "name nodes or tensors of the model, or patterns of them")
    return [Choice(i.text(), _place(i)) for i in items]


_READERS = {"stages": _stages}
