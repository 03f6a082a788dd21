"""Weights of 2, 4 and 8 bits, as ONNX Runtime's own domain packs them into bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...errors import ModelError
from ...expr import I2, I4, I8, I64, U2, U4, U8, Expr, as_int, const
from ...graph import Value
from ..core.base import axis_of, operator
from ..core.compose import apply, as_type
from ..core.source import SourceNode, Unsupported
from ..math.linalg import MatMul
from ..quant.quantize import DequantizeLinear
from ..tensor.view import Reshape
from .base import DOMAIN, Contrib

Array = np.ndarray[Any, Any]


def unpacked(packed: Array, bits: int) -> Array:
    """The numbers that bytes hold, the lowest bits first, along the last dimension."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    spread: Array = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return spread.reshape(*packed.shape[:-1], packed.shape[-1] * len(shifts))


@operator("MatMulNBits", DOMAIN)
@dataclass(frozen=True)
class MatMulNBits(Contrib):
    """x[.., K] times weights of 2, 4 or 8 bits, which become [K, N] with a scale for each block of rows.

    Operands: x, packed weights [N, blocks, bytes of a block], scales [N, blocks], perhaps zero points, packed
    [N, bytes] or as numbers [N, blocks], nothing, and perhaps a bias[N]. All but x and the bias must be constants.
    """

    K: int = 0
    N: int = 0
    accuracy_level: int = 0
    bits: int = 4
    block_size: int = 0
    weight_prepacked: int = 0

    def make(self, source: SourceNode) -> list[Value]:
        x, scales, bias = source.required(0), source.required(2), source.input(5)
        if self.weight_prepacked or source.input(4) is not None:
            raise Unsupported("MatMulNBits of weights that are packed for one processor, or with g_idx")
        packed, factors, zeros = (self._known(source, k) for k in (1, 2, 3))
        if self.block_size < 16 or self.K < 1 or self.N < 1 or scales.dtype is not x.dtype:
            raise ModelError(f"MatMulNBits of {x.type!r} with scales {scales.type!r} and {self}")
        blocks = -(-self.K // self.block_size)
        sizes = (packed.size, self.N * blocks * self.block_size * self.bits // 8), (factors.size, self.N * blocks)
        if packed.dtype != np.uint8 or any(have != want for have, want in sizes):
            raise ModelError(
                f"MatMulNBits with weights {source.required(1).type!r} and scales {scales.type!r} in {self}"
            )
        numbers = unpacked(packed.reshape(self.N, -1), self.bits)[:, : self.K]
        y = source.builder.one(MatMul(), x, self._weights(source, numbers, factors.reshape(self.N, blocks), zeros))
        return [y if bias is None else apply(source.builder, "Add", y, bias)]

    def _known(self, source: SourceNode, k: int) -> Any:
        """Operand k as an array, None where it is absent.

        Raises:
            Unsupported: when it is known only at run time.
        """
        v = source.required(k) if k < 3 else source.input(k)
        if v is not None and v.const is None:
            raise Unsupported(f"MatMulNBits whose operand {k} is known only at run time")
        return None if v is None else v.const

    def _weights(self, source: SourceNode, numbers: Array, scales: Array, zeros: Array | None) -> Value:
        """The weights [K, N], dequantised, of numbers [N, K] and scales [N, blocks]."""
        graph, blocks = source.builder.graph, scales.shape[1]
        if zeros is None:  # then they are signed
            kind = {2: I2, 4: I4, 8: I8}[self.bits]
            operands = [(numbers.astype(np.int16) - (1 << self.bits - 1)).astype(kind.numpy), scales]
        elif zeros.dtype == np.uint8:
            width = -(-blocks * self.bits // 8)
            if zeros.size != self.N * width:
                raise ModelError(f"MatMulNBits with {zeros.size} bytes of zero points in {self}")
            kind = {2: U2, 4: U4, 8: U8}[self.bits]
            offsets = unpacked(zeros.reshape(self.N, width), self.bits)[:, :blocks]
            operands = [numbers.astype(kind.numpy), scales, offsets.astype(kind.numpy)]
        else:
            if zeros.size != self.N * blocks:
                raise ModelError(f"MatMulNBits with {zeros.size} zero points in {self}")
            whole, offsets = (
                np.repeat(v, self.block_size, 1)[:, : self.K] for v in (scales, zeros.reshape(scales.shape))
            )
            return graph.constant(np.ascontiguousarray(((numbers - offsets) * whole).T.astype(scales.dtype)))
        values = [graph.constant(np.ascontiguousarray(a.T)) for a in operands]
        return source.emit(DequantizeLinear(0, self.block_size, values[1].dtype), values)[0]


@operator("GatherBlockQuantized", DOMAIN)
@dataclass(frozen=True)
class GatherBlockQuantized(Contrib):
    """Gather of constants of 4 or 8 bits, dequantised by scales of blocks; indices out of range give zeros.

    Operands: the data, packed along its last dimension where it is u8 of fewer bits, the indices, scales, zero points.
    """

    floating: ClassVar[bool] = False

    bits: int = 4
    block_size: int = 128
    gather_axis: int = 0
    quantize_axis: int = 1

    def make(self, source: SourceNode) -> list[Value]:
        b, data, indices, zero = source.builder, source.required(0), source.required(1), source.input(3)
        if data.dtype not in (U4, I4, U8):
            raise Unsupported(f"GatherBlockQuantized of {data.dtype!r} in {self.bits} bits")
        numbers = _settled(data)
        if numbers is None or (zero is not None and zero.const is None):
            raise Unsupported("GatherBlockQuantized whose data or zero points are known only at run time")
        axis, along = (axis_of(a, data.type.rank) for a in (self.gather_axis, self.quantize_axis))
        if axis == along:
            raise Unsupported("GatherBlockQuantized along the axis of its blocks")
        scales = source.required(2)
        offsets = None if zero is None else zero.const
        if data.dtype is U8:
            numbers = unpacked(numbers, self.bits)
            blocks = scales.shape[-1]
            offsets = None if offsets is None else unpacked(offsets, self.bits)[..., : as_int(blocks)]
            offsets = (
                np.full([as_int(d) or 0 for d in scales.shape], 1 << self.bits - 1) if offsets is None else offsets
            )
        kind = np.dtype(np.int8 if data.dtype is I4 else np.uint8)
        arrays = [v.astype(kind) for v in (numbers, offsets) if v is not None]
        tables = [b.graph.constant(arrays[0], data.name), scales, *map(b.graph.constant, arrays[1:])]
        taken = [apply(b, "Gather", t, indices, axis=axis) for t in tables]
        place = along + (indices.type.rank - 1 if along > axis else 0)
        (y,) = source.emit(DequantizeLinear(place, self.block_size, scales.dtype), taken)
        return [apply(b, "Where", self._inside(source, indices, data.shape[axis], axis, y), y, b.constant(0.0, y))]

    def _inside(self, source: SourceNode, indices: Value, size: Expr, axis: int, y: Value) -> Value:
        """Whether each index is in range, shaped to broadcast against the result."""
        b, wide = source.builder, as_type(source.builder, indices, I64)
        known = as_int(size) or 0
        inside = apply(b, "And", apply(b, "GreaterOrEqual", wide, -known), apply(b, "Less", wide, known))
        tail = (const(1),) * (y.type.rank - axis - indices.type.rank)
        return b.one(Reshape((*indices.shape, *tail)), inside)


def _settled(v: Value) -> np.ndarray[Any, Any] | None:
    """A constant, perhaps reshaped, as where embeddings are the weights of the last product; None otherwise."""
    node, shape = v.producer, v.type.static_shape
    if v.const is not None or node is None or not isinstance(node.op, Reshape) or shape is None:
        return v.const
    found = _settled(node.operands[0])
    return None if found is None else found.reshape(shape)
