"""What an operator is: its attributes, its types, and one way to compute it.

An operator is a frozen dataclass whose fields are its attributes; :mod:`.composite` makes one of a function. It says
what it computes in one of these ways:

* ``nest``: a loop nest over its output with a scalar body. Every target renders any nest, so such an operator works
  everywhere, fuses, folds, and serves shape arithmetic, all from this one definition.
* ``decompose``: as a graph of simpler operators; mostly by a formula over tensors (:mod:`.composite`).
* ``family``: the name of a kernel kind with a template of its own ("gemm", "conv", "attention", "recurrent",
  "scan", "scatter", "topk", "trees").
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from ...base.budget import afford, budget
from ...base.errors import ModelError
from ...expr import Expr, as_int, const, eq, is_nonnegative, is_runtime, select, walk
from ...graph import Builder, Node, Shape, TensorType, Value
from .scalar import Scalar
from .source import SourceNode, Unsupported

Index = tuple[Expr, ...]
Read = Callable[[int, Index], Scalar]
Inputs = Sequence[Value | None]
Constraints = list[tuple[Expr, Expr]]


@dataclass(frozen=True)
class LoopNest:
    """A loop nest over one output.

    Attributes:
        term: the element at (output index, reduction index); ``read(k, index)`` reads input k.
        reduce: extents of the reduction axes, outermost first; empty where nothing is accumulated.
        combine: scalar function that accumulates ("add", "mul", "max", "min"); its identity starts the sum.
        last: the result from (accumulated value, output index, read), or None for the accumulated value.
    """

    term: Callable[[Index, Index, Read], Scalar]
    reduce: tuple[Expr, ...] = ()
    combine: str = ""
    last: Callable[[Scalar, Index, Read], Scalar] | None = None

    def body(self, at: Index, inner: Index, read: Callable[[int, Index], Expr]) -> Expr:
        """The term as an expression."""
        return self.term(at, inner, lambda k, index: Scalar(read(k, index))).expr

    def finish(self, total: Expr, at: Index, read: Callable[[int, Index], Expr]) -> Expr:
        """The result as an expression."""
        if self.last is None:
            return total
        return self.last(Scalar(total), at, lambda k, index: Scalar(read(k, index))).expr


# Families that loops or the host compute; all others have kernels of their own.
LIGHT = frozenset({"", "boundary", "composite", "host", "nest", "pointwise", "reduce", "view"})


@dataclass(frozen=True)
class Op:
    """Base of all operators.

    Class attributes:
        name: ONNX's name of the operator.
        domain: ONNX's domain; "torshc" for our own.
        family: "pointwise" (one element in, one out), "view" (moves elements, computes nothing), "reduce",
            "nest" (another nest, such as pooling), "composite" (decomposes), "host" (:mod:`.host`), or the name of a
            heavy kernel kind.
        epilogue: whether the kernels of a heavy operator compute in their stores what follows it.
        objects: whether operands may be strings, sequences or optionals.
        experimental: attributes, with their defaults, of the form that it had before ONNX had a schema of it.
    """

    name: ClassVar[str] = ""
    domain: ClassVar[str] = ""
    family: ClassVar[str] = ""
    epilogue: ClassVar[bool] = True
    objects: ClassVar[bool] = False

    @property
    def heavy(self) -> bool:
        """Whether it has a kernel of its own, which a group has at most one of."""
        return self.family not in LIGHT

    experimental: ClassVar[Mapping[str, Any]] = {}

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        """Types of the outputs. Dimensions that must be equal at run time are appended to `constraints`.

        Raises:
            ModelError: when the operands do not fit.
        """
        raise NotImplementedError(self.name)

    def nest(self, node: Node, output: int) -> LoopNest | None:
        """The loop nest of an output, or None when the operator is not a nest."""
        return None

    def push(self, node: Node, index: Index) -> Index | None:
        """For a view: where the element at `index` of input 0 lands in the output, or None if not in one place."""
        return None

    def symbolic(self, node: Node, output: int) -> tuple[Expr, ...] | None:
        """The elements of a small output where the nest cannot compute them (Shape)."""
        return None

    def decompose(self, b: Builder, inputs: Inputs) -> list[Value] | None:
        """The node's results computed by simpler operators, or None where there are none."""
        return None

    def flops(self, node: Node) -> Expr:
        """Arithmetic operations of a heavy operator; nests are counted from their bodies."""
        return const(0)

    @classmethod
    def takes(cls, attributes: Mapping[str, Any], outputs: Sequence[str], operands: Sequence[Value | None]) -> bool:
        """Whether it reads a node that ONNX defines by a function as well; that is taken otherwise."""
        return True

    @classmethod
    def read(cls, source: SourceNode) -> list[Value]:
        """Make the operator from a model's node; the place where older opsets are translated.

        The default takes every attribute for the field of the same name and all inputs as they are.
        """
        return source.emit(cls(**source.fields(cls)), source.inputs)

    def attributes(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __str__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.attributes().items())
        return f"{self.name}[{inside}]" if inside else self.name


REGISTRY: dict[tuple[str, str], type[Op]] = {}
T = TypeVar("T", bound=type[Op])


def operator(name: str = "", domain: str = "") -> Callable[[T], T]:
    """Class decorator: register an operator under its ONNX name (the class's name by default)."""

    def register(cls: T) -> T:
        cls.name = name or cls.__name__
        cls.domain = domain
        if (domain, cls.name) in REGISTRY:
            raise ValueError(f"operator {cls.name} of domain {domain!r} is registered already")
        REGISTRY[(domain, cls.name)] = cls
        return cls

    return register


def need(value: Value | None, what: str) -> Value:
    """An operand that must be there."""
    if value is None:
        raise ModelError(f"{what} is missing")
    return value


def broadcast(shapes: Sequence[Shape], constraints: Constraints) -> Shape:
    """NumPy's broadcasting of shapes; two different symbols are taken to be equal, which a run then checks.

    Exporters give different symbols to sizes that are always equal. If either could be 1, every size behind it would be
    a condition, which nothing downstream can prove equal to another: a transformer ran 9 % slower. So a 1 that is
    broadcast is for the loose form of a model (:class:`Meeting`). Dimensions that are computed during a run may also be
    1; those that cannot be more, such as that of ``x[-1:]``, are.

    Raises:
            ModelError: when two static dimensions differ and neither is 1.
    """
    rank = max((len(s) for s in shapes), default=0)
    out: list[Expr] = []
    for position in range(rank):
        dims = [s[position - rank + len(s)] for s in shapes if position - rank + len(s) >= 0]
        out.append(_broadcast_dim(dims, shapes, constraints))
    return tuple(out)


def _broadcast_dim(dims: list[Expr], shapes: Sequence[Shape], constraints: Constraints) -> Expr:
    wide = [d for d in dict.fromkeys(dims) if not (d.op == "const" and d.data == 1)]
    fixed = [d for d in wide if d.op == "const"]
    if len(fixed) > 1:
        raise ModelError(f"shapes {' and '.join(map(str, shapes))} do not broadcast")
    if len(wide) < 2:
        return wide[0] if wide else const(1)
    open_ = [d for d in wide if not at_most_one(d)]
    chosen = next(iter(fixed or [d for d in open_ if not is_runtime(d)] or open_ or wide))
    for d in wide:
        if d is not chosen and at_most_one(d):
            constraints.append((chosen, select(eq(d, 1), chosen, d)))
        elif d is not chosen:
            wider = _wider(chosen, d)
            one, other = (d, chosen) if wider is d else (chosen, d)
            constraints.append(Meeting((wider, widened(other, one))))
            chosen = wider
    return chosen


def _wider(a: Expr, b: Expr) -> Expr:
    """The dimension that two broadcast to: the second where the first may be 1 and is; a known one is the first."""
    if not is_runtime(a) or b in _dims_joined_in(a):
        return a
    return b if a in _dims_joined_in(b) else select(eq(a, 1), b, a)


def _dims_joined_in(d: Expr) -> list[Expr]:
    """A dimension, and those that are all 1 where it is 1, as it is what they become together."""
    if d.op != "select" or d.args[0] is not eq(d.args[2], 1):
        return [d]
    return [d, *_dims_joined_in(d.args[1]), *_dims_joined_in(d.args[2])]


def broadcast_into(shape: Shape, to: Shape, constraints: Constraints, what: str) -> Shape:
    """Broadcasting one way: what `to` is once a tensor of `shape` has been broadcast to it, which must not change it.

    Raises:
        ModelError: when that has more dimensions, or two are known and do not fit.
    """
    if len(shape) > len(to):
        raise ModelError(f"{what}: {list(shape)} does not broadcast to {list(to)}")
    out = list(to)
    for k, d in enumerate(shape, len(to) - len(shape)):
        if as_int(d) == 1 or d is to[k]:
            continue
        if as_int(d) is not None:
            out[k] = same_dim(d, to[k], constraints, what)
        else:
            constraints.append(Meeting((to[k], widened(d, to[k]))))
    return tuple(out)


def widened(d: Expr, to: Expr) -> Expr:
    """The dimension that results where one is broadcast to another; one that a run computes may be 1."""
    return select(eq(d, 1), to, d) if is_runtime(d) else d


class Meeting(tuple[Expr, Expr]):
    """Two sizes that a run needs equal because they are broadcast, where ONNX lets one that is 1 differ.

    The loose form of a model is imported with the symbols of its meetings as run-time dimensions, which may be 1.
    """

    __slots__ = ()

    @property
    def symbols(self) -> list[str]:
        """The dimensions of inputs in those of its sizes that may turn out to be 1, and the other not."""
        if _is_cut(*self) or _is_cut(*reversed(self)):
            return []
        parts = walk(*(e for e in self if not is_nonnegative(e - 2)))
        return [str(e.data) for e in parts if e.op == "dim" and not is_runtime(e)]


def _is_cut(cut: Expr, size: Expr) -> bool:
    """Whether one size is another up to a limit that is no 1, as that of ``x[:, :size]``: both are 1, or none."""
    return cut.op == "min" and size in cut.args and all(a is size or is_nonnegative(a - 2) for a in cut.args)


def at_most_one(d: Expr) -> bool:
    """Whether a dimension is 0 or 1, whatever the sizes are."""
    size = as_int(d)
    return size <= 1 if size is not None else d.op != "dim" and is_nonnegative(1 - d)


def same_dim(a: Expr, b: Expr, constraints: Constraints, what: str) -> Expr:
    """One dimension that both must be.

    Raises:
        ModelError: when both are known and differ.
    """
    if a is b:
        return a
    if a.op == "const" and b.op == "const":
        raise ModelError(f"{what}: {a!r} and {b!r} must be equal")
    constraints.append((a, b))
    return a if a.op == "const" else b if b.op == "const" else a


def broadcast_index(index: Index, shape: Shape) -> Index:
    """The index of an operand of `shape` for an output index of at least its rank."""
    tail = index[len(index) - len(shape) :]

    def along(i: Expr, d: Expr) -> Expr:
        if at_most_one(d):
            return const(0)
        if as_int(d) is not None:
            return i
        if (i.op == "axis" and i.args[0] is d) or not is_runtime(d):
            return i
        return i * select(eq(d, 1), const(0), const(1))

    return tuple(along(i, d) for i, d in zip(tail, shape, strict=True))


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    """A possibly negative axis as 0..rank-1.

    Raises:
        ModelError: when it is out of range, as every axis of a scalar is.
    """
    if not -rank <= axis < rank:
        raise ModelError(f"{what} {axis} is out of range for rank {rank}")
    return axis % rank


LONGEST = 1 << 16  # updates that an element looks through


def affordable(what: str, length: Expr, elements: Expr) -> None:
    """Refuse a search through `length` updates for each of some elements when it would take too long.

    A symbolic length is not limited: a slow answer is better than none for the few that are long.

    Raises:
        Unsupported: past `LONGEST`.
        OverBudget: past the budget for searches.
    """
    each, count = as_int(length), as_int(elements)
    if each is None:
        return
    said = f"{what} that searches {each} updates for each of {elements!r} elements"
    if each > LONGEST:
        raise Unsupported(said)
    afford("search", (count or 0) * each, said)


def searchable(length: Expr, elements: Expr) -> bool:
    """Whether such a search is within its limits."""
    each, count = as_int(length), as_int(elements)
    return each is None or (each <= LONGEST and (count or 0) * each <= budget().search)


def filled(values: Inputs, what: str) -> None:
    """Refuse operands without elements, outside of which a read at a clamped index would be.

    Raises:
        Unsupported: when one is known to be empty.
    """
    for v in values:
        if v is not None and as_int(v.type.size) == 0:
            raise Unsupported(f"{what} of {v.type!r}, which has no elements")
