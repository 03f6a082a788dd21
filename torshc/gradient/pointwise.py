"""The gradients of pointwise operators: their bodies differentiated as expressions."""

from __future__ import annotations

from ..expr import Expr, NoDerivative, cast, const, substitute, tangent, walk
from ..ops.core.gradient import SLOPES, Backward, NoGradient, sum_to
from ..ops.core.pointwise import Pointwise, compute
from ..ops.core.scalar import Scalar
from ..ops.core.tensor import Tensor, apply_op
from ..ops.math.expression import Expression, argument


def pointwise_gradients(op: Pointwise, at: Backward) -> list[Tensor | None]:
    """A node for each operand, which reads the result's gradient and the operands that the derivative needs.

    Raises:
        NoGradient: a scalar function of the body has no derivative.
    """
    operands = [at.operand(k) for k in range(len(at.inputs))]
    xs = [_element(k, x, at.wants(k)) for k, x in enumerate(operands)]
    g = at.gradient
    change = argument(len(xs), compute(g.dtype))
    stated = _find_slopes(op, cast(change, xs[0].dtype), xs)
    found: list[Tensor | None] = []
    for k, x in enumerate(operands):
        if not at.wants(k):
            found.append(None)
            continue
        try:
            slope = stated[k] if stated is not None else tangent(op.expression(*xs), {xs[k]: cast(change, xs[k].dtype)})
        except NoDerivative as e:
            raise NoGradient(f"the function {e} has no derivative") from e
        found.append(None if slope is None else _compute_gradient(cast(slope, xs[k].dtype), xs, change, operands, g, x))
    return found


def _find_slopes(op: Pointwise, change: Expr, xs: list[Expr]) -> list[Expr] | None:
    rule = next((SLOPES[kind] for kind in type(op).__mro__ if kind in SLOPES), None)
    if rule is None:
        return None
    made = rule(*map(Scalar, (change, *xs)), **op.attributes())
    return [made.expr] if isinstance(made, Scalar) else [slope.expr for slope in made]


def _element(k: int, x: Tensor, wanted: bool) -> Expr:
    """What stands for an operand; the number itself for a constant, of which bodies have simpler forms (x ** 2)."""
    known = x.value.const
    if known is not None and known.size == 1 and not wanted and not x.dtype.is_narrow:
        return const(known.reshape(-1)[0].item(), compute(x.dtype))
    return argument(k, compute(x.dtype))


def _compute_gradient(
    slope: Expr, xs: list[Expr], change: Expr, operands: list[Tensor], g: Tensor, x: Tensor
) -> Tensor:
    """The gradient of x from its expression over arguments, which are numbered anew."""
    used = set(walk(slope))
    reads = [(change, g), *((e, v) for e, v in zip(xs, operands, strict=True) if e in used)]
    places = {e: argument(n, e.dtype) for n, (e, _) in enumerate(reads)}
    return sum_to(apply_op(Expression(substitute(slope, places), x.dtype), *(v for _, v in reads)), x.shape)
