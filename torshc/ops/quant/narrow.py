"""Products with weights that stay narrow in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import ModelError
from ...expr import F32, I8, Expr, call, cast
from ...graph import Node, TensorType
from ..core.base import Constraints, Index, Inputs, Nest, Op, Read, need, operator


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

    def nest(self, node: Node, output: int) -> Nest:
        def body(at: Index, inner: Index, read: Read) -> Expr:
            (k,) = inner
            weight = cast(read(1, (k, at[-1])), F32)
            scale = read(2, (call("floordiv", k, self.block), at[-1]))
            return call("mul", read(0, (*at[:-1], k)), call("mul", weight, scale))

        return Nest(body, (node.operands[0].shape[-1],), "add")

    def flops(self, node: Node) -> Expr:
        return node.output.type.size * node.operands[0].shape[-1] * 2
