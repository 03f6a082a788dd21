"""Recipes of operators that have several operands of different shapes: products, windows, norms, indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .typed_values import FLOATS, Dim, Maker, Rejected, Value, draw_type, onnx_type

SINGLE = ("float32", "float32", "float32", "float16", "float64")


# -- products ----------------------------------------------------------------------------------------------------------


def _matmul(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float16", "float64", "int32", "int64", "uint32", least=1)
    if x.rank > 2 and m.chance(0.4):
        return m.emit(op, [x, m.of(x.dtype, [*x.dims[:-2], x.dims[-1], m.rng.choice((1, 3, 5))])])
    y = m.of(x.dtype, [x.dims[-1], m.rng.choice((1, 2, 5, 9))] if m.chance(0.85) else [x.dims[-1]])
    return m.emit(op, [x, y])


def _gemm(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float16", "float64", "int32", least=2, most=2)
    flip, turn = m.rng.randrange(2), m.rng.randrange(2)
    rows, inner = (x.dims[1], x.dims[0]) if flip else x.dims
    width = m.rng.choice((1, 3, 6))
    y = m.of(x.dtype, [width, inner] if turn else [inner, width])
    c = m.partner(x.dtype, [rows, width]) if m.chance(0.6) else None
    factors = {"alpha": 0.5, "beta": 2.0} if x.dtype in FLOATS and m.chance(0.4) else {}
    return m.emit(op, [x, y, c], transA=flip, transB=turn, **factors)


def _einsum(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float64", "int32", least=2, most=2)
    k = m.rng.choice((1, 3))
    equation, dims = m.rng.choice((
        ("ij,jk->ik", [x.dims[1], k]), ("ij,kj->ki", [k, x.dims[1]]), ("ij,ij->i", list(x.dims)),
        ("ij,j->ij", [x.dims[1]]), ("ij,kl->il", [k, k]),
    ))  # fmt: skip
    return m.emit(op, [x, m.of(x.dtype, dims)], equation=equation)


def _det(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float64", least=2, where=lambda v: v.dims[-1] == v.dims[-2] and v.dims[-1] in (1, 2, 3))
    return m.emit(op, [x])


def _bytes_product(m: Maker, op: str) -> list[Value]:
    x = m.pick("uint8", "int8", least=2)
    y = m.of(m.rng.choice(("int8", "uint8")), [x.dims[-1], m.rng.choice((1, 4))])
    zeros = [m.drawn(v.dtype, ()) if m.chance(0.5) else None for v in (x, y)]
    return m.emit(op, [x, y, *zeros])


def _scale(m: Maker, dtype: str = "float32") -> Value:
    # With 0.1 for 0.093, sums of integers would be halves but for rounding.
    return m.weight(m.rng.choice((0.0217, 0.093, 0.5)), dtype)


def _quantised_product(m: Maker, op: str) -> list[Value]:
    x = m.pick("uint8", "int8", least=2)
    y = m.of(m.rng.choice(("int8", x.dtype)), [x.dims[-1], 3])
    operands = [v for a in (x, y) for v in (a, _scale(m), m.drawn(a.dtype, ()))]
    return m.emit(op, [*operands, _scale(m), m.drawn(x.dtype, ())])


# -- windows -----------------------------------------------------------------------------------------------------------


def _window(m: Maker, x: Value, least: int = 1) -> tuple[list[int], dict[str, Any]]:
    """A kernel's shape, and strides, pads and dilations."""
    count = x.rank - 2
    kernel = [m.rng.choice((1, 2, 3)) for _ in range(count)]
    found: dict[str, Any] = {"strides": [m.rng.choice((1, 1, 2)) for _ in range(count)]}
    if m.chance(0.3):
        found["dilations"] = [m.rng.choice((1, 2)) for _ in range(count)]
    if m.chance(0.5):
        found["pads"] = [m.rng.randrange(0, max(1, min(kernel))) for _ in range(2 * count)]
    elif m.chance(0.2) and "dilations" not in found and min(kernel) >= max(found["strides"]):  # else the peers disagree
        found["auto_pad"] = m.rng.choice(("SAME_UPPER", "SAME_LOWER", "VALID"))
    return kernel, found


def _image(m: Maker, *dtypes: str) -> Value:
    return m.pick(*dtypes, least=3, most=5, where=lambda v: v.rank < 5 or m.chance(0.3))


def _conv(m: Maker, op: str) -> list[Value]:
    x = _image(m, *SINGLE)
    c = x.size(1)
    group = m.rng.choice([g for g in (1, c, 2) if c and c % g == 0])
    out = group * m.rng.choice((1, 2, 3))
    kernel, more = _window(m, x)
    w = m.drawn(x.dtype, (out, c // group, *kernel))
    return m.emit(op, [x, w, m.drawn(x.dtype, (out,)) if m.chance(0.5) else None], group=group, **more)


def _conv_transpose(m: Maker, op: str) -> list[Value]:
    x = _image(m, *SINGLE)
    c = x.size(1)
    group = m.rng.choice([g for g in (1, c) if c])
    kernel, more = _window(m, x)
    if "pads" in more and m.chance(0.3) and max(more["strides"]) > 1:
        more["output_padding"] = [s - 1 for s in more["strides"]]
    width = m.rng.choice((1, 2))
    w = m.drawn(x.dtype, (c, width, *kernel))
    return m.emit(op, [x, w, m.drawn(x.dtype, (width * group,)) if m.chance(0.5) else None], group=group, **more)


def _conv_integer(m: Maker, op: str) -> list[Value]:
    x = _image(m, "uint8", "int8")
    kernel, more = _window(m, x)
    w = m.drawn(m.rng.choice(("uint8", "int8")), (2, x.size(1), *kernel))
    return m.emit(op, [x, w, m.drawn(x.dtype, ()) if m.chance(0.5) else None], **more)


def _conv_quantised(m: Maker, op: str) -> list[Value]:
    x = _image(m, "uint8", "int8")
    kernel, more = _window(m, x)
    w = m.drawn(m.rng.choice(("int8", x.dtype)), (2, x.size(1), *kernel))
    operands = [v for a in (x, w) for v in (a, _scale(m), m.drawn(a.dtype, ()))]
    return m.emit(op, [*operands, _scale(m), m.drawn(x.dtype, ())], **more)


def _pool(m: Maker, op: str) -> list[Value]:
    x = _image(m, *SINGLE, *(("uint8", "int8") if op == "MaxPool" else ()))
    kernel, more = _window(m, x)
    if m.chance(0.25):
        more["ceil_mode"] = 1
    if op == "AveragePool" and m.chance(0.5):
        more["count_include_pad"] = 1
    if op == "LpPool":
        more["p"] = m.rng.choice((1, 2, 3))
    outputs = 2 if op == "MaxPool" and m.chance(0.3) else 1
    return m.emit(op, [x], outputs=outputs, kernel_shape=kernel, **more)


def _global_pool(m: Maker, op: str) -> list[Value]:
    return m.emit(op, [m.pick(*SINGLE, least=3, where=lambda v: 0 not in v.dims)])  # of which the evaluator makes more


def _unpool(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", least=4, most=4, where=lambda v: v.dims[2] in (2, 4, 8) and v.dims[3] in (2, 4, 8))
    y, where = m.emit("MaxPool", [x], outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    return m.emit(op, [y, where], kernel_shape=[2, 2], strides=[2, 2])


def _columns(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float64", least=3, most=3)
    block = m.rng.choice(([2, 2], [1, 3]))
    if x.size(1) % math.prod(block):
        raise Rejected("channels do not fit a block")
    image = m.rng.choice([(h, x.size(2) // h) for h in range(1, x.size(2) + 1) if x.size(2) % h == 0])
    shape = [image[0] + block[0] - 1, image[1] + block[1] - 1]
    return m.emit(op, [x, m.ints(shape), m.ints(block)])


def _deformed(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", least=4, most=4, where=lambda v: all(isinstance(d, int) and d > 1 for d in v.dims[2:]))
    h, w = x.size(2) - 1, x.size(3) - 1
    weight, offset = m.drawn("float32", (2, x.size(1), 2, 2)), m.drawn("float32", (x.size(0), 8, h, w))
    return m.emit(op, [x, weight, offset], kernel_shape=[2, 2], pads=[0, 0, 0, 0])


def _resize(m: Maker, op: str) -> list[Value]:
    x = m.pick(*SINGLE, "uint8", "int32", least=1, most=4, where=lambda v: all(d != 0 for d in v.dims))
    mode = m.rng.choice(("nearest", "nearest", "linear", "cubic")) if x.dtype in FLOATS else "nearest"
    where = m.rng.choice(("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"))
    more: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        more["nearest_mode"] = m.rng.choice(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    elif m.chance(0.2):
        more["antialias"] = 1
    axes = m.rng.sample(range(x.rank), m.rng.randrange(1, min(x.rank, 2) + 1))
    if m.chance(0.5):
        return m.emit(op, [x, None, None, m.ints([m.rng.choice((1, 2, 3, 7)) for _ in axes])], axes=axes, **more)
    scales = m.weight([m.rng.choice((0.5, 1.0, 1.5, 2.0)) for _ in axes], "float32")
    return m.emit(op, [x, None, scales], axes=axes, **more)


def _grid_sample(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float64", least=4, most=4, where=lambda v: isinstance(v.dims[0], int) and 0 not in v.dims)
    grid = m.drawn(x.dtype, (x.size(0), 2, 3, 2))
    more = {"mode": m.rng.choice(("linear", "nearest", "cubic")), "align_corners": m.rng.randrange(2)}
    return m.emit(op, [x, grid], padding_mode=m.rng.choice(("zeros", "border", "reflection")), **more)


def _affine_grid(m: Maker, op: str) -> list[Value]:
    theta = m.drawn("float32", (2, 2, 3))
    return m.emit(op, [theta, m.ints([2, 3, m.rng.choice((1, 4)), 3])], align_corners=m.rng.randrange(2))


def _regions(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", least=4, most=4, where=lambda v: 0 not in v.dims and isinstance(v.dims[0], int))
    boxes = m.weight(np.sort(m.generator.uniform(0, 4, (2, 4)), axis=1)[:, [0, 1, 2, 3]], "float32")
    which = m.ints([m.rng.randrange(x.size(0)) for _ in range(2)])
    more = {"mode": m.rng.choice(("avg", "max")), "output_height": 2, "output_width": m.rng.choice((1, 3))}
    return m.emit(op, [x, boxes, which], sampling_ratio=m.rng.choice((0, 1, 2)), **more)


# -- norms -------------------------------------------------------------------------------------------------------------


def _channel_norm(m: Maker, op: str) -> list[Value]:
    kinds = SINGLE[:-1] if op.startswith("Group") else SINGLE  # f64 is summed in f32
    x = m.pick(*kinds, least=2 if op == "BatchNormalization" else 3)
    c = x.size(1)
    operands = [m.drawn(x.dtype, (c,)) for _ in range(2)]
    if op == "BatchNormalization":
        operands += [m.drawn(x.dtype, (c,)), m.weight(m.generator.uniform(0.5, 2, c), x.dtype)]
    more = {"num_groups": m.rng.choice([g for g in (1, 2, c) if c and c % g == 0])} if op.startswith("Group") else {}
    return m.emit(op, [x, *operands], epsilon=1e-2, **more)


def _row_norm(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float32", "float16", least=1)
    axis = m.axis(x)
    dims = x.dims[axis % x.rank :]
    bias = [m.of(x.dtype, dims)] if op.startswith("Layer") and m.chance(0.6) else []
    outputs = 3 if op.startswith("Layer") and m.chance(0.15) else 1
    return m.emit(op, [x, m.of(x.dtype, dims), *bias], outputs=outputs, axis=axis, epsilon=1e-2)


def _moments(m: Maker, op: str) -> list[Value]:
    x = m.pick(*SINGLE, least=2)
    return m.emit(op, [x], axes=m.rng.sample(range(x.rank), m.rng.randrange(1, x.rank + 1)))


def _rotary(m: Maker, op: str) -> list[Value]:
    """Angles for each position of a sequence, or chosen by positions."""
    dtype, (batch, length) = m.rng.choice(("float32", "float16")), (m.rng.choice((1, 2)), m.rng.choice((1, 3)))
    half = m.rng.choice((2, 4))
    x = m.of(dtype, [batch, m.rng.choice((1, 3)), length, 2 * half + m.rng.choice((0, 2))])
    rotated = {} if x.rows[0][0].shape[3] == 2 * half else {"rotary_embedding_dim": 2 * half}
    places = m.weight(m.generator.integers(0, 5, [batch, length]), "int64") if m.chance(0.5) else None
    angles = [m.of(dtype, [5, half] if places else [batch, length, half]) for _ in range(2)]
    return m.emit(op, [x, *angles, places], interleaved=m.rng.randrange(2), **rotated)


# -- indices -----------------------------------------------------------------------------------------------------------


def _least(x: Value, axis: int) -> int:
    """The smallest size of an axis over the bindings, which all indices stay below."""
    found = min(row[0].shape[axis] for row in x.rows)
    if not found:
        raise Rejected("no index into what is empty")
    return found


def _indices(m: Maker, shape: list[int], size: int) -> Value:
    return m.weight(m.generator.integers(-size, size, shape), m.rng.choice(("int64", "int32")))


def _gather(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=1, most=4)
    axis = m.axis(x)
    size = _least(x, axis)
    there = [v for v in m.values if v.dtype in ("int64", "int32") and v.rank < 3]
    if there and m.chance(0.4):
        index = m.rng.choice(there)
        if all(np.all((a >= -size) & (a < size)) for row in index.rows for a in row):
            return m.emit(op, [x, index], axis=axis)
    return m.emit(op, [x, _indices(m, m.rng.choice(([], [1], [3], [2, 2], [0])), size)], axis=axis)


def _gather_elements(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=1, most=4)
    axis = m.axis(x)
    shape = [_least(x, k) if m.chance(0.6) else 1 for k in range(x.rank)]
    return m.emit(op, [x, _indices(m, shape, _least(x, axis))], axis=axis)


def _gather_nd(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=1, most=4)
    depth = m.rng.randrange(1, x.rank + 1)
    size = min(_least(x, k) for k in range(depth))
    return m.emit(op, [x, m.ints(m.generator.integers(-size, size, [*m.rng.choice(([], [3], [2, 1])), depth]))])


def _scatter_elements(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float64", "int64", "int32", least=1, most=3)
    axis = m.axis(x) % x.rank
    reduction = m.rng.choice(("none", "add", "mul", "max", "min"))
    shape = [1 if m.chance(0.3) else _least(x, k) for k in range(x.rank)]
    if reduction == "none":  # each place once
        index = np.argsort(m.generator.random(shape), axis=axis)
    else:
        index = m.generator.integers(-_least(x, axis), _least(x, axis), shape)
    more = {} if reduction == "none" else {"reduction": reduction}
    return m.emit(op, [x, m.ints(index), m.drawn(x.dtype, shape)], axis=axis, **more)


def _scatter_nd(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float64", "int64", "int32", least=1, most=3, where=lambda v: isinstance(v.dims[-1], int))
    count = min(_least(x, 0), 2)
    reduction = m.rng.choice(("none", "add", "mul", "max", "min"))
    rows = m.rng.sample(range(_least(x, 0)), count) if reduction == "none" else [0] * count
    updates = m.of(x.dtype, [count, *x.dims[1:]])
    return m.emit(
        op, [x, m.ints([[r] for r in rows]), updates], **({} if reduction == "none" else {"reduction": reduction})
    )


def _tensor_scatter(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "int32", least=3, most=4, where=lambda v: isinstance(v.dims[0], int))
    dims: list[Dim] = [*x.dims]
    dims[-2] = 1
    at = m.ints([m.rng.randrange(_least(x, x.rank - 2)) for _ in range(x.size(0))])
    return m.emit(op, [x, m.of(x.dtype, dims), at if m.chance(0.8) else None], axis=-2)


def _one_hot(m: Maker, op: str) -> list[Value]:
    index = m.pick("int64", "int32", most=3)
    values = m.weight([2, 5], m.rng.choice(("float32", "int64")))  # the evaluator adds and takes away
    return m.emit(op, [index, m.ints(m.rng.choice((1, 3, 4))), values], axis=m.rng.choice((-1, 0)))


def _compress(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=1)
    if m.chance(0.3):
        return m.emit(op, [x, m.drawn("bool", (3,))])
    axis = m.axis(x)
    return m.emit(op, [x, m.drawn("bool", (_least(x, axis),))], axis=axis)


def _unique(m: Maker, op: str) -> list[Value]:
    x = m.pick("int64", "int32", "float32", "uint8", least=1, most=3)
    # With an axis, or for what its values are alone, onnx's evaluator sorts all the same; ONNX Runtime knows two types.
    more = {"axis": m.axis(x), "sorted": 1} if m.chance(0.4) else {"sorted": m.rng.choice((1, 0))}
    if x.dtype not in ("int64", "float32"):
        more["sorted"] = 1
    return m.emit(op, [x], outputs=m.rng.choice((1, 4)), **more)


def _reverse(m: Maker, op: str) -> list[Value]:
    x = m.pick(least=2, most=3)
    time, batch = m.rng.choice(((0, 1), (1, 0)))
    lengths = m.ints([m.rng.randrange(_least(x, time) + 1) for _ in range(x.size(batch))])
    return m.emit(op, [x, lengths], time_axis=time, batch_axis=batch)


def _boxes(m: Maker, op: str) -> list[Value]:
    boxes = m.weight(np.sort(m.generator.uniform(0, 1, (1, 5, 4)), axis=-1), "float32")
    scores = m.weight(m.generator.uniform(0, 1, (1, 2, 5)), "float32")
    return m.emit(op, [boxes, scores, m.ints([3]), m.weight([0.4], "float32"), m.weight([0.1], "float32")])


# -- recurrent, quantised, signals -------------------------------------------------------------------------------------


def _recurrent(m: Maker, op: str) -> list[Value]:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    x = m.pick("float32", least=3, most=3)
    directions = m.rng.choice((1, 2))
    hidden, width = m.rng.choice((1, 3)), x.size(2)
    w = m.drawn("float32", (directions, gates * hidden, width))
    r = m.drawn("float32", (directions, gates * hidden, hidden))
    b = m.drawn("float32", (directions, 2 * gates * hidden)) if m.chance(0.5) else None
    direction = "bidirectional" if directions == 2 else m.rng.choice(("forward", "reverse"))
    return m.emit(op, [x, w, r, b], outputs=2, hidden_size=hidden, direction=direction)


def _quantise(m: Maker, op: str) -> list[Value]:
    zero = m.rng.choice(("uint8", "int8", "int16", "uint16"))
    x = m.pick("float32", "float16") if op.startswith("Quantize") else m.pick(zero, "uint8", "int8")
    zero = zero if op.startswith("Quantize") else x.dtype
    scaled = x.dtype if x.dtype in FLOATS else "float32"
    if x.rank and m.chance(0.4):
        axis = m.axis(x)
        size = x.size(axis)
        return m.emit(op, [x, m.weight(m.generator.uniform(0.05, 1, size), scaled), m.drawn(zero, (size,))], axis=axis)
    return m.emit(op, [x, _scale(m, scaled), m.drawn(zero, ()) if m.chance(0.7) else None])


def _spectrum(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "float64", least=3, most=3, where=lambda v: v.dims[-1] in (1, 2))
    length = m.ints(m.rng.choice((2, 4, 5))) if m.chance(0.4) else None
    return m.emit(op, [x, length, m.ints(1)], onesided=m.rng.randrange(2) if x.dims[-1] == 1 else 0)


def _short_spectra(m: Maker, op: str) -> list[Value]:
    x = m.drawn("float32", (1, 12, 1))
    frame = m.rng.choice((4, 6))
    window = m.drawn("float32", (frame,)) if m.chance(0.5) else None
    return m.emit(op, [x, m.ints(m.rng.choice((2, 3))), window, m.ints(frame)], onesided=m.rng.randrange(2))


def _taper(m: Maker, op: str) -> list[Value]:
    return m.emit(op, [m.ints(m.rng.choice((1, 4, 7)))], periodic=m.rng.randrange(2))


def _mel(m: Maker, op: str) -> list[Value]:
    ends = [m.weight(v, "float32") for v in (0.0, 4000.0)]
    return m.emit(op, [*(m.ints(v) for v in (4, 16, 8000)), *ends])


def _cast_like(m: Maker, op: str) -> list[Value]:
    return m.emit(op, [m.pick(), m.drawn(draw_type(m.rng), (1,))])


# -- control flow ------------------------------------------------------------------------------------------------------


def _body(m: Maker, x: Value, name: str, read: str) -> onnx.GraphProto:
    """One or two operators from a value, whose type and shape it keeps, to `name`."""
    among = ("Neg", "Abs", "Identity") if x.dtype != "bool" else ("Not", "Identity")
    middle = helper.make_node(m.rng.choice(among), [read], [f"{name}_m"])
    last = helper.make_node(m.rng.choice(among), [f"{name}_m"], [name])
    return helper.make_graph([middle, last], name, [], [typed(name, x)])


def _if(m: Maker, op: str) -> list[Value]:
    x = m.pick("float32", "int64", "float16", "bool", "int32")
    conditions = [v for v in m.values if v.dtype == "bool" and v.dims in ((), (1,))]
    condition = m.rng.choice(conditions) if conditions and m.chance(0.7) else m.weight(m.chance(0.5), "bool")
    name = f"b{len(m.nodes)}"
    there, other = (_body(m, x, f"{name}{which}", x.name) for which in "te")
    return m.emit(op, [condition], captured=[x], then_branch=there, else_branch=other)


def _loop(m: Maker, op: str) -> list[Value]:
    """A value that is carried along, and collected at each step."""
    x = m.pick("float32", "int64", "int32", least=1, most=3)
    other = m.partner(x.dtype, x.dims) if m.chance(0.5) else x
    if np.broadcast_shapes(x.rows[0][0].shape, other.rows[0][0].shape) != x.rows[0][0].shape:
        other = x
    count, name = m.ints(m.rng.choice((1, 2, 3))), f"b{len(m.nodes)}"
    body = _body(m, x, f"{name}s", f"{name}c")
    body.node.append(helper.make_node(m.rng.choice(("Add", "Sub", "Max")), [f"{name}v", other.name], [f"{name}c"]))
    body.node.append(helper.make_node("Identity", [f"{name}on"], [f"{name}off"]))
    nodes = [body.node[2], *body.node[:2], body.node[3]]
    step = helper.make_tensor_value_info(f"{name}i", onnx.TensorProto.INT64, [])
    on, off = (helper.make_tensor_value_info(f"{name}{k}", onnx.TensorProto.BOOL, []) for k in ("on", "off"))
    outputs = [off, typed(f"{name}c", x), typed(f"{name}s", x)]
    graph = helper.make_graph(nodes, name, [step, on, typed(f"{name}v", x)], outputs)
    return m.emit(op, [count, m.weight(True, "bool"), x], outputs=2, captured=[other], body=graph)


def typed(name: str, like: Value) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx_type(like.dtype), [None] * like.rank)


MORE: dict[str, Callable[[Maker, str], object]] = {
    "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum, "Det": _det, "MatMulInteger": _bytes_product,
    "QLinearMatMul": _quantised_product, "Conv": _conv, "ConvTranspose": _conv_transpose, "ConvInteger": _conv_integer,
    "QLinearConv": _conv_quantised, "MaxPool": _pool, "AveragePool": _pool, "LpPool": _pool,
    "GlobalAveragePool": _global_pool, "GlobalMaxPool": _global_pool, "MaxUnpool": _unpool, "Col2Im": _columns,
    "DeformConv": _deformed, "Resize": _resize, "GridSample": _grid_sample, "AffineGrid": _affine_grid,
    "RoiAlign": _regions, "BatchNormalization": _channel_norm, "InstanceNormalization": _channel_norm,
    "GroupNormalization": _channel_norm, "LayerNormalization": _row_norm, "RMSNormalization": _row_norm,
    "MeanVarianceNormalization": _moments, "Gather": _gather, "GatherElements": _gather_elements,
    "GatherND": _gather_nd, "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd,
    "TensorScatter": _tensor_scatter, "OneHot": _one_hot, "Compress": _compress, "Unique": _unique,
    "ReverseSequence": _reverse, "NonMaxSuppression": _boxes, "RNN": _recurrent, "GRU": _recurrent, "LSTM": _recurrent,
    "QuantizeLinear": _quantise, "DequantizeLinear": _quantise, "DFT": _spectrum, "STFT": _short_spectra,
    "HannWindow": _taper, "HammingWindow": _taper, "BlackmanWindow": _taper, "MelWeightMatrix": _mel,
    "RotaryEmbedding": _rotary, "CastLike": _cast_like, "If": _if, "Loop": _loop,
}  # fmt: skip
