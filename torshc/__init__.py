"""torshc: an ahead-of-time compiler for tensor graphs.

torshc.compile("model.onnx", "out.tsc", target="c", opt_level=3)
model = torshc.load("out.tsc", threads=2)
outputs = model.run({"x": array})

model = torshc.compile("model.onnx")    # compiled and loaded in one step
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from ._version import __version__
from .base import errors as errors
from .base.errors import TorshcError

if TYPE_CHECKING:
    from onnx import ModelProto

    from .entry.inprocess import InProcess
    from .entry.tracing import Differentiated, TracedFunction
    from .formats.torch_program import Program
    from .graph import Graph
    from .pipeline.compilation import Compilation
    from .runtime import Model

    Source: TypeAlias = str | os.PathLike[str] | bytes | ModelProto | Graph | Program

__all__ = [
    "TorshcError", "__version__", "compile", "errors", "grad", "jit", "load", "load_model", "trace", "value_and_grad",
]  # fmt: skip


@overload
def compile(
    model: Source,
    out: str | os.PathLike[str],
    target: str = "c",
    opt_level: int = 3,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    **options: Any,
) -> Compilation: ...


@overload
def compile(
    model: Source,
    out: None = None,
    target: str = "c",
    opt_level: int = 3,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    **options: Any,
) -> Model: ...


def compile(
    model: Source,
    out: str | os.PathLike[str] | None = None,
    target: str = "c",
    opt_level: int = 3,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    **options: Any,
) -> Compilation | Model:
    """Compile a model to a bundle folder, or to a loaded model.

    Args:
        model: the path of an ONNX or JSON model, the bytes of one, an onnx ModelProto, a torch.export.ExportedProgram,
            or a torshc Graph, which is changed.
        out: the bundle; replaced as a whole when it is one already. None loads the model, and leaves no file.
        target: "c" (C for this processor), "llvm" (LLVM for it), "cuda" (NVIDIA GPUs), "metal" (Apple GPUs) or
            "webgpu" (WebGPU);
            `torshc targets` lists what each needs.
        opt_level: 0 to 3.
        shapes: input name to dimensions, which pins symbolic ones.
        options: further fields of :class:`torshc.base.options.CompileOptions`.

    Returns:
        The compilation, or the loaded model where `out` is None.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    # start-up: loading a bundle does not load the compiler
    from .base.options import CompileOptions  # start-up: as above
    from .entry.compile_and_load import compile_loaded, source_of
    from .pipeline.compiler import compile_model  # start-up: as above
    from .pipeline.ranks import compile_ranks

    asked = CompileOptions.create(target=target, opt_level=opt_level, shapes=shapes, **options)
    if asked.shard is not None and out is not None:
        return compile_ranks(source_of(model), out, asked).compilations[0]
    return compile_loaded(model, asked) if out is None else compile_model(source_of(model), out, asked)


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    verify: bool = True,
    *,
    device: int | None = None,
    stream: Any = None,
    profile: str | os.PathLike[str] | None = None,
    ranks: int | None = None,
    nccl: str | os.PathLike[str] | None = None,
    communicator: int | None = None,
) -> Model:
    """Load a bundle; needs no compiler and none of the compiler's packages but numpy.

    Args:
        path: the bundle folder.
        threads: threads to run on; the bundle's default when None.
        verify: check the files against the manifest's hashes.
        device: which card, for a bundle that runs on one; the first, or of processes that share a model each its own.
        stream: the CUDA stream for all its work, a handle or a stream of torch or CuPy; its own when None.
        profile: what the names of files begin with to which the model writes the sizes of its runs, for
            ``compile --observed``; when None, what the environment variable ``TORSHC_PROFILE`` says.
        ranks: address of a ``torshc_ranks`` of ``model.h``, for a bundle that several processes share; when None MPI's,
            or that of the folder ``TORSHC_MEET``.
        nccl: absolute path of libnccl.so.2, for such a bundle on cards; when None, what ``TORSHC_NCCL`` says.
        communicator: a communicator of that library (``ncclComm_t``) over all ranks; one of its own when None.

    Raises:
        BundleError: when the bundle is missing, altered or not for this machine.
    """
    from .runtime import load as load_bundle  # start-up: compiling does not load the runtime

    more = {"device": device, "stream": stream, "profile": profile, "ranks": ranks, "nccl": nccl}
    return load_bundle(path, threads, verify, communicator=communicator, **more)


def load_model(model: Source, threads: int | None = None, **options: Any) -> InProcess:
    """Compile a model into this process, by LLVM; needs no C compiler and leaves no file but cached kernels.

    Args:
        model: as :func:`compile` takes it.
        threads: that large kernels run on; all of the processor's when 0, one when None.
        options: further fields of :class:`torshc.base.options.CompileOptions`.

    Raises:
        TorshcError: a member of the family, by cause; what LLVM has no kernel for is listed at once.
    """
    # start-up: loading a bundle does not load the compiler
    from .entry.compile_and_load import source_of
    from .entry.inprocess import load_model as load_here  # start-up: as above

    return load_here(source_of(model), threads, **options)


def jit(function: Callable[..., Any] | None = None, *, target: str = "llvm", **options: Any) -> Any:
    """Decorator: compile a function written in NumPy when it is first called, for the types and ranks it is given.

    Args:
        function: takes arrays, numbers, and tuples, lists and dictionaries of them; numbers of Python and texts are
            constants, and each has a compilation of its own.
        target: what to compile for.
        options: further fields of :class:`torshc.base.options.CompileOptions`.

    Raises:
        TorshcError: by the call; :class:`UnsupportedError` names the line of what cannot be traced.
    """
    from .entry.tracing import jit as jit_here  # start-up: loading a bundle does not load the compiler

    return jit_here(function, target=target, **options)


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> TracedFunction:
    """The model of a function written in NumPy, for arguments of these types and ranks.

    Returns:
        What can be saved as a JSON graph (`save`), explained (`explain`) and compiled (`compile`).

    Raises:
        UnsupportedError: what cannot be traced, with its line.
    """
    from .entry.tracing import trace as trace_here  # start-up: as above

    return trace_here(function, *args, **kwargs)


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Differentiated:
    """The function that gives the gradient of a NumPy function's result, one float, with respect to arguments.

    It is compiled when it is called, may be traced by others, and may be differentiated itself.

    Args:
        argnums: places of the arguments: arrays of floats, or tuples, lists and dictionaries of these. The gradient of
            one has its form; of several it is a tuple.

    Raises:
        TorshcError: by the call; :class:`UnsupportedError` names the line of what cannot be traced or has no gradient.
    """
    from .entry.tracing import grad as grad_here  # start-up: as above

    return grad_here(function, argnums)


def value_and_grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Differentiated:
    """As :func:`grad`, for a function that gives the value and the gradient."""
    from .entry.tracing import value_and_grad as value_and_grad_here  # start-up: as above

    return value_and_grad_here(function, argnums)
