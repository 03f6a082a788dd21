"""Random shape arithmetic as exporters write it, over symbolic dimensions, ending in operators that take sizes.

Concrete values run along, one row for each binding of the symbols, so that every step is one that the operator
allows for all of them: no division by 0, no negative size, nothing too large to hold.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from tests.support.models import model, with_types

from .reduce import needed
from .shape_values import FACTORS, NUMBERS, Array, Maker, Tensor

SYMBOLS = ("s0", "s1", "s2", "s3")
# Inputs of every graph; one of fewer symbols leaves out those of the others.
INPUTS: dict[str, tuple[int | str, ...]] = {
    "x0": ("s0",), "x1": (2, "s0"), "x2": ("s0", "s1"), "x3": ("s1", 3, "s2"), "x4": ("s3", "s1", 4, "s2"),
}  # fmt: skip
BINDINGS = (
    (1, 1, 1, 1), (2, 2, 2, 2), (7, 7, 7, 7), (5, 3, 2, 9), (16, 1, 33, 4), (12, 48, 6, 10), (1, 3, 2, 9), (5, 3, 1, 9),
    (5, 3, 2, 1),
    (0, 0, 0, 0), (0, 4, 1, 3), (6, 2, 0, 1),
)  # fmt: skip
POSITIVE = 9  # so many of them have no 0


@dataclass(frozen=True)
class Part:
    """A finished graph; several of them make a model.

    Attributes:
        seed: what makes it again, as does whether a 0 is among the bindings.
    """

    seed: int
    zeros: bool
    nodes: tuple[onnx.NodeProto, ...]
    weights: dict[str, Array]
    outputs: tuple[str, ...]

    @property
    def bindings(self) -> tuple[tuple[int, ...], ...]:
        return BINDINGS if self.zeros else BINDINGS[:POSITIVE]


def _quotient(a: Array, b: Array) -> Array:
    """Div of integers rounds towards zero."""
    if (b == 0).any():
        return np.asarray(np.inf)
    return np.asarray(a / b if a.dtype.kind == "f" else (np.sign(a) * np.sign(b) * (abs(a) // abs(b))).astype(a.dtype))


def _no_zero(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: np.asarray(np.inf) if (b == 0).any() else function(a, b)


_BINARY: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": _quotient, "Min": np.minimum, "Max": np.maximum,
}  # fmt: skip
_COMPARE: dict[str, Callable[..., Any]] = {
    "Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
_LOGIC: dict[str, Callable[..., Any]] = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
_REDUCE: dict[str, Callable[..., Any]] = {
    "ReduceProd": np.prod, "ReduceSum": np.sum, "ReduceMax": np.max, "ReduceMin": np.min,
}  # fmt: skip
_ROUND: dict[str, Callable[..., Any]] = {"Ceil": np.ceil, "Floor": np.floor, "Round": np.rint, "Sqrt": np.sqrt}
_SIGNED: dict[str, Callable[..., Any]] = {"Neg": np.negative, "Abs": np.abs, "Sign": np.sign}


def _new_shape(m: Maker) -> None:
    m.shape(m.rng.choice(m.tensors))


def _cast(m: Maker) -> None:
    if (v := m.pick(*NUMBERS, "bool")) is not None:
        m.to(v, m.rng.choice([d for d in (*NUMBERS, "int32", "bool") if d != v.dtype]))


def _arithmetic(m: Maker) -> None:
    v = m.pick()
    w = m.partner(v) if v is not None else None
    if v is None or w is None:
        return
    pair = [v, w] if m.rng.random() < 0.7 else [w, v]
    op = m.rng.choice((*_BINARY, "Mul", "Div", "Mod"))
    if op == "Mod" and v.dtype == "float32":
        m.small("Mod", pair, _no_zero(np.fmod), fmod=1)
    elif op == "Mod":
        m.small("Mod", pair, _no_zero(np.mod))
    else:
        m.small(op, pair, _BINARY[op])


def _scale(m: Maker) -> None:
    """To float, by a factor, rounded, and back."""
    v = m.pick("int64", "int32")
    x = m.to(v, "float32") if v is not None else None
    factor = m.constant(m.rng.choice(FACTORS), "float32")
    y = m.small(op, [x, factor], _BINARY[op]) if x and (op := m.rng.choice(("Mul", "Div"))) else None
    z = m.small(how, [y], _ROUND[how]) if y and (how := m.rng.choice(("Ceil", "Floor", "Round"))) else y
    if z is not None:
        m.to(z, m.rng.choice(("int64", "int32")))


def _unary(m: Maker) -> None:
    if (v := m.pick()) is not None:
        table = _ROUND if v.dtype == "float32" and m.rng.random() < 0.7 else _SIGNED
        op = m.rng.choice(tuple(table))
        m.small(op, [v], table[op])


def _compare(m: Maker) -> None:
    v = m.pick()
    if v is not None and (w := m.partner(v)) is not None:
        op = m.rng.choice(tuple(_COMPARE))
        m.small(op, [v, w], _COMPARE[op])


def _logic(m: Maker) -> None:
    v, w = m.pick("bool"), m.pick("bool")
    if v is None or w is None or (v.count != w.count and 1 not in (v.count, w.count)):
        return
    if m.rng.random() < 0.3:
        m.small("Not", [v], np.logical_not)
    else:
        op = m.rng.choice(tuple(_LOGIC))
        m.small(op, [v, w], _LOGIC[op])


def _where(m: Maker) -> None:
    c, v = m.pick("bool"), m.pick()
    w = m.partner(v) if v is not None else None
    if c and v and w and len({c.count, v.count, w.count} - {1}) < 2:
        m.small("Where", [c, v, w], np.where)


def _gather(m: Maker) -> None:
    if (v := m.pick(rank=1)) is not None:
        at = [m.rng.randrange(-v.count, v.count) for _ in range(m.rng.choice((1, 1, 2, 3)))]
        index = m.constant(at[0] if len(at) == 1 and m.rng.random() < 0.7 else at)
        m.small("Gather", [v, index], lambda a, i: a[i], axis=0)


def _part(m: Maker) -> None:
    if (v := m.pick(rank=1)) is not None:
        start = m.rng.randrange(v.count)
        end, step = m.rng.randrange(start + 1, v.count + 1), m.rng.choice((1, 1, 2))
        operands = [v, m.constant([start]), m.constant([end]), m.constant([0]), m.constant([step])]
        m.small("Slice", operands, lambda a, *_: a[start:end:step])


def _rank(m: Maker) -> None:
    v = m.pick(*NUMBERS, "bool", where=lambda v: v.count == 1 and v.rank < 2)
    if v is None:
        return
    if v.rank == 0 and m.rng.random() < 0.8:
        m.small("Unsqueeze", [v, m.constant([0])], lambda a, i: a[None])
    elif v.rank == 0:
        m.small("Reshape", [v, m.constant([1])], lambda a, i: a.reshape(1))
    else:
        m.small("Squeeze", [v, m.constant([0])], lambda a, i: a[0])


def _concat(m: Maker) -> None:
    v = m.pick(*NUMBERS, rank=1)
    w = m.pick(v.dtype, rank=1) if v is not None else None
    if v and w and v.count + w.count <= 6:
        m.small("Concat", [v, w], lambda *xs: np.concatenate(xs), axis=0)


def _reduce(m: Maker) -> None:
    if (v := m.pick(rank=1)) is not None:
        op, keep = m.rng.choice((*_REDUCE, "ReduceProd", "ReduceProd")), m.rng.randrange(2)
        dtype = v.rows[0].dtype
        m.small(op, [v, m.constant([0])], lambda a, i: _REDUCE[op](a, keepdims=keep).astype(dtype), keepdims=keep)


def _clip(m: Maker) -> None:
    if (v := m.pick()) is not None:
        low, high = (m.constant(x, v.dtype) for x in sorted(m.rng.sample((0, 1, 2, 5, 16, 100), 2)))
        m.small("Clip", [v, low, high], np.clip)


def _fill(m: Maker) -> None:
    found = m.sizes(m.rng.choice((1, 2, 3)), 0, 20)
    if found is None:
        return
    shapes = [tuple(int(d) for d in r) for r in found[0].rows]
    if m.rng.random() < 0.5:
        value = numpy_helper.from_array(np.array([1.5], np.float32))
        m.tensor("ConstantOfShape", [found[0].name], shapes, value=value)
    else:
        x = m.constant(np.full((1,) * m.rng.randrange(len(shapes[0]) + 1), 2.5), "float32")
        m.tensor("Expand", [x.name, found[0].name], shapes)


def _regroup(m: Maker) -> None:
    """Expand to [a, b, c], then Reshape to [a * b, c], the product taken in some type."""
    found = m.sizes(3, 0, 12)
    if found is None:
        return
    dims = found[0]
    x = m.tensor("Expand", [m.constant(0.5, "float32").name, dims.name], [tuple(map(int, r)) for r in dims.rows])
    kind = m.rng.choice(NUMBERS)
    same = m.to(dims, kind)
    if x is None or same is None:
        return
    cut = [m.constant([0]), m.constant([2])]
    pair = m.small("Slice", [same, *cut], lambda a, *_: a[:2])
    product = pair and m.small("ReduceProd", [pair], lambda a: a.prod(keepdims=True).astype(a.dtype), keepdims=1)
    last = m.small("Gather", [same, m.constant([-1])], lambda a, i: a[i], axis=0)
    whole = product and last and m.small("Concat", [product, last], lambda *xs: np.concatenate(xs), axis=0)
    shape = whole and m.to(whole, "int64")
    if shape is not None:
        m.tensor("Reshape", [x.name, shape.name], [tuple(map(int, r)) for r in shape.rows], allowzero=1)


def _flatten(m: Maker) -> None:
    """Reshape to [k, -1] or [0, -1], k being computed."""
    x = m.rng.choice(m.tensors)
    if x.rank < 2 or any(0 in s for s in x.shapes):
        return
    sizes = m.to(m.shape(x), m.rng.choice(NUMBERS))
    first = sizes and m.small("Gather", [sizes, m.constant([0])], lambda a, i: a[i], axis=0)
    first = first and m.to(first, "int64")
    rest = m.constant([-1])
    shape = first and m.small("Concat", [first, rest], lambda *xs: np.concatenate(xs), axis=0)
    if shape is not None:
        m.tensor("Reshape", [x.name, shape.name], [(s[0], math.prod(s[1:])) for s in x.shapes], x.floats)


def _slice(m: Maker) -> None:
    x = m.rng.choice(m.tensors)
    start, end = m.size(-40, 40), m.size(-40, 40)
    if start is None or end is None or not x.rank:
        return
    axis, step = m.rng.randrange(x.rank), m.rng.choice((1, 1, 2, -1, 3))
    shapes = []
    for s, a, b in zip(x.shapes, start.rows, end.rows, strict=True):
        count = len(range(s[axis])[int(a[0]) : int(b[0]) : step])
        shapes.append((*s[:axis], count, *s[axis + 1 :]))
    operands = [x.name, start.name, end.name, m.constant([axis]).name, m.constant([step]).name]
    m.tensor("Slice", operands, shapes, x.floats)


def _tile(m: Maker) -> None:
    x = m.rng.choice(m.tensors)
    found = m.sizes(x.rank, 0, 4)
    if found is not None:
        shapes = [
            tuple(d * int(k) for d, k in zip(s, r, strict=True)) for s, r in zip(x.shapes, found[0].rows, strict=True)
        ]
        m.tensor("Tile", [x.name, found[0].name], shapes, x.floats)


def _pad(m: Maker) -> None:
    x = m.rng.choice(m.tensors)
    found = m.sizes(2 * x.rank, 0, 9) if x.floats and 0 < x.rank < 4 else None
    if found is not None:
        ends = [r.reshape(2, -1).sum(axis=0) for r in found[0].rows]
        shapes = [tuple(d + int(k) for d, k in zip(s, r, strict=True)) for s, r in zip(x.shapes, ends, strict=True)]
        m.tensor("Pad", [x.name, found[0].name], shapes)


def _resize(m: Maker) -> None:
    x = m.rng.choice(m.tensors)
    if not x.floats or not 0 < x.rank < 4 or any(0 in s for s in x.shapes):
        return
    found = m.sizes(x.rank, 1, 20)
    how = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    if found is None:
        return
    if m.rng.random() < 0.7:
        m.tensor("Resize", [x.name, "", "", found[0].name], [tuple(map(int, r)) for r in found[0].rows], **how)
    elif (scales := m.to(found[0], "float32")) is not None:
        half = m.small("Mul", [scales, m.constant(0.5, "float32")], np.multiply)  # so that sizes are exact
        shapes = [
            tuple(int(d * k / 2) for d, k in zip(s, r, strict=True))
            for s, r in zip(x.shapes, found[0].rows, strict=True)
        ]
        if half is not None and all(min(s) > 0 for s in shapes):
            m.tensor("Resize", [x.name, "", half.name], shapes, **how)


def _range(m: Maker) -> None:
    kind = m.rng.choice(("int64", "int32", "float32"))
    ends = [m.size(-20, 20), m.size(0, 100)]
    if ends[0] is None or ends[1] is None:
        return
    scalars = [m.small("Squeeze", [e], lambda a: a[0]) for e in ends if e is not None]
    first, last = (m.to(v, kind) if v is not None else None for v in scalars)
    step = m.rng.choice((1, 1, 2, 5, -1))
    if first is not None and last is not None:
        shapes = [(len(range(int(a), int(b), step)),) for a, b in zip(first.rows, last.rows, strict=True)]
        m.tensor("Range", [first.name, last.name, m.constant(step, kind).name], shapes, floats=False)


_STEPS = (
    (_new_shape, 3), (_cast, 5), (_arithmetic, 10), (_scale, 3), (_unary, 3), (_compare, 2), (_logic, 1), (_where, 3),
    (_gather, 5), (_part, 2), (_rank, 2), (_concat, 2), (_reduce, 2), (_clip, 1),
)  # fmt: skip
_TAKERS = (_fill, _regroup, _flatten, _slice, _tile, _pad, _resize, _range)


def make_part(seed: int, zeros: bool) -> Part:
    """A graph of at most some 30 nodes, the same for the same arguments."""
    rng = random.Random(f"{seed} {zeros}")
    bindings = BINDINGS if zeros else BINDINGS[:POSITIVE]
    m = Maker(rng, f"g{seed}_", bindings)
    symbols = SYMBOLS[: rng.randrange(1, 5)]
    for name, dims in INPUTS.items():
        if all(isinstance(d, int) or d in symbols for d in dims):
            m.tensors.append(Tensor(name, tuple(shape_of(name, b) for b in bindings)))
    m.shape(rng.choice(m.tensors))
    steps, chances = zip(*_STEPS, strict=True)
    most = rng.randrange(6, 24)
    for _ in range(200):
        if len(m.nodes) >= most:
            break
        rng.choices(steps, chances)[0](m)
        if rng.random() < 0.03:
            rng.choice(_TAKERS)(m)
    for _ in range(10):
        if m.outputs:
            break
        rng.choice(_TAKERS)(m)
    read = {i for n in m.nodes for i in n.input}
    few = rng.choice((0, 0, 1))
    loose = [v.name for v in m.smalls if v.name not in read and not v.contracted]
    outputs = [*m.outputs, *rng.sample(loose, min(len(loose), few))]
    return trim(Part(seed, zeros, tuple(m.nodes), m.weights, tuple(outputs or loose[-1:])))


def shape_of(name: str, binding: Sequence[int]) -> tuple[int, ...]:
    """The shape of an input for some sizes of the symbols."""
    known = dict(zip(SYMBOLS, binding, strict=True))
    return tuple(known[d] if isinstance(d, str) else d for d in INPUTS[name])


def trim(part: Part) -> Part:
    """The graph without what no output needs."""
    kept, names = needed(part.nodes, part.outputs)
    return replace(part, nodes=kept, weights={k: v for k, v in part.weights.items() if k in names})


def model_of(parts: Sequence[Part]) -> onnx.ModelProto:
    """One model of several graphs, which share the inputs."""
    read = {i for p in parts for n in p.nodes for i in n.input}
    inputs = {n: dims for n, dims in INPUTS.items() if n in read or n == "x2"}
    nodes = [n for p in parts for n in p.nodes]
    weights = {n: w for p in parts for n, w in p.weights.items()}
    return with_types(model(nodes, inputs, [n for p in parts for n in p.outputs], weights))


def feeds_of(made: onnx.ModelProto, binding: Sequence[int]) -> dict[str, Array]:
    """Inputs of a model: numbers that all differ."""
    shapes = {v.name: shape_of(v.name, binding) for v in made.graph.input}
    return {n: np.arange(math.prod(s), dtype=np.float32).reshape(s) for n, s in shapes.items()}
