"""Argument lists of kernels that are made of parts of another."""

from __future__ import annotations

from collections.abc import Mapping

from ..expr import Expr, load, rebuild
from .base import Buffer, Kernel, Store, Temporary
from .heavy import Strided


class Arguments:
    """The argument list of a kernel made of a part of another's expressions.

    Args:
        kernel: the other.
        known: registers, and what follows from them, that are in memory by now: where.
    """

    def __init__(self, kernel: Kernel, known: Mapping[Expr, tuple[Temporary, Expr]] | None = None) -> None:
        self.kernel, self.known = kernel, known or {}
        self.list: list[Buffer] = []
        self._numbers: dict[Buffer, int] = {}

    def add(self, operand: Temporary, what: Expr, written: bool = True) -> int:
        """The number of memory that holds a register for each point."""
        return self._number(Buffer(operand, what.dtype, written))

    def bring(self, e: Expr) -> Expr:
        """An expression with loads of this list's buffers; what is known is read from memory."""

        def leaf(x: Expr) -> Expr | None:
            if x.op == "load" and isinstance(x.data, int):
                number = self._number(self.kernel.buffers[x.data])
                return load(number, tuple(self.bring(a) for a in x.args), x.dtype)
            if x in self.known:
                to, place = self.known[x]
                return load(self.add(to, x, written=False), (place,), x.dtype)
            return None

        return rebuild(e, leaf)

    def walked(self, operand: Strided) -> Strided:
        """An operand of the kernel's as one of this list's."""
        number = self._number(self.kernel.buffers[operand.buffer])
        return Strided(number, self.bring(operand.start), tuple(self.bring(s) for s in operand.steps))

    def store(self, s: Store) -> Store:
        """A store of the kernel's as one of this list's buffers."""
        value, offset = self.bring(s.value), self.bring(s.offset)
        return Store(self._number(self.kernel.buffers[s.buffer]), offset, value)

    def _number(self, buffer: Buffer) -> int:
        if buffer not in self._numbers:
            self._numbers[buffer] = len(self.list)
            self.list.append(buffer)
        return self._numbers[buffer]
