"""Join a decoder's attention with what makes its cache longer, and with the rotary positions before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..base.features import Feature, Features
from ..base.options import CompileOptions
from ..expr import BF16, F16, as_int
from ..graph import Builder, Graph, Node, Rewriter, Value
from ..ops.microsoft.attention import Appended
from ..ops.microsoft.cached import CachedAttention
from ..ops.nn.attention import Attention
from ..ops.nn.rotary import Rotated
from ..ops.tensor.view import Concat, Reshape
from .manager import graph_pass

# The shared memory of CUDA's kernel is enough for these (STAGED of targets/gpu/cuda/attention_cache.py).
QUERIES = 8  # at most that share a key
PACK, WIDEST = 8, 256  # the width of a head is a multiple of the first, and the second at most


@dataclass(frozen=True)
class _LongerCache:
    """A cache with a new entry.

    Attributes:
        past: the cache, an input of the model.
        new: the entry.
        at: where it goes; none is behind the cache.
        whole: the cache with it.
    """

    past: Value
    new: Value
    at: Value | None
    whole: Value


@graph_pass("join_cache")
def join_cache(graph: Graph, options: CompileOptions, *, features: Features) -> bool:
    """Attention of one position to a cache that is an input is one operator with the cache's new entry.

    For targets with `CACHED_ATTENTION`.

    Before::

        %4 = Rotated(%0:f16[1, 32, 1, 64], @1, @2)
        %5 = Rotated(%3:f16[1, 8, 1, 64], @1, @2)
        %6 = Concat[axis=2](%past_k, %5)
        %7 = Concat[axis=2](%past_v, %v)
        %8 = Reshape[shape=(1, 8, 4, 64)](%4)
        %9 = Attention(%8, %6, %7)

    After::

        %9, %6, %7 = CachedAttention(%8, %3, %v, %past_k, %past_v, None, @1, @2)
    """
    if Feature.CACHED_ATTENTION not in features or not any(isinstance(n.op, Attention) for n in graph.nodes):
        return False
    rewriter, users, changed = Rewriter(graph, "join_cache"), graph.users(), False
    for node in rewriter:
        caches = _match_caches(graph, node)
        if caches is None:
            rewriter.keep(node)
            continue
        changed = True
        results = _join_nodes(rewriter.builder(node.name), node, caches, users)
        for old, new in zip((node.output, *(c.whole for c in caches)), results, strict=True):
            rewriter.replace(old, new)
    rewriter.finish()
    return changed


def _match_caches(graph: Graph, node: Node) -> tuple[_LongerCache, _LongerCache] | None:
    """The caches of keys and of values of an attention that the operator can take in."""
    op = node.op
    if not isinstance(op, Attention) or op.causal or op.safe or op.out:
        return None
    q, k, v, *masks = node.operands
    if q.dtype not in (F16, BF16) or (masks and (masks[0].const is None or masks[0].const.any())):
        return None
    keys, values = (_match_cache(graph, x) for x in (k, v))
    if keys is None or values is None or not _are_equal(keys.at, values.at) or keys.whole.shape != values.whole.shape:
        return None
    if keys.past.shape != values.past.shape or keys.new.shape != values.new.shape:
        return None
    batch, groups, _, width = keys.past.shape
    if (
        (as_int(width) or 1) % PACK
        or (as_int(width) or 0) > WIDEST
        or q.shape[0] is not batch
        or q.shape[1] is not groups
        or q.shape[-1] is not width
    ):
        return None
    # [B, G, N, D], or one query each for N heads, [B, G, N, 1, D], which share keys [B, G, 1, T, D].
    apart = q.type.rank == 5 and as_int(q.shape[3]) == 1
    if (q.type.rank != 4 and not apart) or (as_int(q.shape[2]) or QUERIES + 1) > QUERIES:
        return None
    return keys, values


def _match_cache(graph: Graph, x: Value) -> _LongerCache | None:
    """The cache that keys or values come from: an input of the model with one entry more; None where they do not."""
    while x.producer is not None and isinstance(x.producer.op, Reshape):
        inner = x.producer.operands[0]
        if tuple(d for d in inner.shape if as_int(d) != 1) != tuple(d for d in x.shape if as_int(d) != 1):
            return None
        x = inner
    node = x.producer
    if node is None or x.type.rank != 4:
        return None
    if isinstance(node.op, Concat) and node.op.axis in (2, -2) and len(node.operands) == 2:
        (past, new), at = node.operands, None
    elif isinstance(node.op, Appended):
        past, new, at = node.operands
    else:
        return None
    if past not in graph.inputs or as_int(new.shape[2]) != 1 or past.dtype is not new.dtype:
        return None
    return _LongerCache(past, new, at, x)


def _join_nodes(
    b: Builder, node: Node, caches: tuple[_LongerCache, _LongerCache], users: Mapping[Value, Sequence[Node]]
) -> list[Value]:
    """The result of the attention, and both caches."""
    keys, values = caches
    assert isinstance(node.op, Attention)
    q, new, angles, interleaved = node.operands[0], keys.new, list[Value](), 0
    of_key, of_query = _find_rotation(new), _find_rotation(q)
    if of_key and of_query and len(users[new]) == 1 and _rotate_alike(of_key, of_query):
        q, (new, *angles) = of_query.operands[0], of_key.operands
        assert isinstance(of_key.op, Rotated)
        interleaved = of_key.op.interleaved
    batch, groups, _, width = keys.past.shape
    queries = b.one(Reshape((batch, groups, node.operands[0].shape[2], width)), q)
    op = CachedAttention(node.op.scale, interleaved, keys.whole.shape[2])
    y, *present = b.add(op, [queries, new, values.new, keys.past, values.past, keys.at, *angles])
    return [b.one(Reshape(node.output.shape), y), *present]


def _find_rotation(x: Value) -> Node | None:
    """The node that applied rotary positions to heads of one position, which views may have grouped since."""
    node = x.producer
    while node is not None and isinstance(node.op, Reshape):
        node = node.operands[0].producer
    rotates = node is not None and isinstance(node.op, Rotated) and as_int(node.output.shape[2]) == 1
    return node if rotates and node is not None and node.output.shape[-1] is x.shape[-1] else None


def _rotate_alike(a: Node, b: Node) -> bool:
    """Whether two nodes apply the same rotary positions."""
    return a.op == b.op and all(_are_equal(x, y) for x, y in zip(a.operands[1:], b.operands[1:], strict=True))


def _are_equal(a: Value | None, b: Value | None) -> bool:
    """Whether two operands are one value, or constants of the same elements."""
    if a is b or a is None or b is None or a.const is None or b.const is None:
        return a is b
    return a.type == b.type and a.const.tobytes() == b.const.tobytes()
