"""The operators, a class or a function each, in families.

Importing this finds every module of the families and so registers them.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from .core.base import REGISTRY, Nest, Op, operator
from .core.composite import composite
from .core.source import SourceNode, Unsupported

for _found in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_found.name)

__all__ = ["REGISTRY", "Nest", "Op", "SourceNode", "Unsupported", "composite", "operator"]
