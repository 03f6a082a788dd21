"""The table of scalar functions: a row each, with its result type and its NumPy form.

The NumPy form folds constants and is the reference of the generated functions; targets name them ``t_<name>_<dtype>``.
Rows of what languages spell themselves stand here; those of functions that are formulas stand with their formulas
(:mod:`.formulas`), which add them to the table.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np

from . import index
from .bounds import fits, range_of
from .dtype import BF16, BOOL, DTYPES, F8E8M0, F16, F32, F64, I64, NARROW, DType
from .expr import LOCAL, OPERATORS, SYMBOLS, Expr, Scalar, as_expr, as_int, const, locals_of, make, walk, walk_new

# What a small change `t` of one argument changes the result `y` of a function of `a` (and `b`) by: slope(t, y, a, b).
Slope = Callable[..., Expr]


@dataclass(frozen=True)
class Function:
    """A scalar function.

    Attributes:
        name: its name in expressions and, after ``t_``, in generated code.
        result: "same" as the arguments, or the name of a type.
        numpy: the same function on arrays.
        cost: rough price in multiply-adds, for fusion's cost rule.
        host: whether the host program computes it too, to the last bit as kernels do, so that sizes may depend on it.
        formula: what computes it in f32 (:mod:`.formulas`), where languages need not have it.
        double: what computes it in f64; without it the C library's function of this name does.
        reach: where arguments are too far from 0 for the formula, and the C library's function computes it.
        slopes: for a formula, what a small change of each argument changes the result by (:mod:`.derivatives`).
    """

    name: str
    result: str
    numpy: Callable[..., Any]
    cost: int = 1
    host: bool = False
    formula: Callable[..., Expr] | None = None
    double: Callable[..., Expr] | None = None
    reach: float = math.inf
    slopes: tuple[Slope | None, ...] = ()


def _fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, of f32 but for a rounding to f64 rounded once."""
    a, b, c = map(np.asarray, (a, b, c))
    return (a.astype(np.float64) * b + c).astype(a.dtype)


def _scale(x: Any, k: Any) -> Any:
    """x * 2^k for whole k, rounded once."""
    return np.ldexp(x, np.nan_to_num(k).astype(np.int32))


def _max(a: Any, b: Any) -> Any:
    """NaN if either is NaN. Of equals the first, as kernels have it: zeros of both signs are equal."""
    a, b = np.asarray(a), np.asarray(b)
    return np.where((a >= b) | (a != a), a, b) if a.dtype.kind == "f" else np.maximum(a, b)


def _min(a: Any, b: Any) -> Any:
    """As :func:`_max`."""
    a, b = np.asarray(a), np.asarray(b)
    return np.where((a <= b) | (a != a), a, b) if a.dtype.kind == "f" else np.minimum(a, b)


def _div(a: Any, b: Any) -> Any:
    """ONNX Div: integers truncate towards zero and wrap; an integer divided by 0 is 0."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind not in "iu":
        return a / b
    with np.errstate(over="ignore"):  # the least integer by -1 is itself
        floor, rest = np.divmod(a, np.where(b == 0, 1, b).astype(b.dtype))
    quotient = floor + ((rest != 0) & (floor < 0)).astype(a.dtype)
    return np.where(b == 0, 0, quotient).astype(a.dtype)


def numpy_sigmoid(x: Any) -> Any:
    """As NumPy would have it."""
    return 1 / (1 + np.exp(-x))


def _store_and_load(x: Any, dtype: DType) -> Any:
    """The value that storing as a type and loading again gives, in the type that is computed with."""
    x = np.asarray(x)
    return x.astype(dtype.numpy).astype(x.dtype)


def _exponent(x: Any, mode: str) -> Any:
    """The power of two that f8e8m0 holds for abs(x); "nearest" takes half of the way up, but for subnormals."""
    bits = np.asarray(x, np.float32).copy().view(np.uint32) & np.uint32(0x7FFFFFFF)
    code, rest = bits >> np.uint32(23), bits & np.uint32(0x7FFFFF)
    above = {"down": rest < 0, "up": rest > 0, "nearest": rest >= 0x400000 + (code == 0)}[mode]
    return (code + (above & (code < 255))).astype(np.uint8).view(F8E8M0.numpy).astype(np.float32)


def _storage_rows() -> Iterator[Function]:
    """as_<type> for each type of storage; of narrow ones the values as bytes of the same bits, and back."""
    for t in (F16, BF16, *NARROW):
        held = partial(_exponent, mode="down") if t is F8E8M0 else partial(_store_and_load, dtype=t)
        yield Function(f"as_{t.name}", "same", held, 2)
    yield from (Function(f"as_f8e8m0_{m}", "same", partial(_exponent, mode=m), 4) for m in ("up", "nearest"))
    for t in NARROW:
        yield Function(f"bits_{t.name}", "u8", partial(_bits, dtype=t), 2)
        yield Function(f"from_bits_{t.name}", t.compute, partial(_from_bits, dtype=t), 2)


def _bits(x: Any, dtype: DType) -> Any:
    return np.asarray(x).astype(dtype.numpy).view(np.uint8)


def _from_bits(x: Any, dtype: DType) -> Any:
    return np.asarray(x).copy().view(dtype.numpy).astype(dtype.register.numpy)


_ROWS = [
    Function("add", "same", np.add, host=True),
    Function("sub", "same", np.subtract, host=True),
    Function("mul", "same", np.multiply, host=True),
    Function("div", "same", _div, 4, host=True),
    Function("fma", "same", _fma),
    Function("min", "same", _min, host=True),
    Function("max", "same", _max, host=True),
    Function("fmod", "same", np.fmod, 8, host=True),
    Function("mod", "same", np.mod, 8, host=True),
    Function("floordiv", "same", np.floor_divide, 8, host=True),
    Function("neg", "same", np.negative, host=True),
    Function("abs", "same", np.abs, host=True),
    Function("sign", "same", np.sign, 2, host=True),
    Function("floor", "same", np.floor, host=True),
    Function("ceil", "same", np.ceil, host=True),
    Function("round", "same", np.rint, host=True),
    Function("trunc", "same", np.trunc, host=True),
    Function("sqrt", "same", np.sqrt, 6, host=True),
    Function("scale", "same", _scale),
    *_storage_rows(),
    Function("lt", "bool", np.less, host=True),
    Function("le", "bool", np.less_equal, host=True),
    Function("gt", "bool", np.greater, host=True),
    Function("ge", "bool", np.greater_equal, host=True),
    Function("eq", "bool", np.equal, host=True),
    Function("ne", "bool", np.not_equal, host=True),
    Function("isnan", "bool", np.isnan, host=True),
    Function("isinf", "bool", np.isinf, host=True),
    Function("and", "bool", np.logical_and, host=True),
    Function("or", "bool", np.logical_or, host=True),
    Function("xor", "bool", np.logical_xor, host=True),
    Function("not", "bool", np.logical_not, host=True),
    Function("bitand", "same", np.bitwise_and),
    Function("bitor", "same", np.bitwise_or),
    Function("bitxor", "same", np.bitwise_xor),
    Function("bitnot", "same", np.invert),
    Function("shl", "same", np.left_shift),
    Function("shr", "same", np.right_shift),
    Function("raw32", "u32", lambda x: np.asarray(x, np.float32).view(np.uint32)),  # a float as its bits
    Function("raw64", "u64", lambda x: np.asarray(x, np.float64).view(np.uint64)),
    Function("float32", "f32", lambda x: np.asarray(x, np.uint32).view(np.float32)),  # the float of some bits
    Function("float64", "f64", lambda x: np.asarray(x, np.uint64).view(np.float64)),
]
FUNCTIONS: dict[str, Function] = {f.name: f for f in _ROWS}
_COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")
_ROUNDING = ("floor", "ceil", "round", "trunc")
_RING = ("add", "sub", "mul", "neg")  # of which a wrapped result depends on wrapped operands alone
_WHOLE = (*_RING, "min", "max", "abs", "sign", "div", "floordiv", "mod", "fmod", *_COMPARE)


def call(op: str, *args: Scalar, dtype: DType | None = None) -> Expr:
    """Apply a scalar function, ``select`` or ``cast``; integer index arithmetic goes to its normal form.

    Python numbers take the dtype of the other arguments. A function is one of elements, so sums of i64 wrap as they do;
    Python's own operators are exact, for sizes and indices.

    Raises:
        TypeError: when the arguments' dtypes differ.
    """
    xs = _same_type(args[1:] if op == "select" else args)
    if op == "select":
        return select(as_expr(args[0]), *xs)
    if op == "cast":
        assert dtype is not None
        return cast(xs[0], dtype)
    if all(x.dtype is I64 for x in xs):
        special = _call_i64(op, xs)
        if special is not None:
            return special
    if op in ("and", "or", "not"):
        return _logic(op, xs)
    function = FUNCTIONS[op]
    result = DTYPES.get(function.result, xs[0].dtype)
    if all(x.op == "const" for x in xs):
        return _fold(function, xs, result)
    if op in _ROUNDING and (xs[0].op in _ROUNDING or (xs[0].op == "cast" and xs[0].args[0].dtype.is_int)):
        return xs[0]  # a whole number already
    if not any(locals_of(x) for x in xs) and (found := _of_sizes(op, xs)) is not None:
        return found
    return make(op, xs, result)


def _of_sizes(op: str, xs: tuple[Expr, ...]) -> Expr | None:
    """A function of sizes alone in terms of i64, whose normal form simplifies and compares; None where it has none.

    Narrower integers are i64 that wraps to them: i32(a) * i32(b) is i32(a * b).
    """
    dtype = xs[0].dtype
    if dtype is I64:
        return _fold_sign(op, xs)
    if op in _COMPARE and dtype.is_float:
        return _decide_comparison(op, xs)
    if op not in _WHOLE or not _is_narrow_int(dtype):
        return None
    whole = call(op, *((_drop_wrap if op in _RING else _wide)(x) for x in xs))
    return whole if whole.dtype is BOOL else cast(whole, dtype)


def _fold_sign(op: str, xs: tuple[Expr, ...]) -> Expr | None:
    if op == "abs":
        return index.maximum(xs[0], -xs[0])
    if op == "sign":
        return cast(call("gt", xs[0], 0), I64) - cast(call("lt", xs[0], 0), I64)
    if op == "fmod":
        return xs[0] - call("div", *xs) * xs[1]
    return None


def _decide_comparison(op: str, xs: tuple[Expr, ...]) -> Expr | None:
    """A comparison of floats whose bounds answer it."""
    (low, high), (least, most) = range_of(xs[0]), range_of(xs[1])
    if high < least:
        return const(op in ("lt", "le", "ne"))
    return const(op in ("gt", "ge", "ne")) if low > most else None


def _is_narrow_int(dtype: DType) -> bool:
    return dtype.is_int and dtype.size < 8


def _wide(x: Expr) -> Expr:
    return cast(x, I64)


def _drop_wrap(x: Expr) -> Expr:
    """An i64 that wraps to a narrower integer."""
    return x.args[0] if x.op == "cast" and x.args[0].dtype is I64 else cast(x, I64)


def _same_type(args: tuple[Scalar, ...]) -> tuple[Expr, ...]:
    known = {a.dtype for a in args if isinstance(a, Expr)}
    if len(known) > 1:
        raise TypeError(f"operands of different types: {', '.join(repr(a) for a in args)}")
    dtype = known.pop() if known else None
    exact = dtype is I64
    return tuple(a if isinstance(a, Expr) else const(a, None if exact and type(a) is int else dtype) for a in args)


def _call_i64(op: str, xs: tuple[Expr, ...]) -> Expr | None:
    if op in ("add", "mul"):  # normal forms have any number of terms and factors
        return index.wrapped(reduce(index.add if op == "add" else index.mul, xs))
    if op in ("floordiv", "mod"):
        return (_safe_floordiv if op == "floordiv" else _safe_mod)(*xs)
    if op == "sub":
        return index.wrapped(xs[0] - xs[1])
    if op == "neg":
        return index.wrapped(-xs[0])
    if op == "min":
        return index.minimum(*xs)
    if op == "max":
        return index.maximum(*xs)
    if op in _COMPARE:
        return index.compare(op, *xs)
    if op == "div" and xs[0].op == "const" and as_int(xs[1]):
        return _quotient(*xs)
    if op == "div" and index.is_nonnegative(xs[0]) and index.is_nonnegative(xs[1]):
        return _safe_floordiv(*xs)
    return None


def _quotient(a: Expr, b: Expr) -> Expr:
    """Numbers divided, rounded towards zero."""
    n, d = as_int(a) or 0, as_int(b) or 1
    return const(abs(n) // abs(d) * (1 if (n < 0) == (d < 0) else -1), I64)


def _safe_floordiv(a: Expr, b: Expr) -> Expr:
    return const(0) if b.op == "const" and b.data == 0 else index.floordiv(a, b)


def _safe_mod(a: Expr, b: Expr) -> Expr:
    return const(0) if b.op == "const" and b.data == 0 else index.mod(a, b)


def _logic(op: str, xs: tuple[Expr, ...]) -> Expr:
    if op == "not":
        return const(not xs[0].data) if xs[0].op == "const" else make("not", xs, BOOL)
    absorbing = op == "or"
    if any(x.op == "const" and x.data is absorbing for x in xs):
        return const(absorbing)
    kept = tuple(x for x in xs if x.op != "const")
    if len(kept) < 2:
        return kept[0] if kept else const(not absorbing)
    return kept[0] if kept[0] is kept[1] else make(op, kept, BOOL)


def _fold(function: Function, xs: tuple[Expr, ...], result: DType) -> Expr:
    numpy_type = F32.numpy if xs[0].dtype.compute == "f32" else xs[0].dtype.numpy
    with np.errstate(all="ignore"):
        if xs[0].dtype.is_int and function.name in ("floordiv", "mod", "fmod") and xs[1].data == 0:
            return const(0, result)
        value = function.numpy(*(np.asarray(x.data, dtype=numpy_type) for x in xs))
    return const(np.asarray(value).item(), result)


def select(condition: Expr, a: Expr, b: Expr) -> Expr:
    """`a` where the condition holds, else `b`; only the chosen side's loads are made, so it also guards indices."""
    if condition.op == "const":
        return a if condition.data else b
    while a.op == "select" and a.args[0] is condition:
        a = a.args[1]
    while b.op == "select" and b.args[0] is condition:
        b = b.args[2]
    if a is b:
        return a
    if _is_narrow_int(a.dtype) and not any(locals_of(x) for x in (condition, a, b)):
        return cast(select(condition, _wide(a), _wide(b)), a.dtype)
    return make("select", (condition, a, b), a.dtype)


def cast(x: Expr, dtype: DType) -> Expr:
    """Convert; floats to integers truncate, saturate out of range and take NaN to 0; anything to bool is != 0."""
    if x.dtype is dtype:
        return x
    if x.op == "const":
        value = x.data
        if dtype is BOOL:
            return const(bool(value))
        if dtype.is_float:
            with np.errstate(over="ignore"):  # what is too large is an infinity, as in a run
                return const(float(np.asarray(float(value)).astype(dtype.numpy)), dtype)  # type: ignore[arg-type]
        if isinstance(value, float):
            low, high = dtype.range
            value = 0 if math.isnan(value) else low if value < low else high if value > high else math.trunc(value)
        return const(int(value), dtype)  # type: ignore[call-overload]
    if x.op == "cast":
        (inner,) = x.args
        if _keeps(inner, x.dtype) or (_wraps(inner, x.dtype) and _wraps(x, dtype) and dtype.size <= x.dtype.size):
            return cast(inner, dtype)
    if dtype is BOOL and not locals_of(x):
        return call("ne", x, 0)
    return make("cast", (x,), dtype)


def _keeps(x: Expr, dtype: DType) -> bool:
    """Whether a conversion surely loses nothing."""
    if x.dtype is BOOL:
        return True
    if not x.dtype.is_int or locals_of(x):
        return False
    if dtype.is_int:
        return fits(x, dtype)
    low, high = range_of(x)
    most = {"f32": 2**24, "f64": 2**53}.get(dtype.name, 0)
    return -most <= low and high <= most


def _wraps(x: Expr, dtype: DType) -> bool:
    return x.dtype.is_int and dtype.is_int


def without_wraps(e: Expr) -> tuple[Expr, list[tuple[Expr, Expr]]]:
    """A size without the wraps of narrower integers in it, and pairs that are equal as long as none of these wraps.

    What a select guards stays, since it may wrap where it is not chosen.

    >>> from torshc.expr import I32, dim
    >>> without_wraps(cast(cast(dim("n") * 3, I32), I64) + 1)
    (3*n + 1, [(3*n, i64(i32(3*n)))])
    """
    pairs: list[tuple[Expr, Expr]] = []

    def leaf(x: Expr) -> Expr | None:
        if x.op == "select":
            return x
        narrow = x.args[0] if x.op == "cast" else None
        if narrow is None or narrow.op != "cast" or not _is_narrow_int(narrow.dtype) or narrow.args[0].dtype is not I64:
            return None
        plain = rebuild(narrow.args[0], leaf)
        if not fits(plain, narrow.dtype):
            pairs.append((plain, make("cast", (make("cast", (plain,), narrow.dtype),), I64)))
        return cast(plain, x.dtype)

    return rebuild(e, leaf), pairs


# Nodes of what the host writes at each use: parts that are i64 have names where they are long. 0: it cannot compute it.
_ON_HOST: weakref.WeakKeyDictionary[Expr, int] = weakref.WeakKeyDictionary()
_TYPES = (I64, F32, F64, BOOL)
_SHORT = 256


def on_host(e: Expr) -> bool:
    """Whether the host program can compute an expression of symbols."""
    for x in walk_new(e, _ON_HOST):
        known = x.op in ("const", "select", "cast", *SYMBOLS) or (x.op in FUNCTIONS and FUNCTIONS[x.op].host)
        known = known and not (x.dtype.is_float and x.op in ("floordiv", "mod"))
        typed = x.dtype in _TYPES or (_is_narrow_int(x.dtype) and x.op in ("const", "cast"))
        parts = [_ON_HOST[a] for a in x.args]
        size = 1 if x.dtype is I64 else 1 + sum(parts)
        _ON_HOST[x] = size if known and typed and size <= _SHORT and all(parts) else 0
    return _ON_HOST[e] > 0


def cost(expr: Expr) -> int:
    """Rough price of evaluating an expression once, in multiply-adds."""
    return sum(
        FUNCTIONS[e.op].cost if e.op in FUNCTIONS else 1 for e in walk(expr) if e.op not in ("const", "axis", *SYMBOLS)
    )


def rebuild(expr: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """Rewrite an expression bottom up.

    `leaf` is asked for every node first: an answer replaces the node (and ends the descent), None keeps it, its
    arguments then being rewritten and the node made again by the smart constructors.
    """
    memo: dict[Expr, Expr] = {}
    stack = [(expr, False)]
    while stack:
        e, ready = stack.pop()
        if ready:
            args = tuple(memo[a] for a in e.args)
            if args == e.args:
                memo[e] = e
            else:
                memo[e] = _again(e, args)
        elif e not in memo:
            if (new := leaf(e)) is not None:
                memo[e] = new
            elif not e.args or e.op == "axis":
                memo[e] = e
            else:
                stack.append((e, True))
                stack.extend((a, False) for a in e.args if a not in memo)
    return memo[expr]


def _again(e: Expr, args: tuple[Expr, ...]) -> Expr:
    """A node over other arguments; sums stay as exact as they were."""
    if e.op == "load":
        return make("load", args, e.dtype, e.data)
    if e.dtype is I64 and e.op in ("add", "mul"):
        return reduce(index.add if e.op == "add" else index.mul, args)
    return call(e.op, *args, dtype=e.dtype)


def substitute(expr: Expr, mapping: Mapping[Expr, Expr]) -> Expr:
    """Replace whole sub-expressions (mostly leaves) and simplify again."""
    if not mapping:
        return expr
    if any(old.op not in LOCAL for old in mapping):
        return rebuild(expr, mapping.get)
    return rebuild(expr, lambda e: mapping.get(e, e if locals_of(e).isdisjoint(mapping) else None))


def _operator(op: str, of_integers: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    def apply(a: Expr, b: Expr) -> Expr:
        return of_integers(a, b) if a.dtype is I64 and b.dtype is I64 else call(op, a, b)

    return apply


OPERATORS.update(
    add=_operator("add", index.add),
    sub=_operator("sub", index.subtract),
    mul=_operator("mul", index.mul),
    floordiv=_operator("floordiv", _safe_floordiv),
    mod=_operator("mod", _safe_mod),
    **{op: partial(call, op) for op in ("lt", "le", "gt", "ge", "and", "or")},
)


def eq(a: Expr, b: Scalar) -> Expr:
    """Whether two sizes are equal; Python's == compares expressions."""
    return call("eq", a, b)


def ne(a: Expr, b: Scalar) -> Expr:
    return call("ne", a, b)


def min_of(a: Expr, b: Scalar) -> Expr:
    """The smaller of two sizes."""
    return call("min", a, b)


def max_of(a: Expr, b: Scalar) -> Expr:
    """The larger of two sizes."""
    return call("max", a, b)


def ceil_div(a: Expr, by: Scalar) -> Expr:
    """A size divided by another that is not 0, rounded up."""
    return (a + (by - 1)) // by
