"""The operators, a class or a function each, in families.

Importing this finds every module of the families and so registers them. Users who declare operators of their own take
from here what they need (:mod:`.core.custom`): ``ops.composite``, and each operator as a function, as in
``ops.softmax(x, axis=-1)`` or ``ops.microsoft.gelu(x)``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..expr import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, STRING, U8, U16, U32, U64
from ..graph import TensorType
from .core.base import REGISTRY, LoopNest, Op, operator
from .core.custom import NONE, CustomOperators, Domain, composite, gradient_of
from .core.custom_kernel import Result, Work, kernel
from .core.custom_nest import nest
from .core.source import SourceNode, Unsupported
from .core.tensor import Tensor

for _found in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_found.name)

# As functions; in place of the packages of these names, which imports find all the same.
_onnx = Domain("")
microsoft = Domain("com.microsoft")
ml = Domain("ai.onnx.ml")
training = Domain("ai.onnx.preview.training")

__all__ = [
    "BF16", "BOOL", "F16", "F32", "F64", "I8", "I16", "I32", "I64", "NONE", "REGISTRY", "STRING", "U8", "U16", "U32",
    "U64", "CustomOperators", "LoopNest", "Op", "Result", "SourceNode", "Tensor", "TensorType", "Unsupported", "Work",
    "composite", "gradient_of", "kernel", "microsoft", "ml", "nest", "operator", "training",
]  # fmt: skip


def __getattr__(name: str) -> Callable[..., Any]:
    if not name.islower():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_onnx, name)  # type: ignore[no-any-return]
