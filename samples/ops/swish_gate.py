"""An operator of a foreign domain that is made of ONNX's: what some exporters leave as one node."""

from __future__ import annotations

from torshc import ops


@ops.composite("SwishGate", "com.example")
def swish_gate(x, bias=None, *, beta: float = 1.0):
    """swish(a) * b of the two halves a and b of the last dimension."""
    a, b = ops.split(x if bias is None else x + bias, axis=-1, num_outputs=2, outputs=2)
    return a * ops.sigmoid(beta * a) * b
