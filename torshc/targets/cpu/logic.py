"""Truth values of truth values, in a loop that compilers make vectors of bytes of: masks are four times as wide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...expr import BOOL, Expr, axis, call, const, length, rebuild, walk
from ...kernels.base import Kernel
from ...kernels.nest import MapKernel

LONG = 100  # nodes up to which a value is one expression, in which what is shared is written each time
_OPERATORS = ("and", "or", "xor", "not")


@dataclass(frozen=True)
class LogicKernel(MapKernel):
    """A map kernel of truth values alone, which are bytes.

    Attributes:
        reads: the loads.
        operands: axes that stand for the bytes that these load.
        results: what is stored, of these.
    """

    template: ClassVar[str] = "logic.c.j2"

    reads: tuple[Expr, ...]
    operands: tuple[Expr, ...]
    results: tuple[Expr, ...]


def in_bytes(kernel: Kernel) -> Kernel:
    """A map kernel of truth values alone as a loop over bytes; any other as it is."""
    values = [s.value for s in kernel.stores] if type(kernel) is MapKernel else []
    if not values or not all(length(v) <= LONG and _is_logic(v) for v in values):
        return kernel
    reads = tuple(x for x in walk(*values) if x.op == "load")
    operands = tuple(axis(f"x{n}", 256) for n in range(len(reads)))
    found = {x: call("ne", operand, const(0)) for x, operand in zip(reads, operands, strict=True)}
    results = tuple(rebuild(v, found.get) for v in values)
    return LogicKernel.of(kernel, reads=reads, operands=operands, results=results)


def _is_logic(e: Expr) -> bool:
    """Whether a value is made of truth values by operators, of at least one of these."""
    pending = [e]
    while pending:
        x = pending.pop()
        if x.op == "load":
            if x.dtype is not BOOL or any(y.op == "load" for y in walk(*x.args)):
                return False
        elif x.op not in _OPERATORS:
            return False
        else:
            pending += x.args
    return e.op in _OPERATORS
