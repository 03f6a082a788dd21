"""What tuning may choose of attention on devices of blocks: every variant computes the same, on the emulator."""

from __future__ import annotations

import pytest

from tests.support.seeded import seeded
from torshc.expr import F16, F32, DType, const
from torshc.kernels.base import Kernel
from torshc.pipeline.records import Choices
from torshc.targets.gpu import attention as lowering
from torshc.targets.gpu.attention import TILES, GridAttention
from torshc.targets.gpu.attention_row import MMA_AHEAD, MMA_THREADS, GridAttentionRow, MmaAttentionRow
from torshc.targets.gpu.cuda.attention_group import MEMORY, GroupAttention
from torshc.targets.gpu.cuda.attention_mma import MMA_BANDS, MMA_MEMORY, MORE_BANDS, MmaAttention
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.parameters import parameters_of

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_grid import GridProgram, needs_emulator
from ...support.run_kernel import close
from ...support.tuned import tuned, variants_of
from ..cpu.test_attention import DIMS, attention, expected

pytestmark = needs_emulator
RNG = seeded(22)


def check(shapes: list[Shape], choices: Choices, dtype: DType = F32, causal: bool = False, arch: str = "") -> Kernel:
    """Runs attention with what a record says and compares; its first kernel."""
    m = Maker()
    values = [random(RNG, sizes(s, DIMS)).astype(dtype.numpy) for s in shapes]
    operands = [m.input(*s, dtype=dtype) for s in shapes]
    y = attention(m, *operands, scale=0.3, causal=causal, out="f32")
    program = GridProgram(m.output(y), DIMS, tuned(choices, arch))
    # Weights of the values are rounded to halves as operands of a product; f32 differs by the order of sums.
    close(program.run(*values)[0], expected(*values, scale=0.3, causal=causal), 1e-5 if dtype is F32 else 2**-9)
    return program.kernels[0]


@pytest.mark.parametrize("choices", variants_of("attention_row.j2"))
@pytest.mark.parametrize("keys", [300, 5, "t"])
def test_rows(choices: Choices, keys: int | str) -> None:
    """Also of more blocks than there are keys, and of keys that only a run knows."""
    kernel = check([(2, 1, 24), (2, keys, 24), (2, keys, 40)], choices)
    assert isinstance(kernel, GridAttentionRow)
    wanted = dict(choices)
    splits = wanted.get("splits", (kernel.splits,))[0]
    assert kernel.splits == (min(splits, keys) if isinstance(keys, int) else splits)
    assert kernel.threads == wanted.get("threads", (256,))[0] and kernel.ahead == wanted.get("ahead", (4,))[0]


@pytest.mark.parametrize("choices", variants_of("attention_row_mma.j2"))
@pytest.mark.parametrize("keys", [300, 5, "t"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_few_queries_on_tensor_cores(choices: Choices, keys: int | str, arch: str) -> None:
    kernel = check([(2, 4, 64), (2, keys, 64), (2, keys, 128)], choices, F16, arch=arch)
    assert isinstance(kernel, MmaAttentionRow)
    wanted = dict(choices)
    assert kernel.threads == wanted.get("threads", (MMA_THREADS,))[0]
    assert kernel.ahead == wanted.get("ahead", (MMA_AHEAD,))[0]


@pytest.mark.parametrize("choices", variants_of("attention.j2"))
def test_tiles(choices: Choices) -> None:
    kernel = check([(2, 37, 20), (2, 70, 20), (2, 70, 8)], choices, causal=True)
    assert isinstance(kernel, GridAttention) and kernel.tile.sizes == dict(choices)["tile"]


@pytest.mark.parametrize("choices", variants_of("attention_mma.j2"))
@pytest.mark.parametrize("depth", [16, 128])
def test_bands_on_tensor_cores(choices: Choices, depth: int) -> None:
    kernel = check([(2, 70, depth), (2, 150, depth), (2, 150, depth)], choices, F16, causal=depth == 16)
    assert isinstance(kernel, MmaAttention) and kernel.shared <= MMA_MEMORY
    wanted = dict(choices)
    if depth == 16:  # any band fits
        assert kernel.tile.sizes == wanted.get("tile", kernel.tile.sizes)
        assert kernel.tile.keys == wanted.get("keys", (64,))[0]


@pytest.mark.parametrize("choices", variants_of("attention_group.j2"))
@pytest.mark.parametrize("depth", [64, 128])
def test_groups(choices: Choices, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lowering, "suits_groups", lambda *_: const(True))
    kernel = check([(2, 130, depth), (2, 300, depth), (2, 300, depth)], choices, F16, depth == 64, "sm_90a")
    assert isinstance(kernel, GroupAttention) and kernel.shared <= MEMORY
    wanted = dict(choices)
    if depth == 64:
        assert (kernel.tile.keys, kernel.stages) == (wanted.get("keys", (128,))[0], wanted.get("stages", (2,))[0])


def test_what_does_not_fit_is_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four stages of 128 keys, and a band of 128 queries with 128 keys, are more than shared memory holds."""
    monkeypatch.setattr(lowering, "suits_groups", lambda *_: const(True))
    shapes: list[Shape] = [(2, 130, 128), (2, 300, 128), (2, 300, 128)]
    kernel = check(shapes, (("keys", (128,)), ("stages", (4,))), F16, arch="sm_90a")
    assert isinstance(kernel, GroupAttention) and (kernel.tile.keys, kernel.stages) == (128, 2)
    monkeypatch.setattr(lowering, "suits_groups", lambda *_: const(False))
    kernel = check(shapes, (("keys", (128,)), ("tile", (4, 2))), F16)
    assert isinstance(kernel, MmaAttention) and kernel.tile.keys == 32
    wide = check([(2, 9, 200), (2, 9, 200), (2, 9, 200)], (("tile", TILES[0].sizes),))
    assert isinstance(wide, GridAttention) and wide.tile != TILES[0]


def test_templates_state_the_tiles_that_there_are() -> None:
    for template, tiles in (("attention.j2", TILES), ("attention_mma.j2", (*MMA_BANDS, *MORE_BANDS))):
        stated = {p.name: p.values for p in parameters_of(CudaTarget.search, template, 8)}
        assert set(stated["tile"]) == {t.sizes for t in tiles}
