"""Rewrites tried on their examples: what a rule puts there computes what was there, or its file is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..base.errors import ConfigError, TorshcError, did_you_mean
from ..expr import DTYPES, DType, as_expr
from ..graph import Builder, Graph, TensorType, Value
from .interpret import run_graph
from .match import Match, build
from .pattern import Apply, Capture, Constant, Named, Pattern, Variable
from .rewrite_rules import Rewrite
from .rewriting import apply_rewrites

Array = np.ndarray[Any, Any]

ELEMENTS = 1 << 16  # of a value in an example
ROUNDS = 20  # random inputs, every second with special values
SPECIAL = (0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e-40, 3e38)
# "rounding" means a few units in the last place of f32, 1.2e-7 of the value each; of values near 0, of what was added.
RTOL, ATOL = 3e-6, 3e-7


def check_example(rule: Rewrite) -> None:
    """Tries a rule on its example, with random inputs.

    Raises:
        ConfigError: the example is no graph that the rule applies to, or the rule computes something else on it; with
            file and line.
    """
    example = rule.item.mapping()["example"]
    before, after = instance(rule), instance(rule)
    if not apply_rewrites(after, dict.fromkeys(rule.match.ops, (rule,))):
        raise example.error(
            f"the rewrite {rule.name!r} does not apply to its example", "the types, conditions or constants do not fit"
        )
    for seed in range(ROUNDS):
        given = _contents(before, seed)
        try:
            (wanted,) = run_graph(before, given)
            (got,) = run_graph(after, dict(zip(after.inputs, given.values(), strict=True)))
        except (TorshcError, MemoryError) as error:
            why = error.message if isinstance(error, TorshcError) else "there is no memory for it"
            raise example.error(f"the example of {rule.name!r} cannot be computed: {why}") from error
        if rule.error == "exact" and (wrong := _unequal(got, wanted)).any():
            rounds = bool(seed % 2) or not _far(got, wanted).any()
            remedy = "write error: rounding if that is meant" if rounds else "mend the rule, or leave it out"
            raise _false(rule, "is not exact", got, wanted, wrong, remedy)
        if rule.error == "rounding" and seed % 2 == 0 and (wrong := _far(got, wanted)).any():
            raise _false(rule, "differs by more than rounding", got, wanted, wrong, "mend the rule, or leave it out")


def instance(rule: Rewrite) -> Graph:
    """A graph that is what the rule looks for, as its example says.

    Raises:
        ConfigError: the example says something else.
    """
    example = rule.item.mapping()["example"]
    inner = list(_inner(rule.match))
    names = {name: kind for name, kind in _leaves(rule.match) if name not in [part.name for part in inner]}
    given = rule.example if isinstance(rule.example, dict) else {}
    for name in given:
        if name not in names:
            raise example.error(f"the example names {name!r}, which the match does not{did_you_mean(name, [*names])}")
    if missing := [name for name in sorted(names) if name not in given]:
        raise example.error(f"the example of {rule.name!r} lacks {', '.join(map(repr, missing))}")
    graph = Graph("rule")
    try:
        values = {name: _input(graph, name, given[name]) for name, kind in sorted(names.items()) if kind is Variable}
        for name, kind in sorted(names.items()):
            if kind is Constant:
                values[name] = graph.constant(np.asarray(given[name], np.float32))
        found = Match(values, {name: given[name] for name, kind in names.items() if kind is Capture})
        builder, like = Builder(graph), graph.inputs[0]
        for part in inner:
            if (value := build(part, builder, found, like)) is not None:
                values[part.name] = value
        out = build(rule.match, builder, found, like)
    except (TorshcError, TypeError, ValueError, KeyError, IndexError) as error:
        why = error.message if isinstance(error, TorshcError) else f"{type(error).__name__}: {error}"
        raise example.error(f"the example of {rule.name!r} makes no graph: {why}") from error
    if out is None:
        raise example.error(f"the example of {rule.name!r} makes no graph", "the match holds what cannot be built")
    graph.declare_outputs([out], ["y"])
    sizes = [
        math.prod(v.type.static_shape or ()) for v in (*graph.inputs, *(v for n in graph.nodes for v in n.outputs))
    ]
    if max(sizes) > ELEMENTS:
        raise example.error(
            f"a value of {max(sizes)} elements in the example of {rule.name!r}", f"at most {ELEMENTS} are computed"
        )
    return graph


def _leaves(pattern: Pattern) -> Iterator[tuple[str, type]]:
    """Names that an example fills in, and what each is: a variable, a constant or a captured attribute."""
    if isinstance(pattern, Variable | Constant):
        yield pattern.name, type(pattern)
    if isinstance(pattern, Named):
        yield from _leaves(pattern.inside)
    if isinstance(pattern, Apply):
        yield from ((v.name, Capture) for _, v in pattern.attributes if isinstance(v, Capture))
        for a in pattern.args:
            yield from _leaves(a)


def _inner(pattern: Pattern) -> Iterator[Apply]:
    """Inner values with a name, innermost first."""
    if isinstance(pattern, Apply):
        for a in pattern.args:
            yield from _inner(a)
        if pattern.name:
            yield pattern


def _input(graph: Graph, name: str, given: Any) -> Value:
    shape, dtype = (given["shape"], given["dtype"]) if isinstance(given, dict) else (given, "f32")
    if dtype not in DTYPES:
        raise ConfigError(f"there is no element type {dtype!r}{did_you_mean(str(dtype), [*DTYPES])}")
    value = graph.new_value(TensorType(DTYPES[dtype], tuple(as_expr(int(d)) for d in shape)), name)
    graph.declare_inputs([*graph.inputs, value])
    return value


def _contents(graph: Graph, seed: int) -> dict[Value, Array]:
    generator = np.random.default_rng(seed)
    with np.errstate(all="ignore"):  # special values may not fit a narrow type
        return {v: _draw_values(v.dtype, v.type.static_shape or (), generator, bool(seed % 2)) for v in graph.inputs}


def _draw_values(dtype: DType, shape: tuple[int, ...], generator: np.random.Generator, special: bool) -> Array:
    if not dtype.is_float:
        return generator.integers(0, 2 if dtype.name == "bool" else 9, shape).astype(dtype.numpy)
    plain = generator.standard_normal(shape) * 2
    odd = generator.choice(np.asarray(SPECIAL), shape)
    return (
        np.where(generator.random(shape) < 0.3, odd, plain).astype(dtype.numpy)
        if special
        else plain.astype(dtype.numpy)
    )


def _unequal(got: Array, wanted: Array) -> Array:
    """Where elements differ, NaN being NaN, and zeros by their signs."""
    if wanted.dtype.kind in "biu":
        return np.asarray(got != wanted)
    both = np.isnan(got) & np.isnan(wanted)
    return np.asarray(((got != wanted) | (np.signbit(got) != np.signbit(wanted))) & ~both)


def _far(got: Array, wanted: Array) -> Array:
    if wanted.dtype.kind in "biu":
        return np.asarray(got != wanted)
    return np.asarray(~np.isclose(got, wanted, rtol=RTOL, atol=ATOL, equal_nan=True))


def _false(rule: Rewrite, what: str, got: Array, wanted: Array, wrong: Array, remedy: str) -> ConfigError:
    place = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    entries = rule.item.mapping()
    item = entries.get("error", entries["replace"])
    numbers = f"{got[place]} in place of {wanted[place]}"
    return item.error(f"the rewrite {rule.name!r} {what}: on its example it gives {numbers}", remedy)
