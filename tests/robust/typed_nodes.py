"""How the operands and attributes of each operator are drawn.

Operators whose operands broadcast, or that have one operand, need only onnx's schema. Others have a recipe: a function
of the graph in the making and the operator, which emits one node. What a recipe draws may be refused by the reference;
then another node is tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.defs import OpSchema

from torshc.ops import REGISTRY

from .typed_more import MORE
from .typed_values import FLOATS, OPSET, SIGNED, TYPES, UNSIGNED, Maker, Rejected, Value, draw_type, onnx_type

Recipe = Callable[[Maker, str], object]

# What is not drawn, and why.
LEFT_OUT = {
    "random": ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    "no tensors of numbers": (
        "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "RegexFullMatch", "SequenceAt",
        "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence",
        "StringConcat", "StringNormalizer", "StringSplit",
    ),
    "a table of n-grams, tested in tests/ops": ("TfIdfVectorizer",),
    "the same as a weight": ("Constant",),
    "onnx's evaluator has none, or a wrong one": ("GlobalLpPool", "LRN"),
}  # fmt: skip


@lru_cache(maxsize=1024)
def schema_of(op: str) -> OpSchema:
    return onnx.defs.get_schema(op, OPSET, "")


@lru_cache(maxsize=1)
def drawable() -> tuple[str, ...]:
    """Operators of the default domain that a graph may have."""
    left_out = {op for ops in LEFT_OUT.values() for op in ops}
    found = []
    for domain, op in REGISTRY:
        if domain or op in left_out:
            continue
        try:
            schema = schema_of(op)
        except onnx.defs.SchemaError:
            continue
        if not schema.deprecated:
            found.append(op)
    return tuple(sorted({*found, *MORE}))


# Where ONNX allows more types, and constants that are no such numbers, or floats of 32 bits, make the answer a choice;
# or where onnx's evaluator computes in fewer bits.
_NARROWED = {
    "Shrink": FLOATS, "HardSwish": ("float32", "float16"), "Erf": ("float32", "float16"),
    "Gelu": ("float32", "float16"),
}  # fmt: skip


def types_of(op: str, operand: int = 0) -> tuple[str, ...]:
    """Element types that an operand may have by the schema."""
    schema: Any = schema_of(op)
    allowed = schema.inputs[min(operand, len(schema.inputs) - 1)].types
    names = {"float32": "float", "float64": "double"}
    return tuple(t for t in _NARROWED.get(op, TYPES) if f"tensor({names.get(t, t)})" in allowed)


# -- attributes that are drawn by their names --------------------------------------------------------------------------

_AXES = ("axis",)
_FLAGS = (
    "exclusive", "reverse", "select_last_index", "upper", "detect_negative", "detect_positive", "keepdims", "periodic",
)  # fmt: skip
_NUMBERS: dict[str, tuple[Any, ...]] = {
    "alpha": (0.25, 1.5, 0.01), "beta": (0.5, 0.75), "gamma": (1.5,), "lambd": (0.5, 1.0), "bias": (0.5, 0.0),
    "p": (2,), "approximate": ("none", "tanh"), "direction": ("LEFT", "RIGHT"), "epsilon": (1e-3, 1e-5),
    "k": (0, 1, -1), "start": (0, 1, -2), "end": (1, 2, -1),
}  # fmt: skip


def attributes(m: Maker, op: str, x: Value) -> dict[str, Any]:
    """Attributes of a node; those without a default are always there."""
    found: dict[str, Any] = {}
    specs: Any = schema_of(op).attributes
    for name, spec in specs.items():
        if not spec.required and m.chance(0.4):
            continue
        if name in _AXES:
            found[name] = m.axis(x)
        elif name in _FLAGS:
            found[name] = m.rng.randrange(2)
        elif name in ("to", "dtype"):
            found[name] = onnx_type(draw_type(m.rng))
        elif name in _NUMBERS:
            found[name] = m.rng.choice(_NUMBERS[name])
    return found


def by_schema(m: Maker, op: str) -> list[Value]:
    """A node whose operands broadcast with the first."""
    schema: Any = schema_of(op)
    x = m.pick(*types_of(op))
    bound = {schema.inputs[0].type_str: x.dtype}
    operands = [x]
    variadic = schema.inputs[-1].option == OpSchema.FormalParameterOption.Variadic
    count = m.rng.randrange(1, 5) if variadic else schema.min_input
    for k in range(1, count):
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        dtype = bound.setdefault(formal.type_str, draw_type(m.rng, types_of(op, k)))
        operands.append(m.partner(dtype, x.dims))
    if variadic or op in _SYMMETRIC:
        m.rng.shuffle(operands)
    return m.emit(op, operands, **attributes(m, op, x))


_SYMMETRIC = (
    "Add", "Sub", "Mul", "Div", "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor",
    "BitwiseAnd", "BitwiseOr", "BitwiseXor",
)  # fmt: skip


# -- pointwise ---------------------------------------------------------------------------------------------------------


def _where(m: Maker, op: str) -> list[Value]:
    x = m.pick()
    return m.emit(op, [m.partner("bool", x.dims), x, m.partner(x.dtype, x.dims)])


def _clip(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op))
    low, high = sorted((m.rng.randrange(0, 4), m.rng.randrange(0, 6)))
    ends = [m.weight(v, x.dtype) if m.chance(0.7) else None for v in (low, high)]
    return m.emit(op, [x, *ends])


def _mod(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op))
    fmod = 1 if x.dtype in FLOATS else m.rng.randrange(2)
    return m.emit(op, [x, m.partner(x.dtype, x.dims)], fmod=fmod)


def _bitcast(m: Maker, op: str) -> list[Value]:
    x = m.pick("int32", "uint32", "int64", "uint64", "int8", "uint8", "int16", "uint16")
    among = [t for t in (*SIGNED, *UNSIGNED) if np.dtype(t).itemsize == np.dtype(x.dtype).itemsize]
    return m.emit(op, [x], to=onnx_type(m.rng.choice(among)))


def _dropout(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op))
    return m.emit(op, [x, m.weight(0.5, "float32") if m.chance(0.5) else None], outputs=m.rng.randrange(1, 3))


# -- reductions --------------------------------------------------------------------------------------------------------


def _reduce(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op))
    axes = m.rng.sample(range(x.rank), m.rng.randrange(x.rank + 1))
    axes = [a - x.rank if m.chance(0.3) else a for a in axes]
    given = m.ints(np.array(axes, np.int64)) if axes or m.chance(0.3) else None
    more = {"noop_with_empty_axes": 1} if m.chance(0.1) else {}
    return m.emit(op, [x, given], keepdims=m.rng.randrange(2), **more)


def _cumulate(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op), least=1)
    axis = m.weight(m.axis(x), m.rng.choice(("int64", "int32")))
    return m.emit(op, [x, axis], exclusive=m.rng.randrange(2), reverse=m.rng.randrange(2))


def _topk(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op), least=1)
    axis = m.axis(x)
    smallest = min(row[0].shape[axis] for row in x.rows)
    k = m.ints([m.rng.randrange(min(smallest, 4) + 1)])
    return m.emit(op, [x, k], outputs=2, axis=axis, largest=m.rng.randrange(2))


# -- views -------------------------------------------------------------------------------------------------------------


def _transpose(m: Maker, op: str) -> list[Value]:
    x = m.pick()
    perm = m.rng.sample(range(x.rank), x.rank)
    return m.emit(op, [x], **({"perm": perm} if x.rank and m.chance(0.8) else {}))


def _reshape(m: Maker, op: str) -> list[Value]:
    x = m.pick()
    dims: list[int] = [d if isinstance(d, int) else 0 for d in x.dims]
    how = m.rng.randrange(4)
    if how == 0:
        dims = [-1]
    elif how == 1 and len(dims) > 1:
        k = m.rng.randrange(len(dims) - 1)
        dims[k : k + 2] = [-1] if 0 in dims[k : k + 2] else [dims[k] * dims[k + 1]]
        dims = [0 if j < k and m.chance(0.5) else d for j, d in enumerate(dims)]
    elif how == 2 and all(dims):
        total = math.prod(dims)
        first = m.rng.choice([f for f in range(1, total + 1) if total % f == 0])
        dims = [first, -1 if m.chance(0.5) else total // first]
    else:
        dims.insert(len(dims), 1)
    return m.emit(op, [x, m.ints(np.array(dims, np.int64))])


def _squeeze(m: Maker, op: str) -> list[Value]:
    x = m.pick(where=lambda v: 1 in v.dims)
    ones = [k for k, d in enumerate(x.dims) if d == 1]
    axes = m.rng.sample(ones, m.rng.randrange(1, len(ones) + 1))
    # Without axes a size that happens to be 1 in all runs may be one that the compiler does not know.
    return m.emit(op, [x, m.ints(axes) if m.chance(0.8) or m.bindings > 1 else None])


def _unsqueeze(m: Maker, op: str) -> list[Value]:
    x = m.pick(most=4)
    axes = m.rng.sample(range(x.rank + 1), 1 if m.chance(0.7) else min(2, x.rank + 1))
    return m.emit(op, [x, m.ints(axes)])


def _slice(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=1)
    axes = m.rng.sample(range(x.rank), m.rng.randrange(1, min(x.rank, 2) + 1))
    starts = [m.rng.choice((0, 1, 2, -1, -3, 100)) for _ in axes]
    ends = [m.rng.choice((1, 3, -1, 100, -100, 2**62)) for _ in axes]
    steps = [m.rng.choice((1, 1, 1, 2, -1, -2, 3)) for _ in axes]
    kind = m.rng.choice(("int64", "int64", "int32"))
    vectors = [
        m.weight(np.clip(v, -(2**31), 2**31 - 1) if kind == "int32" else v, kind) for v in (starts, ends, axes, steps)
    ]
    return m.emit(op, [x, *vectors])


def _split(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=1)
    axis = m.axis(x)
    size = x.size(axis)
    if m.chance(0.5):
        count = m.rng.randrange(1, 4)
        sizes = {row[0].shape[axis] for row in x.rows}
        if any(-(-s // count) * (count - 1) > s for s in sizes):
            count = 1  # the last part would have less than no elements
        return m.emit(op, [x], outputs=count, axis=axis, num_outputs=count)
    first = m.rng.randrange(size + 1)
    return m.emit(op, [x, m.ints([first, size - first])], outputs=2, axis=axis)


def _concat(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=1)
    axis = m.axis(x)
    parts = [x]
    for _ in range(m.rng.randrange(3)):
        dims = list(x.dims)
        dims[axis] = m.rng.choice((dims[axis], 1, 3, 0))
        parts.append(m.of(x.dtype, dims))
    m.rng.shuffle(parts)
    return m.emit(op, parts, axis=axis)


def _expand(m: Maker, op: str) -> list[Value]:
    x = m.pick(most=4)
    dims = [m.rng.choice((1, 2, 3, 0)) if d == 1 else d if isinstance(d, int) and m.chance(0.5) else 1 for d in x.dims]
    more = [m.rng.choice((1, 2))] if m.chance(0.3) else []
    return m.emit(op, [x, m.ints(np.array([*more, *dims], np.int64))])


def _tile(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=1, most=4)
    return m.emit(op, [x, m.ints([m.rng.choice((1, 1, 2, 3, 0)) for _ in range(x.rank)])])


def _pad(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op), least=1)
    axes = m.rng.sample(range(x.rank), m.rng.randrange(1, x.rank + 1))
    mode = m.rng.choice(("constant", "constant", "reflect", "edge", "wrap"))
    low = -1 if mode == "constant" else 0
    pads = m.ints([m.rng.randrange(low, 3) for _ in range(2 * len(axes))])
    filling = m.drawn(x.dtype, ()) if mode == "constant" and m.chance(0.6) else None
    return m.emit(op, [x, pads, filling, m.ints(axes)], mode=mode)


def _flatten(m: Maker, op: str) -> list[Value]:
    x = m.pick()
    return m.emit(op, [x], axis=m.rng.randrange(-x.rank, x.rank + 1))


def _blocks(m: Maker, op: str) -> list[Value]:
    size = 2

    def fits(v: Value) -> bool:
        if v.rank != 4 or not all(isinstance(d, int) for d in v.dims[1:]):
            return False
        c, h, w = (v.size(k) for k in (1, 2, 3))
        return c % 4 == 0 if op == "DepthToSpace" else h % 2 == 0 == w % 2

    x = m.pick(*types_of(op), where=fits)
    return m.emit(op, [x], blocksize=size, **({"mode": "CRD"} if op == "DepthToSpace" and m.chance(0.5) else {}))


def _trilu(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op), least=2)
    return m.emit(op, [x, m.ints(m.rng.randrange(-2, 3)) if m.chance(0.6) else None], upper=m.rng.randrange(2))


def _constant_of_shape(m: Maker, op: str) -> list[Value]:
    dtype = draw_type(m.rng)
    value = helper.make_tensor("value", onnx_type(dtype), [1], [m.rng.randrange(2)])
    return m.emit(op, [m.ints([m.rng.choice((1, 2, 3, 5)) for _ in range(m.rng.randrange(1, 4))])], value=value)


def _range(m: Maker, op: str) -> list[Value]:
    dtype = draw_type(m.rng, [t for t in types_of(op) if t != "float16"])
    start, step = m.rng.randrange(-4, 5), m.rng.choice((1, 2, -1, 3))
    return m.emit(op, [m.weight(v, dtype) for v in (start, start + step * m.rng.randrange(6), step)])


def _eye_like(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op), least=2, most=2)
    return m.emit(
        op, [x], k=m.rng.randrange(-1, 2), dtype=onnx_type(draw_type(m.rng, ("float32", "int64", "bool", "uint8")))
    )


def _crop_pad(m: Maker, op: str) -> list[Value]:
    x = m.pick(*types_of(op), least=1)
    axes = m.rng.sample(range(x.rank), m.rng.randrange(1, x.rank + 1))
    return m.emit(op, [x, m.ints([m.rng.choice((1, 2, 3, 6)) for _ in axes])], axes=axes)


RECIPES: dict[str, Recipe] = {
    "Where": _where, "Clip": _clip, "Mod": _mod, "BitCast": _bitcast, "Dropout": _dropout, "CumSum": _cumulate,
    "CumProd": _cumulate, "TopK": _topk, "Transpose": _transpose, "Reshape": _reshape, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Slice": _slice, "Split": _split, "Concat": _concat, "Expand": _expand, "Tile": _tile,
    "Pad": _pad, "Flatten": _flatten, "DepthToSpace": _blocks, "SpaceToDepth": _blocks, "Trilu": _trilu,
    "ConstantOfShape": _constant_of_shape, "Range": _range, "EyeLike": _eye_like, "CenterCropPad": _crop_pad,
    **MORE,
}  # fmt: skip

# How often operators are drawn beside the rest, which have 1.
_OFTEN = {
    "Add": 4, "Mul": 4, "Sub": 3, "Div": 2, "Cast": 4, "Where": 2, "Transpose": 3, "Reshape": 3, "Slice": 3,
    "Concat": 3, "Gather": 2, "MatMul": 3, "Gemm": 2, "Conv": 3, "Softmax": 2, "ReduceSum": 2, "ReduceMean": 2,
    "Expand": 2, "Unsqueeze": 2, "Squeeze": 2, "Pad": 2, "Split": 2, "LayerNormalization": 2, "Resize": 2,
}  # fmt: skip
_SELDOM = {
    "MelWeightMatrix": 0.2,
    "HannWindow": 0.2,
    "HammingWindow": 0.2,
    "BlackmanWindow": 0.2,
    "ConstantOfShape": 0.4,
}


def step(m: Maker, op: str = "") -> None:
    """Add a node of an operator, of any where none is named.

    Raises:
        Rejected: what was drawn does not fit.
    """
    names = drawable()
    op = op or m.rng.choices(names, [_OFTEN.get(n, _SELDOM.get(n, 1)) for n in names])[0]
    recipe = RECIPES.get(op) or (_reduce if op.startswith("Reduce") else by_schema)
    m.pending.clear()
    try:
        recipe(m, op)
    except (ValueError, IndexError, TypeError) as e:  # a draw from nothing, an axis that is not there
        raise Rejected(f"{op}: {type(e).__name__} while drawing") from e
    finally:
        m.pending.clear()
