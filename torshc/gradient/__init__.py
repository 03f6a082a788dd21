"""Reverse mode: adds to a graph what computes gradients of its values.

What is added are operators, so gradients of gradients are had by differentiating again.
"""

from . import flow, recurrent
from .reverse import gradients, replaced

__all__ = ["flow", "gradients", "recurrent", "replaced"]
