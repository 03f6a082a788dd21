"""A loaded model: NumPy arrays in, NumPy arrays out."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from ctypes import byref, c_int64, c_uint64
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from torshc.errors import BundleError, RunError

from .manifest import REMEDY, Manifest, TensorSpec, read_manifest
from .native import CPU, Library, Options, Tensor

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class StepStats:
    """What a step of a run has cost: its kernel, template and model nodes, how often it ran, and seconds in all."""

    kernel: str
    template: str
    nodes: tuple[str, ...]
    calls: int
    seconds: float


@dataclass(frozen=True)
class Stats:
    """What has run since the model was loaded.

    Attributes:
        runs: runs that succeeded.
        seconds: seconds inside the library in all.
        steps: each step; empty unless the model was compiled with profiling.
    """

    runs: int
    seconds: float
    steps: tuple[StepStats, ...]


class _Side:
    """The inputs or the outputs, with the structures that a call passes; used under the model's lock only."""

    def __init__(self, library: Library, kind: str, specs: Sequence[TensorSpec]) -> None:
        self.kind, self.specs = kind, tuple(specs)
        self.index = {spec.name: i for i, spec in enumerate(specs)}
        self.tensors = (Tensor * max(len(specs), 1))()
        self.shapes = [(c_int64 * len(spec.shape))() for spec in specs]
        self.held: list[tuple[int, ...]] = [()] * len(specs)  # the shape that shapes[i] has now
        self.dtypes: list[np.dtype[Any] | None] = [None] * len(specs)
        for i, spec in enumerate(specs):
            dtype, dims = library.info(kind, i)
            if dims != tuple(d if isinstance(d, int) else -1 for d in spec.shape):
                raise BundleError(
                    f"{kind} {spec.name!r} has other dimensions in the library than in the manifest", REMEDY
                )
            tensor = self.tensors[i]
            tensor.device.type, tensor.ndim, tensor.dtype = CPU, len(dims), dtype
            tensor.shape = ctypes.cast(self.shapes[i], ctypes.POINTER(c_int64))
            self.shapes[i][:] = list(dims)

    def numpy(self, i: int) -> np.dtype[Any]:
        """NumPy dtype of tensor ``i``; late, because bf16 needs a package that a user may not have."""
        found = self.dtypes[i]
        if found is None:
            found = self.dtypes[i] = self.specs[i].numpy
        return found

    def put(self, i: int, array: Array) -> None:
        self.tensors[i].data = array.__array_interface__["data"][0]  # a third of what array.ctypes costs
        if array.shape != self.held[i]:
            self.held[i] = array.shape
            self.shapes[i][:] = list(array.shape)


def _release(library: Library, handle: int) -> None:
    library.torshc_close(handle)
    library.unload()


class Model:
    """A compiled model, opened by :func:`load`.

    Any number may be open at a time. Threads may share one; their runs take turns.

    Attributes:
        name: of the model.
        inputs, outputs: in the model's order.
    """

    def __init__(self, manifest: Manifest, library: Library, weights: Path | None, threads: int) -> None:
        self.name = manifest.model
        self.inputs, self.outputs = manifest.inputs, manifest.outputs
        self._manifest, self._library = manifest, library
        self._lock = threading.Lock()
        self._runs, self._seconds = 0, 0.0
        self._shapes: list[tuple[int, ...]] | None = None  # of the inputs of the last run that passed the checks
        self._out_shapes: list[tuple[int, ...]] = []
        counts = (library.torshc_input_count(), library.torshc_output_count(), library.torshc_step_count())
        if counts != (len(self.inputs), len(self.outputs), len(manifest.steps)):
            raise BundleError("the library has other inputs, outputs or steps than the manifest says", REMEDY)
        self._in = _Side(library, "input", self.inputs)
        self._out = _Side(library, "output", self.outputs)
        self._static = [all(isinstance(d, int) for d in spec.shape) for spec in self.outputs]
        path = os.fsencode(weights) if weights else None
        options = Options(ctypes.sizeof(Options), 0, threads, path)
        handle = ctypes.c_void_p()
        if library.torshc_open(byref(options), byref(handle)):
            raise BundleError(f"cannot open {self.name!r}: {library.last_error()}", REMEDY)
        self._handle: ctypes.c_void_p | None = handle
        assert handle.value is not None
        self._finalizer = weakref.finalize(self, _release, library, handle.value)

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Runs the model.

        Args:
            inputs: an array for each input, by name. Element types must match; nothing is converted. Arrays that are
                not contiguous are copied, others are read in place.
            out: arrays to write outputs to, by name, contiguous and of exact type and shape; those left out are made.

        Returns:
            All outputs by name, in the model's order.

        Raises:
            RunError: an input is missing, unknown, or of the wrong type, rank or shape.
        """
        if not isinstance(inputs, Mapping):
            raise RunError(f"run() takes a dictionary of inputs, not {type(inputs).__name__}", self._expects())
        _check_names("input", inputs, self._in.index, complete=True)
        values = [inputs[spec.name] for spec in self.inputs]
        return dict(zip((spec.name for spec in self.outputs), self._run(values, out or {}), strict=True))

    def __call__(self, *inputs: Any) -> tuple[Array, ...]:
        """Runs the model on its inputs in order; returns its outputs in order."""
        if len(inputs) != len(self.inputs):
            raise RunError(f"{len(inputs)} inputs; expected {len(self.inputs)}", self._expects())
        return tuple(self._run(inputs, {}))

    def _expects(self) -> str:
        return "the inputs are " + ", ".join(f"{s.name!r} {s.dtype}{list(s.shape)}" for s in self.inputs)

    def _run(self, values: Sequence[Any], out: Mapping[str, Array]) -> list[Array]:
        _check_names("output", out, self._out.index, complete=False)
        arrays = [self._as_input(i, value) for i, value in enumerate(values)]
        shapes = [array.shape for array in arrays]
        with self._lock:
            if self._handle is None:
                raise RunError(f"model {self.name!r} is closed", "load it again")
            for i, array in enumerate(arrays):
                self._in.put(i, array)
            if shapes != self._shapes:  # most runs have the shapes of the one before
                self._shapes = None
                self._check_shapes(arrays)
                self._out_shapes = [self._output_shape(i) for i in range(len(self.outputs))]
                self._shapes = shapes
            results = [self._output(i, out.get(spec.name)) for i, spec in enumerate(self.outputs)]
            for i, array in enumerate(results):
                self._out.put(i, array)
            began = time.perf_counter()
            status = self._library.torshc_run(
                self._handle, self._in.tensors, len(arrays), self._out.tensors, len(results), None, 0
            )
            self._seconds += time.perf_counter() - began
            if status:
                raise self._failure()
            self._runs += 1
        return results

    def _failure(self) -> RunError:
        return RunError(f"model {self.name!r}: {self._library.last_error()}", self._expects())

    def _as_input(self, i: int, value: Any) -> Array:
        spec, dtype = self.inputs[i], self._in.numpy(i)
        try:
            array = value if isinstance(value, np.ndarray) else np.asarray(value)
        except (TypeError, ValueError) as error:
            raise RunError(f"input {spec.name!r} is no array: {error}", f"pass an array of {dtype}") from error
        if array.dtype != dtype:
            raise RunError(
                f"input {spec.name!r} has type {array.dtype}; expected {dtype}", f"pass it as .astype({dtype.name!r})"
            )
        if array.ndim != len(spec.shape):
            raise RunError(
                f"input {spec.name!r} has {array.ndim} dimensions, {list(array.shape)}; expected {list(spec.shape)}"
            )
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A"))

    def _check_shapes(self, arrays: Sequence[Array]) -> None:
        """What can be said by name; the library checks all of it again, and what is more involved."""
        bound: dict[str, int] = {}
        for symbol in self._manifest.symbols:
            size = bound[symbol.name] = arrays[symbol.input].shape[symbol.dim]
            if not symbol.min <= size <= symbol.max:
                raise RunError(
                    f"input {self.inputs[symbol.input].name!r}, dimension {symbol.dim} ({symbol.name!r}) is {size}; "
                    f"expected {symbol.min} to {symbol.max}"
                )
        for spec, array in zip(self.inputs, arrays, strict=True):
            want = tuple(bound.get(d, d) if isinstance(d, str) else d for d in spec.shape)
            if any(isinstance(w, int) and w != have for w, have in zip(want, array.shape, strict=True)):
                where = f" = {list(want)} here" if want != spec.shape else ""
                raise RunError(f"input {spec.name!r} has shape {list(array.shape)}; expected {list(spec.shape)}{where}")

    def _output_shape(self, i: int) -> tuple[int, ...]:
        """The shape of an output for the inputs that stand ready; under the lock only."""
        dims = self._out.shapes[i]
        if not self._static[i] and self._library.torshc_output_shape(
            self._handle, self._in.tensors, len(self.inputs), i, dims
        ):
            raise self._failure()
        return tuple(dims)

    def _output(self, i: int, given: Array | None) -> Array:
        """The array that output ``i`` is written to."""
        spec, dtype, shape = self.outputs[i], self._out.numpy(i), self._out_shapes[i]
        if given is None:
            try:
                return np.empty(shape, dtype)
            except (MemoryError, ValueError) as error:
                raise RunError(f"no memory for output {spec.name!r} of shape {list(shape)}") from error
        if not isinstance(given, np.ndarray) or given.dtype != dtype or given.shape != shape:
            raise RunError(f"out[{spec.name!r}] is not an array of {dtype} and shape {list(shape)}")
        flags = given.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            raise RunError(f"out[{spec.name!r}] is not contiguous, aligned and writable")
        return given

    def stats(self) -> Stats:
        """What has run since the model was loaded."""
        with self._lock:
            steps = self._step_stats() if self._manifest.profile and self._handle else ()
            return Stats(self._runs, self._seconds, steps)

    def _step_stats(self) -> tuple[StepStats, ...]:
        found, calls, ns = [], c_uint64(), c_uint64()
        for i, step in enumerate(self._manifest.steps):
            if self._library.torshc_profile(self._handle, i, byref(calls), byref(ns)):
                raise self._failure()
            found.append(StepStats(step.kernel, step.template, step.nodes, calls.value, ns.value / 1e9))
        return tuple(found)

    def close(self) -> None:
        """Gives memory, threads and files back; a second call does nothing."""
        with self._lock:
            self._handle = None
            self._finalizer()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{len(self.inputs)} inputs, {len(self.outputs)} outputs"
        return f"<torshc model {self.name!r}: {state}>"


def _check_names(kind: str, given: Mapping[str, Any], known: Mapping[str, int], complete: bool) -> None:
    if extra := [name for name in given if name not in known]:
        raise RunError(f"there is no {kind} {extra[0]!r}", f"the {kind}s are {', '.join(map(repr, known))}")
    if complete and (missing := [name for name in known if name not in given]):
        raise RunError(f"{kind} {missing[0]!r} is missing", f"the {kind}s are {', '.join(map(repr, known))}")


def _check_file(path: Path, sha256: str) -> None:
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror or error}", REMEDY) from error
    if found != sha256:
        raise BundleError(f"{path} was altered: its sha256 is not the manifest's", REMEDY)


def load(path: str | os.PathLike[str], threads: int | None = None, verify: bool = True) -> Model:
    """Opens a bundle.

    Args:
        path: the folder that compile wrote.
        threads: threads of a run, the caller's included; what the bundle was compiled for when None (as many as the
            process may use, unless --threads said otherwise).
        verify: compare the SHA-256 of library and weights with the manifest (about half a second a gigabyte). The
            library compares size and identity of the weights in any case.

    Raises:
        BundleError: it is no bundle, was altered, or is for another machine.
        RunError: ``threads`` is not 1 to 1024.
    """
    folder = Path(path).absolute()
    if threads is not None and not 1 <= threads <= 1024:
        raise RunError(f"{threads} threads; expected 1 to 1024")
    manifest = read_manifest(folder)
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
    if manifest.target != "c" or manifest.arch != machine:
        raise BundleError(
            f"{folder} is for target {manifest.target!r} on {manifest.arch}; this is {machine}",
            "compile the model for this machine",
        )
    library, weights = folder / "libmodel.so", folder / "weights.bin" if manifest.weights_sha256 else None
    if verify:
        _check_file(library, manifest.library_sha256)
        if weights:
            _check_file(weights, manifest.weights_sha256)
    opened = Library(library)
    try:
        return Model(manifest, opened, weights, manifest.threads if threads is None else threads)
    except BaseException:
        opened.unload()
        raise
