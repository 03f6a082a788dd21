"""Printing of scalar expressions as statements over vectors of lanes, in C with clang's and gcc's vector extensions.

A block of statements runs along one axis, the lane axis. An index that does not move with it is printed once as a
scalar; a load that moves by one is a vector load, by nothing a splat, by anything else a gather. Conditions on
indices become ``if`` when they are one for the whole block, and masks where they are not, so that no guarded load is
ever made outside its tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...expr import BOOL, I32, I64, DType, Expr, locals_of, walk
from ...expr.lanes import LaneSteps
from ...kernels.base import Buffer, Store
from ..index import OPERATORS, STORED, is_index, literal, scalar

INLINE = 60  # characters; a longer value has a name even when it is read once


@dataclass(frozen=True)
class Names:
    """What expressions refer to, as C names.

    Attributes:
        axes: C expression of each axis; the lane axis's is the first element of the block.
        dims: C name of each symbolic dimension.
        accs: name of the register that holds each accumulator or row statistic (a vector).
        buffers: arguments of the kernel; buffer k is ``b<k>`` in C.
        rows: names of scratch rows, by the key of their loads.
    """

    axes: Mapping[Expr, str]
    dims: Mapping[Any, str]
    buffers: Sequence[Buffer]
    accs: Mapping[str, str]


def vector_type(dtype: DType) -> str:
    """C type of a register of a dtype; masks are i32 lanes."""
    return "i32v" if dtype is BOOL else f"{dtype.compute}v"


class Block:
    """Statements of one block of lanes.

    Args:
        names: C names of what the expressions hold.
        lane: the axis that the lanes run along, or None when all lanes compute the same.
        lanes: lanes of a vector.
        count: C name of the number of valid lanes in a partial block, or None in a full one.
        prefix: start of the names of temporaries.
    """

    def __init__(
        self, names: Names, lane: Expr | None, lanes: int, count: str | None = None, prefix: str = "v"
    ) -> None:
        self.names, self.lane, self.lanes, self.count, self.prefix = names, lane, lanes, count, prefix
        self._steps = None if lane is None else LaneSteps(lane, lanes)
        self.lines: list[str] = []
        self._memo: list[dict[Expr, str]] = [{}]
        self._masks: list[str] = []
        self._uses: dict[Expr, int] = {}
        self._depth = 0
        self._next = 0

    def store(self, s: Store, value: str) -> None:
        """Add the statements that store a vector."""
        dtype = self.names.buffers[s.buffer].dtype
        step = self._step(s.offset)
        if step is None or step not in (0, 1):
            where = self._vector_index(s.offset)
            self._line(self._call(f"scatter{self._n}", dtype, f"b{s.buffer}", where, value, *self._counted) + ";")
        elif step == 0 and self.lane is not None:
            # Every lane would write the same place: the first one does.
            self._line(self._call("storen", dtype, f"b{s.buffer} + {self.index(s.offset)}", value, "1") + ";")
        else:
            place = f"b{s.buffer} + {self.index(s.offset)}"
            count = self._counted if self.lane is not None else ["1"]
            name = "store" if not count else "storen"
            self._line(self._call(name, dtype, place, value, *count) + ";")

    def emit(self, e: Expr) -> str:
        """Add the statements that compute an expression; returns the C name (or literal) of its vector."""
        for scope in reversed(self._memo):
            if e in scope:
                return scope[e]
        text = self._text(e)
        if e.op not in ("const", "acc") and not text.isidentifier():
            once = self._uses.get(e, 2) == 1 and len(text) < INLINE
            text = (f"({text})" if e.op in OPERATORS else text) if once else self._declare(e.dtype, text)
        self._memo[-1][e] = text
        return text

    def hold(self, e: Expr) -> str:
        """Like :meth:`emit`, but whatever is loaded for it is loaded now."""
        text = self.emit(e)
        if e.op != "const" and not text.isidentifier():
            text = self._memo[-1][e] = self._declare(e.dtype, text)
        return text

    def expect(self, *roots: Expr) -> None:
        """Announce what will be emitted, so that values with one reader are written where they are read."""
        if len(roots) > 1:
            for e in roots:
                self._uses[e] = self._uses.get(e, 0) + 1
        for e in walk(*roots):
            for a in e.args if e.op not in ("select", "axis") else (*e.args, *e.args):
                self._uses[a] = self._uses.get(a, 0) + 1

    def index(self, e: Expr) -> str:
        """An index at the first lane of the block, as a scalar; to be added to a pointer, or within brackets."""
        text = scalar(e, self.names.axes, self.names.dims, self.names.buffers)
        return text[1:-1] if e.op in ("add", "mul") and e.dtype is I64 else text

    @property
    def _n(self) -> str:
        return "n" if self.count else ""

    @property
    def _counted(self) -> list[str]:
        return [self.count] if self.count else []

    def _line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def _declare(self, dtype: DType, text: str) -> str:
        name = f"{self.prefix}{self._next}"
        self._next += 1
        self._line(f"const {vector_type(dtype)} {name} = {text};")
        return name

    def _call(self, function: str, dtype: DType, *args: str) -> str:
        return f"t_{function}_{dtype.name}({', '.join(args)})"

    def _step(self, e: Expr) -> int | None:
        return 0 if self._steps is None else self._steps.of(e)

    def _text(self, e: Expr) -> str:
        compute = e.dtype.compute
        if e.op == "const":
            return f"t_splat_{compute}({literal(e.data, e.dtype)})"
        if e.op == "acc":
            return self.names.accs[str(e.data)]
        if e.op == "load":
            return self._load(e)
        if e.dtype is I64 and (step := self._index_step(e)) is not None:
            start = f"t_splat_i64({self.index(e)})"
            return start if step == 0 else f"{start} + {'' if step == 1 else f'{step} * '}t_lanes_i64()"
        if e.op == "axis":
            return f"t_splat_i64({self.names.axes[e]})"
        if e.op == "select":
            return self._select(e)
        if e.dtype is BOOL and e.op in ("lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not") and self._is_uniform(e):
            return f"t_splat_bool({self.index(e)})"
        args = [self.emit(a) for a in e.args]
        if e.op.startswith(STORED):
            return f"t_{e.op}({args[0]})"
        if e.op == "cast":
            return f"t_cast_{e.args[0].dtype.compute}_{compute}({args[0]})"
        if e.op in OPERATORS and e.dtype.is_float:
            return f" {OPERATORS[e.op]} ".join(args)
        if e.op in ("add", "mul") and len(args) > 2:
            text = args[0]
            for a in args[1:]:
                text = f"t_{e.op}_{compute}({text}, {a})"
            return text
        return f"t_{e.op.removeprefix('bit')}_{e.args[0].dtype.compute}({', '.join(args)})"

    def _index_step(self, e: Expr) -> int | None:
        """Step of an index along the lanes, None when it has none or depends on data in a vector."""
        if any(x.op == "acc" or (x.op == "load" and self._step(x.args[0]) != 0) for x in locals_of(e)):
            return None
        # A row that a table of indices names is one for all lanes; behind a mask, the index may not be looked at.
        return self._step(e) if is_index(e, () if self._masks else (I64, I32)) else None

    def _is_uniform(self, e: Expr) -> bool:
        return is_index(e) and self._step(e) == 0

    def _load(self, e: Expr) -> str:
        (offset,) = e.args
        if isinstance(e.data, str):  # a row of scratch
            return f"t_load{self._n}_f32({', '.join([f'{e.data} + {self.index(offset)}', *self._counted])})"
        number = int(e.data)  # type: ignore[call-overload]
        dtype = self.names.buffers[number].dtype
        step = self._index_step(offset)
        if step == 0:
            at = f"b{number}[{self.index(offset)}]"
            if self._masks:
                return (
                    f"t_splat_{dtype.name}(t_hany_bool({self._masks[-1]}) ? {at} : 0)"
                    if _plain(dtype)
                    else self._masked(number, dtype, offset)
                )
            return f"t_splat_{dtype.name}({at})" if _plain(dtype) else f"t_splat_{dtype.name}(&{at})"
        if self._masks:
            return self._masked(number, dtype, offset)
        if step == 1:
            return self._call(f"load{self._n}", dtype, f"b{number} + {self.index(offset)}", *self._counted)
        return self._call(f"gather{self._n}", dtype, f"b{number}", self._vector_index(offset), *self._counted)

    def _masked(self, number: int, dtype: DType, offset: Expr) -> str:
        step = self._index_step(offset)
        mask = self._masks[-1]
        if step == 1:
            return self._call("loadm", dtype, f"b{number} + {self.index(offset)}", mask)
        return self._call("gatherm", dtype, f"b{number}", self._vector_index(offset), mask)

    def _vector_index(self, e: Expr) -> str:
        step = self._index_step(e)
        if step is not None:
            start = f"t_splat_i64({self.index(e)})"
            return start if step == 0 else f"{start} + {'' if step == 1 else f'{step} * '}t_lanes_i64()"
        return self.emit(e)

    def _select(self, e: Expr) -> str:
        condition, a, b = e.args
        guards = is_index(condition) and any(x.op == "load" for x in walk(a, b))
        if guards and self._is_uniform(condition):
            return self._branch(e)
        mask = self.emit(condition)
        if not guards:
            return f"t_select_{_register(e.dtype)}({mask}, {self.emit(a)}, {self.emit(b)})"
        if self.count:
            mask = self._declare(BOOL, f"{mask} & t_first_bool({self.count})")
        inner = [f"{self._masks[-1]} & {mask}", f"{self._masks[-1]} & ~{mask}"] if self._masks else [mask, f"~{mask}"]
        if self.count and not self._masks:
            inner[1] = f"~{mask} & t_first_bool({self.count})"
        values = []
        for guard, side in zip(inner, (a, b), strict=True):
            loads = any(x.op == "load" for x in walk(side))
            with self._scope(self._declare(BOOL, guard) if loads else None):
                values.append(self.emit(side))
        return f"t_select_{_register(e.dtype)}({mask}, {values[0]}, {values[1]})"

    def _branch(self, e: Expr) -> str:
        """A condition that is one for the whole block: an if, so that only one side's loads are made."""
        condition, a, b = e.args
        name = f"{self.prefix}{self._next}"
        self._next += 1
        self._line(f"{vector_type(e.dtype)} {name};")
        self._line(f"if {_bracketed(self.index(condition))} {{")
        for k, side in enumerate((a, b)):
            if k:
                self._line("} else {")
            self._depth += 1
            with self._scope(None):
                self._line(f"{name} = {self.emit(side)};")
            self._depth -= 1
        self._line("}")
        return name

    @contextmanager
    def _scope(self, mask: str | None) -> Iterator[None]:
        self._memo.append({})
        if mask:
            self._masks.append(mask)
        try:
            yield
        finally:
            self._memo.pop()
            if mask:
                self._masks.pop()


def _bracketed(text: str) -> str:
    return text if text.startswith("(") else f"({text})"


def _plain(dtype: DType) -> bool:
    """Whether one element in memory can be splatted as it is."""
    return not dtype.is_storage


def _register(dtype: DType) -> str:
    return "bool" if dtype is BOOL else dtype.compute
