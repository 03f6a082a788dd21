"""Matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...base.errors import ModelError
from ...expr import BF16, DTYPES, F32, DType, Expr, as_int, const
from ...graph import Node, Shape, TensorType, Value
from ..core.base import (
    Constraints,
    Index,
    Inputs,
    LoopNest,
    Op,
    Read,
    broadcast,
    broadcast_index,
    broadcast_into,
    need,
    operator,
    same_dim,
)
from ..core.composite import Formula
from ..core.gradient import Backward, as_shape, gradient_of, sum_to
from ..core.pointwise import compute
from ..core.scalar import Scalar, element
from ..core.source import SourceNode
from ..core.tensor import Tensor
from .elimination import Determinant, eliminated


def fit(data: DType, weights: DType, out: str) -> bool:
    """Whether data can be multiplied by weights: of one type, or f32 by bf16 where `out` names f32.

    Only passes make the latter, for kernels that read halves of weights alone (`passes/half_products.py`).
    """
    return data is weights or (data is F32 and weights is BF16 and out == F32.name)


def product_type(operands: DType, out: str) -> DType:
    """Element type of a product's result: that of its operands, or the type that it is summed in when `out` names it.

    Products of f16 and bf16 are summed in f32, so ``out="f32"`` stores them as they are, without rounding or overflow.

    Raises:
        ModelError: when `out` names another type.
    """
    named = str(out) or operands.name
    if named not in (operands.name, operands.compute):
        raise ModelError(f"a product of {operands!r} cannot give {named!r}")
    return DTYPES[named]


@operator()
@dataclass(frozen=True)
class MatMul(Op):
    """NumPy's matmul: a[..., M, K] times b[..., K, N]; operands of rank 1 are a row or a column that is dropped.

    Attributes:
        out: element type of the result where it is not that of the operands.
    """

    family: ClassVar[str] = "gemm"
    out: str = ""

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        a, b = need(inputs[0], "input 0 of MatMul"), need(inputs[1], "input 1 of MatMul")
        if not fit(a.dtype, b.dtype, self.out):
            raise ModelError(f"MatMul of {a.dtype!r} and {b.dtype!r}, which have to be of one type")
        if not a.type.rank or not b.type.rank:
            raise ModelError("MatMul of a scalar, where each operand needs a dimension at least")
        same_dim(a.shape[-1], b.shape[max(b.type.rank - 2, 0)], constraints, f"MatMul of {a.type!r} and {b.type!r}")
        batch = broadcast([a.shape[:-2], b.shape[:-2]], constraints)
        dtype = product_type(a.dtype, self.out)
        return [TensorType(dtype, (*batch, *a.shape[:-1][-1:], *(b.shape[-1:] if b.type.rank > 1 else ())))]

    def nest(self, node: Node, output: int) -> LoopNest:
        a, b = (v.shape for v in node.operands)

        def body(at: Index, inner: Index, read: Read) -> Scalar:
            rows, columns = int(len(a) > 1), int(len(b) > 1)
            batch, tail = at[: len(at) - rows - columns], at[len(at) - rows - columns :]
            left = (*broadcast_index(batch, a[:-2]), *tail[:rows], inner[0])
            right = (*broadcast_index(batch, b[:-2]), inner[0], *tail[rows:])
            return read(0, left) * read(1, right)

        return LoopNest(body, (a[-1],), "add")

    def flops(self, node: Node) -> Expr:
        return node.output.type.size * node.operands[0].shape[-1] * 2


@operator()
@dataclass(frozen=True)
class Gemm(Formula):
    """alpha * a' @ b' + beta * c, with a' and b' the operands or their transposes; c broadcasts and may be absent."""

    alpha: float = 1.0
    beta: float = 1.0
    trans_a: int = 0
    trans_b: int = 0

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        a, b = need(inputs[0], "input 0 of Gemm"), need(inputs[1], "input 1 of Gemm")
        if a.type.rank != 2 or b.type.rank != 2:
            raise ModelError(f"Gemm of {a.type!r} and {b.type!r}, which are not matrices")
        if a.dtype is not b.dtype:
            raise ModelError(f"Gemm of {a.dtype!r} and {b.dtype!r}, which have to be of one type")
        left, right = _flip(a.shape, self.trans_a), _flip(b.shape, self.trans_b)
        same_dim(left[1], right[0], constraints, f"Gemm of {a.type!r} and {b.type!r}")
        shape = (left[0], right[1])
        if len(inputs) > 2 and inputs[2] is not None:
            wide = broadcast_into(inputs[2].shape, shape, constraints, "what Gemm adds")
            shape = (wide[0], wide[1]) if self.beta else shape
        return [TensorType(a.dtype, shape)]

    def formula(self, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        out = (a.transpose(1, 0) if self.trans_a else a) @ (b.transpose(1, 0) if self.trans_b else b)
        if self.alpha != 1.0:
            out = out * self.alpha
        if c is None or self.beta == 0.0:
            return out
        return out + (c if self.beta == 1.0 else c * self.beta)

    def flops(self, node: Node) -> Expr:
        return node.output.type.size * node.operands[0].shape[1 - self.trans_a] * 2

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        attributes = {
            "alpha": float(source.attribute("alpha", 1.0)), "beta": float(source.attribute("beta", 1.0)),
            "trans_a": int(source.attribute("transA", 0)), "trans_b": int(source.attribute("transB", 0)),
        }  # fmt: skip
        source.fields(cls)
        return source.emit(cls(**attributes), source.inputs)  # type: ignore[arg-type]  # ints and floats by name


def _flip(shape: Shape, flip: int) -> Shape:
    return (shape[1], shape[0]) if flip else shape


_LARGEST_DET = 4  # rows; the sum has n! terms


@operator()
@dataclass(frozen=True)
class Det(Op):
    """Determinant of the last two dimensions: of up to 4 rows by Laplace's expansion, which fuses, else by elimination.

    The determinant of a matrix without elements is 1.
    """

    family: ClassVar[str] = "nest"

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "input 0 of Det")
        if x.type.rank < 2:
            raise ModelError(f"Det of {x.type!r}, which is not a matrix")
        same_dim(x.shape[-1], x.shape[-2], constraints, f"Det of {x.type!r}")
        return [TensorType(x.dtype, x.shape[:-2])]

    def nest(self, node: Node, output: int) -> LoopNest:
        size = as_int(node.operands[0].shape[-1]) or 0

        def body(at: Index, _: Index, read: Read) -> Scalar:
            def minor(row: int, columns: tuple[int, ...]) -> Scalar:
                """Determinant of the rows from `row` on in some columns."""
                total: Scalar | None = None
                for k, column in enumerate(columns):
                    term = read(0, (*at, const(row), const(column)))
                    if len(columns) > 1:
                        term = term * minor(row + 1, columns[:k] + columns[k + 1 :])
                    total = term if total is None else total - term if k % 2 else total + term
                return element(1, compute(node.operands[0].dtype)) if total is None else total

            return minor(0, tuple(range(size)))

        return LoopNest(body)

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        x = source.required(0)
        size = as_int(x.shape[-1]) if x.type.rank else None
        if size is None or size > _LARGEST_DET:
            return [eliminated(source, Determinant(), x.shape[:-2])]
        return source.emit(cls(), [x])


@gradient_of(MatMul)
def _matmul_gradient(op: MatMul, at: Backward) -> list[Tensor | None]:
    """g @ b' and a' @ g; a matrix that multiplies a batch has one product for all of it."""
    a, b = at.operand(0), at.operand(1)
    left = a.reshape(const(1), *a.shape) if a.rank == 1 else a
    right = b.reshape(*b.shape, const(1)) if b.rank == 1 else b
    rows, columns = left.shape[-2], right.shape[-1]
    batch = at.outputs[0].shape[: len(at.outputs[0].shape) - (a.rank > 1) - (b.rank > 1)]
    g = as_shape(at.gradient.cast(a.dtype), (*batch, rows, columns))
    found: list[Tensor | None] = [None, None]
    if at.wants(0):
        found[0] = as_shape(sum_to(g @ _transpose_matrices(right), left.shape), a.shape)
    if at.wants(1) and right.rank == 2 and left.rank > 2:
        count = const(1)
        for d in left.shape[:-1]:
            count = count * d
        found[1] = as_shape(
            _multiply_transposed(left.reshape(count, left.shape[-1]), g.reshape(count, columns), b), b.shape
        )
    elif at.wants(1) and left.rank == right.rank == g.rank == 2:
        found[1] = as_shape(_multiply_transposed(left, g, b), b.shape)
    elif at.wants(1):
        found[1] = as_shape(sum_to(_transpose_matrices(left) @ g, right.shape), b.shape)
    return found


def _multiply_transposed(a: Tensor, g: Tensor, b: Tensor) -> Tensor:
    """a' @ g; where b is transposed, as the transpose of what has the order of b's own operand."""
    maker = b.value.producer
    if maker is not None and maker.op.name == "Transpose":
        return _transpose_matrices(_transpose_matrices(g) @ a)
    return _transpose_matrices(a) @ g


def _transpose_matrices(x: Tensor) -> Tensor:
    """The transposes of the matrices in a tensor."""
    return x.transpose(*range(x.rank - 2), x.rank - 1, x.rank - 2)
