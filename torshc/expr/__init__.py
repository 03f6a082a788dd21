"""Scalar expressions, element types and the table of scalar functions."""

from .dtype import BF16, BOOL, DTYPES, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, DType, from_numpy, from_onnx
from .expr import Expr, Scalar, acc, as_expr, as_int, axis, const, dim, dims_of, load, make, rebuild, substitute, walk
from .functions import FUNCTIONS, Function, call, cast, cost, select
from .index import is_nonnegative, lower_bound, upper_bound
from .text import parse_dim, to_text

__all__ = [
    "BF16", "BOOL", "DTYPES", "F16", "F32", "F64", "FUNCTIONS", "I8", "I16", "I32", "I64", "U8", "U16", "U32", "U64",
    "DType", "Expr", "Function", "Scalar", "acc", "as_expr", "as_int", "axis", "call", "cast", "const", "cost", "dim",
    "dims_of", "from_numpy", "from_onnx", "is_nonnegative", "load", "lower_bound", "make", "parse_dim", "rebuild",
    "select", "substitute", "to_text", "upper_bound", "walk",
]  # fmt: skip
