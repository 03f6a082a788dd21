"""A hand-written model for the tests: y = relu(x) + w, z = 2 * y, with a symbolic batch; and a static one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.support import compilers
from torshc.base import manifest
from torshc.base.cache import Cache
from torshc.base.options import CompileOptions
from torshc.base.resources import cache_folder
from torshc.bundle import build, host, package
from torshc.bundle.host_source import host_sources
from torshc.bundle.weights import WeightsInfo
from torshc.expr import dim
from torshc.targets import isa
from torshc.targets.cc import CCompiler
from torshc.targets.cpu.c import CTarget

WIDTH = 16
COMPILERS = [found.name for found in compilers.hosts()]
WEIGHTS = np.linspace(-1, 1, WIDTH, dtype=np.float32)

RELU = """
#include <stddef.h>
#include <stdint.h>
/* A task is a row: t = relu(x). */
void k0(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end)
{
    const float *x = buf[0];
    float *t = buf[1];
    (void)dim;
    float *mine = scratch;
    for (int64_t i = begin; i < end; i++) {
        for (int j = 0; j < 16; j++)
            mine[j] = x[i * 16 + j] < 0.0f ? 0.0f : x[i * 16 + j];
        for (int j = 0; j < 16; j++)
            t[i * 16 + j] = mine[j];
    }
}
"""
ADD = """
#include <stddef.h>
#include <stdint.h>
/* A task is a row: y = t + w, z = 2 y. */
void k1(void *const *buf, const int64_t *dim, void *scratch, int64_t begin, int64_t end)
{
    const float *t = buf[0], *w = buf[1];
    float *y = buf[2], *z = buf[3];
    const int64_t s0 = dim[0];
    (void)scratch;
    for (int64_t i = begin; i < end && i < s0; i++)
        for (int j = 0; j < 16; j++) {
            y[i * 16 + j] = t[i * 16 + j] + w[j];
            z[i * 16 + j] = 2.0f * y[i * 16 + j];
        }
}
"""
KERNELS = {"k0.c": RELU, "k1.c": ADD}


def program(
    batch: int | None = None, weights_id: int = 0, embed: bool = False, mcpu: str | None = None
) -> host.HostProgram:
    """The host program; symbolic when ``batch`` is None."""
    rows: host.Size = dim("s0") if batch is None else batch
    port = host.Port("f32", (rows, WIDTH))
    buffer = host.Buffer
    relu = host.Launch(
        "k0", (buffer("input"), buffer("arena", offset=64)), (), rows, scratch=64, comment="nodes 0 (relu)"
    )
    add = host.Launch(
        "k1",
        (buffer("arena", offset=64), buffer("weights"), buffer("output", 0), buffer("output", 1)),
        (rows,),
        rows,
        comment="nodes 1, 2 (add, mul)",
    )
    arena: host.Size = dim("s0") * 64 + 64 if batch is None else 64 + batch * 64
    return host.HostProgram(
        inputs=(port,),
        outputs=(port, port),
        symbols=(host.Symbol(0, 0),) if batch is None else (),
        names=("s0",) if batch is None else (),
        arena_bytes=arena,
        steps=(relu, add),
        interface_id=manifest_of(batch, WeightsInfo(64, 1, "", (0,)), embed, "", False).interface_id,
        weights_bytes=64,
        weights_id=weights_id,
        embed_weights=embed,
        cpu_features=isa.resolve(mcpu).cpu_features,
    )


def manifest_of(
    batch: int | None, weights: WeightsInfo, embed: bool, library: str, profile: bool, name: str = "tiny"
) -> manifest.Manifest:
    """The manifest of the model."""
    dims: tuple[int | str, ...] = ("batch" if batch is None else batch, WIDTH)
    kernels = tuple(
        manifest.KernelInfo(i, f"k{i}", "hand", (f"node {i}",), (op,), 16, 128, "0" * 64)
        for i, op in enumerate(("Relu", "Add"))
    )
    here = isa.resolve()
    return manifest.Manifest(
        torshc="0",
        model=name,
        prefix="",
        inputs=(manifest.TensorSpec("x", "f32", dims),),
        outputs=(manifest.TensorSpec("y", "f32", dims), manifest.TensorSpec('z"*/\n{{ }}', "f32", dims)),
        symbols=(manifest.SymbolSpec("batch", 0, 0, 0, host.SYMBOL_MAX, "dim"),) if batch is None else (),
        conditions=(),
        target="c",
        device=1,
        isa=manifest.IsaInfo(here.arch, here.mcpu, here.extras, here.lanes),
        opt_level=3,
        profile=profile,
        threads=0,
        passes=(),
        kernels=kernels,
        steps=(manifest.StepInfo(0, ("node 0",), 1), manifest.StepInfo(1, ("node 1",), 1)),
        fallbacks=(),
        approximations=(),
        tolerances=(),
        operators=(),
        dynamic=False,
        arena_bytes=64,
        weights=manifest.WeightsFile(weights.bytes, weights.sha256, embed),
        library_sha256=library,
        tools=(),
    )


def write(
    place: Path,
    batch: int | None = None,
    *,
    embed: bool = False,
    profile: bool = False,
    cc: str | None = None,
    cache: Cache | None = None,
    jobs: int = 1,
    sanitize: Sequence[str] = (),
    weights: npt.NDArray[np.float32] = WEIGHTS,
    extra_flags: Sequence[str] = (),
    mcpu: str | None = None,
) -> Path:
    """Writes the bundle of the model to ``place``.

    Args:
        cache: the cache of objects; by default that of all tests, as most objects are the same in all bundles.
    """
    tools = CTarget.toolchain.find(CompileOptions(cc=cc or "", profile=profile), isa.resolve(mcpu))
    compiler = tools.compiler
    assert isinstance(compiler, CCompiler)
    more = (*(compiler.base_flags(3, sanitize) if sanitize else ()), *extra_flags)

    def flags(source: str) -> tuple[str, ...]:
        """As of models, with which objects are shared."""
        return (*(tools.flags if source in KERNELS else tools.host), *more)

    with package.BundleWriter(place) as bundle, build.work_folder() as work:
        info = bundle.write_weights([[weights]], embed)
        sources, headers = host_sources(program(batch, info.id, embed, mcpu), CTarget.host)
        objects = build.build_objects(
            {**sources, **KERNELS}, headers, compiler, flags, cache or Cache(cache_folder()), jobs, work
        )
        library = build.link_library(compiler, objects, work, bundle.weights if embed else None, sanitize)
        digest = bundle.add_library(library, embed)
        bundle.add_text("model.h", headers["model.h"])
        return bundle.commit(manifest_of(batch, info, embed, digest, profile))


def expected(x: npt.NDArray[np.float32]) -> dict[str, npt.NDArray[np.float32]]:
    """What a run gives."""
    y = np.maximum(x, 0) + WEIGHTS
    return {"y": y, 'z"*/\n{{ }}': 2 * y}
