"""Memory of results: where kernels write fast, and for runs after the one whose results nobody has any more."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from ctypes import addressof, c_char
from sys import getrefcount
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
# The memory of an array that is writable and contiguous, as a buffer of ctypes; of another there is none.
buffer_of: Callable[[Any], c_char] = c_char.from_buffer
Made = tuple[Array, int]  # an array whose elements are not set, and where they lie

# Bytes from which on the C library gives freed memory back, and new memory comes as pages to be zeroed.
LARGE = 32 << 20
MIDDLE = 128 << 10  # bytes from which on kernels lose more by a bad place than the 0.3 us that a good one takes
# A store of 64 bytes is two where it does not begin at a line of the caches. And processors take a load for one of what
# was just stored where their places in a page are equal: a kernel that reads an array from the beginning of a page on
# and writes another from the second line on takes 115 us for 4 MiB, and from the middle of a page on 95 (Zen 4). Large
# arrays of NumPy begin 16 bytes behind a page.
PAGE, PLACE = 4096, 2048
LONG = 1 << 20  # bytes from which on the 0.8 us that a new block takes are not worth keeping one
KEPT = 2  # blocks that wait for a run: a caller who replaces a result by the next has two


def address_of(array: Array) -> int:
    """Where an array's data lies: the shortest way there is, and one for what is empty, read-only or of no C type."""
    try:
        return addressof(buffer_of(array))
    except (BufferError, TypeError, ValueError):
        return int(array.__array_interface__["data"][0])


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
            return _placed(shape, dtype, np.empty(size + PAGE, np.uint8))
        return _placed(shape, dtype, np.asarray(_Lease(self._block(size + PAGE), self._free)))

    def maker(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Callable[[], Made]:
        """What makes arrays of that shape and type again and again: :meth:`empty`, or what takes less time."""
        if math.prod(shape) * dtype.itemsize < LONG:
            return Blocks(shape, dtype)

        def make() -> Made:
            array = self.empty(shape, dtype)
            return array, address_of(array)

        return make

    def _block(self, size: int) -> Array:
        """A block that waits and is not more than twice as large, or a new one."""
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


def _placed(shape: tuple[int, ...], dtype: np.dtype[Any], block: Array) -> Array:
    """An array on a block, which has a page more than it needs."""
    return np.ndarray(shape, dtype, block, (PLACE - address_of(block)) % PAGE)


_Block = tuple[Array, Array, int]  # a block, an array on it to take others from, and where that lies


def _block(array: Array) -> _Block:
    assert isinstance(array.base, np.ndarray)
    return array.base, array, address_of(array)


# The count of a block that only its tuple and the array in it refer to; what else counts differs between Pythons.
_UNUSED = next(getrefcount(found[0]) for found in [_block(np.empty(1)[...])])


class Blocks:
    """Makes arrays of one shape and type, on one of the last blocks where no other array is on it.

    An array on a block, or a view of it, is a reference to the block: the count of these says whether there is one. To
    find a block, whose address is known, takes half of the time that a new array and its address take.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._form, self._size = (shape, dtype), math.prod(shape) * dtype.itemsize
        self._ready: deque[_Block] = deque(maxlen=KEPT)

    def __call__(self) -> Made:
        """An array whose elements are not set, and where it lies.

        Raises:
            MemoryError: there is not enough.
        """
        for found in self._ready:
            if getrefcount(found[0]) == _UNUSED:
                return found[1][...], found[2]
        small = self._size < MIDDLE
        array = np.empty(*self._form)[...] if small else _placed(*self._form, np.empty(self._size + PAGE, np.uint8))
        found = _block(array)
        self._ready.append(found)
        return array[...], found[2]


class _Lease:
    """What arrays on a block have as their base: the block is free again when it goes."""

    def __init__(self, block: Array, free: deque[Array]) -> None:
        self._block, self._free = block, free
        self.__array_interface__ = block.__array_interface__

    def __del__(self) -> None:
        self._free.append(self._block)
