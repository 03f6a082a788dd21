"""Two forms of a model behind one interface: the fast one, and a loose one for sizes of 1 that the fast one refuses."""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import UnsupportedError
from ..expr import as_expr, as_int
from .host import SYMBOLS_MAX, Condition
from .program import Program


def join_forms(fast: Program, loose: Program) -> tuple[Program, Program]:
    """The two programs with the inputs, outputs and symbols of the loose one, whose sizes hold in both.

    A dimension that is a number in the fast form alone, since nothing else fits there, becomes a condition of it.

    Raises:
        UnsupportedError: their outputs have other types or ranks, or there are too many symbols.
    """
    symbols = dict(zip(loose.names, loose.symbols, strict=True))
    own = dict(zip(fast.names, fast.symbols, strict=True))
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
    renumbered = tuple(replace(c, number=len(conditions) + k) for k, c in enumerate(loose.conditions))
    loose = replace(loose, names=tuple(symbols), symbols=tuple(symbols.values()), conditions=renumbered)
    shared = replace(fast, inputs=loose.inputs, outputs=loose.outputs, names=loose.names, symbols=loose.symbols)
    return replace(shared, conditions=conditions), loose
