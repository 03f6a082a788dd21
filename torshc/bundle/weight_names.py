"""Which weights of a model a library can take by name, and where their elements lie in its memory.

A weight counts where packing only moves its elements, in whatever order. That is found by packing arrays whose elements
are their own numbers. What is computed from several elements, or decided by their values, is no weight of the library's
any more: batch normalisation in a convolution, quantisation, Winograd's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..expr import BF16, F16, F32, F64, DType
from ..graph import Graph, Node, Value
from ..passes.interpret import run_node
from .copies import MOST, Copy, apply_copy, find_copies
from .host import NamedWeight
from .program import Program, Weight
from .stored import is_narrow

Array = npt.NDArray[Any]
Words = npt.NDArray[np.unsignedinteger[Any]]

_MANTISSA = {F64: 52, F32: 23, F16: 10, BF16: 7}  # bits of a number from 1 to 2 that may be any
_TRIES = 24  # compilations that look for the weights whose values decide
_ABSENT = "it was folded into others or into the code, or nothing needs it"
_COMPUTED = "it was folded into others, or rounded"
_DECIDES = "its values decided what was compiled"


def named_weights(graph: Graph, program: Program, stored: str) -> tuple[NamedWeight, ...]:
    """The weights that a graph keeps by name, with their places in a program's memory.

    Args:
        stored: the type of large weights in the bundle.
    """
    known = {
        v: name for name, v in graph.weights.items() if v.dtype in _MANTISSA and v.const is not None and v.const.size
    }
    found: dict[Value, list[Copy]] = {}
    why = {v: f"its elements are {v.dtype.name}" for v in graph.weights.values() if v.dtype not in _MANTISSA}
    for weight, offset in zip(program.weights, program.offsets, strict=True):
        roots = [v for v in _origins(weight.source) if v in known]
        if roots and is_narrow(weight, stored):
            why.update(dict.fromkeys(roots, f"it is stored as {stored}"))
            continue
        places = _trace_elements(weight, roots) if roots else {}
        if places is None:
            why.update(dict.fromkeys(roots, _COMPUTED))
            continue
        for v, (source, place) in places.items():
            found.setdefault(v, []).extend(find_copies(source, place + offset // v.dtype.size))
    why |= {v: "its elements lie in no order" for v, nests in found.items() if len(nests) > MOST}
    return tuple(
        NamedWeight(
            name,
            v.dtype.name,
            v.type.static_shape or (),
            tuple(found[v]) if v in found and v not in why else (),
            why.get(v, "" if v in found else _ABSENT),
        )
        for name, v in graph.weights.items()
        if "\0" not in name  # in C a name ends there, and would be another weight's
    )


def _origins(value: Value) -> dict[Value, None]:
    """The constants that one is computed from, itself where it is not."""
    found: dict[Value, None] = {}
    pending, seen = [value], {value}
    while pending:
        v = pending.pop()
        if v.folded is None:
            found[v] = None
            continue
        fresh = [x for x in v.folded[0].operands if x not in seen]
        pending += fresh
        seen.update(fresh)
    return found


def _compute_constant(value: Value, given: Mapping[Value, Array]) -> Array:
    """A constant with other arrays in place of some that it is computed from."""
    known: dict[Value, Array] = dict(given)
    pending = [value]
    while pending:
        v = pending[-1]
        if v in known:
            pending.pop()
        elif v.folded is None:
            assert v.const is not None
            known[v] = v.const
        elif missing := [x for x in v.folded[0].operands if x not in known]:
            pending += missing
        else:
            node: Node = v.folded[0]
            made = run_node(node, [None if x is None else known[x] for x in node.inputs])
            known.update(zip(node.outputs, made, strict=True))
            known[v] = made[v.folded[1]]
    return known[value]


def _words(weight: Weight, given: Mapping[Value, Array], dtype: DType) -> Words | None:
    """A weight as words of a type's size; None where it is no whole number of them."""
    parts = weight.parts(_compute_constant(weight.source, given))
    data = [np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in parts]
    whole = data[0] if len(data) == 1 else np.concatenate(data) if data else np.zeros(0, np.uint8)
    return None if whole.size % dtype.size else whole.view(_word(dtype))


def _word(dtype: DType) -> np.dtype[Any]:
    return np.dtype(f"u{dtype.size}")


@dataclass(frozen=True)
class _Digits:
    """Numbers below `total` as elements from 1 to 2, which hold as much of a number as their mantissa has bits."""

    dtype: DType
    total: int

    @property
    def count(self) -> int:
        return max(1, -(-(self.total - 1).bit_length() // _MANTISSA[self.dtype]))

    @property
    def wide(self) -> type[np.unsignedinteger[Any]]:
        """What holds a number, and the sum of two."""
        return np.uint32 if self.total < 1 << 31 else np.uint64

    @property
    def one(self) -> Words:
        return np.ones(1, self.dtype.numpy).view(_word(self.dtype))

    @property
    def mask(self) -> Words:
        return np.full(1, (1 << _MANTISSA[self.dtype]) - 1, _word(self.dtype))

    def shift(self, digit: int) -> Any:
        return self.wide(digit * _MANTISSA[self.dtype])

    def write(self, numbers: Words, digit: int) -> Words:
        """A digit of each number."""
        held: Words = (numbers >> self.shift(digit)).astype(_word(self.dtype)) & self.mask
        return held | self.one

    def read(self, words: Words, digit: int) -> tuple[Words, Any]:
        """What elements hold, in its place in the numbers, and which of them may be digits of any."""
        held = words & self.mask
        may = (words & ~self.mask == self.one) & (held <= (self.total - 1) >> int(self.shift(digit)))
        return held.astype(self.wide) << self.shift(digit), may


def _trace_elements(weight: Weight, roots: Sequence[Value]) -> dict[Value, tuple[Any, Any]] | None:
    """Which elements of some weights of the model lie in a weight of the library, and where, in elements.

    Numbers are packed twice, in rising and in falling order: a word that comes out equal holds no weight of the model,
    and one that gives a number both times holds that element.

    Returns:
        None where some word is neither.
    """
    dtype = roots[0].dtype
    if any(v.dtype is not dtype for v in roots):
        return None
    shapes = [v.type.static_shape or () for v in roots]
    starts = np.cumsum([0, *map(math.prod, shapes)])
    digits = _Digits(dtype, int(starts[-1]) + int(starts[-1]) % 2)  # even: no number is the same in both orders
    orders = [np.arange(digits.total, dtype=digits.wide)]
    orders.append(orders[0][::-1])
    found: list[Any] = [0, 0]
    fixed: Any = True
    valid: Any = True
    for digit in range(digits.count):
        read = []
        for k, numbers in enumerate(orders):
            parts = [digits.write(numbers[a:b], digit) for a, b in pairwise(starts)]
            given = {v: p.view(dtype.numpy).reshape(s) for v, p, s in zip(roots, parts, shapes, strict=True)}
            words = _words(weight, given, dtype)
            if words is None:
                return None
            held, may = digits.read(words, digit)
            found[k], valid = found[k] | held, valid & may
            read.append(words)
        fixed = fixed & (read[0] == read[1])
    element = valid & (found[0] + found[1] == digits.total - 1) & (found[0] < starts[-1])
    if not np.all(fixed | element):
        return None
    places = np.flatnonzero(element & ~fixed)
    at = found[0][places].astype(np.int64)
    inside = [(v, a, (at >= a) & (at < b)) for v, (a, b) in zip(roots, pairwise(starts), strict=True)]
    return {v: (at[i] - a, places[i]) for v, a, i in inside if i.any()}


def proven(
    named: Sequence[NamedWeight],
    graph: Graph,
    program: Program,
    compiled: Callable[[Mapping[str, Array]], Program | None],
) -> tuple[NamedWeight, ...]:
    """The weights without those of which compiling other values would make another library.

    Args:
        compiled: the program for other values of some weights, None where its kernels or its layout differ.
    """
    free = [w for w in named if not w.why]
    rng = np.random.default_rng(len(free))
    types = {w.name: graph.weights[w.name].type for w in free}
    values = {name: draw_numbers(rng, t.static_shape or (), t.dtype.numpy) for name, t in types.items()}
    tries = iter(range(_TRIES))

    def sound(some: list[NamedWeight]) -> list[NamedWeight]:
        if not some or next(tries, None) is None:
            return []
        other = compiled({w.name: values[w.name] for w in some})
        if other is not None and _agree(some, values, program, other):
            return some
        half = len(some) // 2
        return [*sound(some[:half]), *sound(some[half:])] if half else []

    found = sound(free)
    if len(found) < len(free):  # each may be sound alone, and not all of them together
        found = sound(found)
    kept = {w.name for w in found}
    return tuple(w if w.why or w.name in kept else replace(w, copies=(), why=_DECIDES) for w in named)


def draw_numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Numbers of either sign, and of many sizes."""
    sizes = (10.0 ** np.arange(-3, 4)).astype(np.float32)[rng.integers(0, 7, shape, np.uint8)]
    drawn: Array = (rng.standard_normal(shape, np.float32) * sizes).astype(dtype)
    return drawn


def _agree(some: Iterable[NamedWeight], values: Mapping[str, Array], before: Program, after: Program) -> bool:
    """Whether copying other values of some weights makes what compiling them makes."""
    changed = with_values(before, some, values)
    return all(np.array_equal(got, _bytes(new)) for got, new in zip(changed, after.weights, strict=True))


def with_values(
    program: Program, named: Iterable[NamedWeight], values: Mapping[str, Array]
) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of each weight of a program, once some are given by name, as the library would copy them."""
    known = [(copy, values[w.name].reshape(-1)) for w in named if w.name in values for copy in w.copies]
    for weight, offset in zip(program.weights, program.offsets, strict=True):
        found = _bytes(weight)
        for copy, given in known:
            size = given.itemsize
            if offset <= copy.place * size < offset + weight.nbytes:
                apply_copy(copy, given.view(f"u{size}"), found.view(f"u{size}"), offset // size)
        yield found


def _bytes(weight: Weight) -> npt.NDArray[np.uint8]:
    parts = [np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in weight.parts()]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)
