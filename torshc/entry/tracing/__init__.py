"""Functions written in NumPy, traced to graphs and compiled."""

from .jit import Jitted, TracedFunction, jit, trace

__all__ = ["Jitted", "TracedFunction", "jit", "trace"]
