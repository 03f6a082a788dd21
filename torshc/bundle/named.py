"""Which weights of a model a library can take by name, and where their elements lie in its memory.

A weight counts where packing only moves its elements, in whatever order. That is found by packing arrays whose elements
are their own numbers. What is computed from several elements, or decided by their values, is no weight of the library's
any more: batch normalisation in a convolution, quantisation, Winograd's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..expr import BF16, F16, F32, F64, DType
from ..graph import Graph, Node, Value
from ..passes.interpret import run_node
from .copies import MOST, Copy, fewest, moved
from .host import NamedWeight
from .program import Program, Weight
from .stored import is_narrow

Array = npt.NDArray[Any]

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
        places = _traced(weight, roots) if roots else {}
        if places is None:
            why.update(dict.fromkeys(roots, _COMPUTED))
            continue
        for v, (source, place) in places.items():
            found.setdefault(v, []).extend(fewest(source, place + offset // v.dtype.size))
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


def _computed(value: Value, given: Mapping[Value, Array]) -> Array:
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


def _words(weight: Weight, given: Mapping[Value, Array], dtype: DType) -> npt.NDArray[np.uint64] | None:
    """A weight as words of a type's size; None where it is no whole number of them."""
    parts = weight.parts(_computed(weight.source, given))
    data = [np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in parts]
    whole = np.concatenate(data) if data else np.zeros(0, np.uint8)
    return None if whole.size % dtype.size else whole.view(f"u{dtype.size}").astype(np.uint64)


def _numbered(numbers: npt.NDArray[np.uint64], digit: int, dtype: DType, shape: Sequence[int]) -> Array:
    """An array whose elements are from 1 to 2 and hold a digit of their numbers."""
    bits = _MANTISSA[dtype]
    one = np.ones(1, dtype.numpy).view(f"u{dtype.size}").astype(np.uint64)
    held = (numbers >> np.uint64(bits * digit)) & np.uint64((1 << bits) - 1)
    return (one | held).astype(f"u{dtype.size}").view(dtype.numpy).reshape(shape)


def _traced(weight: Weight, roots: Sequence[Value]) -> dict[Value, tuple[Any, Any]] | None:
    """Which elements of some weights of the model lie in a weight of the library, and where, in elements.

    Numbers are packed twice, in rising and in falling order: a word that comes out equal holds no weight of the model,
    and one that gives a number both times holds that element.

    Returns:
        None where some word is neither.
    """
    dtype = roots[0].dtype
    if any(v.dtype is not dtype for v in roots):
        return None
    sizes = [math.prod(v.type.static_shape or ()) for v in roots]
    starts = np.cumsum([0, *sizes])
    total = int(starts[-1]) + int(starts[-1]) % 2  # even, so that no number is the same in both orders
    bits, one = _MANTISSA[dtype], np.ones(1, dtype.numpy).view(f"u{dtype.size}").astype(np.uint64)[0]
    rising: Any = np.uint64(0)
    falling: Any = np.uint64(0)
    fixed: Any = True
    valid: Any = True
    for digit in range(max(1, -(-(total - 1).bit_length() // bits))):
        read = []
        for turned in (False, True):
            given = {}
            for v, start, size in zip(roots, starts[:-1], sizes, strict=True):
                numbers = np.arange(start, start + size, dtype=np.uint64)
                numbers = np.uint64(total - 1) - numbers if turned else numbers
                given[v] = _numbered(numbers, digit, dtype, v.type.static_shape or ())
            words = _words(weight, given, dtype)
            if words is None:
                return None
            read.append(words)
        mask, shift = np.uint64((1 << bits) - 1), np.uint64(bits * digit)
        fixed = fixed & (read[0] == read[1])
        valid = valid & (read[0] & ~mask == one) & (read[1] & ~mask == one)
        rising, falling = rising | (read[0] & mask) << shift, falling | (read[1] & mask) << shift
    element = valid & (rising + falling == total - 1) & (rising < starts[-1])
    if not np.all(fixed | element):
        return None
    places = np.flatnonzero(element & ~fixed)
    numbers = rising[places].astype(np.int64)
    inside = {v: (numbers >= a) & (numbers < b) for v, a, b in zip(roots, starts[:-1], starts[1:], strict=True)}
    return {v: (numbers[i] - a, places[i]) for (v, i), a in zip(inside.items(), starts[:-1], strict=True) if i.any()}


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
    values = {w.name: _drawn(rng, graph.weights[w.name]) for w in free}
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


def _drawn(rng: np.random.Generator, like: Value) -> Array:
    """Numbers of either sign, and of many sizes."""
    shape = like.type.static_shape or ()
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)).astype(like.dtype.numpy)


def _agree(some: Iterable[NamedWeight], values: Mapping[str, Array], before: Program, after: Program) -> bool:
    """Whether copying other values of some weights makes what compiling them makes."""
    known = [(copy, values[w.name].reshape(-1)) for w in some for copy in w.copies]
    for old, new, offset in zip(before.weights, after.weights, before.offsets, strict=True):
        wanted = _bytes(new)
        got = _bytes(old)
        for copy, given in known:
            size = given.itemsize
            if offset <= copy.place * size < offset + old.nbytes:
                moved(copy, given.view(f"u{size}"), got.view(f"u{size}"), offset // size)
        if not np.array_equal(got, wanted):
            return False
    return True


def _bytes(weight: Weight) -> npt.NDArray[np.uint8]:
    parts = [np.ascontiguousarray(p).reshape(-1).view(np.uint8) for p in weight.parts()]
    return np.concatenate(parts) if parts else np.zeros(0, np.uint8)
