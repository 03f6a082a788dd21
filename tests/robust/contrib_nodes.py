"""Random nodes of com.microsoft: operands and attributes that ONNX Runtime's kernels for processors may be given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Rng = np.random.Generator


@dataclass
class Drawn:
    """A node.

    Attributes:
        operands: None where one is absent.
        fixed: places of those that are constants.
        quantum: results are integers that may differ by 1, since ONNX Runtime computes with tables or in fixed point.
        atol: beside a relative error of 2e-4, for sums of products that cancel.
    """

    operands: list[Array | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    fixed: tuple[int, ...] = ()
    quantum: bool = False
    atol: float = 2e-5


DRAWS: dict[str, Callable[[Rng], Drawn]] = {}


def draws(*ops: str) -> Callable[[Callable[[Rng], Drawn]], Callable[[Rng], Drawn]]:
    def register(f: Callable[[Rng], Drawn]) -> Callable[[Rng], Drawn]:
        DRAWS.update(dict.fromkeys(ops, f))
        return f

    return register


def reals(rng: Rng, *shape: int, low: float = -2.0, high: float = 2.0) -> Array:
    return rng.uniform(low, high, shape).astype(np.float32)


def some_bytes(rng: Rng, dtype: Any, *shape: int) -> Array:
    """Integers of 8 bits; signed ones have 7, as ONNX Runtime's kernels without VNNI saturate sums of two products."""
    low, high = (-64, 64) if dtype == np.int8 else (0, 256)
    return rng.integers(low, high, shape).astype(dtype)


def shape_of(rng: Rng, rank: int, most: int = 5) -> tuple[int, ...]:
    return tuple(int(d) for d in rng.integers(1, most + 1, rank))


def flags(rng: Rng, *names: str) -> dict[str, int]:
    """Some of the names, with 0 or 1."""
    return {n: int(rng.integers(0, 2)) for n in names if rng.random() < 0.7}


def maybe(rng: Rng, value: Any) -> Any:
    return value if rng.random() < 0.5 else None


def scale(rng: Rng, *shape: int) -> Array:
    return reals(rng, *shape, low=0.01, high=0.1)


def byte_type(rng: Rng) -> Any:
    return rng.choice([np.uint8, np.int8])


def zero(rng: Rng, dtype: Any) -> Array:
    return np.asarray(rng.integers(-9, 10) if dtype == np.int8 else rng.integers(100, 150), dtype)


# -- scalar functions, sums, normalisations -----------------------------------------------------------------------


@draws("Gelu", "QuickGelu")
def of_one(rng: Rng) -> Drawn:
    return Drawn([reals(rng, *shape_of(rng, int(rng.integers(0, 4))))])


@draws("BiasGelu", "FastGelu")
def biased(rng: Rng) -> Drawn:
    x = reals(rng, *shape_of(rng, int(rng.integers(1, 4))))
    return Drawn([x, reals(rng, x.shape[-1])])


@draws("SkipLayerNormalization")
def skipped(rng: Rng) -> Drawn:
    b, s, h = shape_of(rng, 3, 8)
    skip = rng.choice([0, 1])
    operands = [reals(rng, b, s, h), reals(rng, *((b, s, h), (1, s, h))[skip]), reals(rng, h)]
    operands += [maybe(rng, reals(rng, h)), maybe(rng, reals(rng, h))]
    return Drawn(operands, {"epsilon": float(rng.choice([1e-12, 1e-5, 0.1]))}, 1, atol=1e-4)


@draws("SkipSimplifiedLayerNormalization")
def simplified(rng: Rng) -> Drawn:
    b, s, h = shape_of(rng, 3, 8)
    operands = [reals(rng, b, s, h), reals(rng, b, s, h), reals(rng, h), maybe(rng, reals(rng, h))]
    return Drawn(operands, {"epsilon": float(rng.choice([1e-6, 1e-5, 0.1]))}, 1, atol=1e-4)


@draws("EmbedLayerNormalization")
def embedded(rng: Rng) -> Drawn:
    b, s, h = shape_of(rng, 3, 6)
    ids = rng.integers(0, 9, (b, s)).astype(np.int32)
    segments = maybe(rng, rng.integers(0, 2, (b, s)).astype(np.int32))
    tables = [reals(rng, 9, h), reals(rng, s + 2, h), None if segments is None else reals(rng, 2, h)]
    mask = maybe(rng, rng.integers(0, 2, (b, s)).astype(np.int32))
    return Drawn([ids, segments, *tables, reals(rng, h), reals(rng, h), mask], {"epsilon": 1e-5}, 2, atol=1e-4)


# -- products -----------------------------------------------------------------------------------------------------


@draws("FusedMatMul", "TransposeMatMul")
def product(rng: Rng) -> Drawn:
    m, k, n = shape_of(rng, 3, 7)
    form = flags(rng, "transA", "transB")
    batch = shape_of(rng, int(rng.integers(0, 3)), 3)
    a = (*batch, k, m) if form.get("transA") else (*batch, m, k)
    b = (*batch, n, k) if form.get("transB") else (*batch, k, n)
    if rng.random() < 0.3:
        b = b[-2:]
    return Drawn([reals(rng, *a), reals(rng, *b)], {**form, "alpha": float(rng.choice([1.0, 0.25, -2.0]))}, atol=1e-4)


@draws("FusedGemm")
def gemm(rng: Rng) -> Drawn:
    m, k, n = shape_of(rng, 3, 7)
    form: dict[str, Any] = flags(rng, "transA", "transB")
    a, b = ((k, m) if form.get("transA") else (m, k)), ((n, k) if form.get("transB") else (k, n))
    c = maybe(rng, reals(rng, *[(n,), (m, n), (m, 1), (1,)][rng.integers(0, 4)]))
    kind = str(rng.choice(["Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Elu", "Softplus"]))
    parameters = {"LeakyRelu": 1, "Elu": 1, "HardSigmoid": 2}.get(kind, 0)
    form |= {f"activation_{name}": float(rng.uniform(0.1, 0.9)) for name in ("alpha", "beta")[:parameters]}
    form |= {"alpha": float(rng.uniform(0.5, 2)), "beta": float(rng.uniform(0.5, 2)), "activation": kind}
    return Drawn([reals(rng, *a), reals(rng, *b), c], form, atol=1e-4)


def window(rng: Rng, rank: int) -> dict[str, Any]:
    """Attributes of a window with a kernel of 2 in each dimension."""
    form: dict[str, Any] = {"kernel_shape": [2] * rank, "strides": [int(rng.integers(1, 3))] * rank}
    if rng.random() < 0.4:
        return form | {"auto_pad": str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))}
    return form | {"pads": [int(p) for p in rng.integers(0, 2, 2 * rank)]}


@draws("FusedConv")
def convolution(rng: Rng) -> Drawn:
    group, rank, n, c, m = (int(d) for d in rng.integers(1, (3, 3, 4, 4, 4)))
    x, w = reals(rng, n, c * group, *rng.integers(4, 7, rank)), reals(rng, m * group, c, *(2,) * rank)
    kind = str(rng.choice(["Relu", "Tanh", "Sigmoid", "LeakyRelu", "Clip", "HardSigmoid"]))
    given = {"LeakyRelu": [0.2], "Clip": [-0.5, 0.7], "HardSigmoid": [0.3, 0.4]}.get(kind)
    form = window(rng, rank) | {"group": group, "activation": kind} | ({"activation_params": given} if given else {})
    return Drawn([x, w, maybe(rng, reals(rng, m * group))], form, atol=1e-4)


@draws("NhwcMaxPool")
def pooled(rng: Rng) -> Drawn:
    dtype = byte_type(rng)
    x = some_bytes(rng, dtype, 1, int(rng.integers(3, 7)), int(rng.integers(3, 7)), int(rng.integers(1, 6)))
    return Drawn([x], window(rng, 2) | flags(rng, "ceil_mode"))


@draws("ConvTransposeWithDynamicPads")
def transposed(rng: Rng) -> Drawn:
    c, m = (int(d) for d in rng.integers(1, 4, 2))
    pads = rng.integers(0, 2, 4).astype(np.int64)
    operands = [reals(rng, 1, c, 4, 5), reals(rng, c, m, 2, 2), pads, maybe(rng, reals(rng, m))]
    return Drawn(operands, {"strides": [int(rng.integers(1, 3))] * 2}, fixed=(2,), atol=1e-4)


# -- quantised ----------------------------------------------------------------------------------------------------


@draws("QLinearAdd", "QLinearMul")
def quantised_pair(rng: Rng) -> Drawn:
    t, shape = byte_type(rng), shape_of(rng, int(rng.integers(1, 4)))
    other = shape if rng.random() < 0.6 else shape[-1:]
    a, b = some_bytes(rng, t, *shape), some_bytes(rng, t, *other)
    operands = [a, scale(rng), zero(rng, t), b, scale(rng), zero(rng, t), scale(rng), zero(rng, t)]
    return Drawn(operands, quantum=True, fixed=(1, 2, 4, 5, 6, 7))


@draws("QLinearLeakyRelu", "QLinearSigmoid")
def quantised_one(rng: Rng) -> Drawn:
    t = byte_type(rng)
    x = some_bytes(rng, t, *shape_of(rng, int(rng.integers(1, 4))))
    return Drawn([x, scale(rng), zero(rng, t), scale(rng), zero(rng, t)], quantum=True, fixed=(1, 2, 3, 4))


@draws("QLinearGlobalAveragePool")
def quantised_mean(rng: Rng) -> Drawn:
    t = byte_type(rng)
    operands = [some_bytes(rng, t, *shape_of(rng, 4)), scale(rng), zero(rng, t), scale(rng), zero(rng, t)]
    return Drawn(operands, flags(rng, "channels_last"), quantum=True, fixed=(1, 2, 3, 4))


@draws("QLinearAveragePool")
def quantised_pool(rng: Rng) -> Drawn:
    t, form = byte_type(rng), flags(rng, "channels_last", "count_include_pad", "ceil_mode")
    size = [int(d) for d in rng.integers(4, 7, 2)]
    x = some_bytes(rng, t, *((1, *size, 3) if form.get("channels_last") else (1, 3, *size)))
    operands = [x, scale(rng), zero(rng, t), scale(rng), zero(rng, t)]
    return Drawn(operands, form | window(rng, 2), quantum=True, fixed=(1, 2, 3, 4))


@draws("QLinearConcat")
def quantised_parts(rng: Rng) -> Drawn:
    t, shape, axis = byte_type(rng), list(shape_of(rng, 3)), int(rng.integers(-3, 3))
    operands: list[Array | None] = [scale(rng), zero(rng, t)]
    for _ in range(int(rng.integers(1, 4))):
        shape[axis] = int(rng.integers(1, 4))
        operands += [some_bytes(rng, t, *shape), scale(rng), zero(rng, t)]
    fixed = tuple(k for k in range(len(operands)) if k < 2 or (k - 2) % 3)
    return Drawn(operands, {"axis": axis}, quantum=True, fixed=fixed)


@draws("QLinearSoftmax")
def quantised_soft(rng: Rng) -> Drawn:
    t, rank = byte_type(rng), int(rng.integers(1, 4))
    x = some_bytes(rng, t, *shape_of(rng, rank))
    out = [np.asarray(1 / 256, np.float32), np.asarray(-128 if t == np.int8 else 0, t)]
    form = {"axis": int(rng.integers(-rank, rank)), "opset": int(rng.choice([11, 13]))}
    return Drawn([x, scale(rng), zero(rng, t), *out], form, quantum=True, fixed=(1, 2, 3, 4))


@draws("QLinearWhere")
def quantised_choice(rng: Rng) -> Drawn:
    t, shape = byte_type(rng), shape_of(rng, 2)
    a, b = (some_bytes(rng, t, *shape) for _ in range(2))
    condition = rng.random(shape) < 0.5
    operands = [condition, a, scale(rng), zero(rng, t), b, scale(rng), zero(rng, t), scale(rng), zero(rng, t)]
    return Drawn(operands, quantum=True, fixed=(2, 3, 5, 6, 7, 8))


@draws("QLinearConv")
def quantised_convolution(rng: Rng) -> Drawn:
    group, last, c, m = (int(d) for d in rng.integers((1, 0, 1, 1), (3, 2, 4, 4)))
    shape = (1, 5, 6, c * group) if last else (1, c * group, 5, 6)
    per = (m * group,) if rng.random() < 0.5 else ()
    operands = [
        some_bytes(rng, np.uint8, *shape), scale(rng), zero(rng, np.uint8),
        some_bytes(rng, np.int8, m * group, c, 2, 2), scale(rng, *per), np.zeros(per, np.int8), scale(rng) * 20,
        zero(rng, np.uint8), maybe(rng, rng.integers(-500, 500, m * group).astype(np.int32)),
    ]  # fmt: skip
    form = window(rng, 2) | {"group": group, "channels_last": last}
    return Drawn(operands, form, quantum=True, fixed=tuple(range(1, 9)))


@draws("QGemm")
def quantised_gemm(rng: Rng) -> Drawn:
    t, (m, k, n), form = byte_type(rng), shape_of(rng, 3, 7), flags(rng, "transA", "transB")
    a = some_bytes(rng, t, *((k, m) if form.get("transA") else (m, k)))
    b = some_bytes(rng, np.int8, *((n, k) if form.get("transB") else (k, n)))
    per = (n,) if rng.random() < 0.5 else ()
    operands = [a, scale(rng), zero(rng, t), b, scale(rng, *per), np.zeros(per, np.int8)]
    operands += [maybe(rng, rng.integers(-500, 500, n).astype(np.int32))]
    whole = rng.random() < 0.5
    operands += [scale(rng) * 20, zero(rng, t)] if whole else []
    return Drawn(
        operands, {**form, "alpha": float(rng.choice([1.0, 0.5]))}, quantum=whole, atol=1e-4, fixed=(1, 2, 4, 5)
    )


@draws("MatMulIntegerToFloat")
def integers_to_reals(rng: Rng) -> Drawn:
    t, u, (m, k, n) = byte_type(rng), byte_type(rng), shape_of(rng, 3, 7)
    per = (n,) if rng.random() < 0.5 else ()
    zeros = maybe(rng, zero(rng, t)), maybe(rng, some_bytes(rng, u, *per))
    operands = [some_bytes(rng, t, m, k), some_bytes(rng, u, k, n), scale(rng), scale(rng, *per), *zeros]
    return Drawn([*operands, maybe(rng, reals(rng, n))], atol=1e-3)


@draws("DynamicQuantizeMatMul")
def quantised_on_the_way(rng: Rng) -> Drawn:
    u, (m, k, n) = byte_type(rng), shape_of(rng, 3, 7)
    per = (n,) if rng.random() < 0.5 else ()
    x = reals(rng, m, k) * float(rng.choice([0.0, 1.0, 30.0]))
    operands = [x, some_bytes(rng, u, k, n), scale(rng, *per), maybe(rng, some_bytes(rng, u, *per))]
    return Drawn([*operands, maybe(rng, reals(rng, n))], atol=1e-3)


@draws("QuantizeLinear")
def quantised(rng: Rng) -> Drawn:
    t, axis, x = byte_type(rng), int(rng.integers(-2, 2)), reals(rng, *shape_of(rng, 2), low=-9, high=9)
    per = (x.shape[axis],) if rng.random() < 0.5 else ()
    return Drawn([x, scale(rng, *per), some_bytes(rng, t, *per)], {"axis": axis}, quantum=True)


@draws("DequantizeLinear")
def dequantised(rng: Rng) -> Drawn:
    t, axis = byte_type(rng), int(rng.integers(-2, 2))
    x = some_bytes(rng, t, *shape_of(rng, 2))
    per = (x.shape[axis],) if rng.random() < 0.5 else ()
    return Drawn([x, scale(rng, *per), some_bytes(rng, t, *per)], {"axis": axis})


@draws("MatMulNBits")
def few_bits(rng: Rng) -> Drawn:
    bits, block = int(rng.choice([4, 8])), int(rng.choice([16, 32]))
    k, n = int(rng.integers(1, 5)) * 16, int(rng.integers(1, 6))
    blocks = -(-k // block)
    packed = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    zeros = maybe(rng, rng.integers(0, 256, (n * -(-blocks * bits // 8),)).astype(np.uint8))
    operands = [reals(rng, 2, 3, k), packed, scale(rng, n * blocks), zeros, None, maybe(rng, reals(rng, n))]
    form = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": int(rng.choice([0, 1]))}
    return Drawn(operands, form, fixed=(1, 2, 3, 5), atol=2e-3)


@draws("GatherBlockQuantized")
def few_bits_of_rows(rng: Rng) -> Drawn:
    rows, width, block = 9, 32, 16
    data = rng.integers(0, 256, (rows, width // 2)).astype(np.uint8)
    zeros = maybe(rng, rng.integers(0, 256, (rows, width // block // 2)).astype(np.uint8))
    indices = rng.integers(-rows, rows, shape_of(rng, 2, 3)).astype(np.int64)
    form = {"block_size": block, "gather_axis": 0, "quantize_axis": 1, "bits": 4}
    return Drawn([data, indices, scale(rng, rows, width // block), zeros], form, fixed=(0, 2, 3))


# -- attention ----------------------------------------------------------------------------------------------------


def mask_of(rng: Rng, batch: int, queries: int, keys: int) -> Array | None:
    """Keys, pairs, ends, or ends and starts; each query sees a key."""
    kind = int(rng.integers(0, 5))
    ends = rng.integers(1, keys + 1, batch).astype(np.int32)
    shown = rng.integers(0, 2, (batch, queries, keys)).astype(np.int32)
    shown[..., 0] = 1
    starts = np.minimum(rng.integers(0, keys, batch), ends - 1).astype(np.int32)
    return (None, shown[:, 0].copy(), shown, ends, np.concatenate([ends, starts]))[kind]


@draws("Attention")
def attention(rng: Rng) -> Drawn:
    b, s, h, d, p = (int(x) for x in rng.integers(1, 5, 5))
    d, width, past = 2 * d, 6, int(rng.integers(0, 2)) * p
    x, w, bias = reals(rng, b, s, width), reals(rng, width, 3 * h * d), maybe(rng, reals(rng, 3 * h * d))
    mask = mask_of(rng, b, s, s + past)
    before = reals(rng, 2, b, h, past, d) if past else None
    addend = maybe(rng, reals(rng, int(rng.choice([1, b])), int(rng.choice([1, h])), s, s + past))
    form: dict[str, Any] = {"num_heads": h} | flags(rng, "unidirectional")
    form |= {"scale": 0.3} if rng.random() < 0.3 else {}
    form |= {"mask_filter_value": -50.0} if rng.random() < 0.3 else {}
    return Drawn([x, w, bias, mask, before, addend], form, 2 if past else 1, fixed=(1, 2), atol=1e-4)


@draws("QAttention")
def quantised_attention(rng: Rng) -> Drawn:
    b, s, h, d = (int(x) for x in rng.integers(1, 5, 4))
    width, d = 6, 2 * d
    x, w = some_bytes(rng, np.uint8, b, s, width), some_bytes(rng, np.int8, width, 3 * h * d)
    mask = mask_of(rng, b, s, s)
    mask = None if mask is not None and mask.ndim == 3 else mask
    operands = [x, w, reals(rng, 3 * h * d), scale(rng) / 10, scale(rng), mask, zero(rng, np.uint8), zero(rng, np.int8)]
    return Drawn(operands, {"num_heads": h} | flags(rng, "unidirectional"), fixed=(1, 2, 3, 4, 6, 7), atol=1e-4)


@draws("MultiHeadAttention")
def many_heads(rng: Rng) -> Drawn:
    b, s, t, h, d = (int(x) for x in rng.integers(1, 5, 5))
    t, d = (s if rng.random() < 0.5 else t), 2 * d
    q, k, v = (reals(rng, b, n, h * d) for n in (s, t, t))
    bias = maybe(rng, reals(rng, 3 * h * d))
    mask = mask_of(rng, b, s, t)
    mask = None if mask is not None and mask.ndim == 1 and len(mask) != b else mask
    addend = maybe(rng, reals(rng, int(rng.choice([1, b])), int(rng.choice([1, h])), s, t))
    form: dict[str, Any] = {"num_heads": h} | (flags(rng, "unidirectional") if s == t else {})
    form |= {"scale": 0.3} if rng.random() < 0.3 else {}
    return Drawn([q, k, v, bias, mask, addend], form, atol=1e-4)


@draws("GroupQueryAttention")
def groups_of_heads(rng: Rng) -> Drawn:
    b, groups, each, s, p = (int(x) for x in rng.integers(1, 4, 5))
    d, first = 16, rng.random() < 0.5
    h, held = groups * each, 8
    s, p = (s, 0) if first else (1, p)
    q, k, v = (reals(rng, b, s, n * d) for n in (h, groups, groups))
    past = [reals(rng, b, groups, held, d) for _ in range(2)]
    for cache in past:
        cache[:, :, p:] = 0  # what is behind the last position stays in a cache here, and is 0 in ONNX Runtime
    last = np.full(b, s + p - 1, np.int32)
    tables = [reals(rng, held, d // 2, low=-1, high=1) for _ in range(2)]
    form: dict[str, Any] = {"num_heads": h, "kv_num_heads": groups, "do_rotary": int(rng.integers(0, 2))}
    form |= flags(rng, "rotary_interleaved") if form["do_rotary"] else {}
    form |= {"local_window_size": int(rng.integers(1, 5))} if rng.random() < 0.3 else {}
    form |= {"softcap": 2.0} if rng.random() < 0.3 else {}
    form |= {"smooth_softmax": 1} if rng.random() < 0.3 else {}
    form |= {"scale": 0.3} if rng.random() < 0.3 else {}
    addend = maybe(rng, reals(rng, int(rng.choice([1, b])), int(rng.choice([1, h])), s, s + p))
    rest = [*(tables if form["do_rotary"] else [None, None]), None, addend]
    return Drawn([q, k, v, *past, last, np.asarray(s + p, np.int32), *rest], form, 3, fixed=(6,), atol=1e-4)


@draws("DecoderMaskedMultiHeadAttention")
def decoder_step(rng: Rng) -> Drawn:
    b, h, d, longest = (int(x) for x in rng.integers(1, 5, 4))
    d, count = 2 * d, int(rng.integers(0, longest))
    new, past = [reals(rng, b, 1, h * d) for _ in range(3)], [reals(rng, b, h, longest, d) for _ in range(2)]
    mask = rng.integers(0, 2, (b, count + 1)).astype(np.int32)
    mask[:, -1] = 1
    addend = maybe(rng, reals(rng, 1, 1, 1, count + 1))
    tail = [None, None, maybe(rng, reals(rng, 3 * h * d))]
    operands = [*new, maybe(rng, mask), addend, *past, np.array([count], np.int32), *tail]
    return Drawn(operands, {"num_heads": h, "past_present_share_buffer": 1}, 3, atol=1e-4)


@draws("RotaryEmbedding")
def rotary(rng: Rng) -> Drawn:
    b, s, h = shape_of(rng, 3, 4)
    d, form = 8, flags(rng, "interleaved")
    part = rng.random() < 0.3
    x = reals(rng, b, h, s, d) if part or rng.random() < 0.5 else reals(rng, b, s, h * d)
    width = d // 4 if part else d // 2
    at = rng.integers(0, 5, (b, s)).astype(np.int64) if rng.random() < 0.5 else np.array([rng.integers(0, 3)], np.int64)
    more = {"num_heads": h, "rotary_embedding_dim": 2 * width} if part else {}
    return Drawn([x, at, reals(rng, 9, width), reals(rng, 9, width)], form | more)


@draws("DynamicQuantizeLSTM")
def quantised_lstm(rng: Rng) -> Drawn:
    t, b, i, h = shape_of(rng, 4, 4)
    direction = str(rng.choice(["forward", "reverse", "bidirectional"]))
    d, u = 1 + (direction == "bidirectional"), byte_type(rng)
    per = (d, 4 * h) if rng.random() < 0.5 else (d,)
    point = np.full(per, 128 if u == np.uint8 else 0, u)
    lengths = maybe(rng, rng.integers(1, t + 1, b).astype(np.int32))
    states = [maybe(rng, reals(rng, d, b, h)) for _ in range(2)]
    operands = [
        reals(rng, t, b, i), some_bytes(rng, u, d, i, 4 * h), some_bytes(rng, u, d, h, 4 * h),
        maybe(rng, reals(rng, d, 8 * h)), lengths, *states, maybe(rng, reals(rng, d, 3 * h)),
        scale(rng, *per) / 5, point, scale(rng, *per) / 5, point,
    ]  # fmt: skip
    form: dict[str, Any] = {"hidden_size": h, "direction": direction} | flags(rng, "input_forget")
    form |= {"clip": 0.5} if rng.random() < 0.3 else {}
    return Drawn(operands, form, 3, fixed=(1, 2, 8, 9, 10, 11))


# -- the rest -----------------------------------------------------------------------------------------------------


@draws("CDist")
def distances(rng: Rng) -> Drawn:
    m, k, n = shape_of(rng, 3, 7)
    form = {"metric": str(rng.choice(["euclidean", "sqeuclidean"]))}
    return Drawn([reals(rng, m, n), reals(rng, k, n)], form, atol=2e-3)


@draws("Trilu")
def triangle(rng: Rng) -> Drawn:
    k = maybe(rng, np.asarray(rng.integers(-4, 5), np.int64))
    return Drawn([reals(rng, *shape_of(rng, int(rng.integers(2, 4)))), k], flags(rng, "upper"))


@draws("Range")
def numbers_in_a_row(rng: Rng) -> Drawn:
    t = rng.choice([np.float32, np.int64, np.int32])
    step = np.asarray(rng.choice([-2, -1, 1, 2]), t)
    operands = [np.asarray(rng.integers(-3, 3), t), np.asarray(rng.integers(-9, 9), t), maybe(rng, step)]
    return Drawn(operands, fixed=(0, 1, 2))


@draws("GatherND")
def places(rng: Rng) -> Drawn:
    x = reals(rng, *shape_of(rng, 3))
    depth = int(rng.integers(1, 4))
    at = np.stack([rng.integers(0, d, (2, 3)) for d in x.shape[:depth]], -1)
    return Drawn([x, at.astype(np.int64)])


@draws("ExpandDims")
def wider(rng: Rng) -> Drawn:
    x = reals(rng, *shape_of(rng, 2))
    return Drawn([x, np.asarray(rng.integers(-3, 3), np.int32)], fixed=(1,))


@draws("GridSample")
def sampled(rng: Rng) -> Drawn:
    form = {"mode": str(rng.choice(["bilinear", "nearest", "bicubic"]))} | flags(rng, "align_corners")
    form |= {"padding_mode": str(rng.choice(["zeros", "border", "reflection"]))}
    n, c, h, w = shape_of(rng, 4)
    return Drawn([reals(rng, n, c, h + 1, w + 1), reals(rng, n, 3, 4, 2, low=-1.3, high=1.3)], form, atol=1e-4)


@draws("CropAndResize")
def cropped(rng: Rng) -> Drawn:
    n, c = shape_of(rng, 2, 3)
    corners = np.sort(rng.uniform(-0.2, 1.2, (3, 2, 2)), 1).reshape(3, 4).astype(np.float32)
    size = rng.integers(1, 5, 2).astype(np.int32)
    operands = [reals(rng, n, c, 6, 7), corners, rng.integers(0, n, 3).astype(np.int32), size]
    form = {"mode": str(rng.choice(["bilinear", "nearest"])), "extrapolation_value": 0.5}
    return Drawn(operands, form, fixed=(3,), atol=1e-4)
