"""Graphs of PyTorch's ATen operators, as torch.compile and AOTAutograd hand them to a backend, as graphs of torshc.

An operator is a function over tensors under `@aten` with the names of its overloads (:mod:`.call`); what has none is
taken apart by PyTorch's own decompositions where there are some.
"""

from . import attention, elementwise, index, layers, random, reduce, views  # noqa: F401  # register their operators
from .call import CALLS, decompositions
from .reader import Program, read_program

__all__ = ["CALLS", "Program", "decompositions", "read_program"]
