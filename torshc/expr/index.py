"""Integer expressions in normal form: sums of products, floor division and remainder, and their bounds.

A polynomial is a dict from a monomial (a sorted tuple of atoms) to an integer coefficient. Products are expanded, so
that equal index expressions become one object. Bounds may answer "undecided" (None) and never guess.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from functools import lru_cache

from .bounds import may_wrap, range_of
from .dtype import BOOL, I64
from .expr import Expr, as_int, const, extent_of, make, walk, walk_new

Poly = dict[tuple[Expr, ...], int]
_kept = lru_cache(1 << 10)  # a model's layers compute the same sizes


def _order(e: Expr) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    data = e.data[0] if isinstance(e.data, tuple) else e.data
    return e.op, str(data), tuple((a.op, _spelt(a)) for a in e.args)


_LONGEST = 256  # nodes of an expression that is ordered by its text
_LONG = 1 << 12  # steps of an expression
_KNOWN: weakref.WeakKeyDictionary[Expr, tuple[int, str]] = weakref.WeakKeyDictionary()
_LONG_ONES: weakref.WeakKeyDictionary[Expr, bool] = weakref.WeakKeyDictionary()
_TEXTS: weakref.WeakKeyDictionary[Expr, str] = weakref.WeakKeyDictionary()  # of those that are not too long


def _spelt(e: Expr) -> str:
    """A text that orders expressions: its own, or a digest where shared parts would make that grow without bound."""
    if e in _TEXTS:
        return _TEXTS[e]
    for x in walk_new(e, _KNOWN):
        size = 1 + sum(_KNOWN[a][0] if a in _KNOWN else 1 for a in x.args)
        parts = (x.op, x.dtype.name, str(x.data), *(_KNOWN[a][1] if a in _KNOWN else repr(a) for a in x.args))
        _KNOWN[x] = size, hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    size, digest = _KNOWN[e]
    _TEXTS[e] = repr(e) if size <= _LONGEST else digest
    return _TEXTS[e]


def length(e: Expr) -> int:
    """How many nodes an expression has when it is written down, parts that it shares each time."""
    if e not in _KNOWN:
        _spelt(e)
    return _KNOWN[e][0]


def is_long(e: Expr) -> bool:
    """Whether an expression takes more steps to compute than any use of it is worth."""
    if length(e) <= _LONG:
        return False
    if e not in _LONG_ONES:
        _LONG_ONES[e] = sum(1 for _ in walk(e)) > _LONG
    return _LONG_ONES[e]


def poly_of(e: Expr) -> Poly:
    """The polynomial of an i64 expression over its atoms."""
    if e.op == "const":
        return {(): int(e.data)} if e.data else {}  # type: ignore[call-overload]
    if e.op == "add" and e.dtype is I64:
        out: Poly = {}
        for a in e.args:
            for k, c in poly_of(a).items():
                out[k] = out.get(k, 0) + c
        return out
    if e.op == "mul" and e.dtype is I64:
        coefficient, atoms = 1, []
        for a in e.args:
            if a.op == "const":
                coefficient *= int(a.data)  # type: ignore[call-overload]
            else:
                atoms.append(a)
        return {tuple(atoms): coefficient}
    return {(e,): 1}


def from_poly(p: Poly) -> Expr:
    """The expression of a polynomial: terms in a fixed order, the constant last."""
    _rejoin(p)
    terms = []
    rows = [(atoms, c) for atoms, c in p.items() if c]
    if len(rows) > 1:
        rows.sort(key=lambda row: (not row[0], [_order(a) for a in row[0]]))
    for atoms, c in rows:
        if not atoms:
            terms.append(const(c))
        elif c == 1 and len(atoms) == 1:
            terms.append(atoms[0])
        else:
            terms.append(make("mul", (*((const(c),) if c != 1 else ()), *atoms), I64))
    if not terms:
        return const(0)
    return terms[0] if len(terms) == 1 else make("add", tuple(terms), I64)


def _rejoin(p: Poly) -> None:
    """x // k * k + x % k is x, whatever else the sum holds."""
    for atoms in dict.fromkeys([terms for terms in p for x in terms if x.op == "mod"]):
        c = p.get(atoms, 0)
        m = next(x for x in atoms if x.op == "mod")
        rest = list(atoms)
        rest.remove(m)
        x, k = m.args
        k_poly = poly_of(k)
        if c == 0 or len(k_poly) != 1:
            continue
        ((k_atoms, k_c),) = k_poly.items()
        if not any(n == c * k_c and other is not atoms for other, n in p.items()):
            continue
        other = _monomial((*rest, floordiv(x, k), *k_atoms))
        if other is None or p.get(other, 0) != c * k_c:
            continue
        del p[atoms], p[other]
        for xa, xc in poly_of(x).items():
            key = _sort_atoms((*rest, *xa))
            p[key] = p.get(key, 0) + c * xc


def _monomial(atoms: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    return None if any(a.op in ("add", "mul", "const") for a in atoms) else _sort_atoms(atoms)


def _sort_atoms(atoms: tuple[Expr, ...]) -> tuple[Expr, ...]:
    return atoms if len(atoms) < 2 else tuple(sorted(atoms, key=_order))


_TERMS = 32  # of a product of sums, and factors of each; shape arithmetic has a handful


@_kept
def add(a: Expr, b: Expr) -> Expr:
    p = dict(poly_of(a))
    for k, c in poly_of(b).items():
        p[k] = p.get(k, 0) + c
    return from_poly(p)


def wrapped(e: Expr) -> Expr:
    """What an element of type i64 holds of a sum: it wraps, where the exact arithmetic of sizes does not."""
    if e.op not in ("add", "mul", "const"):
        return e
    p = poly_of(e)
    if all(-(2**63) <= c < 2**63 for c in p.values()):
        return e
    return from_poly({atoms: (c + 2**63) % 2**64 - 2**63 for atoms, c in p.items()})


@_kept
def subtract(a: Expr, b: Expr) -> Expr:
    p = dict(poly_of(a))
    for k, c in poly_of(b).items():
        p[k] = p.get(k, 0) - c
    return from_poly(p)


@_kept
def mul(a: Expr, b: Expr) -> Expr:
    p: Poly = {}
    left, right = poly_of(a), poly_of(b)
    if len(left) * len(right) > _TERMS or sum(max(map(len, x), default=0) for x in (left, right)) > _TERMS:
        return make("mul", tuple(sorted((a, b), key=_order)), I64)  # as it stands: expanded, each product doubles it
    for ka, ca in left.items():
        for kb, cb in right.items():
            key = _sort_atoms(ka + kb)
            p[key] = p.get(key, 0) + ca * cb
    return from_poly(p)


def _split(a: Expr, d: Expr) -> tuple[Expr, Expr]:
    """a = quotient * d + rest, term by term; the rest holds what d does not divide."""
    d_poly = poly_of(d)
    if len(d_poly) != 1:
        exact = _quotient(poly_of(a), d_poly)
        return (const(0), a) if exact is None else (exact, const(0))
    ((d_atoms, d_c),) = d_poly.items()
    quotient: Poly = {}
    rest: Poly = {}
    for atoms, c in poly_of(a).items():
        left = list(atoms)
        for x in d_atoms:
            if x not in left:
                break
            left.remove(x)
        else:
            # A coefficient that d only partly divides is split, as in (14 * i) // 4 = 3 * i + (2 * i) // 4.
            q, r = (c // d_c, c % d_c) if c >= 0 else (-(-c // d_c), -(-c % d_c))
            if q:
                quotient[tuple(left)] = q
            if r:
                rest[atoms] = r
            continue
        rest[atoms] = c
    return from_poly(quotient), from_poly(rest)


def _quotient(a: Poly, d: Poly) -> Expr | None:
    """a / d where a sum divides a sum and nothing is left, by long division from the greatest terms on."""

    def leading(p: Poly) -> tuple[Expr, ...]:
        return max(p, key=lambda atoms: (len(atoms), [_order(x) for x in atoms]))

    quotient: Poly = {}
    rest, lead = dict(a), leading(d)
    while rest and len(quotient) < _TERMS:
        left = list(leading(rest))
        q, r = divmod(rest[tuple(left)], d[lead])
        if r or any(left.count(x) < lead.count(x) for x in lead):
            return None
        for x in lead:
            left.remove(x)
        quotient[tuple(left)] = q
        for atoms, c in d.items():
            key = tuple(sorted((*atoms, *left), key=_order))
            rest[key] = rest.get(key, 0) - q * c
            if not rest[key]:
                del rest[key]
    return None if rest else from_poly(quotient)


def _fits(r: Expr, d: Expr) -> bool:
    """Whether 0 <= r < d is certain."""
    return is_nonnegative(r) and is_nonnegative(d - upper(r) - 1)


@_kept
def floordiv(a: Expr, d: Expr) -> Expr:
    """a // d rounded down; d must not be 0."""
    n, m = as_int(a), as_int(d)
    if m == 1 or n == 0:
        return a
    if n is not None and m:
        return const(n // m)
    if may_wrap(a) or may_wrap(d):
        return make("floordiv", (a, d), I64)
    quotient, rest = _split(a, d)
    if as_int(rest) == 0 or _fits(rest, d):
        return quotient
    if (n := as_int(rest)) is not None and m:
        return add(quotient, const(n // m))
    if rest.op == "floordiv" and _positive(rest.args[1]) and _positive(d) and _product_fits(rest.args[1], d):
        inner = floordiv(rest.args[0], rest.args[1] * d)
    else:
        inner = make("floordiv", (rest, d), I64)
    return add(quotient, inner)


def _product_fits(a: Expr, b: Expr) -> bool:
    n, m = as_int(a), as_int(b)
    return n is None or m is None or n * m < 2**63


def mod(a: Expr, d: Expr) -> Expr:
    """a - a // d * d."""
    n, m = as_int(a), as_int(d)
    if m == 1:
        return const(0)
    if n is not None and m:
        return const(n % m)
    if may_wrap(a) or may_wrap(d):
        return make("mod", (a, d), I64)
    _, rest = _split(a, d)
    if as_int(rest) == 0 or _fits(rest, d):
        return rest
    if rest.op == "mod" and m and (inner := as_int(rest.args[1])) and inner % m == 0:
        return mod(rest.args[0], d)
    n = as_int(rest)
    return const(n % m) if n is not None and m else make("mod", (rest, d), I64)


def _positive(e: Expr) -> bool:
    low = lower_bound(e)
    return low is not None and low > 0


def _apart(a: Expr, b: Expr) -> bool:
    """Whether their difference shows that a <= b."""
    return a is b or (not may_wrap(a) and not may_wrap(b) and is_nonnegative(b - a))


def _is_ordered(a: Expr, b: Expr) -> bool:
    """Whether a <= b is certain, by their difference or by those of what one of them is the least or the largest of."""
    return (
        _apart(a, b)
        or (a.op == "max" and all(_apart(x, b) for x in a.args))
        or (b.op == "min" and all(_apart(a, x) for x in b.args))
        or (a.op == "min" and any(_apart(x, b) for x in a.args))
        or (a.op == "floordiv" and (d := as_int(a.args[1]) or 0) > 0 and _apart(a.args[0], b * d + (d - 1)))
        or (b.op == "max" and any(_apart(a, x) for x in b.args))
    )


@_kept
def minimum(a: Expr, b: Expr) -> Expr:
    if _is_ordered(a, b):
        return a
    return b if _is_ordered(b, a) else make("min", tuple(sorted((a, b), key=_order)), I64)


@_kept
def maximum(a: Expr, b: Expr) -> Expr:
    if _is_ordered(b, a):
        return a
    return b if _is_ordered(a, b) else make("max", tuple(sorted((a, b), key=_order)), I64)


@_kept
def compare(op: str, a: Expr, b: Expr) -> Expr:
    """A comparison of i64 expressions, decided at compile time where the bounds allow it."""
    if op in ("gt", "ge"):
        return compare({"gt": "lt", "ge": "le"}[op], b, a)
    difference = b - a
    answer: bool | None = None
    if as_int(difference) != 0 and (may_wrap(a) or may_wrap(b)):
        return make(op, (a, b), BOOL)
    if op == "lt":
        answer = True if is_nonnegative(difference - 1) else False if is_nonnegative(-difference) else None
    elif op == "le":
        answer = True if is_nonnegative(difference) else False if is_nonnegative(-difference - 1) else None
    elif as_int(difference) == 0:
        answer = op == "eq"
    elif is_nonnegative(difference - 1) or is_nonnegative(-difference - 1) or _odd(difference):
        answer = op == "ne"
    return make(op, (a, b), BOOL) if answer is None else const(answer)


def _odd(e: Expr) -> bool:
    """Whether a number divides all terms of a sum but its constant, so that the sum is never 0, such as 2*n - 1."""
    p = poly_of(e)
    step = math.gcd(*(c for atoms, c in p.items() if atoms))
    return step > 1 and p.get((), 0) % step != 0


def upper(e: Expr) -> Expr:
    """An expression that is never below e: each axis and counter is set to the end that makes e largest."""
    p: Poly = {}
    total = const(0)
    for atoms, c in poly_of(e).items():
        extents = [extent_of(a) for a in atoms]
        placed = all(x is not None or a.op == "dim" for a, x in zip(atoms, extents, strict=True))
        if not placed or all(x is None for x in extents):
            p[atoms] = p.get(atoms, 0) + c
            continue
        if c > 0:
            term = const(c)
            for a, x in zip(atoms, extents, strict=True):
                term = mul(term, a if x is None else x - 1)
            total = total + term
    return total + from_poly(p)


_SIGNS: weakref.WeakKeyDictionary[Expr, bool] = weakref.WeakKeyDictionary()


def lower_bound(e: Expr) -> int | None:
    """A number that e is never below, or None when undecided."""
    low = range_of(e)[0]
    return None if math.isinf(low) or math.isnan(low) else int(low)


def upper_bound(e: Expr) -> int | None:
    """A number that e is never above, or None when undecided."""
    high = range_of(e)[1]
    return None if math.isinf(high) or math.isnan(high) else int(high)


def is_nonnegative(e: Expr) -> bool:
    """Whether e >= 0 is certain. False means undecided or negative."""
    if e not in _SIGNS:
        # -1 * axis + extent - 1 and similar: put each axis at its worst end, then look again.
        _SIGNS[e] = range_of(e)[0] >= 0 or ((worst := -upper(-e)) is not e and range_of(worst)[0] >= 0)
    return _SIGNS[e]
