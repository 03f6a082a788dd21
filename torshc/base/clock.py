"""How long the stages of a compilation take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Observer = Callable[[str, float], None]


class Clock:
    """Times stages and reports each to an observer."""

    def __init__(self, observer: Observer | None) -> None:
        self.seconds: dict[str, float] = {}
        self.observer = observer

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        if self.observer:
            self.observer(name, 0.0)
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
        if self.observer:
            self.observer(name, self.seconds[name])
