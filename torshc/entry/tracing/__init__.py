"""Functions written in NumPy, traced to graphs and compiled."""

from .gradient import Differentiated, grad, value_and_grad
from .jit import Jitted, TracedFunction, jit, trace

__all__ = ["Differentiated", "Jitted", "TracedFunction", "grad", "jit", "trace", "value_and_grad"]
