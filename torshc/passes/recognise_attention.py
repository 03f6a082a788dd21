"""Make one operator of scaled dot-product attention that a model spells out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base.budget import budget
from ..base.errors import ModelError
from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import BF16, F16, F32, as_int
from ..graph import Graph, Mark, Node, Patch, Value
from ..ops import REGISTRY
from ..ops.tensor.view import Expand, Reshape, Transpose, expansion
from .fusion_rules import Fuse, FusionRule
from .interpret import CannotEvaluate, run_node
from .manager import graph_pass
from .match import Match, Search, covers, match
from .resolve_indices import element_of
from .rules import rules_of
from .walk import Site, walk

Array = np.ndarray[Any, Any]
_DEEP = 6  # nodes from a mask to the ranges that it is made of
_MAKES_MASKS = ("Expand", "Trilu")  # beside pointwise operators
# A score this low, or lowered by this much, has weight 0 beside any other. Those of halves are summed in f32 here, and
# rounded to halves at no point between, which is nearer to what the model means.
_HIDDEN = {F32: -1e30, BF16: -1e30, F16: -6e4}


@graph_pass("recognise_attention")
def recognise_attention(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """Replace the nodes that a rule with ``fuse: attention`` describes by Attention; k is transposed to rows by a view.

    A mask that is a constant lower triangle becomes the attribute ``causal``; heads of k and v that an Expand repeats
    are left to broadcasting. Without `ATTENTION` the graph stays as it is.

    Before::

        %3 = MatMul(%0, %1)
        %4 = Mul(%3, 0.125)
        %5 = Softmax[axis=3](%4)
        %6 = MatMul(%5, %2)

    After::

        %3 = Transpose[perm=(0, 1, 3, 2)](%1)
        %4 = Attention[scale=0.125](%0, %3, %2)
    """
    if Feature.ATTENTION not in features:
        return False
    forms = [r for r in rules_of(options.rules).fusion if r.action == Fuse("attention")]
    forms = [r for r in forms if not r.fusion or (options.fusion or "default") in r.fusion]
    searches = [(form, Search(form.name, graph, form.parts)) for form in forms]
    return walk(graph, lambda site: _rule(site, searches), "recognise_attention")


def _rule(site: Site, searches: list[tuple[FusionRule, Search]]) -> Patch | None:
    root = site.node.output
    for form, search in searches:
        if form.match is None or not form.match.fits(site.node.op):
            continue
        for found in match(form.match, root, search):
            if not covers(found, root, site.uses) or not all(c.holds(found) for c in form.where):
                continue
            known = len(site.graph.constraints)
            patch = _patch(site, found)
            if patch is None:
                del site.graph.constraints[known:]
            else:
                for node in patch.nodes:
                    if node.op.name == "Attention":
                        node.mark(Mark(form.name, 0))
                return patch
    return None


def _patch(site: Site, found: Match) -> Patch | None:
    q, k, v = (found.values[name] for name in "qkv")
    scale = _scale(found)
    scores = next(n.output for n in found.nodes if n.op.name == "Softmax")
    rank = scores.type.rank
    if scale is None or found.attributes["axis"] not in (-1, rank - 1) or min(x.type.rank for x in (q, k, v)) < 2:
        return None
    if q.dtype not in _HIDDEN or as_int(q.shape[-1]) is None or as_int(v.shape[-1]) is None:
        return None  # no kernel takes it whole
    low = found.values.get("low")
    if low is not None and (
        low.const is None or low.const.size != 1 or not low.const.reshape(-1)[0] <= _HIDDEN[q.dtype]
    ):
        return None  # a milder value would replace scores rather than hide them
    b = site.builder
    transposed = b.one(Transpose((*range(k.type.rank - 2), k.type.rank - 1, k.type.rank - 2)), k)
    mask = _mask(site, found)
    if mask is not None and (mask.type.rank > rank or mask.dtype is not q.dtype):
        return None
    causal = mask is not None and _is_causal(mask, scores)
    safe = "guarded" in found.values
    op = REGISTRY["torshc", "Attention"](scale=scale, safe=safe, causal=causal)  # type: ignore[call-arg]
    operands = (transposed, v) if causal or mask is None else (transposed, v, mask)
    try:
        if site.graph.loose:
            new = b.one(op, *_stretch_operands(site, q, transposed, scores), *operands[1:])
        else:
            new = _group_heads(site, op, q, k, v, operands[2:]) or b.one(op, q, *operands)
    except ModelError:
        return None  # what the nodes broadcast, attention does not
    return site.replace(new) if new.type == site.node.output.type else None


def _stretch_operands(site: Site, q: Value, k: Value, scores: Value) -> tuple[Value, Value]:
    """Queries and keys of as many points, rows and keys as the scores have, where their mask may have more of them."""
    *outer, keys = scores.shape
    wide = (*outer, q.shape[-1]), (*k.shape[:-2], keys, k.shape[-1])
    b = site.builder
    q, k = (x if x.shape == to else b.one(expansion(x.shape, to), x) for x, to in zip((q, k), wide, strict=True))
    return q, k


def _scale(found: Match) -> float | None:
    """The product of all factors on the scores, or None when one is not a scalar."""
    total = 1.0
    for name, power in (("scale", 1), ("divisor", -1)):
        for value in found.gathered.get(name, ()):
            if value.const is None or value.const.size != 1:
                return None
            total *= float(value.const.reshape(-1)[0]) ** power if value.const.reshape(-1)[0] else math.nan
    return total if math.isfinite(total) else None


def _mask(site: Site, found: Match) -> Value | None:
    """What is added to the scores."""
    low = found.values.get("low")
    if low is None:
        mask = found.values.get("mask")
        while mask is not None and (expand := _made_by(mask, Expand)) is not None:
            mask = expand.operands[0]  # attention broadcasts its mask itself
        return mask
    zero = site.builder.constant(0.0, low)
    keep = found.values.get("keep")
    branches = (keep, zero, low) if keep is not None else (found.values["drop"], low, zero)
    return site.builder.one(REGISTRY["", "Where"](), *branches)


def _is_causal(mask: Value, scores: Value) -> bool:
    """Whether the mask hides what comes after each position, and nothing else, whatever the inputs hold."""
    square = scores.shape[-2:]
    if square[0] is not square[1] or mask.shape[-2:] != square:
        return False
    if mask.type.static_shape is None:
        return _hides_future(mask)
    known = _compute_known(mask)
    if known is None:
        return False
    shape = known.shape[-2:]
    future = np.triu(np.ones(shape, np.bool_), 1)
    return all(
        bool(np.all(x[future] <= _HIDDEN[mask.dtype]) and np.all(x[~future] == 0))
        for x in (each.astype(np.float32) for each in known.reshape(-1, *shape))
    )


def _hides_future(mask: Value) -> bool:
    """Whether an element is 0 where its key is no later than its row, and hides the score elsewhere, in these words."""
    element, (*_, row, key) = element_of(mask)
    if element.op != "select" or element.args[0].op not in ("le", "lt"):
        return False
    (holds, *choices), low = element.args, _HIDDEN[mask.dtype]
    distance = holds.args[1] - holds.args[0] - int(holds.op == "lt")  # it holds where this is no less than 0
    numbers = [x.data if x.op == "const" and isinstance(x.data, int | float) else math.nan for x in choices]
    if distance is key - row - 1:
        distance, numbers = row - key, numbers[::-1]
    return distance is row - key and numbers[0] == 0 and numbers[1] <= low


def _compute_known(value: Value, depth: int = _DEEP) -> Array | None:
    """What a value is if constants alone decide it, though none is kept of it: large masks are compared ranges."""
    node = value.producer
    if value.const is not None or node is None:
        return value.const
    size = as_int(value.type.nbytes)
    if depth == 0 or size is None or size > budget().folding:
        return None
    if node.op.family != "pointwise" and node.op.name not in _MAKES_MASKS:
        return None
    arrays = [None if v is None else _compute_known(v, depth - 1) for v in node.inputs]
    if any(a is None and v is not None for a, v in zip(arrays, node.inputs, strict=True)):
        return None
    try:
        return run_node(node, arrays)[0]
    except CannotEvaluate:
        return None


def _group_heads(site: Site, op: object, q: Value, k: Value, v: Value, mask: tuple[Value, ...]) -> Value | None:
    """Attention whose k and v are heads repeated by Expand: the groups become a dimension of their own.

    q[B, H, S, D] is seen as [B, G, H/G, S, D], k and v are [B, G, 1, T, D], so that nothing is repeated in memory.
    """
    keys, values = _find_ungrouped(k, transposed=True), _find_ungrouped(v, transposed=False)
    if keys is None or values is None or keys.shape[:-2] != values.shape[:-2] or q.type.rank != 4:
        return None
    batch, groups, _, _, _ = keys.shape
    heads, count = as_int(q.shape[1]), as_int(groups)
    if heads is None or count is None or heads % count or q.shape[0] is not batch:
        return None
    if any(m.type.rank == 4 and as_int(m.shape[1]) != 1 for m in mask):
        return None
    b = site.builder
    wide = b.one(Reshape((batch, groups, keys.shape[2] * (heads // count), *q.shape[2:])), q)
    masks = [b.one(Reshape((m.shape[0], *m.shape[1:2], *m.shape[1:])), m) if m.type.rank == 4 else m for m in mask]
    out = b.one(op, wide, keys, values, *masks)  # type: ignore[arg-type]  # an operator of the registry
    return b.one(Reshape(site.node.output.shape), out)


def _find_ungrouped(x: Value, transposed: bool) -> Value | None:
    """u[B, G, 1, T, D] where x is Reshape(Expand(u, [B, G, R, T, D]), [B, G*R, T, D]), or the transpose of it."""
    if transposed:
        transpose = _made_by(x, Transpose)
        if transpose is None or transpose.op.perm != (0, 1, 3, 2):  # type: ignore[attr-defined]  # a Transpose
            return None
        x = transpose.operands[0]
    joined = _made_by(x, Reshape)
    spread = _made_by(joined.operands[0], Expand) if joined is not None else None
    if joined is None or spread is None or x.type.rank != 4:
        return None
    source, wide = spread.operands[0], spread.output.shape
    fits = len(wide) == 5 and source.type.rank == 5 and as_int(source.shape[2]) == 1
    kept = fits and (*source.shape[:2], *source.shape[3:]) == (*wide[:2], *wide[3:])
    return source if kept and x.shape == (wide[0], wide[1] * wide[2], *wide[3:]) else None


def _made_by(value: Value, kind: type) -> Node | None:
    node = value.producer
    return node if node is not None and isinstance(node.op, kind) else None
