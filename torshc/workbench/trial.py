"""What ``compile --with-test`` puts into a bundle: inputs, expected outputs, and a program that checks and times the
model on the machine where it lands, without Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..base.errors import UnsupportedError
from ..base.manifest import OBJECTS, Manifest
from ..bundle.host import Port
from ..pipeline.compilation import Compilation, manifest_of
from ..runtime import TensorSpec
from ..targets.base import environment
from .feeds import Array, make_inputs
from .verify import SIZES, reference_outputs


@dataclass(frozen=True)
class TensorFile:
    """A tensor of the test: its file, DLPack's type code and bits, and its shape."""

    file: str
    dlpack: tuple[int, int]
    shape: tuple[int, ...]


def trial_files(model: Path, compilation: Compilation, seed: int = 0) -> dict[str, bytes]:
    """The files of the bundle's ``test/``, by name.

    Args:
        model: its file, for onnx's reference evaluator.
        compilation: what was made of it.
        seed: seed of the random inputs.

    Raises:
        UnsupportedError: an input or output that holds no numbers.
        RunError: the reference fails.
    """
    manifest = manifest_of(compilation)
    _check(manifest)
    feeds = make_inputs(manifest.inputs, (), None, seed, SIZES, manifest.needs).arrays
    names = [x.name for x in manifest.outputs]
    expected = reference_outputs(model, "reference", names, feeds, compilation.options.ops)
    inputs = [feeds[x.name] for x in manifest.inputs]
    outputs = [np.asarray(expected[name]) for name in names]
    told = (_files("input", manifest.inputs, inputs), _files("output", manifest.outputs, outputs))
    made = environment(compilation.target.host.search)
    words = {"prefix": manifest.prefix, "inputs": told[0], "outputs": told[1], "dynamic": manifest.dynamic}
    program = made.get_template("trial.c.j2").render(words, tolerances=compilation.tolerances)
    texts = {"test.c": program, "run.sh": made.get_template("trial.sh.j2").render()}
    data = {
        t.file: np.ascontiguousarray(array).tobytes()
        for t, array in zip([*told[0], *told[1]], [*inputs, *outputs], strict=True)
    }
    return {**data, **{name: text.encode() for name, text in texts.items()}}


def _check(manifest: Manifest) -> None:
    others = [x for x in (*manifest.inputs, *manifest.outputs) if x.dtype in OBJECTS]
    if others:
        problems = [f"--with-test: {x.name!r} is a {x.dtype}; a test holds tensors of numbers" for x in others]
        raise UnsupportedError(problems, "leave it out, and use torshc verify --bundle")


def _files(kind: str, infos: tuple[TensorSpec, ...], arrays: list[Array]) -> list[TensorFile]:
    return [
        TensorFile(f"{kind}{k}.bin", Port(x.dtype).dlpack, a.shape)
        for k, (x, a) in enumerate(zip(infos, arrays, strict=True))
    ]
