"""Messages of a failed call in the model's own names, which the library does not know."""

from __future__ import annotations

from .manifest import ConditionSpec, Manifest, SymbolSpec
from .native import Fault

SYMBOLS = 4  # symbols of a condition that its message explains


def explain_fault(message: str, fault: Fault, manifest: Manifest) -> str:
    """The library's message with the names of nodes, inputs and dimensions that the manifest has."""
    if 0 <= fault.condition < len(manifest.conditions):
        return _unmet(manifest.conditions[fault.condition], fault, manifest)
    if 0 <= fault.step < len(manifest.steps):
        names = dict.fromkeys(manifest.steps[fault.step].nodes)
        return f"{message} (nodes {', '.join(map(repr, names))})"
    if fault.node in manifest.operators:
        return f"{message} (node {manifest.operators[fault.node]!r})"
    return message


def _unmet(condition: ConditionSpec, fault: Fault, manifest: Manifest) -> str:
    known = {s.name: s for s in manifest.symbols}
    where = [_place(known[name], manifest) for name in condition.symbols if name in known]
    more = f", and {len(where) - SYMBOLS} more" if len(where) > SYMBOLS else ""
    places = f"; {', '.join(where[:SYMBOLS])}{more}" if where else ""
    if not condition.right:
        return f"the shapes do not fit together: {condition.left} does not hold{places}"
    equation = f"{condition.left} == {condition.right}"
    return f"the shapes do not fit together: {equation} does not hold, {fault.left} is not {fault.right}{places}"


def _place(symbol: SymbolSpec, manifest: Manifest) -> str:
    kind = "dimension" if symbol.kind == "dim" else "element"
    return f"{symbol.name} is {kind} {symbol.dim} of input {manifest.inputs[symbol.input].name!r}"
