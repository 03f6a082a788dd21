"""Operators of opsets 1 to 6 in the form of opset 7, from which the operators themselves read on.

An operator that did not change by opset 7 passes as it is. One that did must be in `_FORMS`; any other form is
refused by name, as its meaning was not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..expr import const
from ..graph import Builder, Value
from ..ops import Unsupported
from ..ops.core.base import REGISTRY, axis_of
from ..ops.tensor.view import Reshape
from .model import Misfit

Attributes = dict[str, Any]
Given = Mapping[str, Any]
Operands = list[Value | None]
Form = Callable[[Attributes, Operands, Builder], None]
SETTLED = 7  # the opset that the forms lead to

_CASTS = {
    "FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "BOOL": 9, "FLOAT16": 10,
    "DOUBLE": 11, "UINT32": 12, "UINT64": 13,
}  # fmt: skip


def translate(op_type: str, since: int, attributes: Given, operands: Operands, builder: Builder) -> Attributes:
    """The attributes that opset 7 has for a node; its operands are changed in place.

    Args:
        since: the version of the operator's definition.

    Raises:
        Unsupported: for a form that has no translation.
        Misfit: for a node that contradicts itself.
    """
    form = _FORMS.get(op_type)
    if form is None:
        raise Unsupported(f"{op_type} as opset {since} defines it")
    out = dict(attributes)
    out.pop("consumed_inputs", None)  # a hint to share memory, which had no meaning for the result
    form(out, operands, builder)
    return out


def _same(attributes: Attributes, operands: Operands, builder: Builder) -> None:
    """Nothing but `consumed_inputs` or the documentation changed."""


def _present(operands: Operands, k: int) -> Value:
    value = operands[k] if k < len(operands) else None
    if value is None:
        raise Misfit(f"operand {k} is missing")
    return value


def _columns(b: Builder, v: Value, more: int) -> Value:
    """v with dimensions of 1 behind its own."""
    return b.one(Reshape((*v.shape, *(const(1),) * more)), v)


def _binary(attributes: Attributes, operands: Operands, b: Builder) -> None:
    """`broadcast` allowed the second operand to be smaller; its dimensions stood for those from `axis` on."""
    left, right = _present(operands, 0), _present(operands, 1)
    wide, axis = attributes.pop("broadcast", 0), attributes.pop("axis", None)
    if not wide and left.type.rank != right.type.rank:
        raise Misfit(f"{left.type!r} and {right.type!r} have different ranks and broadcast is not set")
    if not wide or axis is None:
        return
    first = axis_of(int(axis), left.type.rank) if left.type.rank else 0
    behind = left.type.rank - first - right.type.rank
    if behind < 0:
        raise Misfit(f"{right.type!r} does not fit into {left.type!r} from axis {axis} on")
    if behind:
        operands[1] = _columns(b, right, behind)


def _prelu(attributes: Attributes, operands: Operands, b: Builder) -> None:
    """A vector of slopes belonged to the channels, dimension 1."""
    x, slope = _present(operands, 0), _present(operands, 1)
    if slope.type.rank == 1 and x.type.rank > 2 and slope.type.static_shape != (1,):
        operands[1] = _columns(b, slope, x.type.rank - 2)


def _in_test_mode(attributes: Attributes, operands: Operands, b: Builder) -> None:
    """Without `is_test` the node trained."""
    if not attributes.pop("is_test", 0) and attributes.get("ratio", 1.0) != 0.0:
        raise Unsupported("training mode (is_test = 0)")


def _dropout(attributes: Attributes, operands: Operands, b: Builder) -> None:
    attributes.setdefault("is_test", 0)  # without it the node trained


def _gemm(attributes: Attributes, operands: Operands, b: Builder) -> None:
    attributes.pop("broadcast", None)  # c's dimensions stood for the last ones, as they do now


def _recurrent(attributes: Attributes, operands: Operands, b: Builder) -> None:
    attributes.pop("output_sequence", None)  # whether output 0 is needed, which its name says now


def _cast(attributes: Attributes, operands: Operands, b: Builder) -> None:
    name = attributes.get("to")
    if isinstance(name, str):
        if name.upper() not in _CASTS:
            raise Unsupported(f"a cast to {name}")
        attributes["to"] = _CASTS[name.upper()]


def _concat(attributes: Attributes, operands: Operands, b: Builder) -> None:
    attributes.setdefault("axis", 1)


def _selu(attributes: Attributes, operands: Operands, b: Builder) -> None:
    attributes.setdefault("alpha", 1.6732)
    attributes.setdefault("gamma", 1.0507)


def _pad(attributes: Attributes, operands: Operands, b: Builder) -> None:
    attributes["pads"] = attributes.pop("paddings")


def _lp(attributes: Attributes, operands: Operands, b: Builder) -> None:
    p = attributes.get("p", 2.0)
    if p < 1 or p != int(p):
        raise Unsupported(f"a norm with p = {p}")
    attributes["p"] = int(p)


def _tile(attributes: Attributes, operands: Operands, b: Builder) -> None:
    """There were two scalars, how often and along which axis."""
    x, times, axis = (_present(operands, k) for k in range(3))
    found = [None if v.const is None or v.const.size != 1 else int(v.const.reshape(-1)[0]) for v in (times, axis)]
    if found[0] is None or found[1] is None:
        raise Unsupported("the repeats of Tile are known only at run time")
    repeats = np.ones(x.type.rank, np.int64)
    repeats[axis_of(found[1], x.type.rank)] = found[0]
    operands[1:] = [b.constant(repeats)]


def _upsample(attributes: Attributes, operands: Operands, b: Builder) -> None:
    height, width = attributes.pop("height_scale"), attributes.pop("width_scale")
    attributes["scales"] = (1.0, 1.0, height, width)
    mode = attributes.get("mode", "nearest")
    attributes["mode"] = "linear" if mode == "bilinear" else mode


_PLAIN = (
    "Abs", "AveragePool", "Ceil", "Clip", "Elu", "Exp", "Floor", "HardSigmoid", "InstanceNormalization", "LeakyRelu",
    "Log", "Max", "Mean", "Min", "Neg", "Reciprocal", "Relu", "Reshape", "Sigmoid", "Split", "Sqrt", "Sum", "Tanh",
)  # fmt: skip
_BINARY = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_FORMS: dict[str, Form] = {
    **dict.fromkeys(_PLAIN, _same),
    **dict.fromkeys(_BINARY, _binary),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent),
    "BatchNormalization": _in_test_mode,
    "Dropout": _dropout,
    **dict.fromkeys(("GlobalLpPool", "LpPool"), _lp),
    "Cast": _cast, "Concat": _concat, "Gemm": _gemm, "Pad": _pad, "PRelu": _prelu, "Selu": _selu, "Tile": _tile,
    "Upsample": _upsample,
}  # fmt: skip
assert all(("", name) in REGISTRY for name in _FORMS)
