"""Random graphs: every operator may follow every other, values have several readers, any value may be an output."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import onnx

from tests.support.models import model, node, with_types

from .zoo import Array

_UNARY = ("Neg", "Abs", "Relu", "Tanh", "Sigmoid", "Sin", "Erf", "HardSwish", "Floor", "Identity", "Sign")
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_REDUCE = ("ReduceMax", "ReduceMean", "ReduceSum", "ReduceMin", "ReduceL2")
_SIZES = (1, 2, 3, 4, 5, 8, 9, 17)


@dataclass
class _Maker:
    """A graph in the making: shapes of f32 values by name, nodes, weights."""

    rng: random.Random
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)

    def pick(self, rank: int | None = None, least: int = 0) -> str:
        """A value, late ones more often; empty when none has the rank."""
        names = [n for n, s in self.shapes.items() if (rank is None or len(s) == rank) and len(s) >= least]
        if not names:
            return ""
        return names[max(self.rng.randrange(len(names)), self.rng.randrange(len(names)))]

    def weight(self, array: Array) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def floats(self, *shape: int) -> str:
        values = np.random.default_rng(self.rng.randrange(1 << 30)).standard_normal(shape)
        return self.weight(np.asarray(values / 2, np.float32))

    def ints(self, *values: int) -> str:
        return self.weight(np.array(values, np.int64))

    def emit(self, op: str, operands: str, shape: tuple[int, ...], **attributes: object) -> None:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, operands, name, **attributes))
        self.shapes[name] = shape


def _unary(m: _Maker) -> None:
    x = m.pick()
    m.emit(m.rng.choice(_UNARY), x, m.shapes[x])


def _binary(m: _Maker) -> None:
    x = m.pick()
    shape = m.shapes[x]
    same = [n for n, s in m.shapes.items() if s == shape]
    fits = [n for n, s in m.shapes.items() if _broadcasts(s, shape)]
    how = m.rng.randrange(4)
    if how == 0:
        y = m.floats(*(d if m.rng.random() < 0.6 else 1 for d in shape[m.rng.randrange(len(shape) + 1) :]))
    else:
        y = m.rng.choice(same if how == 1 else fits)
    pair = [x, y] if m.rng.random() < 0.5 else [y, x]
    m.emit(m.rng.choice(_BINARY), " ".join(pair), shape)


def _broadcasts(s: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(s) <= len(to) and all(a in (1, b) for a, b in zip(s[::-1], to[::-1], strict=False))


def _where(m: _Maker) -> None:
    x = m.pick()
    y = m.rng.choice([n for n, s in m.shapes.items() if s == m.shapes[x]])
    mask = f"b{len(m.nodes)}"
    m.nodes.append(node("Greater", f"{x} {m.floats()}", mask))
    m.emit("Where", f"{mask} {x} {y}", m.shapes[x])


def _reduce(m: _Maker) -> None:
    x = m.pick(least=1)
    shape = m.shapes[x]
    axes = sorted(m.rng.sample(range(len(shape)), m.rng.randrange(1, len(shape) + 1)))
    keep = m.rng.randrange(2)
    out = tuple(1 if k in axes else d for k, d in enumerate(shape) if keep or k not in axes)
    m.emit(m.rng.choice(_REDUCE), f"{x} {m.ints(*axes)}", out, keepdims=keep)


def _softmax(m: _Maker) -> None:
    x = m.pick(least=1)
    m.emit("Softmax", x, m.shapes[x], axis=m.rng.randrange(len(m.shapes[x])))


def _norm(m: _Maker) -> None:
    x = m.pick(least=1)
    d = m.shapes[x][-1]
    m.emit("LayerNormalization", f"{x} {m.floats(d)} {m.floats(d)}", m.shapes[x], axis=-1, epsilon=0.1)


def _transpose(m: _Maker) -> None:
    x = m.pick(least=2)
    perm = m.rng.sample(range(len(m.shapes[x])), len(m.shapes[x]))
    m.emit("Transpose", x, tuple(m.shapes[x][p] for p in perm), perm=perm)


def _reshape(m: _Maker) -> None:
    x = m.pick()
    dims = list(m.shapes[x])
    if len(dims) > 1 and m.rng.random() < 0.6:
        k = m.rng.randrange(len(dims) - 1)
        dims[k : k + 2] = [dims[k] * dims[k + 1]]
    else:
        dims.insert(m.rng.randrange(len(dims) + 1), 1)
    if len(dims) <= 4:
        m.emit("Reshape", f"{x} {m.ints(*dims)}", tuple(dims))


def _slice(m: _Maker) -> None:
    x = m.pick(least=1)
    dims = list(m.shapes[x])
    k = m.rng.randrange(len(dims))
    if dims[k] < 2:
        return
    start, step = m.rng.randrange(dims[k] - 1), m.rng.choice((1, 1, 2))
    end = m.rng.randrange(start + 1, dims[k] + 1)
    dims[k] = len(range(start, end, step))
    m.emit("Slice", f"{x} {m.ints(start)} {m.ints(end)} {m.ints(k)} {m.ints(step)}", tuple(dims))


def _flip(m: _Maker) -> None:
    x = m.pick(least=1)
    k = m.rng.randrange(len(m.shapes[x]))
    m.emit("Slice", f"{x} {m.ints(-1)} {m.ints(-1000)} {m.ints(k)} {m.ints(-1)}", m.shapes[x])


def _pad(m: _Maker) -> None:
    x = m.pick(least=1)
    shape = m.shapes[x]
    pads = [m.rng.randrange(3) for _ in range(2 * len(shape))]
    out = tuple(d + pads[k] + pads[k + len(shape)] for k, d in enumerate(shape))
    if max(out) <= 40:
        m.emit("Pad", f"{x} {m.ints(*pads)}", out)


def _concat(m: _Maker) -> None:
    x = m.pick(least=1)
    shape = m.shapes[x]
    k = m.rng.randrange(len(shape))
    fits = [n for n, s in m.shapes.items() if len(s) == len(shape) and s[:k] + s[k + 1 :] == shape[:k] + shape[k + 1 :]]
    parts = [x, *(m.rng.choice(fits) for _ in range(m.rng.randrange(1, 3)))]
    size = sum(m.shapes[p][k] for p in parts)
    if size <= 60:
        m.emit("Concat", " ".join(parts), (*shape[:k], size, *shape[k + 1 :]), axis=k)


def _gather(m: _Maker) -> None:
    x = m.pick(least=1)
    shape = m.shapes[x]
    k = m.rng.randrange(len(shape))
    index = [m.rng.randrange(-shape[k], shape[k]) for _ in range(m.rng.choice((1, 2, 5)))]
    m.emit("Gather", f"{x} {m.ints(*index)}", (*shape[:k], len(index), *shape[k + 1 :]), axis=k)


def _matmul(m: _Maker) -> None:
    x = m.pick(least=2)
    shape = m.shapes[x]
    partners = [n for n, s in m.shapes.items() if len(s) == 2 and s[0] == shape[-1]]
    width = m.rng.choice(_SIZES)
    y = m.rng.choice(partners) if partners and m.rng.random() < 0.5 else m.floats(shape[-1], width)
    m.emit("MatMul", f"{x} {y}", (*shape[:-1], m.shapes[y][1] if y in m.shapes else width))


def _conv(m: _Maker) -> None:
    x = m.pick(rank=4)
    if not x:
        return
    n, c, h, w = m.shapes[x]
    out, kernel, stride = m.rng.choice((1, 4, 8, 10)), m.rng.choice((1, 1, 3)), m.rng.choice((1, 1, 2))
    group = c if m.rng.random() < 0.3 else 1
    out = c if group == c else out
    pad = kernel // 2
    size = tuple((d + 2 * pad - kernel) // stride + 1 for d in (h, w))
    operands = f"{x} {m.floats(out, c // group, kernel, kernel)}" + (
        f" {m.floats(out)}" if m.rng.random() < 0.5 else ""
    )
    m.emit("Conv", operands, (n, out, *size), pads=[pad] * 4, strides=[stride] * 2, group=group)


def _pool(m: _Maker) -> None:
    x = m.pick(rank=4)
    if x and min(m.shapes[x][2:]) >= 2:
        n, c, h, w = m.shapes[x]
        m.emit(m.rng.choice(("MaxPool", "AveragePool")), x, (n, c, h - 1, w - 1), kernel_shape=[2, 2])


_STEPS = (
    (_unary, 5), (_binary, 6), (_where, 1), (_reduce, 2), (_softmax, 1), (_norm, 1), (_transpose, 2), (_reshape, 2),
    (_slice, 1), (_flip, 1), (_pad, 1), (_concat, 2), (_gather, 1), (_matmul, 2), (_conv, 3), (_pool, 1),
)  # fmt: skip


def random_graph(seed: int, size: int = 14) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of about `size` nodes and its inputs, the same for the same seed."""
    rng = random.Random(seed)
    m = _Maker(rng)
    for k in range(rng.randrange(1, 4)):
        m.shapes[f"x{k}"] = tuple(rng.choice(_SIZES) for _ in range(rng.choice((2, 2, 3, 4, 4))))
    inputs = dict(m.shapes)
    steps, chances = zip(*_STEPS, strict=True)
    while len(m.nodes) < size:
        rng.choices(steps, chances)[0](m)
    used = {i for n in m.nodes for i in n.input}
    made = [n for n in m.shapes if n not in inputs]
    outputs = [v for v in made if v not in used or rng.random() < 0.15]
    feeds = {n: np.random.default_rng(seed).standard_normal(s).astype(np.float32) for n, s in inputs.items()}
    return with_types(model(m.nodes, inputs, outputs, m.weights)), feeds
