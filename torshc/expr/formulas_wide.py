"""Integers of 64 bits as formulas over the 32-bit words that hold them, for targets whose language has no wider ones.

A formula takes both kinds as u64, since signs are bits; what it says of words is ``low``, ``high`` and ``pair``.
Quotients and powers of u64 are asked for by name: they are loops, which formulas have not.
"""

from __future__ import annotations

from .dtype import F32, I32, U32, U64
from .expr import Expr, Scalar, acc, const
from .functions import call, cast, eq, ne
from .terms import absolute, bit_and, bit_or, over, where

X, Y, F = acc("x", U64), acc("y", U64), acc("x", F32)  # arguments of formulas
ZERO, ONE = const(0, U64), const(1, U64)
MOST = 2**64 - 1


def low(x: Expr) -> Expr:
    """The low word."""
    return cast(x, U32)


def high(x: Expr) -> Expr:
    """The high word."""
    return cast(call("shr", x, 32), U32)


def pair(high: Scalar, low: Scalar) -> Expr:
    """The number of two words."""
    words = [cast(w if isinstance(w, Expr) else const(w, U32), U64) for w in (high, low)]
    return bit_or(call("shl", words[0], 32), words[1])


def high_of(e: Expr) -> Expr | None:
    """What an expression is the high word of, as u32 or i32, if it is one."""
    shifted = e.args[0] if e.op == "cast" and e.dtype in (U32, I32) else e
    return shifted.args[0] if shifted.op == "shr" and shifted is not e and shifted.args[1].data == 32 else None


def words_of(e: Expr) -> tuple[Expr, Expr] | None:
    """The low and the high word of a pair, if an expression is one."""
    if e.op != "bitor" or e.dtype is not U64:
        return None
    above, below = e.args
    moved = above.op == "shl" and above.args[1].data == 32
    words = _word_in(below), _word_in(above.args[0]) if moved else _word_in(above, 32)
    return (words[0], words[1]) if words[0] is not None and words[1] is not None else None


def _word_in(e: Expr, place: int = 0) -> Expr | None:
    if e.op == "const":
        return const(int(e.data) >> place, U32)  # type: ignore[call-overload]
    return e.args[0] if e.op == "cast" and e.args[0].dtype is U32 and not place else None


def _word(test: Expr) -> Expr:
    """1 where something is true, else 0."""
    return where(test, const(1, U32), const(0, U32))


def _is_negative(x: Expr) -> Expr:
    return high(x) >= 1 << 31


def _negate_where(x: Expr, negative: Expr) -> Expr:
    return where(negative, call("neg", x), x)


def _abs(x: Expr) -> Expr:
    return _negate_where(x, _is_negative(x))


def _less(x: Expr, y: Expr, signed: bool) -> Expr:
    a, b = (cast(high(v), I32) if signed else high(v) for v in (x, y))
    return (a < b) | eq(high(x), high(y)) & (low(x) < low(y))


def _sum(x: Expr, y: Expr) -> Expr:
    total = low(x) + low(y)
    return pair(high(x) + high(y) + _word(total < low(x)), total)


def _product(x: Expr, y: Expr) -> Expr:
    """The low words' product of 64 bits by their halves; of the others only the low words count."""
    a, b = low(x), low(y)
    a0, a1, b0, b1 = bit_and(a, 0xFFFF), call("shr", a, 16), bit_and(b, 0xFFFF), call("shr", b, 16)
    middle = a1 * b0 + call("shr", a0 * b0, 16)
    rest = a0 * b1 + bit_and(middle, 0xFFFF)
    above = a1 * b1 + call("shr", middle, 16) + call("shr", rest, 16)
    return pair(above + a * high(y) + high(x) * b, a * b)


def _shift(x: Expr, y: Expr, how: str, signed: bool = False) -> Expr:
    """By 64 and more, or less than 0, only the sign is left."""
    top = cast(high(x), I32) if signed else high(x)
    by = bit_and(low(y), 31)
    rest = call("bitxor", by, 31)  # one less than what the other word moves by
    if how == "shl":
        near, other, far = call("shl", low(x), by), call("shr", call("shr", low(x), 1), rest), const(0, U32)
        within, beyond = pair(bit_or(call("shl", high(x), by), other), near), pair(near, far)
    else:
        near, other = cast(call("shr", top, cast(by, top.dtype)), U32), call("shl", call("shl", high(x), 1), rest)
        far = cast(call("shr", top, 31), U32) if signed else const(0, U32)
        within, beyond = pair(near, bit_or(call("shr", low(x), by), other)), pair(far, near)
    outside = ne(high(y), 0) | (low(y) > 63)
    return where(outside, pair(far, far), where(low(y) < 32, within, beyond))


def _of_signed(x: Expr, y: Expr) -> dict[str, Expr]:
    """Quotients towards zero and down, and their remainders; by 0 all are 0."""
    a, b = _abs(x), _abs(y)
    q, differ = over(a, b), _is_negative(call("bitxor", x, y))
    quotient = _negate_where(q, differ)
    rest = where(eq(y, 0), ZERO, a - q * b)
    wraps = ne(rest, 0) & differ
    remainder = _negate_where(rest, _is_negative(x))
    return {
        "div": quotient,
        "fmod": remainder,
        "mod": where(wraps, remainder + y, remainder),
        "floordiv": where(wraps, quotient - ONE, quotient),
    }


def _power(x: Expr, y: Expr, whole: Expr, negative: Expr) -> Expr:
    """x^y from what it is for y >= 0; of negative powers only those of 1 and -1 are whole numbers."""
    none, one, minus = (const(n, x.dtype) for n in (0, 1, MOST if x.dtype is U64 else -1))
    turned = where(eq(bit_and(y, one), none), one, minus)
    inverse = where(eq(x, minus), turned, none)
    return where(negative, where(eq(x, one), one, inverse), whole)


def _as_float(x: Expr) -> Expr:
    """Rounds once, where two exact numbers of 24 bits are added.

    They are the highest 48 bits, the last of which is set where a lower one was.
    """
    large = high(x) >= 1 << 16
    some = cast(_word(ne(bit_and(low(x), 0xFFFF), 0)), U64)
    kept = where(large, bit_or(call("shr", x, 16), some), x)
    upper, lower = low(call("shr", kept, 24)), bit_and(low(kept), 0xFFFFFF)
    return (cast(upper, F32) * 2.0**24 + cast(lower, F32)) * where(large, const(2.0**16, F32), const(1.0, F32))


def _truncate(x: Expr) -> Expr:
    """Out of range it saturates, NaN is 0."""
    top = cast(x * 2.0**-32, U32)
    words = pair(top, cast(x - cast(top, F32) * 2.0**32, U32))
    return where(x >= 2.0**64, const(MOST, U64), where(x >= 1.0, words, ZERO))


def _truncated_signed(x: Expr) -> Expr:
    found = _negate_where(cast(absolute(x), U64), x < 0.0)
    found = where(x <= -(2.0**63), const(1 << 63, U64), found)
    return where(x >= 2.0**63, const(MOST >> 1, U64), found)


def wide_formulas() -> dict[str, Expr]:
    """Formulas by the names of functions; ``_64`` is at the end of those that do not ask for the sign."""
    words, narrow = (acc("x", U32), acc("y", U32)), (acc("x", I32), acc("y", I32))
    power = cast(call("pow", *(cast(v, U32) for v in narrow)), I32)
    found = {
        "add_64": _sum(X, Y),
        "neg_64": call("bitnot", X) + ONE,
        "sub_64": X + call("neg", Y),
        "mul_64": _product(X, Y),
        "shl_64": _shift(X, Y, "shl"),
        "fmod_u64": where(eq(Y, 0), ZERO, X - over(X, Y) * Y),
        "abs_i64": _abs(X),
        "sign_u64": where(eq(X, 0), ZERO, ONE),
        "sign_i64": where(_is_negative(X), const(MOST, U64), call("sign", X)),
        "pow_u32": low(call("pow", *(pair(0, v) for v in words))),
        "pow_i32": _power(*narrow, power, narrow[1] < 0),
        "pow_i64": _power(X, Y, call("pow", X, Y), _is_negative(Y)),
        "cast_u64_f32": _as_float(X),
        "cast_i64_f32": _negate_where(cast(_abs(X), F32), _is_negative(X)),
        "cast_f32_u64": _truncate(F),
        "cast_f32_i64": _truncated_signed(F),
    }
    for name, signed in (("u64", False), ("i64", True)):
        less = _less(X, Y, signed)
        found |= {f"lt_{name}": less, f"min_{name}": where(less, X, Y), f"max_{name}": where(less, Y, X)}
        found[f"shr_{name}"] = _shift(X, Y, "shr", signed)
    return found | {f"{name}_i64": e for name, e in _of_signed(X, Y).items()}


__all__ = ["high_of", "wide_formulas", "words_of"]
