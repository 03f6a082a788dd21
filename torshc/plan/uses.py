"""What a model does with the elements of its inputs, so that random ones have a meaning.

    ids -> Gather(table[100, 8])                index, 0 .. 99
    lengths -> Less(Range(seq), lengths)        length, 1 .. seq
    hidden -> Where(hidden, -inf, scores)       hide, 0 .. 1

Each use is found where it shows and followed back to the inputs, through nodes that move elements or convert them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from ..expr import SYMBOLS, Expr, as_int, call, const, dims_of, is_nonnegative, substitute, walk
from ..graph import Graph, Node, Value
from ..ops.control.flow import all_nodes
from ..ops.core.bounds import MOVERS, OutOfRange

_MASKS = ("hide", "keep")
# What an input counts as that is used in several ways: the first of these.
ORDER = ("position", "index", "length", "number", "ratio", "positive", *_MASKS)
PREFERENCES = 100  # sizes that are kept above 0
EXAMINED = 1000  # of a graph's, the last ones, of which those are chosen
REACH = 200  # values that are followed from where a use shows
_COMPARISONS = ("Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_SAME = {"Abs": 1, "Cast": 1, "Clip": 1, "TopK": 1, **MOVERS}
_ANGLES = {"Cast": 1, "Concat": None, "Einsum": None, "Gemm": 2, "MatMul": None, "Mul": None, **MOVERS}
_RATIO = ("ratio", 0, const(1))
_POSITIVE: tuple[str, int, Expr | None] = ("positive", 0, None)
# Functions that are NaN for most numbers.
_DEFINED = {"Acos": _RATIO, "Asin": _RATIO, "Atanh": _RATIO, "Log": _POSITIVE, "Sqrt": _POSITIVE}
_HIDDEN = -1e3  # a score of this or less is as good as none


@dataclass(frozen=True)
class Use:
    """The meaning and the range of an input's elements.

    Attributes:
        input: its number.
        kind: "index" of a table; "length" of a sequence; "position" in one; "number" of things; "ratio", or
            "positive", of floats; "keep", 1 where a position is seen, or "hide", where it is not.
        least, most: of its elements; no `most` where nothing shows one.
    """

    input: int
    kind: str
    least: int
    most: Expr | None


@dataclass(frozen=True)
class InputNeeds:
    """Conditions on inputs without which a run computes nothing.

    Attributes:
        uses: how inputs are used that may not hold just any number.
        preferences: conditions with which no value is empty, where that does not go without saying.
    """

    uses: tuple[Use, ...] = ()
    preferences: tuple[Expr, ...] = ()


def input_needs(graph: Graph) -> InputNeeds:
    """Conditions on the inputs of a graph, as it was imported."""
    return InputNeeds(uses_of(graph), preferences_of(graph))


def uses_of(graph: Graph) -> tuple[Use, ...]:
    """How a graph, as it was imported, uses its inputs; none for those that may be any numbers."""
    numbers = {v: k for k, v in enumerate(graph.inputs)}
    found: dict[int, Use] = {}
    for node in all_nodes(graph):
        for v, kind, least, most in _uses_told_by(node):
            if v in numbers:
                use = Use(numbers[v], kind, least, most if most is not None and _is_known(most, graph) else None)
                found[use.input] = _both(found.get(use.input, use), use)
    return tuple(found[k] for k in sorted(found))


def _both(a: Use, b: Use) -> Use:
    """An input that is used in two ways."""
    first, other = sorted((a, b), key=lambda use: ORDER.index(use.kind))
    if other.kind in _MASKS:  # words that are hidden where they are padding are words
        return first
    most = [use.most for use in (a, b) if use.most is not None]
    return Use(a.input, first.kind, first.least, call("min", *most) if len(most) == 2 else most[0] if most else None)


def _is_known(size: Expr, graph: Graph) -> bool:
    """Whether sizes of inputs, and elements of inputs that are sizes, tell it before a run."""
    return all(name not in graph.sources or graph.sources[name].value in graph.inputs for name in dims_of(size))


def _uses_told_by(node: Node) -> Iterator[tuple[Value, str, int, Expr | None]]:
    """The uses of values that a node shows: as what it takes them, the least and the largest."""
    name, operands = node.op.name, node.operands
    if isinstance(node.op, OutOfRange):
        most = node.op.sizes[0]
        for size in node.op.sizes[1:]:
            most = call("min", most, size)
        least = int(node.op.use == "length")
        yield from ((v, node.op.use, least, most - 1) for v in _origins(operands[0]))
    elif name in _COMPARISONS and len(operands) == 2:
        for counted, other in (operands, operands[::-1]):
            if (count := _count(counted)) is not None:
                yield from ((v, "length", 1, count) for v in _origins(other))
    elif name in ("Cos", "Sin"):
        yield from ((v, "position", 0, None) for v in _origins(operands[0], _ANGLES) if v.dtype.is_int)
    elif name == "Where":
        for hidden, side in enumerate(operands[1:]):
            if _hides(side):
                for v, flipped in _masks(operands[0]):
                    yield v, "hide" if flipped == bool(hidden) else "keep", 0, const(1)
    elif name in _DEFINED:
        yield from ((v, *_DEFINED[name]) for v in _origins(operands[0]) if v.dtype.is_float)
    elif name == "NonMaxSuppression":
        limits = [("number", 1, operands[0].shape[1]), _RATIO, _RATIO]
        for given, limit in zip(node.inputs[2:], limits, strict=False):
            yield from ((v, *limit) for v in _origins(given)) if given is not None else ()


def _origins(v: Value, through: dict[str, int | None] | None = None) -> list[Value]:
    """The values without a producer whose elements these are.

    Args:
        through: how many operands of which operators are followed; those that keep what elements are if None.
    """
    steps = through or _SAME
    found, pending, seen = [], [v], {v}
    while pending and len(seen) <= REACH:
        x = pending.pop()
        node = x.producer
        if node is None:
            found.append(x)
            continue
        if node.op.name == "TopK" and x is not node.output:  # where the elements were
            continue
        # An index that counts from the end where it is negative is a Where of both.
        behind = node.operands[1:] if node.op.name == "Where" else ()
        behind = node.operands[: steps[node.op.name]] if node.op.name in steps else behind
        for y in behind:
            if y.const is None and y not in seen:
                seen.add(y)
                pending.append(y)
    return found


def _count(v: Value) -> Expr | None:
    """How many numbers there are, where they are 0, 1, 2, ... in some order."""
    node = v.producer
    while node is not None and (node.op.name == "Cast" or MOVERS.get(node.op.name) == 1):
        node = node.operands[0].producer
    if node is not None and node.op.name == "Range" and not node.operands:
        count = node.op.attributes()["count"]
        return count if isinstance(count, Expr) else const(count)
    rising = np.arange(v.const.size) if v.const is not None and v.const.size > 1 else None
    if rising is not None and v.const is not None and np.array_equal(v.const.reshape(-1), rising):
        return const(v.const.size)
    return None


def _hides(v: Value) -> bool:
    """Whether it is a score that leaves nothing of a position."""
    while v.producer is not None and v.const is None and v.producer.op.name in ("Cast", "Expand", "Reshape"):
        v = v.producer.operands[0]
    return v.const is not None and v.const.size > 0 and v.dtype.is_float and float(v.const.max()) <= _HIDDEN


def _masks(v: Value) -> list[tuple[Value, bool]]:
    """The values without a producer that a condition depends on, and whether they stand for its opposite."""
    found, pending, seen = [], [(v, False)], {v}
    while pending and len(seen) <= REACH:
        x, flipped = pending.pop()
        node = x.producer
        if node is None:
            found += [(x, flipped)] if not x.dtype.is_float else []
            continue
        behind: Iterable[Value] = ()
        if node.op.name in ("Cast", "Greater", "GreaterOrEqual", "And", "Or") or MOVERS.get(node.op.name) == 1:
            behind = node.operands if node.op.name in ("And", "Or") else node.operands[:1]
        elif node.op.name in ("Not", "Equal"):
            behind = node.operands[:1]
            flipped ^= node.op.name == "Not" or _is_zero(node.operands[1])
        for y in behind:
            if y.const is None and y not in seen:
                seen.add(y)
                pending.append((y, flipped))
    return found


def _is_zero(v: Value) -> bool:
    return v.const is not None and not v.const.any()


def preferences_of(graph: Graph) -> tuple[Expr, ...]:
    """Conditions with which no value of a graph is empty, where that does not go without saying.

    Sizes and elements of inputs are 1 or more where nobody gives them.
    """
    dims = dict.fromkeys(d for v in graph.values() for d in v.shape if as_int(d) is None)
    sizes = (d for d in reversed(dims) if _is_known(d, graph))  # the last are the least, where a picture shrinks
    found = (d for d in islice(sizes, EXAMINED) if d.op not in SYMBOLS and not _is_positive(d))
    return tuple(call("ge", d, 1) for d in islice(found, PREFERENCES))


def _is_positive(size: Expr) -> bool:
    """Whether a size is 1 or more, if all symbols in it are."""
    more = {x: x + 1 for x in walk(size) if x.op == "dim"}
    return is_nonnegative(substitute(size, more) - 1)
