"""Scalar functions of the table as LLVM's instructions, over one or many lanes.

Their meaning and their accuracy are those of the C prelude (``templates/c/prelude``): nothing traps or is undefined,
NaN and signed zeros follow NumPy, and the polynomials are the same. What has no polynomial here is the function of
the C library, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...expr import BOOL, DTYPES, DType
from .llvm_ir import Ops, Reg, bits, constant, register

_FLOAT_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
_INT_COMPARE = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}
_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "fmod": "frem"}
_INT_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor"}
_ROUNDING = {"floor": "floor", "ceil": "ceil", "round": "roundeven", "trunc": "trunc", "sqrt": "sqrt", "abs": "fabs"}
_LIBRARY = (
    "exp", "log", "log1p", "expm1", "tanh", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh",
    "acosh", "atanh", "pow",
)  # fmt: skip
LN2_HIGH, LN2_LOW, LOG2E = 0.693359375, -2.12194440054690581e-4, 1.44269504088896341


@dataclass(frozen=True)
class V:
    """A register with Python's operators, for formulas."""

    ops: Ops
    reg: Reg

    def _with(self, reg: Reg) -> V:
        return V(self.ops, reg)

    def _reg(self, other: V | float) -> Reg:
        return other.reg if isinstance(other, V) else constant(other, self.reg.type)

    def _two(self, op: str, other: V | float) -> V:
        return self._with(self.ops.binary(op, self.reg, self._reg(other)))

    def __add__(self, other: V | float) -> V:
        return self._two("fadd", other)

    def __sub__(self, other: V | float) -> V:
        return self._two("fsub", other)

    def __mul__(self, other: V | float) -> V:
        return self._two("fmul", other)

    def __truediv__(self, other: V | float) -> V:
        return self._two("fdiv", other)

    def __rsub__(self, other: float) -> V:
        return self._with(constant(other, self.reg.type)) - self

    def __neg__(self) -> V:
        return self._with(self.ops.made(f"fneg {self.reg.typed}", self.reg.type, self.reg.lanes))

    def bit(self, op: str, other: V | int) -> V:
        """An operation on integers."""
        return self._two(op, other)

    def test(self, how: str, other: V | float) -> V:
        """A comparison of floats."""
        return self._with(self.ops.compare(f"fcmp {how}", self.reg, self._reg(other)))

    def pick(self, a: V | float, b: V | float) -> V:
        """a where this condition holds, else b."""
        like = a if isinstance(a, V) else b
        assert isinstance(like, V)
        return self._with(self.ops.select(self.reg, like._reg(a), like._reg(b)))

    def bits(self) -> V:
        """The bits of a float as an integer."""
        return self._with(self.ops.convert("bitcast", self.reg, f"i{bits(self.reg.type)}"))

    def as_float(self) -> V:
        """The float of some bits."""
        return self._with(self.ops.convert("bitcast", self.reg, "float"))

    def call(self, name: str, *others: V | float) -> V:
        """A function of LLVM's."""
        return self._with(self.ops.intrinsic(name, [self.reg, *(self._reg(x) for x in others)]))

    def abs(self) -> V:
        return self.call("fabs")

    def with_sign(self, sign: V) -> V:
        return self.call("copysign", sign)

    def clamp(self, low: float, high: float) -> V:
        """Within limits; NaN stays."""
        x = self.test("olt", low).pick(low, self)
        return x.test("ogt", high).pick(high, x)


# ---- f32, without branches; the fits and their errors are in t_math_exp.h ------------------------------------------


def _pow2(n: V) -> V:
    """2^n for -126 <= n <= 127."""
    return n.bit("add", 127).bit("shl", 23).as_float()


def _nearest(x: V, inverse: float) -> tuple[V, V]:
    """x / step to the nearest integer, as a float and as an integer."""
    t = x * inverse + 12582912.0
    return t - 12582912.0, t.bits().bit("sub", 0x4B400000)


def _exp_reduce(x: V) -> tuple[V, V]:
    """x = n ln2 + r: r and n."""
    k, n = _nearest(x, LOG2E)
    return (x - k * LN2_HIGH) - k * LN2_LOW, n


def _exp_tail(r: V) -> V:
    """e^r - 1 - r for |r| <= ln2 / 2."""
    z, low, high = r * r, r * 1.666652113e-1 + 4.999999404e-1, r * 8.368703537e-3 + 4.166828841e-2
    return ((z * 1.381893875e-3 + high) * z + low) * z


def _exp_within(x: V) -> V:
    r, n = _exp_reduce(x)
    half = n.bit("ashr", 1)
    return ((r + _exp_tail(r)) + 1.0) * _pow2(half) * _pow2(n.bit("sub", half))


def _exp(x: V) -> V:
    return _exp_within(x.clamp(-104.5, 90.0))


def _expm1(x: V) -> V:
    r, n = _exp_reduce(x.clamp(-18.0, 89.0))
    s = _pow2(n.bit("sub", 1))
    half = s * (r + _exp_tail(r)) + (s - 0.5)
    return x.abs().test("olt", 2.0**-25).pick(x, half + half)


def _log_reduce(x: V) -> tuple[V, V]:
    """x = 2^k (1 + f): f and k."""
    tiny = x.test("olt", 2.0**-126)
    u = tiny.pick(x * 2.0**23, x).bits().bit("sub", 0x3F3504F3)
    zero = V(x.ops, constant(0, "i32"))
    k = u.bit("ashr", 23).bit("sub", tiny.pick(V(x.ops, constant(23, "i32")), zero))
    f = u.bit("and", 0x7FFFFF).bit("add", 0x3F3504F3).as_float() - 1.0
    return f, V(x.ops, x.ops.convert("sitofp", k.reg, "float"))


def _log_finish(f: V, k: V) -> V:
    z, low = f * f, k * LN2_LOW
    p01, p23 = f * -2.500082552e-1 + 3.333333135e-1, f * -1.662319005e-1 + 2.000125051e-1
    p45, p67 = f * -1.316146404e-1 + 1.420117617e-1, f * -7.636449486e-2 + 1.276620775e-1
    p = (p67 * z + p45) * (z * z) + (p23 * z + p01)
    return k * LN2_HIGH + (f + ((p * (f * z) + low) - z * 0.5))


def _log_special(x: V, r: V) -> V:
    """What a logarithm gives outside (0, inf) put in."""
    r = x.test("olt", math.inf).pick(r, x)
    r = x.test("oeq", 0.0).pick(-math.inf, r)
    return x.test("olt", 0.0).pick(math.nan, r)


def _log(x: V) -> V:
    f, k = _log_reduce(x)
    return _log_special(x, _log_finish(f, k))


def _log1p(x: V) -> V:
    u = x + 1.0
    lost = u.test("oge", 2.0).pick(1.0 - (u - x), x - (u - 1.0))
    f, k = _log_reduce(u)
    n = V(x.ops, x.ops.intrinsic("fptosi.sat", [k.clamp(-25.0, 100.0).reg], result="i32"))
    f = f + lost * _pow2(V(x.ops, constant(0, "i32")).bit("sub", n))
    return x.abs().test("olt", 2.0**-25).pick(x, _log_special(u, _log_finish(f, k)))


def _tanh(x: V) -> V:
    a = x.abs()
    t = a + a
    r, n = _exp_reduce(t.test("ogt", 20.0).pick(20.0, t))
    s = _pow2(n)
    e = s * (r + _exp_tail(r)) + (s - 1.0)
    return (e / (e + 2.0)).with_sign(x)


def _sigmoid(x: V) -> V:
    t = -x.abs()
    e = _exp_within(t.test("olt", -104.5).pick(-104.5, t))
    return x.test("olt", 0.0).pick(e, 1.0) / (e + 1.0)


def _polynomial(x: V, *factors: float) -> V:
    first, second, *rest = factors
    p = x * first + second
    for c in rest:
        p = p * x + c
    return p


def _erf(x: V) -> V:
    z, a = x * x, x.abs().clamp(0.0, 4.0)
    p = _polynomial(z, 7.919187919e-5, -8.030509343e-4, 5.190716591e-3, -2.685512230e-2, 1.128361821e-1,
                    -3.761262894e-1, 1.283791661e-1)  # fmt: skip
    b, q01, q23 = a * a, a * -1.127048492 + -3.515695571e-4, a * -1.030487865e-1 + -6.382120848e-1
    q45 = a * -2.940882463e-3 + 2.181060053e-2
    q = (b * 1.856994058e-4 + q45) * (b * b) + (q23 * b + q01)
    return a.test("olt", 1.0).pick(x + x * p, (1.0 - _exp(q)).with_sign(x))


_FORMULAS: dict[str, Callable[[V], V]] = {
    "exp": _exp, "expm1": _expm1, "log": _log, "log1p": _log1p, "tanh": _tanh, "sigmoid": _sigmoid, "erf": _erf,
}  # fmt: skip


# ---- all types -----------------------------------------------------------------------------------------------------


def supports(op: str) -> bool:
    """Whether a function can be written."""
    stored = next((op.removeprefix(f) for f in ("as_", "bits_", "from_bits_") if op.startswith(f)), None)
    return stored is None or (stored in DTYPES and has_memory(DTYPES[stored]))


def has_memory(dtype: DType) -> bool:
    """Whether elements of a type can be read and written: all but floats of 8 bits and fewer."""
    return not (dtype.is_narrow and dtype.is_float)


def apply(ops: Ops, op: str, dtype: DType, result: DType, xs: Sequence[Reg]) -> Reg:
    """A scalar function of registers.

    Args:
        dtype: type of the operands.
        result: type of the result.
    """
    if op == "cast":
        return cast(ops, xs[0], dtype, result)
    if op.startswith("as_"):
        return decode(ops, encode(ops, xs[0], DTYPES[op[3:]]), DTYPES[op[3:]])
    if op.startswith("bits_"):
        return encode(ops, xs[0], DTYPES[op[5:]])
    if op.startswith("from_bits_"):
        return decode(ops, xs[0], DTYPES[op[10:]])
    if op in ("raw32", "raw64", "float32", "float64"):
        return ops.convert("bitcast", xs[0], register(result))
    if len(xs) > 2 and op in ("add", "mul"):
        total = xs[0]
        for x in xs[1:]:
            total = apply(ops, op, dtype, result, [total, x])
        return total
    if dtype is BOOL:
        return _of_bools(ops, op, xs)
    return _of_floats(ops, op, xs) if dtype.is_float else _of_integers(ops, op, dtype.register, xs)


def join(ops: Ops, how: str, dtype: DType, a: Reg, b: Reg) -> Reg:
    """Two partial accumulations as one."""
    return apply(ops, how, dtype, dtype, [a, b])


def _of_bools(ops: Ops, op: str, xs: Sequence[Reg]) -> Reg:
    if op == "not":
        return ops.binary("xor", xs[0], 1)
    if op in ("eq", "ne", "lt", "gt", "le", "ge"):
        return ops.compare(f"icmp {op if op in ('eq', 'ne') else 'u' + op}", *xs)
    return ops.binary({"min": "and", "max": "or", "mul": "and", "add": "or"}.get(op, op.removeprefix("bit")), *xs)


def _of_floats(ops: Ops, op: str, xs: Sequence[Reg]) -> Reg:
    first = xs[0]
    if op in _FLOAT_BINARY:
        return ops.binary(_FLOAT_BINARY[op], *xs)
    if op in _FLOAT_COMPARE:
        return ops.compare(f"fcmp {_FLOAT_COMPARE[op]}", *xs)
    if op in ("max", "min"):
        keep = ops.compare(f"fcmp {'oge' if op == 'max' else 'ole'}", *xs)
        return ops.select(ops.binary("or", keep, ops.compare("fcmp uno", first, first)), *xs)
    if op in _ROUNDING:
        return ops.intrinsic(_ROUNDING[op], xs)
    x = V(ops, first)
    if op == "neg":
        return (-x).reg
    if op == "sign":
        signed = V(ops, ops.splat(constant(1.0, first.type), first.lanes)).with_sign(x)
        return x.test("uno", 0.0).pick(x, x.test("oeq", 0.0).pick(0.0, signed)).reg
    if op == "isnan":
        return x.test("uno", 0.0).reg
    if op == "isinf":
        return x.abs().test("oeq", math.inf).reg
    if op in ("mod", "floordiv"):
        return _python_division(op, x, V(ops, xs[1])).reg
    if first.type == "float" and op in _FORMULAS:
        return _FORMULAS[op](x).reg
    if op == "sigmoid":
        e = V(ops, ops.each_lane("exp", [(-x.abs()).reg]))
        return (x.test("olt", 0.0).pick(e, 1.0) / (e + 1.0)).reg
    assert op in _LIBRARY, op
    return ops.each_lane(op + ("f" if first.type == "float" else ""), xs)


def _python_division(op: str, a: V, b: V) -> V:
    """Python's mod, which has the sign of the divisor, and floordiv, which goes with it; as numpy.floor_divide."""
    r = a._two("frem", b)
    differ = r.test("olt", 0.0).bit("xor", b.test("olt", 0.0))
    wrapped = r.test("une", 0.0).bit("and", differ)
    if op == "mod":
        r = wrapped.pick(r + b, r)
        zero = V(a.ops, a.ops.splat(constant(0.0, a.reg.type), max(a.reg.lanes, b.reg.lanes)))
        return r.test("oeq", 0.0).pick(zero.with_sign(b), r)
    q = (a - r) / b
    q = wrapped.pick(q - 1.0, q)
    f = q.call("floor")
    f = (q - f).test("ogt", 0.5).pick(f + 1.0, f)
    whole = a / b
    f = q.test("une", 0.0).pick(f, q.with_sign(whole))
    return b.test("oeq", 0.0).pick(whole, f)


def _of_integers(ops: Ops, op: str, dtype: DType, xs: Sequence[Reg]) -> Reg:
    first, sign = xs[0], "s" if dtype.kind == "i" else "u"
    if op in _INT_BINARY:
        return ops.binary(_INT_BINARY[op], *xs)
    if op in ("eq", "ne"):
        return ops.compare(f"icmp {op}", *xs)
    if op in _INT_COMPARE:
        return ops.compare(f"icmp {sign}{op}", *xs)
    if op in ("max", "min"):
        return ops.select(ops.compare(f"icmp {sign}{'gt' if op == 'max' else 'lt'}", *xs), *xs)
    if op == "neg":
        return ops.binary("sub", constant(0, first.type), first)
    if op == "bitnot":
        return ops.binary("xor", first, -1)
    if op == "abs":
        negative = ops.compare("icmp slt", first, 0)
        return first if sign == "u" else ops.select(negative, ops.binary("sub", constant(0, first.type), first), first)
    if op == "sign":
        above = ops.convert("zext", ops.compare("icmp ne" if sign == "u" else "icmp sgt", first, 0), first.type)
        below = ops.convert("zext", ops.compare("icmp slt", first, 0), first.type)
        return above if sign == "u" else ops.binary("sub", above, below)
    if op in ("shl", "shr"):
        return _shift(ops, op, sign, *xs)
    if op == "pow":
        return _power(ops, sign, *xs)
    return _divide(ops, op, sign, *xs)


def _shift(ops: Ops, op: str, sign: str, a: Reg, by: Reg) -> Reg:
    """By the width or more, or by a negative amount, nothing is left but the sign."""
    width = bits(a.type)
    within = ops.compare("icmp ult", by, width)
    if op == "shr" and sign == "s":
        return ops.binary("ashr", a, ops.select(within, by, constant(width - 1, a.type)))
    moved = ops.binary("shl" if op == "shl" else "lshr", a, ops.select(within, by, constant(0, a.type)))
    return ops.select(within, moved, constant(0, a.type))


def _divide(ops: Ops, op: str, sign: str, a: Reg, b: Reg) -> Reg:
    """Division that never traps: by 0 it is 0, as are all remainders, and the least number by -1 is itself."""
    kind = a.type
    zero = constant(0, kind)
    known = b.number is not None and b.number not in (0, -1)
    none = ops.compare("icmp eq", b, 0)
    turned = ops.compare("icmp eq", b, -1)
    unsafe = ops.binary("or", none, turned) if sign == "s" else none
    divisor = b if known else ops.select(unsafe, constant(1, kind), b)
    r = ops.binary("srem" if sign == "s" else "urem", a, divisor)
    if op == "fmod" or (op == "mod" and sign == "u"):
        return r
    negative = ops.compare("icmp slt", ops.binary("xor", r, b), 0)
    wraps = ops.binary("and", ops.compare("icmp ne", r, 0), negative)
    if op == "mod":
        return ops.binary("add", r, ops.select(wraps, b, zero))
    q = ops.binary("sdiv" if sign == "s" else "udiv", a, divisor)
    if not known:
        if sign == "s":
            q = ops.select(turned, ops.binary("sub", zero, a), q)
        q = ops.select(none, zero, q)
    if op == "div" or sign == "u":
        return q
    return ops.binary("sub", q, ops.convert("zext", wraps, kind))


def _power(ops: Ops, sign: str, base: Reg, n: Reg) -> Reg:
    """By squares; of a negative exponent 1 and -1 have one, all others give 0."""
    base, n = ops.alike(base, n)
    kind, lanes = base.type, base.lanes
    one, zero = constant(1, kind), constant(0, kind)
    negative = ops.compare("icmp slt", n, 0)
    left, square, total = ops.slot(kind, lanes), ops.slot(kind, lanes), ops.slot(kind, lanes)
    start = n if sign == "u" else ops.select(negative, ops.binary("and", n, 1), n)
    ops.set(left, start)
    ops.set(square, base)
    ops.set(total, one)
    with ops.loop(0, bits(kind)):
        odd = ops.compare("icmp ne", ops.binary("and", ops.get(left), 1), 0)
        ops.set(total, ops.binary("mul", ops.get(total), ops.select(odd, ops.get(square), one)))
        ops.set(square, ops.binary("mul", ops.get(square), ops.get(square)))
        ops.set(left, ops.binary("lshr", ops.get(left), 1))
    result = ops.get(total)
    if sign == "u":
        return result
    unit = ops.binary("or", ops.compare("icmp eq", base, 1), ops.compare("icmp eq", base, -1))
    return ops.select(ops.binary("and", negative, ops.binary("xor", unit, 1)), zero, result)


# ---- conversions ---------------------------------------------------------------------------------------------------


def cast(ops: Ops, x: Reg, source: DType, dtype: DType) -> Reg:
    """Between types of registers: floats to integers truncate and saturate, NaN is 0; to bool is != 0."""
    kind = register(dtype)
    if dtype is BOOL:
        if source is BOOL:
            return x
        return ops.compare("fcmp une" if source.is_float else "icmp ne", x, 0)
    if source is BOOL:
        return ops.convert("uitofp" if dtype.is_float else "zext", x, kind)
    if source.is_float:
        if dtype.is_float:
            return ops.convert("fpext" if bits(kind) > bits(x.type) else "fptrunc", x, kind)
        return ops.intrinsic("fptosi.sat" if dtype.kind == "i" else "fptoui.sat", [x], result=kind)
    if dtype.is_float:
        return ops.convert("sitofp" if source.kind == "i" else "uitofp", x, kind)
    if bits(kind) < bits(x.type):
        return ops.convert("trunc", x, kind)
    return ops.convert("sext" if source.kind == "i" else "zext", x, kind)


def memory(dtype: DType) -> str:
    """Type of an element in memory."""
    return {"bool": "i8", "bf16": "i16", "f16": "half"}.get(dtype.name) or register(dtype)


def decode(ops: Ops, x: Reg, dtype: DType) -> Reg:
    """An element as it lies in memory as a register."""
    if dtype is BOOL:
        return ops.compare("icmp ne", x, 0)
    if dtype.is_narrow:  # of which only their own bits count
        rest = 8 - dtype.bits
        if dtype.kind == "u":
            return ops.binary("and", x, dtype.range[1])
        return ops.binary("ashr", ops.binary("shl", x, rest), rest)
    if dtype.name == "f16":
        return ops.convert("fpext", x, "float")
    if dtype.name == "bf16":
        return ops.convert("bitcast", ops.binary("shl", ops.convert("zext", x, "i32"), 16), "float")
    return x


def encode(ops: Ops, x: Reg, dtype: DType) -> Reg:
    """A register as it lies in memory."""
    if dtype is BOOL:
        return ops.convert("zext", x, "i8")
    if dtype.is_narrow:
        return ops.binary("and", x, 2**dtype.bits - 1)
    if dtype.name == "f16":
        return ops.convert("fptrunc", x, "half")
    if dtype.name == "bf16":
        u = ops.convert("bitcast", x, "i32")
        odd = ops.binary("and", ops.binary("lshr", u, 16), 1)
        rounded = ops.binary("add", ops.binary("add", u, 0x7FFF), odd)
        quiet = ops.binary("or", u, 0x400000)
        return ops.convert(
            "trunc", ops.binary("lshr", ops.select(ops.compare("fcmp uno", x, x), quiet, rounded), 16), "i16"
        )
    return x


__all__ = ["apply", "cast", "decode", "encode", "has_memory", "join", "memory", "supports"]
