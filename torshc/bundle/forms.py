"""Two forms of a model behind one interface: the fast one, and a loose one for sizes of 1 that the fast one refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.errors import UnsupportedError
from ..expr import as_expr, as_int
from .host import FORM, SYMBOLS_MAX, Condition, Symbol
from .program import Program


def join_forms(fast: Program, loose: Program) -> tuple[Program, Program]:
    """The two programs with the inputs, outputs and symbols of the loose one, whose sizes hold in both.

    A dimension that is a number in the fast form alone, since nothing else fits there, becomes a condition of it.

    Raises:
        UnsupportedError: their outputs have other types or ranks, one of them alone has a script, or there are too many
            symbols.
    """
    if (fast.script is None) != (loose.script is None):
        raise UnsupportedError(["where sizes of 1 broadcast, sizes or steps are known only at run time"])
    symbols = dict(zip(loose.names, loose.symbols, strict=False))
    own = dict(zip(fast.names, fast.symbols, strict=False))
    ports = [[(p.dtype, p.rank) for p in program.outputs] for program in (fast, loose)]
    if ports[0] != ports[1] or any(symbols.get(name, s) != s for name, s in own.items()):
        raise UnsupportedError(["its results are others where sizes of 1 broadcast"])
    symbols |= own
    if len(symbols) >= SYMBOLS_MAX:
        raise UnsupportedError([f"{len(symbols)} symbolic sizes; at most {SYMBOLS_MAX - 1}"])
    sizes = dict.fromkeys(
        (as_expr(wide), as_expr(narrow))
        for a, b in zip(loose.inputs, fast.inputs, strict=True)
        for wide, narrow in zip(a.dims, b.dims, strict=True)
        if wide is not None and narrow is not None and as_int(as_expr(wide)) is None
    )
    fixed = [pair for pair in sizes if as_int(pair[1]) is not None]
    first = len(fast.conditions)
    conditions = (*fast.conditions, *(Condition(first + k, a, b) for k, (a, b) in enumerate(fixed)))
    fast = replace(_numbered(fast, symbols), inputs=loose.inputs, outputs=loose.outputs, conditions=conditions)
    nodes = 1 + max((n.id for n in fast.script.script.operators()), default=0) if fast.script is not None else 0
    return fast, _numbered(loose, symbols, len(conditions), nodes)


def _numbered(p: Program, symbols: dict[str, Symbol], first: int = 0, nodes: int = 0) -> Program:
    """A program over the symbols of both, its conditions numbered from `first` on, its nodes from `nodes` on."""
    names = (*symbols, FORM, *p.names[len(p.symbols) :])
    script = p.script
    if script is not None:
        steps = replace(script.script, bound=tuple(symbols), computed=names[len(symbols) :])
        checks = {step: _shifted([c], first)[0] for step, c in script.checks.items()}
        script = replace(script, script=steps, checks=checks, first_node=nodes)
    segments = tuple(replace(s, names=names, conditions=_shifted(s.conditions, first)) for s in p.segments)
    bound = replace(p, names=names, symbols=tuple(symbols.values()), segments=segments, script=script)
    return replace(bound, conditions=_shifted(p.conditions, first))


def _shifted(conditions: Sequence[Condition], first: int) -> tuple[Condition, ...]:
    return tuple(replace(c, number=c.number + first) for c in conditions)
