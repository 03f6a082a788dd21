"""The C target: how kernels are spelled for clang and gcc with vector extensions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import jinja2

from .. import resources
from ..expr import DType, Expr, as_int, const, dims_of
from ..kernels.base import Kernel, Store
from ..kernels.nest import Accumulator
from .vector import CTYPES, Block, Names, literal, scalar, vector_type

_PLACEHOLDER = "KERNEL_NAME"
HEADERS = (
    "t_kernel.h", "t_vec.h", "t_cast.h", "t_math.h", "t_arith.h", "t_integer.h", "t_math_exp.h", "t_math_f64.h",
    "t_math_pow.h", "t_math_trig.h", "t_tile.h",
)  # fmt: skip
_IDENTITY = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}
_HORIZONTAL = {"add": "hsum", "mul": "hprod", "max": "hmax", "min": "hmin"}
_LOGIC = {"add": "or", "mul": "and", "max": "or", "min": "and"}


class Printer:
    """What a template asks for the text of a kernel's expressions.

    Args:
        kernel: the kernel that is rendered.
        lanes: lanes of a vector.
    """

    def __init__(self, kernel: Kernel, lanes: int) -> None:
        self.kernel = kernel
        self.lanes = lanes
        self.name = _PLACEHOLDER
        self.dim_names = {d: f"s{k}" for k, d in enumerate(dims_of(*kernel.expressions()))}
        self._axes: dict[Expr, str] = {}

    @property
    def dims(self) -> list[str]:
        """C names of the symbolic dimensions, in the order of the argument ``dim``."""
        return list(self.dim_names.values())

    def pointer(self, k: int) -> str:
        """Declaration of argument k."""
        b = self.kernel.buffers[k]
        return f"{'' if b.written else 'const '}{CTYPES[b.dtype.name]} *b{k} = buf[{k}];"

    def pointers(self) -> list[str]:
        return [self.pointer(k) for k in range(len(self.kernel.buffers))]

    def axis(self, axis: Expr, name: str = "") -> str:
        """The C name of a loop axis (its own unless another is given, which then stays)."""
        assert isinstance(axis.data, (tuple, str))
        self._axes[axis] = name or self._axes.get(axis, str(axis.data))
        return self._axes[axis]

    def extent(self, axis: Expr) -> str:
        return self.scalar(axis.args[0])

    def factor(self, axis: Expr) -> str:
        """The extent of an axis as an operand of a division."""
        return scalar(axis.args[0], self._axes, self.dim_names, self.kernel.buffers)

    def points(self, axes: Sequence[Expr]) -> str:
        """Number of points of a range of axes."""
        total = const(1)
        for a in axes:
            total = total * a.args[0]
        return self.scalar(total)

    def scalar(self, e: Expr | int) -> str:
        """An index or size as a C expression."""
        if isinstance(e, int):
            return str(e)
        text = scalar(e, self._axes, self.dim_names, self.kernel.buffers)
        return text[1:-1] if text.startswith("(") and _matched(text) else text

    def at_least(self, e: Expr, size: int) -> bool:
        """Whether a size may reach `size`: false only when it is known to be smaller."""
        known = as_int(e)
        return known is None or known >= size

    def type(self, dtype: DType) -> str:
        return vector_type(dtype)

    def ctype(self, dtype: DType) -> str:
        return CTYPES[dtype.name]

    def block(
        self,
        stores: Iterable[Store],
        lane: Expr | None,
        count: str | None = None,
        accs: Mapping[str, str] | None = None,
        indent: int = 8,
        lanes: int | None = None,
    ) -> str:
        """Statements of stores over one block of lanes (a partial one with `count` valid lanes)."""
        block = self._block(lane, count, accs, lanes)
        stores = list(stores)
        block.expect(*(s.value for s in stores))
        # All values come first: a result may lie where another store's operand lies.
        values = [block.hold(s.value) if len(stores) > 1 else block.emit(s.value) for s in stores]
        for s, value in zip(stores, values, strict=True):
            block.store(s, value)
        return _indented(block.lines, indent)

    def accumulate(
        self, stage: Any, lane: Expr | None, count: str | None, accs: Mapping[str, str], indent: int, suffix: str = ""
    ) -> str:
        """Statements that add one block to the accumulators of a stage, and keep what later stages need."""
        block = self._block(lane, count, accs)
        block.expect(*(a.term for a in stage.accumulators), *(k.value for k in stage.keeps))
        for keep in stage.keeps:
            position = self.row_position()
            value = block.emit(keep.value)
            extra = f", {count}" if count else ""
            block.lines.append(f"t_store{'n' if count else ''}_f32(row{keep.slot} + {position}, {value}{extra});")
        for a in stage.accumulators:
            term = block.emit(a.term)
            name = f"a{a.name}{suffix}"
            if count and lane is not None:
                term = f"t_select_{a.term.dtype.compute}(t_first_bool({count}), {term}, {self.identity(a)})"
            block.lines.append(f"{name} = {_combine(a, name, term)};")
        return _indented(block.lines, indent)

    def row_position(self) -> str:
        """Position in a scratch row at the first lane of the block."""
        position = const(0)
        for r in self.kernel.reduce:  # type: ignore[attr-defined]
            position = position * r.args[0] + r
        return self.scalar(position)

    def identity(self, a: Accumulator) -> str:
        """The vector that an accumulation starts from."""
        dtype = a.term.dtype
        if dtype.is_float:
            value: float | int = _IDENTITY[a.combine]
        elif dtype.name == "bool":
            value = 1 if a.combine in ("mul", "min") else 0
        else:
            low, high = dtype.range
            value = {"add": 0, "mul": 1, "max": low, "min": high}[a.combine]
        text = literal(value, dtype)
        if dtype.name == "bool":
            return f"t_splat_bool({text})"
        return f"t_splat_{dtype.compute}({text})"

    def join(self, a: Accumulator, left: str, right: str) -> str:
        """Two partial accumulations as one."""
        return _combine(a, left, right)

    def horizontal(self, a: Accumulator) -> str:
        """All lanes of an accumulator combined, in every lane."""
        t = a.term.dtype.compute
        if t == "bool":
            return f"t_splat_bool(t_h{'any' if _LOGIC[a.combine] == 'or' else 'all'}_bool(a{a.name}))"
        return f"t_splat_{t}(t_{_HORIZONTAL[a.combine]}_{t}(a{a.name}))"

    def value(
        self, e: Expr, accs: Mapping[str, str], lane: Expr | None, name: str, indent: int, count: str | None = None
    ) -> str:
        """Statements that define vector `name` as an expression."""
        block = self._block(lane, count, accs, prefix=f"{name}_")
        block.expect(e)
        text = block.emit(e)
        block.lines.append(f"const {vector_type(e.dtype)} {name} = {text};")
        return _indented(block.lines, indent)

    def _block(
        self,
        lane: Expr | None,
        count: str | None,
        accs: Mapping[str, str] | None,
        lanes: int | None = None,
        prefix: str = "v",
    ) -> Block:
        names = Names(self._axes, self.dim_names, self.kernel.buffers, accs or {})
        return Block(names, lane, lanes or self.lanes, count, prefix)


def _combine(a: Accumulator, left: str, right: str) -> str:
    if a.term.dtype.is_float and a.combine in ("add", "mul"):
        return f"{left} {'+' if a.combine == 'add' else '*'} {right}"
    if a.term.dtype.name == "bool":
        return f"t_{_LOGIC[a.combine]}_bool({left}, {right})"
    return f"t_{a.combine}_{a.term.dtype.compute}({left}, {right})"


def _indented(lines: Sequence[str], indent: int) -> str:
    return "\n".join(" " * indent + x for x in lines)


def _matched(text: str) -> bool:
    depth = 0
    for k, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return k == len(text) - 1
    return False


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates("c")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


_COMMENTS = re.compile(r"/\*.*?\*/|^[^/]*\*/")


def tidy(text: str) -> str:
    """Indent C by its brackets and drop runs of blank lines, so that templates need not care.

    >>> print(tidy("void f(void) {\\nif (x) {\\ny();\\n}\\n}"), end="")
    void f(void) {
        if (x) {
            y();
        }
    }
    """
    lines: list[str] = []
    depth = 0
    for raw in text.strip().splitlines():
        line = raw.strip()
        if not line:
            if lines and lines[-1]:
                lines.append("")
            continue
        code = "" if line.startswith(("*", "/*")) and "*/" not in line else _COMMENTS.sub("", line)
        opened = code.count("{") + code.count("(")
        closed = code.count("}") + code.count(")")
        leading = len(line) - len(line.lstrip("})"))
        indent = 0 if line.startswith("#") else 4 * max(0, depth - leading)
        lines.append(" " * (indent + line.startswith("*")) + line)
        depth += opened - closed
    return "\n".join(lines) + "\n"


def render(kernel: Kernel, lanes: int) -> tuple[str, str, list[str]]:
    """The source of a kernel.

    Returns:
        Its external name (made from its text, so that equal kernels are one), its source, and the names of the
        symbolic dimensions that it wants in ``dim``.
    """
    printer = Printer(kernel, lanes)
    text = tidy(_environment().get_template(kernel.template).render(k=kernel, p=printer, L=lanes))
    name = "k" + hashlib.sha256(f"{lanes}\n{text}".encode()).hexdigest()[:12]
    return name, text.replace(_PLACEHOLDER, name), list(printer.dim_names)


__all__ = ["HEADERS", "Printer", "render"]
