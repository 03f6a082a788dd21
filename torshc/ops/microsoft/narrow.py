"""Weights of 2, 4 and 8 bits, as ONNX Runtime's own domain packs them into bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import ModelError
from ...expr import I2, I4, I8, I64, U2, U4, U8, as_int
from ...graph import Value
from ..core.base import axis_of
from ..core.composite import composite
from ..core.functions import gather, where
from ..core.source import Unsupported
from ..core.tensor import Tensor, apply_op
from ..quant.quantize import DequantizeLinear
from ..tensor.view import Reshape
from .base import DOMAIN

Array = np.ndarray[Any, Any]


def unpacked(packed: Array, bits: int) -> Array:
    """The numbers that bytes hold, the lowest bits first, along the last dimension."""
    if bits == 8:
        return packed
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    spread: Array = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return spread.reshape(*packed.shape[:-1], packed.shape[-1] * len(shifts))


@composite("MatMulNBits", DOMAIN)
def mat_mul_n_bits(
    x: Tensor, packed: Tensor, scales: Tensor, zeros: Tensor | None = None, g_idx: Tensor | None = None,
    bias: Tensor | None = None, *, K: int = 0, N: int = 0, accuracy_level: int = 0, bits: int = 4,
    block_size: int = 0, weight_prepacked: int = 0,
) -> Tensor:  # fmt: skip
    """x[.., K] times weights of 2, 4 or 8 bits, which become [K, N] with a scale for each block of rows.

    Operands: x, packed weights [N, blocks, bytes of a block], scales [N, blocks], perhaps zero points, packed
    [N, bytes] or as numbers [N, blocks], nothing, and perhaps a bias[N]. All but x and the bias must be constants.
    """
    if weight_prepacked or g_idx is not None:
        raise Unsupported("MatMulNBits of weights that are packed for one processor, or with g_idx")
    stored, factors, offsets = (_known_array(v, k) for k, v in ((1, packed), (2, scales), (3, zeros)))
    form = f"K={K}, N={N}, bits={bits}, block_size={block_size}"
    if block_size < 16 or K < 1 or N < 1 or scales.dtype is not x.dtype:
        raise ModelError(
            f"MatMulNBits of {x.type!r} with scales {scales.type!r} and {form}"
            "; block_size has to be 16 or more, K and N above 0, and scales of the operand's type"
        )
    blocks = -(-K // block_size)
    sizes = (stored.size, N * blocks * block_size * bits // 8), (factors.size, N * blocks)
    if stored.dtype != np.uint8 or any(have != want for have, want in sizes):
        raise ModelError(
            f"MatMulNBits with weights {packed.type!r} and scales {scales.type!r}, and {form}"
            f", which need {sizes[0][1]} bytes of u8 and {sizes[1][1]} scales"
        )
    numbers = unpacked(stored.reshape(N, -1), bits)[:, :K]
    y = x @ _weights(x, numbers, factors.reshape(N, blocks), offsets, bits, block_size)
    return y if bias is None else y + bias


def _known_array(v: Tensor | None, k: int) -> Any:
    """Operand k as an array, None where it is absent.

    Raises:
        Unsupported: when it is known only at run time.
    """
    if v is not None and v.value.const is None:
        raise Unsupported(f"MatMulNBits whose operand {k} is known only at run time")
    return None if v is None else v.value.const


def _weights(x: Tensor, numbers: Array, scales: Array, zeros: Array | None, bits: int, block_size: int) -> Tensor:
    """The weights [K, N], dequantised, of numbers [N, K] and scales [N, blocks]."""
    (count, length), blocks = numbers.shape, scales.shape[1]
    if zeros is None:  # then they are signed
        kind = {2: I2, 4: I4, 8: I8}[bits]
        operands = [(numbers.astype(np.int16) - (1 << bits - 1)).astype(kind.numpy), scales]
    elif zeros.dtype == np.uint8:
        width = -(-blocks * bits // 8)
        if zeros.size != count * width:
            raise ModelError(f"MatMulNBits with {zeros.size} bytes of zero points, and {count * width} are needed")
        kind = {2: U2, 4: U4, 8: U8}[bits]
        offsets = unpacked(zeros.reshape(count, width), bits)[:, :blocks]
        operands = [numbers.astype(kind.numpy), scales, offsets.astype(kind.numpy)]
    else:
        if zeros.size != count * blocks:
            raise ModelError(f"MatMulNBits with {zeros.size} zero points, and {count * blocks} are needed")
        whole, offsets = (np.repeat(v, block_size, 1)[:, :length] for v in (scales, zeros.reshape(scales.shape)))
        return x.constant(np.ascontiguousarray(((numbers - offsets) * whole).T.astype(scales.dtype)))
    values = [x.constant(np.ascontiguousarray(a.T)) for a in operands]
    return apply_op(DequantizeLinear(0, block_size, values[1].dtype), *values)


@composite("GatherBlockQuantized", DOMAIN, floats=False)
def gather_block_quantized(
    data: Tensor, indices: Tensor, scales: Tensor, zero: Tensor | None = None, *, bits: int = 4,
    block_size: int = 128, gather_axis: int = 0, quantize_axis: int = 1,
) -> Tensor:  # fmt: skip
    """Gather of constants of 4 or 8 bits, dequantised by scales of blocks; indices out of range give zeros.

    The data are packed along their last dimension where they are u8 of fewer bits.
    """
    if data.dtype not in (U4, I4, U8):
        raise Unsupported(f"GatherBlockQuantized of {data.dtype!r} in {bits} bits")
    numbers = _find_constant(data.value)
    if numbers is None or (zero is not None and zero.value.const is None):
        raise Unsupported("GatherBlockQuantized whose data or zero points are known only at run time")
    axis, along = (axis_of(a, data.rank) for a in (gather_axis, quantize_axis))
    if axis == along:
        raise Unsupported("GatherBlockQuantized along the axis of its blocks")
    offsets = None if zero is None else zero.value.const
    if data.dtype is U8:
        numbers = unpacked(numbers, bits)
        if offsets is None:
            offsets = np.full([as_int(d) or 0 for d in scales.shape], 1 << bits - 1)
        else:
            offsets = unpacked(offsets, bits)[..., : scales.size(-1)]
    kind = np.dtype(np.int8 if data.dtype is I4 else np.uint8)
    stored = Tensor(data.builder, data.builder.graph.constant(numbers.astype(kind), data.value.name))
    tables = [stored, scales, *([] if offsets is None else [data.constant(offsets.astype(kind))])]
    taken = [gather(t, indices, axis=axis) for t in tables]
    place = along + (indices.rank - 1 if along > axis else 0)
    y = apply_op(DequantizeLinear(place, block_size, scales.dtype), *taken)
    known, wide = data.size(axis) or 0, indices.cast(I64)
    inside = (wide >= -known) & (wide < known)
    return where(inside.reshape(*indices.shape, *(1,) * (y.rank - axis - indices.rank)), y, 0.0)


def _find_constant(v: Value) -> np.ndarray[Any, Any] | None:
    """A constant, perhaps reshaped, as where embeddings are the weights of the last product; None otherwise."""
    node, shape = v.producer, v.type.static_shape
    if v.const is not None or node is None or not isinstance(node.op, Reshape) or shape is None:
        return v.const
    found = _find_constant(node.operands[0])
    return None if found is None else found.reshape(shape)
