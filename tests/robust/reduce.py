"""Making what fails smaller, shared by the fuzzers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from onnx import NodeProto

from torshc.formats.cut import reads

T = TypeVar("T")


def least(
    failing: T, fails: Callable[[T], bool], candidates: Callable[[T], Iterator[T]], tries: int | None = None
) -> T:
    """What still fails after the first candidate that does was taken, again and again.

    Args:
        tries: the most candidates that are looked at; each may be a compilation.
    """
    left = tries
    while True:
        found = None
        for candidate in islice(candidates(failing), left):
            left = None if left is None else left - 1
            if fails(candidate):
                found = candidate
                break
        if found is None:
            return failing
        failing = found


def needed(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> tuple[tuple[NodeProto, ...], set[str]]:
    """The nodes that some outputs need, in order, and the names of all values that they need."""
    names, kept = set(outputs), []
    for n in reversed(nodes):
        if names.intersection(n.output):
            kept.append(n)
            names.update(reads(n))
    return tuple(reversed(kept)), names
