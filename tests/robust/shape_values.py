"""Values of random shape arithmetic, and the graph in the making: concrete contents run along for each binding."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, Any]

LARGEST = 10**6  # what is computed with, of either sign
ELEMENTS = 20_000  # of a tensor

_NUMPY = {"int64": np.int64, "int32": np.int32, "float32": np.float32, "bool": np.bool_}
_ONNX = {"int64": 7, "int32": 6, "float32": 1, "bool": 9}
NUMBERS = ("int64", "int32", "float32")
_ROUNDED = ("Cast", "Ceil", "Floor", "Round", "Sqrt", "Div")
_SUMS = ("Add", "Sub", "Mod", "ReduceSum")
FACTORS = (0.25, 0.5, 0.75, 1.5, 2.0, 0.3, 1 / 3, 0.7, 1.1, 16.0, 0.0625, -0.5)


@dataclass(frozen=True)
class Small:
    """A scalar or a small vector, with its contents for each binding.

    Attributes:
        product: whether it may be a product of floats, which a kernel may contract with a sum behind it.
        contracted: whether such a sum is behind it; kernels may round it in another way than the host does.
    """

    name: str
    rows: tuple[Array, ...]
    product: bool = False
    contracted: bool = False

    @property
    def dtype(self) -> str:
        return str(self.rows[0].dtype)

    @property
    def rank(self) -> int:
        return self.rows[0].ndim

    @property
    def count(self) -> int:
        return self.rows[0].size

    def within(self, low: int, high: int) -> bool:
        """Whether it is in a range for all bindings."""
        return all(bool(((r >= low) & (r <= high)).all()) for r in self.rows)


@dataclass(frozen=True)
class Tensor:
    """What sizes are taken from and given to, with its shape for each binding."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    floats: bool = True

    @property
    def rank(self) -> int:
        return len(self.shapes[0])


@dataclass
class Maker:
    rng: random.Random
    prefix: str
    bindings: Sequence[tuple[int, ...]]
    smalls: list[Small] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, Array] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)

    def constant(self, value: object, dtype: str = "int64") -> Small:
        name = f"{self.prefix}w{len(self.weights)}"
        array = np.asarray(value, _NUMPY[dtype])
        self.weights[name] = array
        return Small(name, (array,) * len(self.bindings))

    def node(self, op: str, operands: Sequence[str], **attributes: object) -> str:
        name = f"{self.prefix}v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, operands, [name], **attributes))
        return name

    def small(
        self, op: str, operands: Sequence[Small], function: Callable[..., object], **attributes: object
    ) -> Small | None:
        """A node that computes with small values, when all bindings allow it."""
        with np.errstate(all="ignore"):
            rows = tuple(np.asarray(function(*xs)) for xs in zip(*(v.rows for v in operands), strict=True))
        if any(r.size > 8 or not np.isfinite(r).all() or (abs(r.astype(float)) > LARGEST).any() for r in rows):
            return None
        product = rows[0].dtype == np.float32 and (
            op == "Mul" or (op not in _ROUNDED and any(v.product for v in operands))
        )
        contracted = op in _SUMS and any(v.product for v in operands)
        contracted |= any(v.contracted for v in operands)
        found = Small(self.node(op, [v.name for v in operands], **attributes), rows, product, contracted)
        self.smalls.append(found)
        return found

    def tensor(
        self, op: str, operands: Sequence[str], shapes: Sequence[tuple[int, ...]], floats: bool = True, **more: object
    ) -> Tensor | None:
        """A node that takes sizes: an output of the graph."""
        if any(math.prod(s) > ELEMENTS for s in shapes):
            return None
        found = Tensor(self.node(op, operands, **more), tuple(shapes), floats)
        self.tensors.append(found)
        self.outputs.append(found.name)
        return found

    def pick(self, *dtypes: str, rank: int | None = None, where: Callable[[Small], bool] | None = None) -> Small | None:
        """A small value, late ones more often; None when there is none."""
        found = [v for v in self.smalls if v.dtype in (dtypes or NUMBERS) and (rank is None or v.rank == rank)]
        found = [v for v in found if where is None or where(v)]
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))] if found else None

    def to(self, v: Small, dtype: str) -> Small | None:
        if v.dtype == dtype:
            return v
        kind = _NUMPY[dtype]
        return self.small("Cast", [v], lambda x: x.astype(kind), to=_ONNX[dtype])

    def shape(self, x: Tensor) -> Small:
        made = self.small("Shape", [Small(x.name, tuple(np.empty(s) for s in x.shapes))], lambda a: np.array(a.shape))
        assert made is not None
        return made

    def partner(self, v: Small) -> Small | None:
        """A second operand for one: of its type, of the same length or a scalar."""
        if self.rng.random() < 0.4:
            values = FACTORS if v.dtype == "float32" else (1, 2, 3, 4, 8, 16, 63, -1, 0)
            shape = () if v.rank == 0 or self.rng.random() < 0.5 else (1,)
            return self.constant(np.full(shape, self.rng.choice(values)), v.dtype)
        return self.pick(v.dtype, where=lambda w: w.count in (1, v.count) or v.count == 1)

    def size(self, low: int, high: int) -> Small | None:
        """An int64 vector of one element in a range, from some value that is computed with."""
        v = self.pick("int64", "int32", "float32")
        v = None if v is None else self.to(v, self.rng.choice(("int64", "int64", "int32")))
        if v is not None and v.count != 1:
            at = self.constant([self.rng.randrange(v.count)])
            v = self.small("Gather", [v, at], lambda a, i: a[i], axis=0)
        if v is not None and not v.within(low, high):
            v = self.clamp(v, low, high)
        v = None if v is None else self.to(v, "int64")
        if v is not None and v.rank == 0:
            v = self.small("Unsqueeze", [v, self.constant([0])], lambda a, i: a[None])
        return v

    def clamp(self, v: Small, low: int, high: int) -> Small | None:
        """A value moved into a range as exporters do it: by Min and Max, or by Mod and Add."""
        if self.rng.random() < 0.5:
            least = self.small("Max", [v, self.constant(low, v.dtype)], np.maximum)
            return least and self.small("Min", [least, self.constant(high, v.dtype)], np.minimum)
        rest = self.small("Mod", [v, self.constant(high - low + 1, v.dtype)], np.mod)
        return rest and self.small("Add", [rest, self.constant(low, v.dtype)], np.add)

    def sizes(self, count: int, low: int, high: int) -> tuple[Small, Small] | None:
        """A vector of sizes, and one operand of it that is one size."""
        parts = [self.size(low, high) for _ in range(count)]
        known = [p for p in parts if p is not None]
        if len(known) < count:
            return None
        joined = self.small("Concat", known, lambda *xs: np.concatenate(xs), axis=0)
        return None if joined is None else (joined, known[0])
