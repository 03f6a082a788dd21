"""The model of tiny.py for CUDA, by hand: y = relu(x) + w, z = 2 * y; and with the first kernel on the processor."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from torshc.base.cache import Cache
from torshc.base.resources import cache_folder
from torshc.bundle import build, host, package
from torshc.bundle.host_source import host_sources
from torshc.expr import dim
from torshc.targets import isa
from torshc.targets.gpu.cuda import nvcc
from torshc.targets.gpu.cuda.target import CudaTarget

from . import tiny

# A block is a row, of at most 32 threads.
RELU = """
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" __global__ void __launch_bounds__(32) k0_kernel(const float *x, float *t)
{
    const int64_t i = (int64_t)blockIdx.x * 16 + threadIdx.x;
    if (threadIdx.x < 16)
        t[i] = x[i] < 0.0f ? 0.0f : x[i];
}

extern "C" int k0(void *const *buf, const int64_t *dim, int64_t blocks, void *stream)
{
    (void)dim;
    k0_kernel<<<(unsigned)blocks, 32, 0, (cudaStream_t)stream>>>((const float *)buf[0], (float *)buf[1]);
    return (int)cudaGetLastError();
}
"""
# Outputs are stored four at a time, which needs them aligned to 16 bytes.
ADD = """
#include <cuda_runtime.h>
#include <stdint.h>

extern "C" __global__ void __launch_bounds__(4) k1_kernel(const float4 *t, const float4 *w, float4 *y, float4 *z,
                                                          int64_t s0)
{
    const int64_t i = (int64_t)blockIdx.x * 4 + threadIdx.x;
    if ((int64_t)blockIdx.x >= s0)
        return;
    float4 a = t[i];
    const float4 b = w[threadIdx.x];
    a.x += b.x, a.y += b.y, a.z += b.z, a.w += b.w;
    y[i] = a;
    a.x *= 2.0f, a.y *= 2.0f, a.z *= 2.0f, a.w *= 2.0f;
    z[i] = a;
}

extern "C" int k1(void *const *buf, const int64_t *dim, int64_t blocks, void *stream)
{
    k1_kernel<<<(unsigned)blocks, BLOCK, 0, (cudaStream_t)stream>>>((const float4 *)buf[0], (const float4 *)buf[1],
                                                                (float4 *)buf[2], (float4 *)buf[3], dim[0]);
    return (int)cudaGetLastError();
}
"""


def kernels(fallback: bool = False, block: int = 4) -> dict[str, str]:
    """The sources of the kernels; a block of more than 1024 threads makes the second one fail."""
    first = {"k0.c": tiny.RELU} if fallback else {"k0.cu": RELU}
    return {**first, "k1.cu": ADD.replace("BLOCK", str(block))}


def program(
    batch: int | None = None, weights_id: int = 0, embed: bool = False, fallback: bool = False
) -> host.HostProgram:
    """The host program; symbolic when ``batch`` is None."""
    made = tiny.program(batch, weights_id, embed)
    relu, add = made.steps
    assert isinstance(relu, host.Launch) and isinstance(add, host.Launch)
    rows: host.Size = dim("s0") * 64 if batch is None else batch * 64
    if fallback:
        relu = dataclasses.replace(relu, fallback=True, bytes=(rows, rows), written=(False, True))
    else:
        relu = dataclasses.replace(relu, threads=32)
    return dataclasses.replace(made, device=2, steps=(relu, dataclasses.replace(add, threads=4)))


def write(
    place: Path,
    batch: int | None = None,
    *,
    embed: bool = False,
    profile: bool = False,
    fallback: bool = False,
    block: int = 4,
    arch: str = "",
    weights: npt.NDArray[np.float32] = tiny.WEIGHTS,
    extra_flags: Sequence[str] = (),
    cache: Cache | None = None,
) -> Path:
    """Writes the bundle of the model to ``place``; `cache` as of :func:`tiny.write`."""
    compiler = nvcc.find_nvcc()
    flags = (*compiler.base_flags(isa.resolve()), *compiler.gencode_flags(arch), *extra_flags)
    flags += ("-DTORSHC_PROFILE",) if profile else ()
    with package.BundleWriter(place) as bundle, build.work_folder() as work:
        info = bundle.write_weights([[weights]], embed)
        sources, headers = host_sources(program(batch, info.id, embed, fallback), CudaTarget.host)
        every = {**sources, **kernels(fallback, block)}
        objects = build.build_objects(
            every,
            headers,
            compiler,  # type: ignore[arg-type]  # shaped alike
            flags,
            cache or Cache(cache_folder()),
            1,
            work,
        )
        library = build.link_library(compiler, objects, work, bundle.weights if embed else None)  # type: ignore[arg-type]
        digest = bundle.add_library(library, embed)
        bundle.add_text("model.h", headers["model.h"])
        made = tiny.manifest_of(batch, info, embed, digest, profile)
        return bundle.commit(dataclasses.replace(made, target="cuda", device=2))
