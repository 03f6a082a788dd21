"""Symbolic dimensions of a model's inputs, and the shapes that a user pins them to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from ..base.errors import ConfigError, did_you_mean
from ..expr import Expr, as_int, const, dim, dims_of, parse_dim, runtime_dim, substitute
from ..graph import Graph, Shape
from .model import TypeDecl

Pins = Mapping[str, Sequence[int | str | None]]


def dimension(declared: int | str | None) -> Expr | None:
    """A declared dimension as an expression; None when it says nothing.

    A name may be an expression over other names, such as ``s0*2``; one that can never be a size says nothing.
    """
    if declared is None:
        return None
    if isinstance(declared, int):
        return const(declared)
    try:
        e = parse_dim(declared)
    except ValueError:
        return dim(declared)
    value = as_int(e)
    return e if value is None or value >= 0 else None


def input_shapes(inputs: Mapping[str, TypeDecl], pins: Pins, file: str, loose: Iterable[str] = ()) -> dict[str, Shape]:
    """The shape of each input, pins being applied.

    Unknown dimensions are given fresh names, and so are expressions over names that no dimension gives by itself.

    An input whose rank is given nowhere is left out. Symbols that are `loose` are dimensions that may be 1 in a run.

    Raises:
        ConfigError: when a pin names no input, has another rank, or contradicts the model or another pin.
    """
    for name in pins:
        if name not in inputs:
            hint = did_you_mean(name, list(inputs)) or f"; it has {', '.join(map(repr, inputs)) or 'no inputs'}"
            raise ConfigError(f"{file} has no input {name!r}{hint}")
    taken = {n for t in inputs.values() for d in t.dims or () if (e := dimension(d)) is not None for n in dims_of(e)}
    shapes: dict[str, Shape] = {}
    for name, t in inputs.items():
        dims = t.dims if t.dims is not None else (None,) * len(pins[name]) if name in pins else None
        if dims is not None:
            shapes[name] = tuple(_name_dim(d, f"{name}_{k}", taken) for k, d in enumerate(dims))
    shapes = _with_names(shapes, inputs, taken)
    known: dict[Expr, Expr] = {}
    for name, wanted in pins.items():
        if len(wanted) != len(shapes[name]):
            raise ConfigError(
                f"shape {list(wanted)} for input {name!r} of {file}, which has {len(shapes[name])} dimensions"
            )
        for k, (d, w) in enumerate(zip(shapes[name], wanted, strict=True)):
            if w is not None:  # None leaves a dimension as it is
                _pin(d, w, known, f"dimension {k} of input {name!r} of {file}")
    free = {dim(name): runtime_dim(name) for name in loose}
    return {name: tuple(substitute(substitute(d, known), free) for d in shape) for name, shape in shapes.items()}


def _name_dim(declared: int | str | None, wish: str, taken: set[str]) -> Expr:
    e = dimension(declared)
    return e if e is not None else _new_dim(wish, taken)


def _new_dim(wish: str, taken: set[str]) -> Expr:
    name = wish
    while name in taken:
        name += "_"
    taken.add(name)
    return dim(name)


def _with_names(shapes: Mapping[str, Shape], inputs: Mapping[str, TypeDecl], taken: set[str]) -> dict[str, Shape]:
    """The shapes with one name in place of each expression that no run could take apart.

    So are ``batch-size``, which is meant as a name, and ``2*n`` where ``n`` is no dimension by itself. The name is made
    of the words of the text.
    """
    alone = {d for shape in shapes.values() for d in shape if d.op == "dim"}
    named: dict[Expr, Expr] = {}
    for name, shape in shapes.items():
        for k, d in enumerate(shape):
            if d not in named and any(dim(n) not in alone for n in dims_of(d)):
                words = "_".join(re.findall(r"\w+", str((inputs[name].dims or ())[k])))
                named[d] = _new_dim(words if words.isidentifier() else f"{name}_{k}", taken)
    return {name: tuple(named.get(d, d) for d in shape) for name, shape in shapes.items()}


def _pin(declared: Expr, wanted: int | str, known: dict[Expr, Expr], what: str) -> None:
    """Note what a symbol must be for a declared dimension to become the wanted one."""
    target = dimension(wanted) if isinstance(wanted, str) or wanted >= 0 else None
    if target is None:
        raise ConfigError(f"{what} cannot be {wanted!r}")
    now = substitute(declared, known)
    if now is target:
        return
    names = dims_of(now)
    if not names:
        raise ConfigError(f"{what} is {now!r} and cannot be {wanted!r}")
    symbol = dim(names[0])
    if now is symbol:
        known[symbol] = target
    elif len(names) == 1 and (solution := _solve(now, symbol, target)) is not None:
        known[symbol] = const(solution)
    else:
        raise ConfigError(
            f"{what} is {now!r} and cannot be {wanted!r}", f"pin {', '.join(names)} where they appear alone"
        )
    for s in known:
        known[s] = substitute(known[s], {symbol: known[symbol]})


def _solve(e: Expr, symbol: Expr, target: Expr) -> int | None:
    """The value of the symbol that makes a linear expression the target."""
    goal = as_int(target)
    at = [as_int(substitute(e, {symbol: const(v)})) for v in (0, 1)]
    if goal is None or at[0] is None or at[1] is None or at[1] == at[0]:
        return None
    value, rest = divmod(goal - at[0], at[1] - at[0])
    exact = not rest and value >= 0 and as_int(substitute(e, {symbol: const(value)})) == goal
    return value if exact else None


def forced_pins(graph: Graph, pins: Pins) -> Pins | None:
    """The pins with all dimensions that the nodes leave one size only; None when there are no more of them.

    A symbol that meets a weight's 37 is 37, or no run would succeed: better all shapes know it.
    """

    def is_size(e: Expr) -> bool:
        value = as_int(e)
        return value is not None and value >= 0

    known = {a: b for pair in graph.constraints for a, b in (pair, pair[::-1]) if a.op == "dim" and is_size(b)}
    more = dict(pins)
    for v in graph.inputs:
        if any(d in known for d in v.shape):
            given = pins.get(v.name, (None,) * len(v.shape))
            more[v.name] = tuple(as_int(known[d]) if d in known else g for d, g in zip(v.shape, given, strict=True))
    return more if more != dict(pins) else None
