"""YAML files with their line numbers, so that a message about a rule says where it stands."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..base import resources
from ..base.errors import ConfigError, did_you_mean

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 32
_CHECK = "check the indentation (spaces, no tabs), brackets and quotes"  # a remedy


@dataclass(frozen=True)
class Item:
    """A value of a YAML file and where it stands.

    Attributes:
        value: str, int, float, bool, None, a list of items, or a dict from str to items.
        file: the file, as given.
        line: counted from 1.
    """

    value: Any
    file: str
    line: int

    def error(self, message: str, remedy: str = "") -> ConfigError:
        """An error that says where this stands."""
        return ConfigError(f"{self.file}:{self.line}: {message}", remedy)

    def mapping(self, known: Sequence[str] | None = None, required: Sequence[str] = ()) -> dict[str, Item]:
        """The items by key.

        Raises:
            ConfigError: when this is not a mapping, or has a key that is not known, or lacks one.
        """
        if not isinstance(self.value, dict):
            remedy = f"write `key: value`, with a key of: {', '.join(known)}" if known else ""
            raise self.error(f"expected a mapping, found {self.kind()}", remedy)
        for key, item in self.value.items():
            if known is not None and key not in known:
                raise item.error(f"unknown key {key!r}{did_you_mean(key, known)}", f"known: {', '.join(known)}")
        for key in required:
            if key not in self.value:
                raise self.error(f"the key {key!r} is missing")
        return self.value

    def sequence(self) -> list[Item]:
        """The items in order.

        Raises:
            ConfigError: when this is not a list.
        """
        if not isinstance(self.value, list):
            raise self.error(f"expected a list, found {self.kind()}")
        return self.value

    def text(self) -> str:
        """The string.

        Raises:
            ConfigError: when this is something else.
        """
        if not isinstance(self.value, str):
            raise self.error(f"expected text, found {self.kind()}")
        return self.value

    def integer(self, low: int, high: int) -> int:
        """The whole number, from `low` to `high`.

        Raises:
            ConfigError: when this is something else or out of range.
        """
        if isinstance(self.value, bool) or not isinstance(self.value, int) or not low <= self.value <= high:
            raise self.error(f"expected a whole number from {low} to {high}, found {self.value!r}")
        return self.value

    def number(self, low: float, high: float) -> float:
        """The number, from `low` to `high`; YAML takes 1e-3, which has no point, for text.

        Raises:
            ConfigError: when this is something else or out of range.
        """
        value = self.value
        try:
            found = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
        except (ValueError, OverflowError):
            found = math.nan
        if not low <= found <= high:
            raise self.error(f"expected a number from {low:g} to {high:g}, found {value!r}")
        return found

    def flag(self) -> bool:
        """The truth value.

        Raises:
            ConfigError: when this is something else.
        """
        if not isinstance(self.value, bool):
            raise self.error(f"expected true or false, found {self.kind()}")
        return self.value

    def kind(self) -> str:
        """What this is, for messages."""
        if isinstance(self.value, dict | list):
            return "a mapping" if isinstance(self.value, dict) else "a list"
        return f"the text {self.value!r}" if isinstance(self.value, str) else repr(self.value)


class Mistakes(ConfigError):
    """Several things that are wrong with a file of rules, or with a pipeline."""

    def __init__(self, found: Sequence[ConfigError]) -> None:
        self.found = tuple(found)
        lines = [f"  - {e.message}{f' ({e.remedy})' if e.remedy else ''}" for e in found]
        super().__init__("\n".join([f"{len(found)} mistakes:", *lines]))


class Problems:
    """Gathers what is wrong with a file, so that all of it is told at once."""

    def __init__(self) -> None:
        self.found: list[ConfigError] = []

    @contextmanager
    def gather(self) -> Iterator[None]:
        """What fails inside is kept for the end."""
        try:
            yield
        except Mistakes as e:
            self.found.extend(e.found)
        except ConfigError as e:
            self.found.append(e)

    def settle(self) -> None:
        """Raise what was gathered.

        Raises:
            ConfigError: the one there is, or one that lists all.
        """
        if len(self.found) == 1:
            raise self.found[0]
        if self.found:
            raise Mistakes(self.found)


def read_yaml(path: Path) -> Item:
    """The contents of a YAML file.

    Raises:
        ConfigError: when it cannot be read or is no YAML.
    """
    try:
        with path.open("rb") as f:
            raw = f.read(_MAX_BYTES + 1)
        source = raw.decode("utf-8")
    except OSError as e:
        raise ConfigError(f"cannot read {str(path)!r}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path}: the file is not UTF-8 text, and so no YAML", "name a file of YAML") from e
    if len(raw) > _MAX_BYTES:
        raise ConfigError(f"{path}: the file is larger than {_MAX_BYTES} bytes")
    return parse_yaml(source, str(path), own=path.is_relative_to(resources.rules()))


# Ours are read by libyaml where it is there, ten times as fast. It has other messages, and deep nesting may end it.
_QUICK = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse_yaml(source: str, file: str, own: bool = False) -> Item:
    """The contents of YAML text; `own`: of a file that comes with torshc.

    Raises:
        ConfigError: when it is no YAML, or nests too deep, or repeats a key.
    """
    try:
        root = yaml.compose(source, Loader=_QUICK if own else yaml.SafeLoader)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 1
        raise ConfigError(f"{file}:{line}: not YAML: {e.problem or e}", _CHECK) from e
    except (yaml.YAMLError, RecursionError) as e:
        raise ConfigError(f"{file}: not YAML: {str(e).splitlines()[0] if str(e) else 'nested too deep'}") from e
    return Item(None, file, 1) if root is None else _item(root, file, 0, set())


def _item(node: yaml.Node, file: str, depth: int, seen: set[int]) -> Item:
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise ConfigError(f"{file}:{line}: aliases are not allowed here", "write the value out")
    seen.add(id(node))
    if depth > _MAX_DEPTH:
        raise ConfigError(f"{file}:{line}: nested too deep")
    if isinstance(node, yaml.SequenceNode):
        return Item([_item(n, file, depth + 1, seen) for n in node.value], file, line)
    if isinstance(node, yaml.MappingNode):
        entries: dict[str, Item] = {}
        for key, value in node.value:
            where = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigError(f"{file}:{where}: a key must be text")
            if key.value in entries:
                raise ConfigError(f"{file}:{where}: the key {key.value!r} appears twice")
            item = _item(value, file, depth + 1, seen)
            # A message about a key points at the key, wherever its value begins.
            entries[key.value] = Item(item.value, file, where)
        return Item(entries, file, line)
    return Item(_scalar(node), file, line)


def _scalar(node: yaml.Node) -> Any:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node.value
