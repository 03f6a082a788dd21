"""Random numbers of tests: each test has a generator of its own, whatever ran before it."""

from __future__ import annotations

import os
import zlib
from typing import Any, cast

import numpy as np


class _Seeded:
    """Gives what a generator has, of one that is made anew for each test."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._test: str | None = None

    def __getattr__(self, name: str) -> Any:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]  # behind it stands the phase
        if test != self._test:
            self._test = test
            self._generator = np.random.default_rng([self._seed, zlib.crc32(test.encode())])
        return getattr(self._generator, name)


def seeded(seed: int) -> np.random.Generator:
    """A generator for a module: a test's numbers follow from this seed and the test's own name and parameters."""
    return cast(np.random.Generator, _Seeded(seed))
