"""Forms of a model behind one interface: the fast one, variants of it for some sizes, and a loose one for sizes of 1.

A run that the fast form takes goes to the first variant that its sizes fit; one that it refuses, to the loose form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base.errors import UnsupportedError
from ..expr import Expr, as_expr, as_int, const, dim, dims_of, substitute
from .host import FORM, SYMBOLS_MAX, Between, Condition, Guard, Port, Symbol
from .program import Program


def check_loose(fast: Program, loose: Program) -> None:
    """Whether a loose form can stand beside the fast one.

    Raises:
        UnsupportedError: their outputs have other types or ranks, one of them alone has a script, or there are too many
            symbols.
    """
    if (fast.script is None) != (loose.script is None):
        raise UnsupportedError(["where sizes of 1 broadcast, sizes or steps are known only at run time"])
    symbols = _bound(loose)
    if _kinds(fast.outputs) != _kinds(loose.outputs) or _differ(fast, symbols):
        raise UnsupportedError(["its results are others where sizes of 1 broadcast"])
    if len(symbols | _bound(fast)) >= SYMBOLS_MAX:
        raise UnsupportedError([f"{len(symbols | _bound(fast))} symbolic sizes; at most {SYMBOLS_MAX - 1}"])


def check_variant(fast: Program, variant: Program) -> None:
    """Whether a variant can stand beside the fast form.

    Raises:
        UnsupportedError: as :func:`check_loose`.
    """
    if (fast.script is None) != (variant.script is None):
        raise UnsupportedError(["with these sizes, steps are known before a run, and otherwise only in it"])
    if _kinds(fast.outputs) != _kinds(variant.outputs) or _differ(variant, _bound(fast)):
        raise UnsupportedError(["its results are others with these sizes"])
    if len(fast.symbols) >= SYMBOLS_MAX:
        raise UnsupportedError([f"{len(fast.symbols)} symbolic sizes; at most {SYMBOLS_MAX - 1}"])


def of_sizes(
    variant: Program,
    fast: Program,
    sizes: Mapping[str, tuple[int, int]],
    guards: tuple[Guard, ...] = (),
    padded: tuple[int, ...] = (),
) -> Program:
    """A variant with the sizes that it is for, the least and the most of each, values of inputs, and masks of padding.

    Its outputs are taken to be the fast form's. Where sizes of theirs are not the same text, it is a condition that
    they are equal.
    """
    numbers = {name: k for k, name in enumerate(fast.names)}
    known = {dim(name): const(least) for name, (least, most) in sizes.items() if least == most}
    taken = tuple(Between(numbers[name], least, most) for name, (least, most) in sizes.items())
    pairs = dict.fromkeys(
        (here, there)
        for a, b in zip(variant.outputs, fast.outputs, strict=True)
        for x, y in zip(a.dims, b.dims, strict=True)
        if x is not None and y is not None
        for here, there in [(as_expr(x), substitute(as_expr(y), known))]
        if here is not there
    )
    bound = set(_bound(fast))
    first = len(variant.conditions)
    more = (Condition(first + k, a, b) for k, (a, b) in enumerate(pairs) if set(dims_of(a, b)) <= bound)
    return replace(variant, taken=taken, guards=guards, padded=padded, conditions=(*variant.conditions, *more))


def join_forms(fast: Program, variants: Sequence[Program] = (), loose: Program | None = None) -> list[Program]:
    """The programs in this order, with the inputs, outputs and symbols of the loose one, whose sizes hold in all.

    A dimension that is a number in the fast form alone, since nothing else fits there, becomes a condition of it.
    """
    wide = loose or fast
    counted = {n: s for v in variants for n, s in _bound(v).items() if s.kind == "count"}
    symbols = _bound(wide) | _bound(fast) | counted
    fixed = _find_fixed_dims(fast.inputs, wide.inputs)
    first = len(fast.conditions)
    fast = replace(fast, conditions=(*fast.conditions, *(Condition(first + k, a, b) for k, (a, b) in enumerate(fixed))))
    found: list[Program] = []
    conditions = nodes = 0
    for form in (fast, *variants, *([loose] if loose is not None else [])):
        found.append(
            _renumber_program(replace(form, inputs=wide.inputs, outputs=wide.outputs), symbols, conditions, nodes)
        )
        conditions += len(form.conditions)
        if form.script is not None:
            nodes += 1 + max((n.id for n in form.script.script.operators()), default=0)
    return found


def _bound(p: Program) -> dict[str, Symbol]:
    """Symbols of the inputs by name."""
    return dict(zip(p.names, p.symbols, strict=False))


def _kinds(ports: Sequence[Port]) -> list[tuple[str, int]]:
    return [(p.dtype, p.rank) for p in ports]


def _differ(p: Program, symbols: Mapping[str, Symbol]) -> bool:
    """Whether inputs bind one of a program's symbols otherwise than these, if they bind it."""
    return any(symbols.get(name, s) != s for name, s in _bound(p).items())


def _find_fixed_dims(narrow: Sequence[Port], wide: Sequence[Port]) -> list[tuple[Expr, Expr]]:
    """Dimensions that are numbers in the first of two lists of inputs alone, in both."""
    sizes = dict.fromkeys(
        (as_expr(x), as_expr(y))
        for a, b in zip(wide, narrow, strict=True)
        for x, y in zip(a.dims, b.dims, strict=True)
        if x is not None and y is not None and as_int(as_expr(x)) is None
    )
    return [pair for pair in sizes if as_int(pair[1]) is not None]


def _renumber_program(p: Program, symbols: dict[str, Symbol], first: int, nodes: int) -> Program:
    """A program over the symbols of all, its conditions numbered from `first` on, its nodes from `nodes` on."""
    names = (*symbols, FORM, *p.names[len(p.symbols) :])
    script = p.script
    if script is not None:
        steps = replace(script.script, bound=tuple(symbols), computed=names[len(symbols) :])
        checks = {step: _renumber_conditions([c], first)[0] for step, c in script.checks.items()}
        script = replace(script, script=steps, checks=checks, first_node=nodes)
    segments = tuple(replace(s, names=names, conditions=_renumber_conditions(s.conditions, first)) for s in p.segments)
    bound = replace(p, names=names, symbols=tuple(symbols.values()), segments=segments, script=script)
    return replace(bound, conditions=_renumber_conditions(p.conditions, first))


def _renumber_conditions(conditions: Sequence[Condition], first: int) -> tuple[Condition, ...]:
    return tuple(replace(c, number=c.number + first) for c in conditions)
