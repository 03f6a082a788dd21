"""Messages of a failed call in the model's own names, which the library does not know."""

from __future__ import annotations

from torshc.base.manifest import ConditionSpec, SymbolSpec

from .manifest import RunInfo
from .native import Fault

SYMBOLS = 4  # symbols of a condition that its message explains


def explain_fault(message: str, fault: Fault, manifest: RunInfo) -> str:
    """The library's message with the names of nodes, inputs and dimensions that the manifest has."""
    conditions = (*manifest.conditions, *manifest.more_conditions)
    if 0 <= fault.condition < len(conditions):
        return _unmet(conditions[fault.condition], fault, manifest)
    if 0 <= fault.step < len(manifest.version.steps):
        names = dict.fromkeys(filter(None, manifest.version.steps[fault.step].nodes))
        return f"{message} (nodes {', '.join(map(repr, names))})" if names else message
    if fault.node in manifest.operators:
        return f"{message} (node {manifest.operators[fault.node]!r})"
    return message


def remedy_for(fault: Fault, manifest: RunInfo) -> str:
    """What to do where a size of 1 met another one, which NumPy would broadcast; empty elsewhere."""
    if manifest.broadcast and not manifest.strict:  # the loose form refused these sizes too
        return ""
    if not 0 <= fault.condition < len(manifest.conditions) or 1 not in (fault.left, fault.right):
        return ""
    condition = manifest.conditions[fault.condition]
    name = condition.left if fault.left == 1 else condition.right
    symbol = next((s for s in manifest.symbols if s.name == name and s.kind == "dim"), None)
    if symbol is None or not condition.right:
        return ""
    one = manifest.inputs[symbol.input]
    shape = "x".join(str(d) if isinstance(d, int) else "1" if d == name else "?" for d in one.shape)
    why = f" ({manifest.strict})" if manifest.strict else ""
    return (
        f"symbolic sizes that meet are equal{why}; to broadcast {name} as 1, compile with --shapes {one.name}:{shape}"
    )


def _unmet(condition: ConditionSpec, fault: Fault, manifest: RunInfo) -> str:
    known = {s.name: s for s in manifest.symbols}
    where = [_place(known[name], manifest) for name in condition.symbols if name in known]
    more = f", and {len(where) - SYMBOLS} more" if len(where) > SYMBOLS else ""
    places = f"; {', '.join(where[:SYMBOLS])}{more}" if where else ""
    if not condition.right:
        return f"the shapes do not fit together: {condition.left} does not hold{places}"
    equation = f"{condition.left} == {condition.right}"
    return f"the shapes do not fit together: {equation} does not hold, {fault.left} is not {fault.right}{places}"


def _place(symbol: SymbolSpec, manifest: RunInfo) -> str:
    if symbol.kind == "count":
        return f"{symbol.name} elements of input {manifest.inputs[symbol.input].name!r} are not 0"
    kind = "dimension" if symbol.kind == "dim" else "element"
    return f"{symbol.name} is {kind} {symbol.dim} of input {manifest.inputs[symbol.input].name!r}"
