"""Sums over the pixels of each image that the kernel of a convolution makes of what it stores.

Statistics of batch normalisations and of their gradients are such sums. Where no cache holds what the convolution
stores, reading it again for them takes as long as the convolution.
"""

from __future__ import annotations

from ..expr import F32, as_int
from ..graph import Shape
from ..passes.slice_convolutions import LARGE
from .fusion import Fuser
from .group import Group
from .views import bases

PIXELS = (2, 3)


def join_totals(fuser: Fuser) -> None:
    """Let groups of convolutions take in the sums over pixels of what they make."""
    for own in dict.fromkeys(fuser.group_of.values()):
        shape = _summed(own)
        if shape is None or any(n.op.family == "pointwise" and fuser.stores([n], own.nodes) for n in own.nodes):
            continue
        makers = [b.producer for n in own.nodes for v in n.operands for b in bases(v)]
        sources = [fuser.group_of[n] for n in makers if n in fuser.group_of]
        source = next((g for g in sources if g is not own and _adds_up(fuser, g, own, shape)), None)
        if source is not None:
            merged = fuser.merge(source, own, None)
            merged.totals = [*source.totals, *own.nodes]


def _summed(group: Group) -> Shape | None:
    """The shape of what a group of nothing but sums over pixels adds up, as f32; None of any other group."""
    shapes = {n.operands[0].shape if n.op.name == "ReduceSum" else n.output.shape for n in group.nodes}
    if group.kind != "row" or len(shapes) != 1 or len(shape := shapes.pop()) != 4:
        return None
    for n in group.nodes:
        sums = n.op.name == "ReduceSum" and getattr(n.op, "axes", ()) == PIXELS
        if not (sums or n.op.family == "pointwise") or n.output.dtype is not F32:
            return None
    return shape


def _adds_up(fuser: Fuser, source: Group, own: Group, shape: Shape) -> bool:
    """Whether a group is of a convolution that may add up, at each pixel, what another one sums of its results."""
    anchor = source.anchor
    if (
        anchor is None
        or anchor.op.name not in ("Conv", "ConvTranspose")
        or anchor.output.shape != shape
        or anchor.output.dtype is not F32
    ):
        return False
    if (as_int(anchor.output.type.nbytes) or 0) < LARGE or fuser.permits.apart(source.nodes, own.nodes) is not None:
        return False
    read = [(v, b) for n in own.nodes for v in n.operands for b in bases(v) if b.producer in source.nodes]
    if any(v is not b or v.shape != shape or v.layout != anchor.output.layout for v, b in read):
        return False
    return not fuser.would_cycle(source, own)
