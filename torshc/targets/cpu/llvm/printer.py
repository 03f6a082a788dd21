"""What templates of kernels ask for in the LLVM target: instructions of a kernel's expressions, between their own."""

from __future__ import annotations

from collections.abc import Sequence

from ....expr import F32, Expr, as_expr, as_int, const, walk
from ....kernels.base import Store
from ....kernels.heavy import Strided
from ...base import environment
from ..tiles import BLOCK_K
from .ir import Reg, vector
from .kernels import Writer, points_of
from .math import order


class Printer(Writer):
    """Prints a kernel by its template; registers of the template are given by their names.

    Attributes:
        piece: terms of a product's sum that are added one after the other, where it has many more.
    """

    piece = BLOCK_K

    def render(self) -> Printer:
        template = environment(("llvm",)).get_template(f"{self.kernel.kind}.ll.j2")
        lines = map(str.strip, template.render(k=self.kernel, p=self, L=self.width).splitlines())
        self.text = [line if line.endswith(":") else f"  {line}" for line in lines if line]
        return self

    def _written(self) -> str:
        """The instructions that were added."""
        text, self.text = "".join(f"{line}\n" for line in self.text), []
        return text

    def known(self, e: Expr | int | None) -> int | None:
        """The value of a size, where it is known and there is one."""
        return None if e is None else as_int(as_expr(e))

    def in_pieces(self, terms: Expr | int) -> bool:
        """Whether a sum of so many terms is added in pieces."""
        count = self.known(terms)
        return count is None or count > self.piece * 3 // 2

    def floats(self, lanes: int) -> str:
        """The type of some f32."""
        return vector("float", lanes)

    def axis(self, axis: Expr, register: str) -> str:
        """Sets an axis."""
        self.axes[axis] = Reg(register, "i64")
        return ""

    def axes_of(self, axes: Sequence[Expr], point: str) -> str:
        """Sets axes to those of a point."""
        self.decode(axes, Reg(point, "i64"))
        return self._written()

    def let(self, **sizes: Expr | int) -> str:
        """Sizes, or indices of axes, as registers of these names."""
        for name, e in sizes.items():
            self.put(f"  %{name} = bitcast i64 {self.size(as_expr(e))} to i64")
        return self._written()

    def place(self, name: str, operand: Strided) -> str:
        """Where an operand begins, over the axes that are set."""
        self.put(f"  %{name} = getelementptr float, ptr %p{operand.buffer}, i64 {self.size(operand.start)}")
        return self._written()

    def points(self, axes: Sequence[Expr]) -> Expr:
        """Number of points of some axes."""
        return points_of(axes)

    def integer(self, name: str, e: Expr) -> str:
        """An i64 of the value of an expression of signed integers."""
        return self._name_register(name, self.convert("sext", self.value(e, None, 1), "i64"))

    def order(self, name: str, e: Expr) -> str:
        """An i64 in whose order values of an expression come."""
        return self._name_register(name, order(self, self.value(e, None, 1), e.dtype))

    def floats_of(self, name: str, e: Expr | float, lane: Expr, lanes: int, accs: str = "") -> str:
        """An expression of f32 over a block of lanes, as a register; `accs` begins the names of what it is made of."""
        value = e if isinstance(e, Expr) else const(e, F32)
        return self._name_register(
            name, self.splat(self.value(value, lane, lanes, self._accs([value], accs, lanes)), lanes)
        )

    def put_stores(self, stores: Sequence[Store], lane: Expr | None, lanes: int, accs: str = "") -> str:
        """Stores over a block of lanes; `accs` begins the names of the registers of f32 that they are made of."""
        self.stores(stores, lane, lanes, self._accs([s.value for s in stores], accs, lanes))
        return self._written()

    def _accs(self, values: Sequence[Expr], prefix: str, lanes: int) -> dict[str, Reg]:
        names = dict.fromkeys(str(x.data) for x in walk(*values) if x.op == "acc")
        return {name: Reg(f"%{prefix}.{name}", "float", lanes) for name in names}

    def _name_register(self, name: str, x: Reg) -> str:
        self.put(f"  %{name} = bitcast {x.typed} to {x.full}")
        return self._written()


__all__ = ["Printer"]
