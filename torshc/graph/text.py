"""The graph as readable text: what dumps hold and what tests of passes compare.

One line for each input, node and output::

    in   %0 f32[batch, 4] "x"
    %1 = Mul(%0, 2.0) : f32[batch, 4]
    out  %1 "y"

Small constants stand where they are read, larger ones are ``@3:f32[64, 3]``. Attributes that have their default value
are left out.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from .graph import Graph, Node, Value

_SMALL = 8  # a constant of at most this many elements is written out


def graph_text(graph: Graph, renumber: bool = True, names: bool = True) -> str:
    """A graph as text.

    Args:
        renumber: number the values by their place in the text, so that equal graphs read alike; otherwise by id.
        names: write the model's names of inputs, outputs and nodes.
    """
    printer = _Printer(renumber)
    lines = []
    for v in graph.inputs:
        lines.append(f"in   {printer.value(v)} {v.type!r}{_quote_name(v.name) if names else ''}")
    for node in graph.nodes:
        lines.append(printer.node(node) + (_comment(node.name) if names else ""))
    for v, name in zip(graph.outputs, graph.output_names, strict=False):
        lines.append(f"out  {printer.value(v)}{_quote_name(name) if names else ''}")
    return "\n".join(lines) + "\n"


def node_text(node: Node) -> str:
    """One node as text, its values by id."""
    return _Printer(renumber=False).node(node) + _comment(node.name)


class _Printer:
    def __init__(self, renumber: bool) -> None:
        self.renumber = renumber
        self.numbers: dict[Value, int] = {}

    def number(self, v: Value) -> int:
        return self.numbers.setdefault(v, len(self.numbers)) if self.renumber else v.id

    def value(self, v: Value | None) -> str:
        if v is None:
            return "none"
        if v.const is None:
            return f"%{self.number(v)}"
        if v.const.size <= _SMALL:
            return json.dumps([_scalar(x) for x in v.const.reshape(-1)]) if v.const.ndim else _number(v.const)
        return f"@{self.number(v)}:{v.type!r}"

    def node(self, node: Node) -> str:
        inputs = ", ".join(self.value(v) for v in node.inputs)
        outputs = ", ".join(self.value(v) for v in node.outputs)
        types = ", ".join(f"{v.type!r}{f' in {v.layout}' if v.layout else ''}" for v in node.outputs)
        return f"{outputs} = {node.op.name}{_attributes(node)}({inputs}) : {types}"


def _attributes(node: Node) -> str:
    shown = []
    for f in dataclasses.fields(node.op):
        value = getattr(node.op, f.name)
        if f.default is dataclasses.MISSING or value != f.default or type(value) is not type(f.default):
            shown.append(f"{f.name}={value!r}")
    return f"[{', '.join(shown)}]" if shown else ""


def _scalar(x: Any) -> Any:
    if isinstance(x, str):
        return x
    item = x.item()
    return item if isinstance(item, int | float | bool) else float(x)


def _number(array: Any) -> str:
    return json.dumps(_scalar(array.reshape(-1)[0]))


def _quote_name(name: str) -> str:
    return " " + json.dumps(name) if name else ""


def _comment(name: str) -> str:
    return f"  # {json.dumps(name[:200])}" if name else ""
