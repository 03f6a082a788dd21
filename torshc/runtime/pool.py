"""Memory of results: at lines of caches, and of large ones for runs after the one whose results nobody has any more."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from ctypes import addressof, c_ubyte
from sys import getrefcount
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Bytes from which on the C library gives freed memory back, and new memory comes as pages to be zeroed.
LARGE = 32 << 20
LINE = 64  # bytes of a line of the caches; a store of 64 bytes that begins elsewhere is two
MIDDLE = 128 << 10  # bytes from which on kernels lose more by that than the 0.3 us that an array at a line takes
LONG = 1 << 20  # bytes from which on the 0.8 us that a new block takes are not worth keeping one
KEPT = 2  # blocks that wait for a run: a caller who replaces a result by the next has two


class Pool:
    """Makes the arrays of results; what large ones lie in comes back when the last array on it is gone.

    Zeroing the pages of 64 MiB takes as long as writing them: twice the time of a kernel that does no more than that.
    """

    def __init__(self) -> None:
        self._free: deque[Array] = deque(maxlen=KEPT)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array whose elements are not set.

        Raises:
            MemoryError: there is not enough.
        """
        size = math.prod(shape) * dtype.itemsize
        if size < MIDDLE:
            return np.empty(shape, dtype)
        if size < LARGE:
            return _at_line(shape, dtype, size)
        return np.asarray(_Lease(self._block(size), self._free))[:size].view(dtype).reshape(shape)

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[tuple[int, ...], np.dtype[Any]], Array]:
        """What makes arrays of that shape and type again and again: :meth:`empty`, or what takes less time."""
        size = math.prod(shape) * dtype.itemsize
        if size < MIDDLE:
            return np.empty
        return Lines() if size < LONG else self.empty

    def _block(self, size: int) -> Array:
        """A block that waits and is not twice as large, or a new one."""
        for _ in range(KEPT):
            try:
                block = self._free.pop()
            except IndexError:
                break
            if size <= block.nbytes <= 2 * size:
                return block
            self._free.appendleft(block)
        return np.empty(size, np.uint8)

    def clear(self) -> None:
        """Frees what waits."""
        self._free.clear()


def _at_line(shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> Array:
    """An array of `size` bytes whose elements are not set, and which begins at a line."""
    block = np.empty(size + LINE, np.uint8)
    at = addressof(c_ubyte.from_buffer(block))  # type: ignore[arg-type]  # an array is a buffer
    return np.ndarray(shape, dtype, block, -at % LINE)


_Block = tuple[Array, Array]  # a block, and an array on it to take others from


def _block_at_line(shape: tuple[int, ...], dtype: np.dtype[Any]) -> _Block:
    array = _at_line(shape, dtype, math.prod(shape) * dtype.itemsize)
    assert isinstance(array.base, np.ndarray)
    return array.base, array


def _count_references(found: _Block) -> int:
    block, _ = found
    return getrefcount(block)


# Of a block that only its tuple and the array in it refer to; which others count differs between versions of Python.
_UNUSED = _count_references(_block_at_line((1,), np.dtype(np.uint8)))


class Lines:
    """Makes arrays of one shape and type that begin at a line, on one of the last blocks where no other array is on it.

    An array on a block, or a view of it, is a reference to the block: the count of these says whether there is one.
    """

    def __init__(self) -> None:
        self._ready: deque[_Block] = deque(maxlen=KEPT)

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An array whose elements are not set.

        Raises:
            MemoryError: there is not enough.
        """
        for found in self._ready:
            if _count_references(found) == _UNUSED:
                return found[1][...]
        found = _block_at_line(shape, dtype)
        self._ready.append(found)
        return found[1][...]


class _Lease:
    """What arrays on a block have as their base: the block is free again when it goes."""

    def __init__(self, block: Array, free: deque[Array]) -> None:
        self._block, self._free = block, free
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._block)
