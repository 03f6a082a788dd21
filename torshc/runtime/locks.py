"""Locks that a child of fork() finds open: there is no thread in it that would give one back."""

from __future__ import annotations

import os
from typing import TypeVar
from weakref import WeakSet

Lock = TypeVar("Lock", bound=object)
_locks: WeakSet[object] = WeakSet()


def opened_in_children(lock: Lock) -> Lock:
    """The lock, which a child of fork() finds open whoever holds it when its parent forks.

    What it guards may be half done there. So a child changes nothing of it: the library refuses its calls.
    """
    _locks.add(lock)
    return lock


def _open() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does with its own


os.register_at_fork(after_in_child=_open)
