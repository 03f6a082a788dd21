"""Random numbers, each a function of a key and of its element's index, and of nothing else.

The generator is counter-based, Threefry-2x32 with 20 rounds (J. Salmon, M. Moraes, R. Dror and D. Shaw, "Parallel
random numbers: as easy as 1, 2, 3", SC 2011): the counter is the place of the element in its tensor, and the key names
the stream. So a number does not depend on who computes it or when, and is the same in every run, with any number of
threads, in every fusion and on every target (up to the last bits of a logarithm, where one is taken).

Decided here where ONNX leaves it open: two nodes with equal seeds draw the same stream. A node without a seed has a
fixed one, made from its name and the number of draws before it: two such nodes draw different streams, and every run
gives the same numbers. In a loop each round draws others. Uniform numbers are below `high`, also after rounding to the
element type.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ...base.errors import ModelError
from ...expr import BOOL, F32, F64, I32, I64, U32, U64, DType, Expr, as_int, const, from_onnx
from ...graph import Builder, Node, Shape, TensorType, Value, rewire
from ..control.flow import bodies
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from ..core.composite import Formula, composite
from ..core.functions import cum_sum, exp, reciprocal, where
from ..core.gradient import Backward, gradient_of
from ..core.pointwise import Pointwise, compute
from ..core.scalar import Scalar, cos, element, log, minimum, sqrt
from ..core.source import SourceNode, Unsupported
from ..core.tensor import Tensor, apply_all

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_ROUNDS = 20
Key = tuple[int, int]


def threefry(key: Key, counter: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
    """Two u32 words from a key and a counter of two u32 words each."""
    keys = (*key, _PARITY ^ key[0] ^ key[1])
    x, y = (_plus(c, k) for c, k in zip(counter, key, strict=True))
    for n in range(_ROUNDS):
        turn = _ROTATIONS[n % 8]
        x = x + y
        y = (y << turn | y >> (32 - turn)) ^ x
        if n % 4 == 3:
            step = n // 4 + 1
            x, y = _plus(x, keys[step % 3]), _plus(y, (keys[(step + 1) % 3] + step) % (1 << 32))
    return x, y


def _plus(x: Scalar, value: float) -> Scalar:
    return x + value if value else x


def _times(x: Scalar, value: float) -> Scalar:
    return x * value if value != 1.0 else x


@operator("Draw", "torshc")
@dataclass(frozen=True)
class Draw(Op):
    """A tensor of random numbers. Operands: the numbers of the rounds of the loops around it, if there are any.

    Attributes:
        shape: its shape.
        dtype: its float type.
        key: the stream.
        normal: normally distributed with mean `low` and standard deviation `high`, by the method of Box and Muller;
            else uniform in [low, high).
    """

    family: ClassVar[str] = "nest"
    shape: Shape = ()
    dtype: DType = F32
    key: Key = (0, 0)
    normal: bool = False
    low: float = 0.0
    high: float = 1.0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        return [TensorType(self.dtype, self.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        def body(at: Index, _: Index, read: Read) -> Scalar:
            place = const(0)
            for i, d in zip(at, self.shape, strict=True):
                place = place * d + i
            rounds = [read(k, ()).cast(U32) for k in range(len(node.operands))]
            return self._normal(place, rounds) if self.normal else self._uniform(place, rounds)

        return LoopNest(body)

    def _words(self, place: Expr, rounds: list[Scalar], number: int) -> tuple[Scalar, Scalar]:
        """The words of an element; the counter's highest bit, which no place needs, distinguishes its two draws."""
        size = as_int(TensorType(self.dtype, self.shape).size)
        above = element(0, U32)
        if size is None or size > 1 << 32:
            above = (element(place, U64) >> 32).cast(U32)
        for r in rounds:  # Knuth's multiplier spreads them over the bits that places leave free
            above = (above * 2654435761 + r) & 0x7FFFFFFF
        return threefry(self.key, (element(place, U32), above | number << 31))

    def _uniform(self, place: Expr, rounds: list[Scalar]) -> Scalar:
        kind = compute(self.dtype)
        value = _plus(_times(_fraction(self._words(place, rounds, 0), kind), self.high - self.low), self.low)
        return minimum(value, below(self.high, self.dtype))

    def _normal(self, place: Expr, rounds: list[Scalar]) -> Scalar:
        """sqrt(-2 log u) cos(2 pi v) for u in (0, 1] and v in [0, 1)."""
        kind = compute(self.dtype)
        words = self._words(place, rounds, 0)
        if kind is F64:
            radius = 1 - _fraction(words, kind)
            turn = _fraction(self._words(place, rounds, 1), kind)
        else:
            radius = ((words[0] >> 1).cast(I32).cast(kind) + 1) * 2.0**-31
            turn = _fraction(words[::-1], kind)
        value = sqrt(log(radius) * -2) * cos(turn * (2 * math.pi))
        return _plus(_times(value, self.high), self.low)


def salt(nodes: Iterable[Node], number: Value) -> bool:
    """Let draws in a loop's body differ from round to round, also those in bodies inside it; whether there are any."""
    found = False
    for node in nodes:
        inside = sum(salt(body.nodes, number) for body in bodies(node))
        if inside or isinstance(node.op, Draw | DropoutTraining):
            rewire(node, (*node.inputs, number))
            found = True
    return found


def _fraction(words: tuple[Scalar, ...], kind: DType) -> Scalar:
    """A number in [0, 1): a multiple of 2^-24 from the first word, or for f64 of 2^-53 from both. It is exact."""
    if kind is F64:
        return words[0].cast(F64) * 2.0**-32 + (words[1] >> 11).cast(F64) * 2.0**-53
    return (words[0] >> 8).cast(I32).cast(F32) * 2.0**-24


def below(high: float, dtype: DType) -> float:
    """The largest number of a float type below another."""
    end = np.asarray(high).astype(dtype.numpy)
    return float(np.nextafter(end, np.asarray(-np.inf, dtype.numpy))) if float(end) >= high else float(end)


def draw(
    source: SourceNode, shape: Shape, dtype: DType, normal: bool = False, low: float = 0.0, high: float = 1.0
) -> Tensor:
    """Random numbers for a node, of its seed or of one made for it."""
    key = stream(source.builder, source.attribute("seed"))
    return Tensor(source.builder, source.builder.one(Draw(shape, dtype, key, normal, low, high)))


def stream(builder: Builder, seed: float | None = None) -> Key:
    """The key of a node's random numbers, of its seed or of its name and place."""
    if seed is not None:
        return int.from_bytes(struct.pack("<f", float(seed)), "little"), 0
    number = sum(isinstance(n.op, Draw | DropoutTraining) for n in builder.graph.nodes)
    digest = hashlib.blake2b(f"{number} {builder.name}".encode(), digest_size=8).digest()
    low, high = struct.unpack("<2I", digest)
    return low, high


def _float_type(source: SourceNode, code: int) -> DType:
    """The element type of a node's result, by ONNX's number of it."""
    dtype = from_onnx(code)
    if dtype is None or not dtype.is_float:
        raise Unsupported(f"{source.op_type} of {dtype!r}" if dtype else f"{source.op_type} of ONNX type {code}")
    return dtype


def _uniform(source: SourceNode, shape: Shape, dtype: DType, low: float, high: float) -> Tensor:
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ModelError(
            f"{source.op_type} with low {low} and high {high}, which have to be finite, and low not above high"
        )
    return draw(source, shape, dtype, high=0.0) + low if low == high else draw(source, shape, dtype, False, low, high)


def _normal(source: SourceNode, shape: Shape, dtype: DType, mean: float, scale: float) -> Tensor:
    if not (math.isfinite(mean) and math.isfinite(scale)):
        raise ModelError(f"{source.op_type} with mean {mean} and scale {scale}, which have to be finite")
    return draw(source, shape, dtype, True, mean, scale)


@composite("RandomUniform", floats=False)
def random_uniform(
    source: SourceNode, *, shape: tuple[int, ...], dtype: int = F32.onnx, low: float = 0.0, high: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    """Numbers in [low, high), of a shape given by an attribute."""
    return _uniform(source, tuple(map(const, shape)), _float_type(source, dtype), low, high)


@composite("RandomNormal", floats=False)
def random_normal(
    source: SourceNode, *, shape: tuple[int, ...], dtype: int = F32.onnx, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers, of a shape given by an attribute."""
    return _normal(source, tuple(map(const, shape)), _float_type(source, dtype), mean, scale)


@composite("RandomUniformLike", floats=False)
def random_uniform_like(
    source: SourceNode, x: Tensor, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    """Numbers in [low, high), of the operand's shape, and of its type where none is given."""
    return _uniform(source, x.shape, _float_type(source, x.dtype.onnx if dtype is None else dtype), low, high)


@composite("RandomNormalLike", floats=False)
def random_normal_like(
    source: SourceNode, x: Tensor, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0,
    seed: float | None = None,
) -> Tensor:  # fmt: skip
    """Normally distributed numbers, of the operand's shape, and of its type where none is given."""
    return _normal(source, x.shape, _float_type(source, x.dtype.onnx if dtype is None else dtype), mean, scale)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype is F64 else x.cast(F32)


@composite("Bernoulli", floats=False)
def bernoulli(source: SourceNode, x: Tensor, *, dtype: int | None = None, seed: float | None = None) -> Tensor:
    """1 with the probability that the operand gives, else 0: whether a uniform number lies below it."""
    to = x.dtype if dtype is None else from_onnx(dtype)
    if to is None:
        raise Unsupported(f"Bernoulli of ONNX type {dtype}")
    chance = _wide(x)
    return (draw(source, x.shape, chance.dtype) < chance).cast(to)


@composite("Multinomial", floats=False)
def multinomial(
    source: SourceNode, x: Tensor, *, dtype: int = I32.onnx, sample_size: int = 1, seed: float | None = None
) -> Tensor:
    """Numbers of classes[N, samples], drawn by x[N, classes], the logarithms of their weights.

    The class of a sample is the number of cumulated weights that are not above a uniform part of their sum, so that one
    of weight 0 is never drawn.
    """
    to = from_onnx(dtype)
    if to not in (I32, I64):
        raise Unsupported(f"Multinomial of ONNX type {dtype}")
    if x.rank != 2 or as_int(x.shape[1]) == 0:
        raise ModelError(
            f"Multinomial of {x.type!r} with {sample_size} samples"
            "; the operand has to be a matrix of a row of weights, one at least, for each result"
        )
    rows, classes = x.shape
    x = _wide(x)
    sums = cum_sum(exp(x - x.max(1)), axis=1)
    total = sums.slice((const(0), classes - 1), (rows, const(1)))
    part = draw(source, (rows, const(sample_size)), x.dtype) * total
    sums = sums.reshape(rows, 1, classes)
    passed = (sums <= part.reshape(rows, sample_size, 1)) & (sums < total.reshape(rows, 1, 1))
    return passed.cast(to).sum(2, keep=False)


@operator()
@dataclass(frozen=True)
class Dropout(Pointwise):
    """The data unchanged and a mask of ones, as in inference and with a ratio of 0.

    In training, an element is kept with the probability 1 - ratio and divided by that, else 0; the mask says which were
    kept. The ratio and whether it is training may be known at run time only.

    Attributes:
        ratio: what a step of training would drop.
    """

    ratio: float = 0.5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Dropout")
        return [x.type, TensorType(BOOL, x.shape)]

    def nest(self, node: Node, output: int) -> LoopNest:
        return LoopNest(lambda at, _, read: read(0, at) if output == 0 else element(True))

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = Tensor(source.builder, source.required(0))
        ratio, training = source.input(1), source.input(2)
        share = float(source.attribute("ratio", 0.5))
        always = source.attribute("is_test") == 0  # only the oldest opsets' nodes have it
        for name in ("seed", "is_test"):
            source.attribute(name)
        source.fields(cls)
        for v, what in ((ratio, "ratio"), (training, "training_mode")):
            if v is not None and as_int(v.type.size) != 1:
                raise ModelError(f"Dropout with a {what} {v.type!r}, where one number is needed")
        if ratio is not None and ratio.const is not None:
            share, ratio = float(ratio.const.reshape(-1)[0]), None
        if not 0 <= share <= 1:
            raise ModelError(f"Dropout with a ratio of {share}, which has to be from 0 to 1")
        trains = always or (training is not None and (training.const is None or bool(training.const.any())))
        if not trains or (ratio is None and share == 0):
            y, mask = apply_all(cls(share), x)
        elif ratio is None and (always or (training is not None and training.const is not None)):
            key = stream(x.builder, source.attribute("seed"))
            y, mask = apply_all(DropoutTraining(share, key), x)
        else:
            chance = x.constant(np.asarray(share, np.float32))
            if ratio is not None:
                chance = _number(Tensor(x.builder, ratio)).cast(F32)
            y, mask = _drop_elements(source, x, chance)
            if training is not None and training.const is None and not always:
                on = _number(Tensor(x.builder, training))
                y, mask = where(on, y, x), mask | ~on
        if source.opset < 10:  # the mask had the type of the data
            mask = mask.cast(x.dtype)
        return [y.value, mask.value][: max(source.outputs, 1)]


@gradient_of(Dropout)
def _dropout_gradient(op: Dropout, at: Backward) -> Tensor:
    return at.gradient


@operator("DropoutTraining", "torshc")
@dataclass(frozen=True)
class DropoutTraining(Formula):
    """Dropout in training, and its mask. Further operands: as of :class:`Draw`.

    Attributes:
        ratio: the probability that an element becomes 0.
        key: the stream that decides.
    """

    ratio: float = 0.5
    key: Key = (0, 0)

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Dropout")
        return [x.type, TensorType(BOOL, x.shape)]

    def formula(self, x: Tensor, *rounds: Tensor) -> list[Tensor]:
        chance = x.constant(np.asarray(self.ratio, np.float32))
        drawn = x.builder.add(Draw(x.shape, F32, self.key), [r.value for r in rounds])
        mask = Tensor(x.builder, drawn[0]) >= chance
        return [_rescale_kept(x, mask, chance), mask]


@gradient_of(DropoutTraining)
def _dropout_training_gradient(op: DropoutTraining, at: Backward) -> list[Tensor | None]:
    chance = at.gradient.constant(np.asarray(op.ratio, np.float32))
    return [_rescale_kept(at.gradient, at.outputs[1], chance), *[None] * (len(at.inputs) - 1)]


def _number(x: Tensor) -> Tensor:
    """A tensor of one element as one of rank 0."""
    return x.reshape() if x.rank else x


def _drop_elements(source: SourceNode, x: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
    """Data and mask in training, with a ratio of rank 0."""
    mask = draw(source, x.shape, F32) >= chance
    return _rescale_kept(x, mask, chance), mask


def _rescale_kept(x: Tensor, mask: Tensor, chance: Tensor) -> Tensor:
    """What is left of x, made larger by as much as others are lost."""
    return where(mask, x * reciprocal(1 - chance).cast(x.dtype), 0.0)
