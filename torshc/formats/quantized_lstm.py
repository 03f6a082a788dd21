"""DynamicQuantizeLSTM as a function of ONNX's operators: a Scan whose products are of bytes.

    x[T, B, I], h[B, H]  ->  in each step DynamicQuantizeLinear(h), MatMulInteger with r, then LSTM's gates

ONNX Runtime quantises x once for each direction, by the range of the steps that any sequence has, and h in each step,
by the range of all rows of the batch, where that of a sequence that has ended counts as 0. (With several threads it
has a range for the rows of each thread, so that its answers depend on how many there are. This is the answer of one.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..expr import F32, I8, I64, U8, as_int
from ..graph import Value
from ..ops import Unsupported
from ..ops.nn.recurrent import LSTM, read_activations
from .model import Misfit, SourceFunction, SourceGraph, SourceOp, TypeDecl

INPUTS = ("x", "w", "r", "bias", "lengths", "h", "c", "peepholes", "w_scale", "w_zero", "r_scale", "r_zero")
NEEDED = (0, 1, 2, 8, 9, 10, 11)
OPSET = 21
Activation = tuple[str, float, float]


class Nodes:
    """Nodes that are being written, each with names of its own.

    Attributes:
        prefix: what all names begin with.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.made: list[SourceOp] = []

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> list[str]:
        names = tuple(f"{self.prefix}{op}{len(self.made)}.{k}" for k in range(outputs))
        self.made.append(SourceOp(op, "", names[0], inputs, names, attributes))
        return list(names)

    def one(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self.add(op, *inputs, **attributes)[0]

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        return self.one("Constant", value=np.asarray(value, dtype))

    def product(self, x: str, w: str, zero: str, scale: str) -> str:
        """x @ w of x quantised by its range, in real numbers."""
        q, x_scale, x_zero = self.add("DynamicQuantizeLinear", x, outputs=3)
        total = self.one("Cast", self.one("MatMulInteger", q, w, x_zero, zero), to=F32.onnx)
        return self.one("Mul", total, self.one("Mul", x_scale, scale))

    def activated(self, x: str, activation: Activation, clip: float) -> str:
        name, alpha, beta = activation
        if clip:
            x = self.one("Clip", x, self.constant(-clip), self.constant(clip))
        if name == "Affine":
            return self.one("Add", self.one("Mul", x, self.constant(alpha)), self.constant(beta))
        if name == "ScaledTanh":
            return self.one("Mul", self.one("Tanh", self.one("Mul", x, self.constant(beta))), self.constant(alpha))
        if name == "HardSigmoid":
            return self.one(name, x, alpha=alpha, beta=beta)
        return self.one(name, x, **({"alpha": alpha} if name in ("LeakyRelu", "ThresholdedRelu", "Elu") else {}))


def function_of(op: SourceOp, operands: Sequence[Value | None]) -> SourceFunction:
    """The function that computes a node.

    Raises:
        Misfit, Unsupported: when its operands do not fit, or are of other types.
    """
    direction = str(op.attributes.get("direction", "forward"))
    ways = ("forward", "reverse") if direction == "bidirectional" else (direction,)
    hidden, given = _check(op, operands, len(ways))
    usual, attributes = LSTM.usual * len(ways), op.attributes
    names = tuple(attributes.get("activations") or usual)
    numbers = [attributes.get(f"activation_{n}") or () for n in ("alpha", "beta")]
    functions = read_activations(op.op_type, names, len(usual), numbers[0], numbers[1])
    b = Nodes("")
    x, ends = "x", ""
    if "lengths" in given:
        ends = b.one("Cast", "lengths", to=I64.onnx)
        steps = b.one("Shape", "x", start=0, end=1)
        zero, one = b.constant(0, np.int64), b.constant(1, np.int64)
        number = b.one("Range", zero, b.one("Squeeze", steps), one)
        counts = b.one("Less", number, b.one("ReduceMax", ends, keepdims=0))
        wide = b.one("Reshape", counts, b.constant([-1, 1, 1], np.int64))
        x = b.one("Where", wide, "x", b.constant(0.0))
    found = []
    for d, way in enumerate(ways):
        found.append(_direction(b, op, d, way == "reverse", (x, ends), given, hidden, functions[3 * d : 3 * d + 3]))
    axes = (1, 0, 0)
    results = [
        b.one("Concat", *(b.one("Unsqueeze", f[k], b.constant([axis], np.int64)) for f in found), axis=axis)
        for k, axis in enumerate(axes)
    ]
    return SourceFunction(INPUTS, tuple(results), b.made, {"": OPSET})


def _check(op: SourceOp, operands: Sequence[Value | None], directions: int) -> tuple[int, set[str]]:
    """The number of hidden units, and the names of the operands that are there."""
    present = dict(zip(INPUTS, operands, strict=False))
    for k in NEEDED:
        if present.get(INPUTS[k]) is None:
            raise Misfit(f"{op.op_type} needs its input {k}")
    x, w, r = (present[n] for n in ("x", "w", "r"))
    assert x is not None and w is not None and r is not None
    if x.dtype is not F32 or w.dtype not in (I8, U8) or r.dtype not in (I8, U8):
        raise Unsupported(f"{op.op_type} of {x.type!r} with weights {w.type!r} and {r.type!r}")
    shape = r.type.static_shape
    if x.type.rank != 3 or w.type.rank != 3 or shape is None or len(shape) != 3 or shape[2] != 4 * shape[1]:
        raise Misfit(f"{op.op_type} of {x.type!r} with weights {w.type!r} and {r.type!r}")
    for name, v in present.items():
        if (
            v is not None
            and name not in ("x", "lengths")
            and (not v.shape or as_int(v.shape[0]) not in (None, directions))
        ):
            raise Misfit(f"{op.op_type} in {directions} directions with {name} {v.type!r}")
    if op.attributes.get("hidden_size", shape[1]) != shape[1]:
        raise Misfit(f"{op.op_type} of {op.attributes['hidden_size']} hidden units with weights {r.type!r}")
    return shape[1], {name for name, v in present.items() if v is not None}


def _direction(
    b: Nodes,
    op: SourceOp,
    d: int,
    backward: bool,
    source: tuple[str, str],
    given: set[str],
    hidden: int,
    functions: Sequence[Activation],
) -> tuple[str, str, str]:
    """All h [T, B, H] of a direction, and the last h and c [B, H]."""
    x, ends = source
    at = b.constant(d, np.int64)
    own = {n: b.one("Gather", n, at, axis=0) for n in INPUTS[1:] if n in given and n != "lengths"}
    batch = b.one("Shape", "x", start=1, end=2)
    zeros = b.one("ConstantOfShape", b.one("Concat", batch, b.constant([hidden], np.int64), axis=0))
    if backward and ends:
        x = b.one("ReverseSequence", x, ends, time_axis=0, batch_axis=1)
    gates = b.product(x, own["w"], own["w_zero"], own["w_scale"])
    if "bias" in own:
        one, other = b.add("Split", own["bias"], outputs=2, num_outputs=2)
        gates = b.one("Add", gates, b.one("Add", one, other))
    first, cell = own.get("h", zeros), own.get("c", zeros)
    peepholes = b.add("Split", own["peepholes"], outputs=3, num_outputs=3) if "peepholes" in own else []
    body = _step(op, f"{d}/", own, peepholes, ends, functions)
    states = [first, cell, *([first, b.constant(0, np.int64)] if ends else [])]
    ways = {f"scan_{n}_directions": (int(backward and not ends),) for n in ("input", "output")}
    *last, each = b.add("Scan", *states, gates, outputs=len(states) + 1, body=body, num_scan_inputs=1, **ways)
    if backward and ends:
        each = b.one("ReverseSequence", each, ends, time_axis=0, batch_axis=1)
    return each, last[0], last[1]


def _step(
    op: SourceOp, prefix: str, own: dict[str, str], peepholes: Sequence[str], ends: str, functions: Sequence[Activation]
) -> SourceGraph:
    """The body of the Scan: a step of the sequences, whose states are h and c.

    With ends of sequences a third is h where a sequence goes on, and 0 where it has ended, and a fourth the step.
    """
    b, clip = Nodes(prefix), float(op.attributes.get("clip", 0.0))
    h, c, shown, number, x = (prefix + n for n in ("h", "c", "shown", "number", "x"))
    product = b.product(shown if ends else h, own["r"], own["r_zero"], own["r_scale"])
    i, o, f, g = b.add("Split", b.one("Add", x, product), outputs=4, num_outputs=4, axis=-1)

    def peeped(gate: str, k: int, cell: str) -> str:
        return b.one("Add", gate, b.one("Mul", peepholes[k], cell)) if peepholes else gate

    i = b.activated(peeped(i, 0, c), functions[0], clip)
    if op.attributes.get("input_forget", 0):
        f = b.one("Sub", b.constant(1.0), i)
    else:
        f = b.activated(peeped(f, 2, c), functions[0], clip)
    g = b.activated(g, functions[1], clip)
    cell = b.one("Add", b.one("Mul", f, c), b.one("Mul", i, g))
    o = b.activated(peeped(o, 1, cell), functions[0], clip)
    out = b.one("Mul", o, b.activated(cell, functions[2], 0.0))
    if not ends:
        results = [out, cell, b.one("Identity", out)]
    else:
        on = b.one("Unsqueeze", b.one("Less", number, ends), b.constant([1], np.int64))
        kept = b.one("Where", on, out, b.constant(0.0))
        following = b.one("Add", number, b.constant(1, np.int64))
        results = [b.one("Where", on, out, h), b.one("Where", on, cell, c), kept, following, b.one("Identity", kept)]
    inputs = [h, c, *([shown, number] if ends else []), x]
    return SourceGraph("step", [(n, TypeDecl()) for n in inputs], {}, b.made, [(n, TypeDecl()) for n in results])


__all__ = ["function_of"]
