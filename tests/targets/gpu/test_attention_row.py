"""Few queries that share keys, on tensor cores and by the blocks of clusters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import BF16, F16, F32, DType
from torshc.kernels.machine import Device, Machine
from torshc.targets.gpu.attention_row import MmaAttentionRow
from torshc.targets.gpu.cuda.target import CudaTarget

from ...support.kernels import Maker, Shape, random, sizes
from ...support.run_grid import GridProgram, needs_emulator, templates
from ...support.run_kernel import close
from ..cpu.test_attention import DIMS, attention, close_or_nan, expected

RNG = seeded(13)
pytestmark = needs_emulator
TENSOR, HOPPER = (CudaTarget(Machine(archs=(arch,))) for arch in ("sm_80", "sm_90a"))


@pytest.mark.parametrize("dtype", [F16, BF16], ids=repr)
@pytest.mark.parametrize(
    ("rows", "depth", "width", "keys"), [(2, 64, 64, 300), (4, 128, 128, 1300), (3, 32, 64, 40), (2, 96, 128, 1)]
)
def test_few_queries_on_tensor_cores(dtype: DType, rows: int, depth: int, width: int, keys: int) -> None:
    """Weights are as good as f32: two halves; masks of rows, rows that see nothing, infinite scores and values, NaN."""
    shapes: list[Shape] = [(2, 3, rows, depth), (2, 3, keys, depth), (2, 3, keys, width)]
    mask = np.where(RNG.random((2, 1, rows, keys)) < 0.5, -np.inf, 0).astype(np.float32)
    mask[0, 0, 0] = 0
    mask[1, 0, rows - 1] = -np.inf
    plain = [random(RNG, sizes(s, DIMS)) for s in shapes]
    odd = [x.copy() for x in plain]
    odd[1][0, 1, keys // 2], odd[2][0, 2, keys // 2, 3], odd[2][1, 1, 0] = np.nan, np.inf, -np.inf
    for values in (plain, odd):
        for given in ([], [mask]):
            halves = [x.astype(dtype.numpy) for x in values]
            m = Maker()
            operands = [m.input(*s, dtype=dtype) for s in shapes] + [m.input(*x.shape) for x in given]
            program = GridProgram(m.output(attention(m, *operands, scale=0.3, out="f32")), DIMS, TENSOR)
            assert templates(program)[0] == "attention_row_mma"
            (got,) = program.run(*halves, *given)
            with np.errstate(invalid="ignore"):
                wanted = expected(*halves, *given, scale=0.3).astype(np.float32)
            finite = np.isfinite(wanted)
            np.testing.assert_array_equal(got[~finite], wanted[~finite])
            close(got[finite], wanted[finite], 1e-5)


@pytest.mark.parametrize(
    ("heads", "keys", "cluster", "threads"),
    [(8, 4096, 8, 256), (8, 1024, 8, 128), (8, "t", 8, 128), (16, 300, 2, 128), (17, 4096, 1, 128), (8, 200, 1, 128),
     (2, 16384, 1, 128)],
)  # fmt: skip
def test_clusters_of_few_queries(heads: int, keys: int | str, cluster: int, threads: int) -> None:
    """One kernel where all blocks have a multiprocessor each; two heads of a long cache have more blocks than that."""
    m = Maker()
    target = CudaTarget(Machine(archs=("sm_90a",)))
    target.machine = replace(target.machine, device=Device(units=132, tensor=True, clusters=True))
    operands = [m.input(heads, n, 64, dtype=F16) for n in (4, keys, keys)]
    kernels = GridProgram(m.output(attention(m, *operands, out="f32")), {"t": 5}, target).kernels
    first = kernels[0]
    assert isinstance(first, MmaAttentionRow) and (first.cluster, first.threads) == (cluster, threads)
    assert len(kernels) == 1 + (cluster == 1 and first.splits > 1)


@pytest.mark.parametrize(("rows", "keys", "cluster"), [(3, 4100, 8), (4, 600, 4), (2, 300, 2), (4, "t", 8)])
def test_blocks_of_a_cluster_join_what_they_have(rows: int, keys: int | str, cluster: int) -> None:
    """Keys of a cache are fewer than blocks; a query sees nothing, or in a part of the keys only."""
    dims = {"t": 5}
    count = dims["t"] if isinstance(keys, str) else keys
    shapes: list[Shape] = [(2, rows, 64), (2, keys, 64), (2, keys, 128), (2, rows, keys)]
    values = [random(RNG, sizes(s, dims)).astype(F16.numpy) for s in shapes[:3]]
    mask = np.where(RNG.random((2, rows, count)) < 0.3, -np.inf, 0).astype(np.float32)
    mask[1, rows - 1], mask[0, 0, : count // 2] = -np.inf, -np.inf
    m = Maker()
    operands = [m.input(*s, dtype=F16 if k < 3 else F32) for k, s in enumerate(shapes)]
    program = GridProgram(m.output(attention(m, *operands, scale=0.3, out="f32")), dims, HOPPER)
    (kernel,) = program.kernels
    assert isinstance(kernel, MmaAttentionRow) and kernel.cluster == cluster
    (got,) = program.run(*values, mask)
    with np.errstate(invalid="ignore"):
        close_or_nan(got, expected(*values, mask, scale=0.3))
