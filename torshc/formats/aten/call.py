"""A call of an ATen operator, and the table of functions that compute them.

    @aten("silu.default")
    def silu(call: Call, x: Tensor) -> Tensor:
        return x * sigmoid(x)

A function gets the call's arguments as PyTorch's schema has them: tensors, sizes as `Expr` where they are symbolic,
element types, numbers, lists of these. What it gives is held to the types that PyTorch says the results have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from ...expr import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType, Expr, cast, const
from ...graph import Builder, Shape, TensorType
from ...ops import Unsupported
from ...ops.core.pointwise import compute
from ...ops.core.scalar import Scalar
from ...ops.core.tensor import Tensor, apply_op
from ...ops.math.expression import Expression, Loops, argument

Results = Tensor | Sequence[Tensor | None]
F = TypeVar("F", bound=Callable[..., Results])
CALLS: dict[str, Callable[..., Results]] = {}
DTYPES: dict[str, DType] = {
    "float64": F64, "float32": F32, "float16": F16, "bfloat16": BF16, "bool": BOOL,
    "int8": I8, "int16": I16, "int32": I32, "int64": I64, "uint8": U8, "uint16": U16, "uint32": U32, "uint64": U64,
}  # fmt: skip


def aten(*names: str) -> Callable[[F], F]:
    """Function decorator: what computes the overloads of these names."""

    def register(function: F) -> F:
        for name in names:
            assert name not in CALLS, name
            CALLS[name] = function
        return function

    return register


def name_of(target: Any) -> str:
    """How the table names an operator: ``add.Tensor``; those that are not ATen's by all of their name."""
    return str(target).removeprefix("aten.")


def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions to its core operators, but for operators that the table has."""
    from torch._decomp import core_aten_decompositions  # optional package

    return {op: parts for op, parts in core_aten_decompositions().items() if name_of(op) not in CALLS}


def dtype_of(dtype: Any) -> DType:
    """An element type of PyTorch's.

    Raises:
        Unsupported: there is none here.
    """
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise Unsupported(f"the element type {dtype}")
    return found


@dataclass(frozen=True)
class Call:
    """A call as functions of the table see it.

    Attributes:
        builder: builder of the graph that the computation is added to.
        node: the node of PyTorch's graph.
        types: what PyTorch says of the results; None for those that are no tensors.
    """

    builder: Builder
    node: Any
    types: tuple[TensorType | None, ...]

    @property
    def type(self) -> TensorType:
        found = self.types[0]
        assert found is not None
        return found

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def common(self) -> DType:
        """The element type that operands are converted to before they are compared or combined."""
        import torch  # optional package

        found = [a.meta["val"] if hasattr(a, "meta") else a for a in self.node.args]
        found = [v if isinstance(v, torch.Tensor | bool | int | float) else 1 for v in found]  # a size is an int
        kind = found[0].dtype if isinstance(found[0], torch.Tensor) else type(found[0])
        for other in found[1:2]:
            kind = torch.result_type(found[0], other)
        return dtype_of(kind)

    def is_read(self, k: int) -> bool:
        """Whether result k of several is used."""
        return any(user.args[1] == k for user in self.node.users)

    def constant(self, value: Any, dtype: DType | None = None) -> Tensor:
        """A number, or an array, as a constant; a size as a tensor of rank 0."""
        dtype = dtype or self.dtype
        if not isinstance(value, Expr):
            return Tensor(self.builder, self.builder.constant(np.asarray(value).astype(dtype.numpy)))
        return Tensor(self.builder, self.builder.one(Loops(cast(value, dtype), to=dtype)))

    def full(self, value: Any) -> Tensor:
        """A number in the type and shape of the result."""
        return self.constant(value).expand(*self.shape)

    def tensor(self, value: Any, dtype: DType) -> Tensor:
        """An operand that may be a number or a size, in an element type."""
        return value.cast(dtype) if isinstance(value, Tensor) else self.constant(value, dtype)


def elementwise(body: Callable[..., Scalar], *xs: Tensor) -> Tensor:
    """What a function of elements makes of tensors of one type: of that type where it computes in it, else its own."""
    made = body(*(Scalar(argument(k, compute(x.dtype))) for k, x in enumerate(xs)))
    to = next((x.dtype for x in xs if compute(x.dtype) is made.dtype), made.dtype)
    return apply_op(Expression(made.expr, to), *xs)


def axes_of(axes: Any, rank: int) -> list[int]:
    """Axes from an int, a list or None, which is all of them; counted from 0."""
    given = range(rank) if axes is None or axes == [] else [axes] if isinstance(axes, int) else axes
    return [a % max(rank, 1) for a in given][:rank] if rank else []


def expr(size: Expr | int) -> Expr:
    return const(size) if isinstance(size, int) else size


__all__ = [
    "CALLS", "Call", "Results", "aten", "axes_of", "decompositions", "dtype_of", "elementwise", "expr", "name_of",
]  # fmt: skip
