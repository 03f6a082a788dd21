"""torshc: an ahead-of-time compiler for tensor graphs.

torshc.compile("model.onnx", "out.tsc", target="c", opt_level=3)
model = torshc.load("out.tsc", threads=2)
outputs = model.run({"x": array})
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .errors import TorshcError

if TYPE_CHECKING:
    from .compilation import Compilation
    from .runtime import Model

__all__ = ["TorshcError", "__version__", "compile", "load"]


def compile(
    model: str | os.PathLike[str],
    out: str | os.PathLike[str],
    target: str = "c",
    opt_level: int = 3,
    shapes: Mapping[str, Sequence[int | str | None]] | None = None,
    **options: Any,
) -> Compilation:
    """Compile a model file to a bundle folder.

    Args:
        model: an ONNX or JSON model.
        out: the bundle; replaced as a whole when it is one already.
        target: "c", "cuda" or "metal"; :data:`torshc.targets.TARGETS` has all.
        opt_level: 0 to 3.
        shapes: input name to dimensions, which pins symbolic ones.
        options: further fields of :class:`torshc.options.CompileOptions`.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    # start-up: loading a bundle does not load the compiler
    from .compiler import compile_model
    from .options import CompileOptions

    asked = CompileOptions.create(target=target, opt_level=opt_level, shapes=shapes, **options)
    return compile_model(os.fspath(model), out, asked)


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    verify: bool = True,
    *,
    device: int = 0,
    stream: Any = None,
) -> Model:
    """Load a bundle; needs no compiler and none of the compiler's packages but numpy.

    Args:
        path: the bundle folder.
        threads: threads to run on; the bundle's default when None.
        verify: check the files against the manifest's hashes.
        device: which card, for a bundle that runs on one.
        stream: the CUDA stream for all its work, a handle or a stream of torch or CuPy; its own when None.

    Raises:
        BundleError: when the bundle is missing, altered or not for this machine.
    """
    from .runtime import load as load_bundle  # start-up: compiling does not load the runtime

    return load_bundle(path, threads, verify, device=device, stream=stream)
