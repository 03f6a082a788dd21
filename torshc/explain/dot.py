"""The fusion plan as a DOT graph: a box for each group, an edge for each value that goes through memory."""

from __future__ import annotations

from collections.abc import Iterator

from ..base.escaping import printable, shortened
from ..base.quantities import short
from .data import Explanation, GroupInfo, Tensor

_COLOURS = {"nest": "#e8f0fe", "row": "#e6f4ea"}
_HEAVY = "#fce8e6"
_RULE = 200  # characters of a rule, its file among them


def to_dot(explanation: Explanation) -> str:
    """Text for Graphviz (``dot -Tsvg``); names appear in quoted strings only."""
    return "\n".join(_lines(explanation)) + "\n"


def quoted(text: str) -> str:
    """A DOT string: backslashes and quotes escaped, nothing unprintable.

    >>> quoted('a"b\\\\n')
    '"a\\\\"b\\\\\\\\n"'
    """
    return '"' + printable(text).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _lines(e: Explanation) -> Iterator[str]:
    yield "digraph model {"
    yield f"  label={quoted(e.model)}; labelloc=t; rankdir=TB;"
    yield '  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10];'
    yield '  edge [fontname="Helvetica", fontsize=8];'
    for k, tensor in enumerate(e.inputs):
        yield f'  i{k} [label={quoted(_tensor(tensor))}, shape=ellipse, fillcolor="#ffffff"];'
    for group in e.groups:
        colour = _COLOURS.get(group.kind, _HEAVY)
        yield f'  g{group.id} [label={_label(group)}, fillcolor="{colour}"];'
    for k, tensor in enumerate(e.outputs):
        yield f'  o{k} [label={quoted(_tensor(tensor))}, shape=ellipse, fillcolor="#ffffff"];'
    inputs = {tensor.name: k for k, tensor in enumerate(e.inputs)}
    for group in e.groups:
        for read in group.reads:
            why = [f"{s.reason}: {s.rule}" if s.rule else s.reason for s in group.stops if s.value == read.name]
            label = _lines_of(read.type, *(shortened(w, _RULE) for w in dict.fromkeys(why)))
            for source in _sources(read, inputs):
                yield f"  {source} -> g{group.id} [label={label}];"
    for k, tensor in enumerate(e.outputs):
        for number in tensor.groups:
            yield f"  g{number} -> o{k} [label={quoted(tensor.type)}];"
    yield "}"


def _tensor(tensor: Tensor) -> str:
    return f"{shortened(tensor.name, 40)} {tensor.type}"


def _label(group: GroupInfo) -> str:
    return _lines_of(
        f"{group.id}: {group.kind} ({', '.join(group.templates)})",
        shortened(group.operators, 60),
        *(shortened(f"rule: {rule}", _RULE) for rule in group.rules),
        f"{short(group.flops / 1e6)} MFLOP, {short(group.bytes / 1e3)} kB",
    )


def _lines_of(*lines: str) -> str:
    # \n between quoted parts is DOT's own line break.
    return '"' + "\\n".join(quoted(line)[1:-1] for line in lines) + '"'


def _sources(read: Tensor, inputs: dict[str, int]) -> list[str]:
    if read.kind == "input":
        return [f"i{inputs[read.name]}"]
    return [f"g{number}" for number in read.groups]
