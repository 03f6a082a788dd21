"""Products with weights that stay narrow in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import F16, F32, I8, I32, U8, Expr, as_int, const, eq
from ...graph import Node, TensorType
from ..core.base import Constraints, Index, Inputs, LoopNest, Op, Read, need, operator
from ..core.composite import Formula
from ..core.functions import rms_normalization
from ..core.scalar import Scalar, where
from ..core.tensor import Tensor, apply_named, apply_op


@operator("BlockMatMul", "torshc")
@dataclass(frozen=True)
class BlockMatMul(Op):
    """x[.., M, K] @ (w[K, N] * scale[k / block, n]) of f32, i8 and f32.

    Attributes:
        block: rows of w that share a row of scales.
    """

    family: ClassVar[str] = "gemm"
    block: int = 1

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, w, scale = (need(v, f"input {k} of BlockMatMul") for k, v in enumerate(inputs))
        rows, scales = w.type.static_shape, scale.type.static_shape
        if rows is None or len(rows) != 2 or scales != (-(-rows[0] // self.block), rows[1]) or x.type.rank < 2:
            raise ModelError(f"BlockMatMul of {x.type!r}, {w.type!r} and {scale.type!r} in blocks of {self.block}")
        if (x.dtype, w.dtype, scale.dtype) != (F32, I8, F32):
            raise ModelError(f"BlockMatMul of {x.dtype!r}, {w.dtype!r} and {scale.dtype!r}")
        return [TensorType(F32, (*x.shape[:-1], w.shape[1]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        def body(at: Index, inner: Index, read: Read) -> Scalar:
            (k,) = inner
            weight = read(1, (k, at[-1])).cast(F32)
            scale = read(2, (k // self.block, at[-1]))
            return read(0, (*at[:-1], k)) * (weight * scale)

        return LoopNest(body, (node.operands[0].shape[-1],), "add")

    def flops(self, node: Node) -> Expr:
        return node.output.type.size * node.operands[0].shape[-1] * 2


@operator("PairMatMul", "torshc")
@dataclass(frozen=True)
class PairMatMul(Op):
    """x[.., M, K] @ (w[n, k] * scale[n, k / block]) of f16, with numbers of 4 bits less 8, two to a byte [N, K / 2].

    Weights are rounded to f16, as DequantizeLinear gives them; sums are f32.

    Attributes:
        block: terms of a column that share a scale.
    """

    family: ClassVar[str] = "gemm"
    block: int = 32

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x, w, scale = (need(v, f"input {k} of PairMatMul") for k, v in enumerate(inputs))
        pairs, scales = w.type.static_shape, scale.type.static_shape
        if pairs is None or len(pairs) != 2 or scales != (pairs[0], -(-2 * pairs[1] // self.block)) or x.type.rank < 2:
            raise ModelError(f"PairMatMul of {x.type!r}, {w.type!r} and {scale.type!r} in blocks of {self.block}")
        if (x.dtype, w.dtype, scale.dtype) != (F16, U8, F16):
            raise ModelError(f"PairMatMul of {x.dtype!r}, {w.dtype!r} and {scale.dtype!r}")
        return [TensorType(F16, (*x.shape[:-1], w.shape[0]))]

    def nest(self, node: Node, output: int) -> LoopNest:
        def body(at: Index, inner: Index, read: Read) -> Scalar:
            (k,) = inner
            pair = read(1, (at[-1], k // 2)).cast(I32)
            number = where(eq(k % 2, 0), pair & 15, pair >> 4)
            scale = read(2, (at[-1], k // self.block)).cast(F32)
            weight = ((number - 8).cast(F32) * scale).cast(F16)
            return read(0, (*at[:-1], k)).cast(F32) * weight.cast(F32)

        return LoopNest(body, (node.operands[0].shape[-1],), "add")

    def flops(self, node: Node) -> Expr:
        return node.output.type.size * node.operands[0].shape[-1] * 2


@operator("PairLayer", "torshc")
@dataclass(frozen=True)
class PairLayer(Formula):
    """A :class:`PairMatMul` with the layers around it: x normalised by RMS before, gated afterwards.

    With four operands the last is the norm's scale, of f16. With a gate the first half of columns, through an
    activation, are factors of the second; they are not rounded before.

    Attributes:
        block: terms of a column that share a scale.
        epsilon: epsilon of the norm.
        gate: the activation, an operator of one operand, or "".
    """

    family: ClassVar[str] = "gemm"
    block: int = 32
    epsilon: float = 1e-5
    gate: str = ""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        (product,) = PairMatMul(self.block).infer(inputs[:3], constraints)
        if len(inputs) > 3:
            x, scale = (need(v, "an operand of PairLayer").type for v in (inputs[0], inputs[3]))
            if scale != TensorType(F16, x.shape[-1:]):
                raise ModelError(f"PairLayer of {x!r} with a norm's scale of {scale!r}")
        columns = as_int(product.shape[-1]) or 0
        if self.gate and columns % 2:
            raise ModelError(f"PairLayer of {columns} columns, which have no halves")
        return [TensorType(F16, (*product.shape[:-1], const(columns // (1 + bool(self.gate)))))]

    def formula(self, x: Tensor, w: Tensor, scale: Tensor, norm: Tensor | None = None) -> Tensor:
        if norm is not None:
            x = rms_normalization(x, norm, axis=-1, epsilon=self.epsilon)
        product = apply_op(PairMatMul(self.block), x, w, scale)
        if not self.gate:
            return product
        half = (product.size(-1) or 0) // 2
        first, second = product.split(-1, half, half)
        return apply_named(self.gate, first) * second

    def flops(self, node: Node) -> Expr:
        columns = as_int(node.operands[1].shape[0]) or 0
        return (
            node.output.type.size * node.operands[0].shape[-1] * (2 * columns // (as_int(node.output.shape[-1]) or 1))
        )
