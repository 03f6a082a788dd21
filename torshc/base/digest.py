"""A hash that is computed beside other work."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor


class Digest:
    """SHA-256 of bytes, which must not change. A thread computes it, as hashlib leaves Python's lock to others."""

    def __init__(self, data: bytes | memoryview) -> None:
        pool = ThreadPoolExecutor(1)
        self._found = pool.submit(lambda: hashlib.sha256(data).hexdigest())
        pool.shutdown(wait=False)

    def text(self) -> str:
        """The hash, hexadecimal."""
        return self._found.result()
