"""Slopes of activations that cost nothing to compute of what an activation was made of."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..graph import Node, Value

_NEAR = 3  # nodes between what meets in a kernel

Users = Mapping[Value, Sequence[Node]]


def find_slopes(v: Value, source: Value, late: Sequence[Node], users: Users) -> list[Node]:
    """The readers of an activation whose results meet, element by element, what it was made of.

    The gradient of a normalisation reads the image that was normalised. A slope in its kernels reads that too, for
    which the kernel of the product before the slope need not read the activation.

    Args:
        source: the one image that the activation follows from.
        late: who reads the activation in the backward pass.
    """
    return [n for n in late if _is_alike(n, v) and _meets_source(n, source, users)]


def is_from_product(v: Value) -> bool:
    """Whether the kernel of a product makes a value, maybe with elementwise work on its result."""
    node = v.producer
    if node is None or node.op.heavy:
        return node is not None
    return node.op.family == "pointwise" and any(is_from_product(x) for x in node.operands if x.shape == v.shape)


def source_of(v: Value, chain: Collection[Node]) -> Value | None:
    """The one image of an activation's shape that the chain of nodes which makes it reads; None where it reads more."""
    made = {n.output for n in chain}
    whole = {x for n in chain for x in n.operands if x not in made and x.shape == v.shape}
    return whole.pop() if len(whole) == 1 else None


def _is_alike(node: Node, v: Value) -> bool:
    return node.op.family == "pointwise" and node.output.shape == v.shape


def _meets_source(slope: Node, source: Value, users: Users) -> bool:
    """Whether all that read a slope's result may be in one kernel with it, and some work there reads the source.

    A result that is narrowed is stored so, and read from memory.
    """
    by, t = users.get(slope.output, ()), slope.output.dtype
    fits = all(n.op.family in ("pointwise", "reduce") and n.output.dtype is t for n in by)
    return fits and any(_reads(n, slope, source, users, _NEAR) for n in by)


def _reads(node: Node, slope: Node, source: Value, users: Users, steps: int) -> bool:
    """Whether a node, or one of those that go on with its result, also works on what follows from the source."""
    if steps == 0 or not _is_alike(node, source):
        return False
    if any(_follows(v, slope, source, _NEAR) for v in node.operands):
        return True
    return any(_reads(n, slope, source, users, steps - 1) for n in users.get(node.output, ()))


def _follows(v: Value, slope: Node, source: Value, steps: int) -> bool:
    """Whether a value follows from the source element by element, in a few steps, and not through the slope."""
    node = v.producer
    if v is source or steps == 0 or node is None or node is slope or not _is_alike(node, source):
        return v is source
    return any(_follows(x, slope, source, steps - 1) for x in node.operands)
