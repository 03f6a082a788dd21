"""Sizes and values of inputs that a model is compiled for once more, as ``--specialize`` says them.

``batch=1,8 seq=64..128 mask=1``: a name that is no symbolic size of the model is an input's, whose elements all are the
number. Only the model tells which, so either is a :class:`SizeRange` here. ``mask=padded`` is for an input with zeros,
which say that rows are padding.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path

from .budget import afford
from .errors import ConfigError
from .manifest import PADDED, InputValue, PaddedInput, SizeRange, sizes_text

Asked = tuple[SizeRange | PaddedInput, ...]  # a range, or a number, for each name, in the order given
# What of these is a size of a model, what a value of an input, and what a mask of padding.
Case = tuple[SizeRange | InputValue | PaddedInput, ...]

LARGEST = 2**31 - 1  # a run refuses larger sizes
_LONGEST = 1 << 16  # characters of a text or a file
_FORM = (
    "write NAME=SIZE,... for each symbolic size and NAME=VALUE for an input that is the same throughout, such as "
    "'batch=1,8 seq=64..128 mask=1', or @FILE"
)
_RANGE = re.compile(r"(-?[0-9]{1,20})(?:\.\.([0-9]{1,10}))?\Z", re.ASCII)


def parse_cases(text: str) -> list[Asked]:
    """All combinations of the sizes and values in a text, the last name's changing first.

    Raises:
        ConfigError: it is not of this form, a range is not within 1 to 2^31 - 1, or a name is there twice.
        OverBudget: there are more than the budget ``variants``.

    >>> [sizes_text(case) for case in parse_cases("batch=1,8 seq=64..128")]
    ['batch=1 seq=64..128', 'batch=8 seq=64..128']
    """
    choices: list[list[SizeRange | PaddedInput]] = []
    for word in text.split():
        name, equals, sizes = word.rpartition("=")
        if not equals or not name:
            raise ConfigError(f"{word[:80]!r} of --specialize says no size", _FORM)
        if any(name == found[0].name for found in choices):
            raise ConfigError(f"--specialize {text[:80]!r} gives sizes of {name!r} twice", "separate sizes by commas")
        choices.append([_range(name, part) for part in sizes.split(",")])
    if not choices:
        raise ConfigError("--specialize without a size", _FORM)
    count = math.prod(map(len, choices))
    afford("variants", count, f"--specialize {text[:80]!r} asks for {count} variants")
    return list(product(*choices))


def _range(name: str, text: str) -> SizeRange | PaddedInput:
    if text == PADDED:
        return PaddedInput(name)
    found = _RANGE.match(text)
    if found is None:
        raise ConfigError(f"{text[:40]!r} is no size of {name!r}", _FORM)
    asked = SizeRange(name, int(found[1]), int(found[2] or found[1]))
    if found[2]:
        check_size(asked)
    return asked


def check_size(size: SizeRange) -> None:
    """Refuse what no symbolic size can be.

    Raises:
        ConfigError: it is not 1 to 2^31 - 1, or a range that goes down.
    """
    if not 1 <= size.least <= size.most <= LARGEST:
        text = str(size).removeprefix(f"{size.name}=")
        raise ConfigError(f"size {text} of {size.name!r}: a size is 1 to 2^31 - 1, and a range goes up")


def read_cases(texts: Sequence[str]) -> list[Asked]:
    """The cases of all texts in order; ``@FILE`` stands for the lines of a file, in which # begins a comment.

    Raises:
        ConfigError: a file cannot be read, a text is wrong, or the same sizes are there twice.
        OverBudget: there are more than the budget ``variants``.
    """
    found: dict[frozenset[SizeRange | PaddedInput], Asked] = {}
    for text in _lines(texts):
        for case in parse_cases(text):
            if frozenset(case) in found:
                raise ConfigError(f"--specialize gives {sizes_text(case)} twice", "leave one out")
            found[frozenset(case)] = case
            afford("variants", len(found), f"--specialize asks for {len(found)} variants or more")
    return list(found.values())


def case_files(texts: Iterable[str]) -> list[Path]:
    """The files among texts."""
    return [Path(text[1:]) for text in texts if text.startswith("@")]


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        if not text.startswith("@"):
            yield text
            continue
        if not (path := Path(text[1:])).is_file():
            raise ConfigError(f"--specialize {text}: there is no such file")
        try:
            with path.open(encoding="utf-8") as file:
                whole = file.read(_LONGEST + 1)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(f"--specialize {text}: the file cannot be read: {why}") from error
        if len(whole) > _LONGEST:
            raise ConfigError(f"--specialize {text}: the file is larger than {_LONGEST} characters")
        lines = (line.partition("#")[0].strip() for line in whole.splitlines())
        yield from filter(None, lines)
