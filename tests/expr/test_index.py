"""Index expressions against plain Python integers, on random expressions and random values."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from torshc.expr import (
    BOOL,
    Expr,
    as_int,
    axis,
    call,
    const,
    counter,
    dim,
    element,
    is_nonnegative,
    lower_bound,
    select,
    substitute,
    to_text,
    upper_bound,
    walk,
)
from torshc.ops.tensor.view import delinear, linear, remap

DIMS = ("m", "n")
EXTENTS = {"i": 6, "j": 4}  # axes with static extents
SYMBOLIC = {"k": "n"}  # an axis over a symbolic extent
COUNTED = {"r": "m"}  # a counter of as many rounds
Env = Mapping[str, int]


@dataclass(frozen=True)
class Pair:
    """An expression and what it means."""

    expr: Expr
    value: Callable[[Env], int]
    text: str

    def __repr__(self) -> str:
        return f"{self.text}  =>  {to_text(self.expr)}"


def leaf(name: str) -> Pair:
    if name in EXTENTS:
        return Pair(axis(name, EXTENTS[name]), lambda env: env[name], name)
    if name in SYMBOLIC:
        return Pair(axis(name, dim(SYMBOLIC[name])), lambda env: env[name], name)
    if name in COUNTED:
        return Pair(counter(name, dim(COUNTED[name])), lambda env: env[name], name)
    return Pair(dim(name), lambda env: env[name], name)


def constant(v: int) -> Pair:
    return Pair(const(v), lambda env: v, str(v))


def binary(op: str, a: Pair, b: Pair) -> Pair:
    meaning: dict[str, tuple[Callable[[Expr, Expr], Expr], Callable[[int, int], int]]] = {
        "+": (lambda x, y: x + y, lambda x, y: x + y),
        "-": (lambda x, y: x - y, lambda x, y: x - y),
        "*": (lambda x, y: x * y, lambda x, y: x * y),
        "//": (lambda x, y: x // y, lambda x, y: x // y),
        "%": (lambda x, y: x % y, lambda x, y: x % y),
        "min": (lambda x, y: call("min", x, y), min),
        "max": (lambda x, y: call("max", x, y), max),
        "<": (lambda x, y: select(call("lt", x, y), const(1), const(0)), lambda x, y: int(x < y)),
        "<=": (lambda x, y: select(call("le", x, y), const(1), const(0)), lambda x, y: int(x <= y)),
        "==": (lambda x, y: select(call("eq", x, y), const(1), const(0)), lambda x, y: int(x == y)),
        "!=": (lambda x, y: select(call("ne", x, y), const(1), const(0)), lambda x, y: int(x != y)),
        ">=": (lambda x, y: select(call("ge", x, y), const(1), const(0)), lambda x, y: int(x >= y)),
    }
    symbolic, plain = meaning[op]
    return Pair(symbolic(a.expr, b.expr), lambda env: plain(a.value(env), b.value(env)), f"({a.text} {op} {b.text})")


def divide(op: str, a: Pair, b: Pair) -> Pair:
    return binary(op, a, b)


leaves = st.one_of(
    st.sampled_from([*DIMS, *EXTENTS, *SYMBOLIC, *COUNTED]).map(leaf),
    st.integers(-7, 12).map(constant),
)
divisors = st.one_of(
    st.integers(1, 12).map(constant),
    st.sampled_from(DIMS).map(leaf),
    st.tuples(st.sampled_from(DIMS).map(leaf), st.integers(1, 4).map(constant)).map(lambda p: binary("*", *p)),
    st.tuples(st.sampled_from(DIMS).map(leaf), st.integers(1, 4).map(constant)).map(lambda p: binary("+", *p)),
)


def grow(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    arithmetic = st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner)
    division = st.tuples(st.sampled_from(["//", "%"]), inner, divisors)
    comparison = st.tuples(st.sampled_from(["<", "<=", "==", "!=", ">="]), inner, inner)
    return st.one_of(arithmetic, division, division, comparison).map(lambda t: binary(*t))


pairs = st.recursive(leaves, grow, max_leaves=10)
# Symbolic divisors must not be 0, so dimensions are at least 1 here; that dims may be 0 is checked on bounds below.
values = st.fixed_dictionaries(
    {**{d: st.integers(1, 9) for d in DIMS}, **{a: st.integers(0, e - 1) for a, e in EXTENTS.items()}}
)


@st.composite
def environments(draw: st.DrawFn) -> Env:
    env = dict(draw(values))
    for a, d in (SYMBOLIC | COUNTED).items():
        env[a] = draw(st.integers(0, env[d] - 1))
    return env


def numbers(e: Expr, env: Env) -> int:
    """The value of an expression by substitution of numbers for its leaves."""
    mapping = {x: const(env[str(x.data)]) for x in walk(e) if x.op in ("dim", "axis", "element")}
    result = as_int(substitute(e, mapping))
    assert result is not None, (e, substitute(e, mapping))
    return result


def evaluate(e: Expr, env: Env) -> int:
    """The value of an expression by plain recursion, without any simplification."""
    if e.op == "const":
        return int(e.data)  # type: ignore[call-overload]
    if e.op in ("dim", "axis", "element"):
        return env[str(e.data)]
    xs = [evaluate(a, env) for a in e.args]
    if e.op == "add":
        return sum(xs)
    if e.op == "mul":
        out = 1
        for x in xs:
            out *= x
        return out
    if e.op == "select":
        return xs[1] if xs[0] else xs[2]
    table: dict[str, Callable[..., int]] = {
        "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": min, "max": max,
        "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    }  # fmt: skip
    return int(table[e.op](*xs))


@settings(max_examples=500, deadline=None)
@given(pairs, st.lists(environments(), min_size=4, max_size=8))
def test_simplification_keeps_the_value(pair: Pair, envs: list[Env]) -> None:
    for env in envs:
        assert evaluate(pair.expr, env) == pair.value(env), env


@settings(max_examples=250, deadline=None)
@given(pairs, environments())
def test_substitution_gives_the_value(pair: Pair, env: Env) -> None:
    assert numbers(pair.expr, env) == pair.value(env)


@settings(max_examples=250, deadline=None)
@given(pairs, environments(), st.sampled_from(["m", "i"]))
def test_partial_substitution_keeps_the_value(pair: Pair, env: Env, name: str) -> None:
    half = substitute(pair.expr, {leaf(name).expr: const(env[name])})
    assert evaluate(half, env) == pair.value(env)


@settings(max_examples=400, deadline=None)
@given(pairs, st.lists(environments(), min_size=4, max_size=8))
def test_bounds_hold(pair: Pair, envs: list[Env]) -> None:
    low, high = lower_bound(pair.expr), upper_bound(pair.expr)
    for env in envs:
        value = pair.value(env)
        assert low is None or low <= value
        assert high is None or value <= high
        assert value >= 0 or not is_nonnegative(pair.expr)


@settings(max_examples=250, deadline=None)
@given(pairs, divisors, environments())
def test_quotient_and_remainder_rejoin(pair: Pair, divisor: Pair, env: Env) -> None:
    x, d = pair.expr, divisor.expr
    whole = (x // d) * d + x % d
    assert evaluate(whole, env) == pair.value(env)


@given(st.integers(0, 9))
def test_a_dimension_of_zero_is_within_bounds(n: int) -> None:
    for e, value in ((dim("n") - 1, n - 1), (dim("n") * 2, 2 * n), (call("max", dim("n"), 3), max(n, 3))):
        assert (lower_bound(e) or 0) <= max(value, lower_bound(e) or 0)
        assert not (value < 0 and is_nonnegative(e))


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of as many elements."""

    def split(factors: list[int]) -> tuple[int, ...]:
        shape = [1]
        for f in factors:
            if draw(st.booleans()):
                shape.append(1)
            shape[-1] *= f
        cut = draw(st.integers(0, 2))
        return (*([1] * cut), *shape) if cut == 1 else tuple(shape)

    factors = draw(st.lists(st.sampled_from([2, 3, 5]), max_size=4))
    return split(factors), split(factors)


@settings(max_examples=150, deadline=None)
@given(reshapes(), st.booleans())
def test_remap_is_a_reshape(shapes: tuple[tuple[int, ...], tuple[int, ...]], symbolic: bool) -> None:
    """Every element of one shape is found at the same row-major place of the other."""
    a, b = shapes
    source = tuple(const(d) for d in a)
    target = tuple(const(d) for d in b)
    if symbolic:  # a leading dimension that both share stays a symbol
        source, target, a, b = (dim("n"), *source), (dim("n"), *target), (3, *a), (3, *b)
    axes = tuple(axis(f"x{k}", d) for k, d in enumerate(source))
    mapped = remap(axes, source, target)
    assert len(mapped) == len(target)
    total = 1
    for d in a:
        total *= d
    for place in range(total):
        index, rest = [], place
        for d in reversed(a):
            index.insert(0, rest % d)
            rest //= d
        env = {**{f"x{k}": i for k, i in enumerate(index)}, "n": 3}
        found = [evaluate(e, env) for e in mapped]
        flat = 0
        for i, d in zip(found, b, strict=True):
            assert 0 <= i < d
            flat = flat * d + i
        assert flat == place
    if symbolic:
        assert mapped[0] is axes[0]


def test_a_reshape_and_back_vanishes() -> None:
    shape = (dim("batch"), dim("seq"), const(12), const(32))
    merged = (dim("batch"), dim("seq"), const(384))
    index = tuple(axis(f"i{k}", d) for k, d in enumerate(shape))
    assert remap(remap(index, shape, merged), merged, shape) == index
    assert delinear(linear(index, shape), shape) == index


@given(st.integers(-20, 20), st.integers(1, 7))
def test_constants_divide_as_python_does(a: int, d: int) -> None:
    assert as_int(const(a) // const(d)) == a // d
    assert as_int(const(a) % const(d)) == a % d


def test_equal_expressions_are_one_object() -> None:
    m, n = dim("m"), dim("n")
    assert (m + n) * 2 is n * 2 + m + m
    assert (m * n) // n is m
    assert (m * n + n) % n is const(0)
    assert call("lt", axis("i", n), n).data is True
    assert call("lt", axis("i", n), n).dtype is BOOL


def test_a_number_beside_multiples_is_divided_too() -> None:
    m = dim("m")
    for n, d in ((-1, 2), (1, 2), (-7, 3), (5, 4), (-1, -2)):
        assert (m * d + n) // d is m + n // d


def test_a_sum_divides_its_multiples() -> None:
    b, h, w = dim("b"), dim("h"), dim("w")
    d = b + b * h + b * h * w + 1
    for q in (const(3), h, b * h + w * 3 - 1):
        assert (d * q) // d is q
        assert (d * q) % d is const(0)
    assert as_int((d * h + b) // d) is None


@given(pairs)
def test_text_is_made_of_every_expression(pair: Pair) -> None:
    assume(pair.expr.op != "const")
    assert to_text(pair.expr)


def test_bounds_of_shared_parts_take_no_longer_than_their_number() -> None:
    e = dim("n")
    for k in range(40):
        e = call("select", call("eq", dim(f"m{k}"), 0), call("div", e * 12, e + 3), call("max", e, dim(f"m{k}")))
    assert lower_bound(e) is None or lower_bound(e) == 0


def test_quotients_are_compared_by_what_they_divide() -> None:
    """A nearest Resize by 2 needs no clamp, of whatever size."""
    n = dim("n")
    i = axis("i", n * 2)
    half = call("floordiv", i, 2)
    assert call("min", half, n - 1) is half
    assert call("min", call("floordiv", i + 1, 2), n - 1).op == "min"


def test_a_counter_is_below_the_number_of_rounds() -> None:
    n, k = dim("n"), dim("k")
    i = counter("i", n)
    assert (lower_bound(i), upper_bound(i), upper_bound(counter("i", 5))) == (0, 2**31 - 2, 4)
    assert call("min", n, i + 1) - call("min", n, i) is const(1)
    assert call("lt", i, 0).data is False
    assert call("min", (i + 1) * k, n * k) is (i + 1) * k
    assert call("min", n - i - 1, n) is n - i - 1 and is_nonnegative(n - i - 1)
    assert call("min", i + 2, n).op == call("min", i + 1, k).op == "min"


def test_counters_of_one_name_and_different_rounds_are_two() -> None:
    n, k = dim("n"), dim("k")
    assert counter("i", n) is counter("i", n)
    assert len({counter("i", n), counter("i", k), counter("i", 3), element("i")}) == 4
    assert pickle.loads(pickle.dumps(counter("i", n) + 1)) is counter("i", n) + 1
    assert is_nonnegative(counter("i", 3)) and not is_nonnegative(element("i"))
