"""How values move along the lanes of a vector: which are one for all lanes, and which step by a known number."""

from __future__ import annotations

from .affine import aligned
from .derived import Derived
from .dtype import I64
from .expr import Expr, as_int, walk_new
from .index import Poly, poly_of


class LaneSteps:
    """Steps of expressions from one lane to the next, kept for each of them, since expressions share parts.

    An integer has a step; of anything else it is only known whether all lanes of a block hold the same (a step of 0).
    Blocks of `lanes` start at multiples of `lanes`; so (lane + 8 * r) // 64 is one number in a block of 8, and
    (lane + 8 * r) % 64 steps by 1. What the kernel provides (`acc`) counts as the same in all lanes.

    Args:
        lane: the axis that vectors run along.
        lanes: lanes of a vector; 0 where blocks start anywhere.
    """

    def __init__(self, lane: Expr, lanes: int) -> None:
        self.lane, self.lanes = lane, lanes
        self._known: dict[Expr, int | None] = {}
        self._moves: Derived[bool] = Derived(lambda e, args: e is lane or any(args))

    def of(self, e: Expr) -> int | None:
        """The step of an expression, None when it has no single one."""
        for x in walk_new(e, self._known):
            self._known[x] = self._step(x)
        return self._known[e]

    def _step(self, e: Expr) -> int | None:
        if not self._moves(e):
            return 0
        if e is self.lane:
            return 1
        if e.op in ("add", "mul") and e.dtype is I64:
            return self._of_sum(poly_of(e))
        if all(self._known[a] == 0 for a in e.args):
            return 0
        if e.op in ("floordiv", "mod"):
            return self._of_quotient(e)
        if e.op in ("lt", "ge") and e.args[0].dtype is I64:
            # a < b flips only where a - b crosses 0; with everything a multiple of the block it flips between blocks.
            return 0 if self._runs(e.args[0] - e.args[1]) else None
        return None

    def _of_sum(self, terms: Poly) -> int | None:
        total = 0
        for atoms, c in terms.items():
            steps = [self.of(a) for a in atoms]
            if all(s == 0 for s in steps):
                continue
            if len(steps) > 1 or steps[0] is None:
                return None
            total += c * steps[0]
        return total

    def _of_quotient(self, e: Expr) -> int | None:
        x, d = e.args
        divisor = as_int(d)
        if divisor and self.lanes and divisor % self.lanes == 0 and self._runs(x):
            return 0 if e.op == "floordiv" else 1
        return None

    def halved(self, e: Expr) -> bool:
        """Whether an integer steps by 1 from each second lane of a block to the next: 3, 3, 4, 4 and so on."""
        moving = [(atoms, c) for atoms, c in poly_of(e).items() if any(self.of(a) != 0 for a in atoms)]
        if len(moving) != 1 or self.lanes < 2:
            return False
        atoms, c = moving[0]
        if c != 1 or len(atoms) != 1 or atoms[0].op != "floordiv" or as_int(atoms[0].args[1]) != 2:
            return False
        x = atoms[0].args[0]
        return self.of(x) == 1 and aligned(x, self.lane, self.lanes)

    def _runs(self, e: Expr) -> bool:
        """Whether an integer is a multiple of the lanes at the start of a block, and steps by 0 or 1 from there."""
        step = self.of(e)
        return step == 0 or (step == 1 and self.lanes > 0 and aligned(e, self.lane, self.lanes))


__all__ = ["LaneSteps"]
