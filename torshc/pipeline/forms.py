"""The other forms of a model in one library: variants for some sizes, and the loose form.

The loose form is for runs in which a size is 1 and broadcasts, where the fast form takes it for another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from ..base.errors import ConfigError, ModelError, UnsupportedError, did_you_mean
from ..base.manifest import SizeRange, sizes_text
from ..base.variants import Case
from ..bundle.forms import check_loose, check_variant, join_forms, of_sizes
from ..expr import Expr, as_int, const, dim, stated, substitute, to_text
from .compilation import Compilation, Loose, Variant, put_forms, with_edited

Pins = Mapping[str, tuple[int | str | None, ...]]  # dimensions of inputs; None leaves one as it is
Compiled = Callable[[str, Pins | None, frozenset[str]], Compilation]


def with_forms(
    fast: Compilation, cases: Mapping[Case, str], loose: frozenset[str], compiled: Compiled | None
) -> Compilation:
    """A compilation with the other forms of its model, or why there are none.

    Args:
        cases: sizes to make variants for, and what profiles saw of each. Of two that fit a run the one that says more
            is better; then the first is.
        loose: names of the dimensions that may be 1 in the loose form; none where there can be none.
        compiled: compiles the model once more: the name of the form, dimensions of inputs that are pinned, and names of
            dimensions that are sizes known only in a run. None where it cannot be imported again.

    Raises:
        ConfigError: there are no such sizes, or there can be no variants.
    """
    if cases and compiled is None:
        raise ConfigError("--specialize: a Graph is compiled once, and changed by that", "give the model's file")
    asked: list[tuple[Case, dict[str, tuple[int, int]]]] = []
    for case in sorted(cases, key=_width):
        sizes = _complete_sizes(case, fast)
        twin = next((other for other, known in asked if known == sizes), None)
        if twin is not None and (cases[twin] or cases[case]):
            continue
        if twin is not None:
            what = f"--specialize gives {sizes_text(twin)} twice, as {sizes_text(case)} is the same"
            raise ConfigError(what, "leave one out")
        asked.append((case, sizes))
    other = _loose_form(fast, loose, compiled) if loose else None
    variants = [_variant(fast, case, sizes, k, compiled) for k, (case, sizes) in enumerate(asked) if compiled]
    variants = [dataclasses.replace(v, seen=cases[v.sizes]) for v in variants]
    whole = dataclasses.replace(fast, loose=other, variants=tuple(variants))
    if len(whole.forms) == 1:
        return whole
    rest = [f.program for f in whole.forms[1:]]
    last = rest.pop() if other is not None and other.form is not None else None
    programs = join_forms(fast.program, rest, last)
    joined = [dataclasses.replace(f, program=p) for f, p in zip(whole.forms, programs, strict=True)]
    return put_forms(whole, [joined[0], *(_with_edited(fast, form) for form in joined[1:])])


def _with_edited(fast: Compilation, form: Compilation) -> Compilation:
    """A form in which an edited kernel of the fast form stands for all that had its text."""
    shared = {name: text for name, text in fast.pinned.items() if name in form.sources}
    sources = form.sources
    for name in shared:
        sources = with_edited(sources, name, fast.sources[name])
    return dataclasses.replace(form, sources=sources, pinned=shared)


def _loose_form(fast: Compilation, sizes: frozenset[str], compiled: Compiled | None) -> Loose | None:
    """The loose form, or why there is none; None where what fixes its sizes in the fast form fixes them there too."""
    wanted = tuple(sorted(sizes))
    if fast.options.loose == "none":
        return Loose(wanted, why="it was left out (--loose none)")
    if compiled is None:
        return Loose(wanted, why="a Graph is compiled once, and changed by that")
    try:
        form = compiled("loose", None, sizes)
        if sizes.isdisjoint(form.program.names):
            return None
        check_loose(fast.program, form.program)
    except (ModelError, UnsupportedError) as error:
        return Loose(wanted, why=_why(error))
    return Loose(wanted, form)


def _variant(
    fast: Compilation, case: Case, sizes: Mapping[str, tuple[int, int]], number: int, compiled: Compiled
) -> Variant:
    known = {dim(name): least for name, (least, most) in sizes.items() if least == most}
    if not known:
        return Variant(case, why="no size of it is one number, so its kernels would be the same")
    pins = {v.name: tuple(known.get(d) for d in v.shape) for v in fast.graph.given if any(d in known for d in v.shape)}
    try:
        form = compiled(f"variant{number + 1}", pins, frozenset())
        check_variant(fast.program, form.program)
    except (ModelError, UnsupportedError) as error:
        return Variant(case, why=_why(error))
    if form.program.steps == fast.program.steps and form.sources == fast.sources:
        return Variant(case, why="its kernels and their sizes are the same")
    form = dataclasses.replace(form, program=of_sizes(form.program, fast.program, sizes))
    return Variant(case, form=form)


def _why(error: ModelError | UnsupportedError) -> str:
    return "; ".join(str(error).splitlines())


def _width(case: Case) -> tuple[int, int]:
    """What orders variants: more sizes that are one number come first, then narrower ranges."""
    return -sum(r.least == r.most for r in case), sum(r.most - r.least for r in case)


def _complete_sizes(case: Case, fast: Compilation) -> dict[str, tuple[int, int]]:
    """The sizes of a case with those that follow from the model's equations.

    Raises:
        ConfigError: the model has no such size, or no run has these.
    """
    symbols = {n: s for n, s in zip(fast.program.names, fast.program.symbols, strict=False) if s.kind == "dim"}
    alone = {d for v in fast.graph.given for d in v.shape}
    what = f"--specialize {sizes_text(case)}"
    for r in case:
        if r.name not in symbols or dim(r.name) not in alone:
            hint = did_you_mean(r.name, [*symbols]) or f"; it has {', '.join(map(repr, symbols)) or 'none'}"
            raise ConfigError(f"{what}: the model has no symbolic size {r.name!r}{hint}")
    sizes = {r.name: (r.least, r.most) for r in case}
    while more := _solve_equations(fast, sizes, what):
        sizes |= more
    return sizes


def _solve_equations(fast: Compilation, sizes: Mapping[str, tuple[int, int]], what: str) -> dict[str, tuple[int, int]]:
    """Sizes that equations give where others are known.

    Raises:
        ConfigError: one contradicts them.
    """
    known = {dim(name): const(least) for name, (least, most) in sizes.items() if least == most}
    for c in fast.program.conditions:
        left, right = substitute(c.left, known), substitute(c.right, known)
        ends = as_int(left), as_int(right)
        if None not in ends and ends[0] != ends[1]:
            raise ConfigError(f"{what}: no run has these sizes, as {_equation(c.left, c.right)} does not hold")
        for side, size in ((left, ends[1]), (right, ends[0])):
            if side.op != "dim" or size is None or dim(str(side.data)) in known:
                continue
            name = str(side.data)
            least, most = sizes.get(name, (size, size))
            if not max(least, 1) <= size <= most:
                given = SizeRange(name, least, most)
                raise ConfigError(f"{what}: no run has these sizes, as {name} is {size} there and not {given}")
            return {name: (size, size)}
    return {}


def _equation(left: Expr, right: Expr) -> str:
    whole = stated(left, right)
    return to_text(whole) if whole is not None else f"{to_text(left)} == {to_text(right)}"
