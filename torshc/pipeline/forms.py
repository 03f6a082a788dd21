"""The other forms of a model in one library: variants for some sizes and values of inputs, and the loose form.

The loose form is for runs in which a size is 1 and broadcasts, where the fast form takes it for another.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from ..base.errors import ConfigError, ModelError, UnsupportedError, did_you_mean
from ..base.manifest import InputValue, PaddedInput, SizeRange, sizes_text
from ..base.variants import Case, check_size
from ..bundle.forms import check_loose, check_variant, join_forms, of_sizes
from ..bundle.host import CPU, Guard
from ..expr import Expr, as_int, const, dim, stated, substitute, to_text
from ..graph import Value
from ..plan.uses import Use
from .compilation import Compilation, Loose, Variant, put_forms, with_edited

Pins = Mapping[str, tuple[int | str | None, ...]]  # dimensions of inputs; None leaves one as it is
Compiled = Callable[[str, Pins | None, frozenset[str], Mapping[str, int], PaddedInput | None], Compilation]


def with_forms(
    fast: Compilation, cases: Mapping[Case, str], loose: frozenset[str], compiled: Compiled | None
) -> Compilation:
    """A compilation with the other forms of its model, or why there are none.

    Args:
        cases: sizes and values of inputs to make variants for, and what profiles saw of each. Of two that fit a run the
            one that says more is better; then the first is.
        loose: names of the dimensions that may be 1 in the loose form; none where there can be none.
        compiled: compiles the model once more: the name of the form, dimensions of inputs that are pinned, names of
            dimensions that are sizes known only in a run, numbers that inputs are throughout, and the input whose zeros
            are rows of padding that it leaves out. None where it cannot be imported again.

    Raises:
        ConfigError: there are no such sizes or inputs, or there can be no variants.
    """
    if cases and compiled is None:
        raise ConfigError("--specialize: a Graph is compiled once, and changed by that", "give the model's file")
    resolved = {_resolve_values(case, fast): seen for case, seen in cases.items()}
    asked: list[tuple[Case, dict[str, tuple[int, int]]]] = []
    for case in sorted(resolved, key=_width):
        sizes = _complete_sizes(case, fast)
        same = (other for other, known in asked if known == sizes and _values(other) == _values(case))
        twin = next((other for other in same if _padded(other) == _padded(case)), None)
        if twin is not None and (resolved[twin] or resolved[case]):
            continue
        if twin is not None:
            what = f"--specialize gives {sizes_text(twin)} twice, as {sizes_text(case)} is the same"
            raise ConfigError(what, "leave one out")
        asked.append((case, sizes))
    other = _loose_form(fast, loose, compiled) if loose else None
    variants = [_variant(fast, case, sizes, k, compiled) for k, (case, sizes) in enumerate(asked) if compiled]
    variants = [dataclasses.replace(v, seen=resolved[v.case]) for v in variants]
    whole = dataclasses.replace(_masks_of_ones(fast, variants), loose=other, variants=tuple(variants))
    if len(whole.forms) == 1:
        return whole
    rest = [f.program for f in whole.forms[1:]]
    last = rest.pop() if other is not None and other.form is not None else None
    programs = join_forms(fast.program, rest, last)
    joined = [dataclasses.replace(f, program=p) for f, p in zip(whole.forms, programs, strict=True)]
    return put_forms(whole, [joined[0], *(_with_edited(fast, form) for form in joined[1:])])


def _masks_of_ones(fast: Compilation, variants: Sequence[Variant]) -> Compilation:
    """A compilation whose random inputs have no padding, where a variant leaves that out."""
    masks = {k for v in variants if v.form is not None for k in v.form.program.padded}
    uses = [use for use in fast.needs.uses if use.input not in masks]
    uses += [Use(k, "number", 1, const(1)) for k in sorted(masks)]
    return dataclasses.replace(fast, needs=dataclasses.replace(fast.needs, uses=tuple(uses))) if masks else fast


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
        form = compiled("loose", None, sizes, {}, None)
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
    values, padded = _values(case), _padded(case)
    if why := _unguarded(fast, values) or (padded and _unpadded(fast)):
        return Variant(case, why=why)
    if not known and not values and padded is None:
        return Variant(case, why="no size of it is one number, so its kernels would be the same")
    pins = {v.name: tuple(known.get(d) for d in v.shape) for v in fast.graph.given if any(d in known for d in v.shape)}
    try:
        form = compiled(f"variant{number + 1}", pins, frozenset(), values, padded)
        check_variant(fast.program, form.program)
    except (ModelError, UnsupportedError) as error:
        return Variant(case, why=_why(error))
    if padded is not None and not any(s.kind == "count" for s in form.program.symbols):
        return Variant(case, why="the pass drop_padding, which leaves out rows, is one of -O3")
    if form.program.steps == fast.program.steps and form.sources == fast.sources:
        return Variant(case, why="its kernels and their sizes are the same")
    numbers = {v.name: k for k, v in enumerate(fast.graph.given)}
    guards = tuple(Guard(numbers[name], value) for name, value in values.items())
    masks = (numbers[padded.name],) if padded is not None else ()
    form = dataclasses.replace(form, program=of_sizes(form.program, fast.program, sizes, guards, masks))
    return Variant(case, form=form)


def _values(case: Case) -> dict[str, int]:
    return {c.name: c.value for c in case if isinstance(c, InputValue)}


def _padded(case: Case) -> PaddedInput | None:
    return next((c for c in case if isinstance(c, PaddedInput)), None)


def _unpadded(fast: Compilation) -> str:
    """Why no form can leave out rows of padding; empty where one may."""
    if fast.target.device != CPU:
        return (
            f"on {fast.target.name} rows of padding are computed, as their number is a size, which the processor sets"
        )
    return "its steps are known only in a run" if fast.program.script is not None else ""


def _unguarded(fast: Compilation, values: Mapping[str, int]) -> str:
    """Why no run can look at the values of these inputs before it takes a form; empty where it can."""
    if values and not fast.target.guards:
        return f"on {fast.target.name} the form of a run is chosen by sizes alone"
    read = {fast.graph.given[s.input].name for s in fast.program.symbols if s.kind != "dim"}
    if held := sorted(read & set(values)):
        return f"elements of {', '.join(held)} are sizes of the model"
    return ""


def _why(error: ModelError | UnsupportedError) -> str:
    return "; ".join(error.problems if isinstance(error, UnsupportedError) else str(error).splitlines())


def _width(case: Case) -> tuple[bool, int, int, int]:
    """What orders variants: those that leave out padding come first, then those with more sizes that are one number,
    then with narrower ranges, then with more values."""
    sizes = [c for c in case if isinstance(c, SizeRange)]
    exact, width = sum(r.least == r.most for r in sizes), sum(r.most - r.least for r in sizes)
    return _padded(case) is None, -exact, width, len(sizes) - len(case)


def _resolve_values(case: Case, fast: Compilation) -> Case:
    """A case in which what names an input, and no size, is a value of it.

    Raises:
        ConfigError: the model has neither, or the number is none of its type's.
    """
    sizes = [n for n, s in zip(fast.program.names, fast.program.symbols, strict=False) if s.kind == "dim"]
    inputs = {v.name: v for v in fast.graph.given}
    found: list[SizeRange | InputValue | PaddedInput] = []
    for c in case:
        if isinstance(c, InputValue):
            found.append(c)
        elif isinstance(c, PaddedInput):
            found.append(_mask(inputs, c, fast.options.drop_padding))
        elif c.name in inputs and c.name not in sizes:
            found.append(_value(inputs[c.name], c, f"--specialize {sizes_text(case)}"))
        elif c.name in sizes:
            check_size(c)
            found.append(c)
        else:
            has = f"; it has {', '.join(map(repr, sizes)) or 'none'}, and inputs {', '.join(map(repr, inputs))}"
            hint = did_you_mean(c.name, [*sizes, *inputs]) or has
            what = f"--specialize {sizes_text(case)}: the model has no symbolic size and no input"
            raise ConfigError(f"{what} {c.name!r}{hint}")
    return tuple(found)


def _mask(inputs: Mapping[str, Value], asked: PaddedInput, stated: str) -> PaddedInput:
    """An input whose zeros say which rows are padding, as a person may have `stated` that they mean nothing.

    Raises:
        ConfigError: there is no such input, or it is no mask.
    """
    v = inputs.get(asked.name)
    if v is None:
        hint = did_you_mean(asked.name, list(inputs)) or f"; it has {', '.join(map(repr, inputs)) or 'none'}"
        raise ConfigError(f"padding of {asked.name!r}: the model has no such input{hint}")
    if v.type.rank != 2 or v.dtype.width or not (v.dtype.is_int or v.dtype.kind == "b"):
        remedy = "name one of integers or truths of two dimensions, those of rows"
        raise ConfigError(f"padding of {asked.name!r}: input {v.type!r} is no mask of rows", remedy)
    return PaddedInput(asked.name, stated == asked.name)


def _value(v: Value, asked: SizeRange, what: str) -> InputValue:
    """A number that all elements of an input are.

    Raises:
        ConfigError: it is no number of its type.
    """
    dtype, name = v.dtype, v.name
    if dtype.width or not (dtype.is_int or dtype.kind == "b"):
        raise ConfigError(f"{what}: input {name!r} is {dtype!r}; a value is for integers of whole bytes and for truths")
    if asked.least != asked.most:
        raise ConfigError(
            f"{what}: {asked} is a range of values of input {name!r}", "give one value, or some by commas"
        )
    bits = 1 if dtype.kind == "b" else 8 * dtype.size
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.kind == "i" else (0, 2**bits - 1)
    most = min(most, 2**63 - 1 - (dtype.kind == "u"))  # a run takes larger ones for the same
    if not least <= asked.least <= most:
        raise ConfigError(f"{what}: a value of input {name!r}, which is {dtype!r}, is {least} to {most}")
    return InputValue(name, asked.least)


def _complete_sizes(case: Case, fast: Compilation) -> dict[str, tuple[int, int]]:
    """The sizes of a case with those that follow from the model's equations.

    Raises:
        ConfigError: the model has no such size, or no run has these.
    """
    alone = {d for v in fast.graph.given for d in v.shape}
    what = f"--specialize {sizes_text(case)}"
    asked = [c for c in case if isinstance(c, SizeRange)]
    for r in asked:
        if dim(r.name) not in alone:
            raise ConfigError(f"{what}: the model has no symbolic size {r.name!r}")
    sizes = {r.name: (r.least, r.most) for r in asked}
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
