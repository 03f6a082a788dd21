from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.base.options import CompileOptions
from torshc.expr import BF16, F16, I64, DType, as_expr, const, dim
from torshc.kernels.machine import Machine
from torshc.ops.microsoft.cached import CachedAttention
from torshc.pipeline.compiler import prepare
from torshc.targets.gpu.cuda import nvcc
from torshc.targets.gpu.cuda.attention_cache import CacheAttention
from torshc.targets.gpu.cuda.target import CudaTarget

from ....card.llama import SMALL, decoder
from ....support.kernels import Maker
from ....support.run_grid import GridProgram, needs_emulator
from ....support.run_kernel import Array

RNG = seeded(21)
pytestmark = needs_emulator


def turned(x: Array, cos: Array, sin: Array, interleaved: bool) -> Array:
    """The first 2 R columns of x[B, .., D] by angles [B, 1, R]."""
    half = cos.shape[-1]
    first, second = (
        (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    )
    out = x.copy()
    out[..., first] = x[..., first] * cos[:, None] - x[..., second] * sin[:, None]
    out[..., second] = x[..., first] * sin[:, None] + x[..., second] * cos[:, None]
    return out


def declared_bytes(text: str) -> int:
    """Bytes of shared memory that a kernel's text declares."""
    total = 0
    for kind, names in re.findall(r"__shared__ (?:__align__\(\d+\) )?(\w+) ([^;]*);", text):
        sizes = (prod(map(int, re.findall(r"\d+", dims))) for dims in re.findall(r"\w+((?:\[\d+\])+)", names))
        total += {"uint16_t": 2, "float": 4}[kind] * sum(sizes)
    return total


@pytest.mark.parametrize(
    ("heads", "width", "past", "length", "places", "half", "dtype", "archs"),
    [
        ((1, 2, 4), 64, 1000, 1001, None, 32, F16, ["sm_90a"]),  # a cluster of eight, and a key beyond the last tile
        ((2, 3, 1), 16, 200, 201, None, 4, F16, ["sm_90a"]),  # a cluster of two; columns that are not turned
        ((2, 2, 3), 32, 130, 130, (129, 5), -16, F16, ["sm_90a"]),  # a cache with room; pairs side by side
        ((1, 1, 2), 256, 600, 640, (-1,), 0, F16, ["sm_90a"]),  # nothing is new, and there is nothing behind the past
        ((3, 1, 4), 128, 300, 300, (0, 299, 300), 0, F16, ["sm_80"]),  # no clusters; the last has no place
        ((1, 2, 2), 8, 40, 41, None, 4, BF16, ["sm_90a"]),
        ((1, 2, 7), 80, 900, 901, None, 20, F16, ["sm_90a"]),  # columns that fill no product; more than a round of keys
        ((1, 1, 8), 256, 300, 301, None, 128, F16, ["sm_90a"]),  # as many queries and columns as there may be
        ((2, 1, 5), 96, 257, 258, None, 48, BF16, ["sm_80"]),
        ((1, 2, 2), 64, "p", "p+1", None, 32, F16, ["sm_90a"]),
    ],
)
def test_a_step(
    heads: tuple[int, int, int],
    width: int,
    past: int | str,
    length: int | str,
    places: tuple[int, ...] | None,
    half: int,
    dtype: DType,
    archs: list[str],
) -> None:
    """Turned, copied with what is new, and averaged; operands are parts of one product, and batches are strided."""
    batch, groups, queries = heads
    m, dims = Maker(), {"p": 700}
    shapes = [(batch, groups, queries, width), *[(batch, groups, 1, width)] * 2, *[(batch, groups, past, width)] * 2]
    values = [m.input(*s, dtype=dtype) for s in shapes]
    at = m.input(batch, dtype=I64) if places else None
    angles = [m.input(batch, 1, abs(half), dtype=dtype) for _ in range(2 if half else 0)]
    whole = dim("p") + 1 if isinstance(length, str) else const(length)
    op = CachedAttention(0.3, int(half < 0), as_expr(whole))
    graph = m.output(*m.builder.add(op, [*values, at, *angles]))
    program = GridProgram(graph, dims, CudaTarget(Machine(archs=tuple(archs))))
    (kernel,) = program.kernels
    assert isinstance(kernel, CacheAttention) and (kernel.cluster > 1) is (archs == ["sm_90a"] and past != 40)
    assert kernel.shared == declared_bytes(program.target.render(kernel).source) <= 48 << 10  # what a block may declare

    known = [[dims[d] if isinstance(d, str) else d for d in s] for s in shapes]
    arrays = [RNG.standard_normal(s).astype(np.float32).astype(dtype.numpy) for s in known]
    turns = [f(RNG.uniform(0, 6, (batch, 1, abs(half)))).astype(dtype.numpy) for f in (np.cos, np.sin)] if half else []
    given = [*arrays, *([np.array(places)] if places else []), *turns]
    got, *caches = program.run(*given)

    q, k, v, keys, entries = (a.astype(np.float64) for a in arrays)
    if half:
        q, k = (turned(x, *(t.astype(np.float64) for t in turns), half < 0) for x in (q, k))
    size, before = dims["p"] + 1 if isinstance(length, str) else length, keys.shape[2]
    grown = []
    for old, new in ((keys, k), (entries, v)):
        cache = np.zeros((batch, groups, size, width))
        cache[:, :, :before] = old[:, :, :size]
        for n, place in enumerate(places or [before] * batch):
            if 0 <= place < size:
                cache[n, :, place] = new[n, :, 0]
        grown.append(cache.astype(dtype.numpy).astype(np.float64))
    for cache, wanted in zip(caches, grown, strict=True):
        np.testing.assert_allclose(cache.astype(np.float64), wanted, rtol=0.02 if dtype is BF16 else 2e-3, atol=1e-3)
    scores = 0.3 * q @ grown[0].swapaxes(-1, -2)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result = weights / weights.sum(-1, keepdims=True) @ grown[1]
    np.testing.assert_allclose(got.astype(np.float64), result, rtol=0.02, atol=0.02 if dtype is BF16 else 2e-3)


@pytest.mark.parametrize(("arch", "clusters"), [("sm_90", True), ("sm_80", False)])
def test_for_the_card_that_is_here(arch: str, clusters: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --arch a decoder is compiled for that one, in passes too."""
    monkeypatch.setattr(nvcc, "find_cards", lambda: (nvcc.Card("card", arch, "1"),))
    found = prepare(decoder(SMALL, False).SerializeToString(), CompileOptions(target="cuda"))
    assert any(isinstance(k, CacheAttention) for unit in found.units for k in unit.kernels) is clusters
