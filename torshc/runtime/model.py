"""A loaded model: NumPy arrays or tensors on its device in, the same out."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from ctypes import byref, c_uint64, c_void_p
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from torshc.base.errors import RunError, did_you_mean
from torshc.base.manifest import InputValue, PaddedInput, SizeRange, TensorSpec, sizes_text

from .call_frame import Handed, OnDevice, Repeat, Side, prepared
from .device import LEGACY_STREAM, REMEDIES, DeviceArray, Opened, stream_number
from .dlpack import View, device_name, dtype_name, host_array
from .exchange import exchange_of
from .faults import explain_fault, remedy_for
from .locks import opened_in_children
from .manifest import RunInfo
from .native import CPU, Status, Tensor
from .pool import Pool, address_of
from .stats import FormStats, Stats, StepStats
from .values import Given, GivenArrays, TakenArrays, are_arrays, put_into, taken, unlike
from .weights import set_weights

Array = npt.NDArray[Any]
CUDA = 2  # DLPack's device type
_now = time.perf_counter


class Model:
    """A compiled model, opened by :func:`load`.

    Any number may be open at a time. Threads may share one; their runs take turns. For runs at the same time, each
    thread has a :meth:`context`.

    Attributes:
        name: name of the model.
        inputs, outputs: in the model's order.
        conditions: equations that the sizes of its inputs have to satisfy, but for a 1 that its loose form broadcasts.
        needs: the same, with what else makes a run compute something.
        tolerances: how far each output may be from a reference's.
        device: where it runs, "cpu" or "cuda:0".
        rank, ranks: which of how many processes that share the model this is; 0 of 1 for a model that is whole.
    """

    _function = "torshc_run"

    def __init__(self, manifest: RunInfo, opened: Opened, rank: int = 0, ranks: int = 1) -> None:
        library = opened.library
        self.rank, self.ranks = rank, ranks
        self.name = manifest.model
        self.inputs, self.outputs, self.conditions = manifest.inputs, manifest.outputs, manifest.conditions
        self.needs = manifest.needs
        self.tolerances = manifest.tolerances
        self._manifest, self._library = manifest, library
        self._lock = opened_in_children(threading.Lock())
        self._runs, self._seconds = 0, 0.0
        self._shapes: list[tuple[int, ...]] | None = None  # of the inputs of the last run that passed the checks
        self._out_shapes: list[tuple[int, ...]] = []
        self._repeat: Repeat | None = None  # for runs with those shapes
        self._pool = Pool()
        self._in = Side(library, "input", self.inputs, opened.device)
        self._out = Side(library, "output", self.outputs, opened.device)
        self._told = bool(manifest.needs.elements)  # elements of inputs are sizes
        self._static = [all(isinstance(d, int) for d in spec.shape) for spec in self.outputs]
        self._place = opened.device
        self.device = device_name(*self._place)
        self._stream = opened.stream or (LEGACY_STREAM if self._place[0] == CUDA else None)
        self._opened: Opened | None = opened
        self._call = library.plain("torshc_run_sized" if manifest.dynamic else self._function)
        self._arrays = GivenArrays(self.inputs) if manifest.dynamic and are_arrays(self.inputs) else None
        self._taken: TakenArrays | None = None
        if manifest.dynamic and are_arrays(self.outputs):
            keep = library.plain("torshc_keep") if library.gives_memory else None
            self._taken = TakenArrays(self.outputs, keep, opened.handle)
        self._sized: tuple[Any, ...] | None = None  # arguments of torshc_run_sized for these arrays
        if self._arrays and self._taken:
            places = byref(self._arrays.tensors), len(self.inputs), byref(self._taken.tensors), len(self.outputs)
            self._sized = (c_void_p(opened.handle), *places)
        self._passed = prepared(opened.handle, self._in.tensors, self._in, self._out.tensors, self._out)
        direct = self._stream is not None and not manifest.dynamic
        self._handed = Handed(opened.handle, self._in, self._out, self._stream) if direct else None

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Runs the model.

        A model on a device also takes tensors that are there, of any library that speaks DLPack (torch, CuPy), and
        reads and writes them in place. Without a stream (:func:`load`) the run follows what is in the device's
        default stream, and is done on return. In the caller's stream, with all tensors on the device, it is not:
        tensors must live until the stream is past it.

        Args:
            inputs: an array for each input, by name: of NumPy, a tensor of any library that speaks DLPack, or what
                NumPy makes an array of. Element types must match; nothing is converted. What is not contiguous is
                copied, anything else is read in place.
            out: arrays or tensors to write outputs to, by name, contiguous and of exact type and shape; those left out
                are made. They overlap no input, but that those of :attr:`shared` may be the very array of theirs.

        Returns:
            All outputs by name, in the model's order: those of ``out``, and NumPy arrays for others, or
            :class:`DeviceArray` when all inputs are on the device and the model knows their sizes before it runs.

        Raises:
            RunError: an input is missing, unknown, or of the wrong type, rank or shape.
        """
        handed = self._handed
        if handed and out and type(inputs) is type(out) is dict and self._into(handed, inputs, out):
            return {**self._out.index, **out}  # in the model's order
        if self._repeat and type(inputs) is dict and (results := self._again(inputs, out or {})) is not None:
            return results
        if self._sized and not out and type(inputs) is dict and len(inputs) == len(self.inputs):
            found = self._run_arrays(list(map(inputs.get, self._in.index)))
            if found is not None:
                return dict(zip(self._out.index, found, strict=True))
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            raise RunError(f"run() takes a dictionary of inputs, not {type(inputs).__name__}", self._expects())
        if inputs.keys() != self._in.index.keys():
            check_names("input", inputs, self._in.index, complete=True)
        values = list(map(inputs.__getitem__, self._in.index))
        return dict(zip(self._out.index, self._run(values, out or {})))  # noqa: B905  # of one length; it takes its time

    def __call__(self, *inputs: Any, **named: Any) -> tuple[Any, ...]:
        """Runs the model on its inputs in order, the last ones by name if they are; returns its outputs in order.

        Raises:
            RunError: as :meth:`run`; also for an input that is given twice.
        """
        if not named and len(inputs) != len(self.inputs):
            raise RunError(f"{len(inputs)} inputs; expected {len(self.inputs)}", self._expects())
        if not named:
            again = self._again(dict(zip(self._in.index, inputs, strict=True)), {}) if self._repeat else None
            return tuple(self._run(inputs, {}) if again is None else again.values())
        placed = {spec.name: value for spec, value in zip(self.inputs, inputs, strict=False)}
        if len(inputs) > len(self.inputs) or placed.keys() & named.keys():
            raise RunError("an input is given twice, by place and by name", self._expects())
        check_names("input", {**placed, **named}, self._in.index, complete=True)
        return tuple(self._run([{**placed, **named}[spec.name] for spec in self.inputs], {}))

    def __reduce__(self) -> Any:
        """A loaded model holds a library and memory of this process.

        Raises:
            RunError: always; copying asks for the same.
        """
        raise RunError(
            f"model {self.name!r} is loaded and cannot be pickled or copied",
            "pass on the bundle's path, and load it where it is needed",
        )

    def _expects(self) -> str:
        return "the inputs are " + ", ".join(f"{s.name!r} {s.dtype}{s.shape_text}" for s in self.inputs)

    def _run(self, values: Sequence[Any], out: Mapping[str, Any]) -> list[Any]:
        if out and out.keys() != self._out.index.keys():
            check_names("output", out, self._out.index, complete=False)
        if self._manifest.dynamic:
            return self._run_sized(values, out)
        if self._handed and values and not out and type(values[0]) is not np.ndarray:
            with self._lock:
                results = self._hand_over(self._handed, values)
            if results is not None:
                return results
        arrays = [self._as_input(i, value) for i, value in enumerate(values)]
        shapes = [array.shape for array in arrays]
        stay = bool(arrays) and not any(isinstance(array, np.ndarray) for array in arrays)
        with self._lock:
            if self._opened is None:
                raise RunError(f"model {self.name!r} is closed", "load it again")
            known = shapes == self._shapes and not self._told  # most runs have the shapes of the one before
            repeat, self._repeat = self._repeat if known else None, None
            if not known:
                self._shapes = None
                if self._handed is not None:
                    self._handed.expect_nothing()
            for i, array in enumerate(arrays):
                self._in.put(i, array)
            if not known:
                self._check_shapes(arrays)
                self._out_shapes = [self._output_shape(i) for i in range(len(self.outputs))]
                self._shapes = shapes
            results = [self._output(i, out.get(spec.name), stay) for i, spec in enumerate(self.outputs)]
            for i, array in enumerate(results):
                self._out.put(i, array)
            if not known and self._handed is not None and not self._told:
                self._handed.expect(shapes, self._out, self._out_shapes)
            if not (self._told or self._in.is_away or self._out.is_away):
                self._repeat = repeat or Repeat(self._in, self._out, shapes, self._out_shapes, self._pool)
            if status := self._pass(self._passed):
                raise self._failure(status)
        return [out.get(s.name, array) for s, array in zip(self.outputs, results, strict=True)] if out else results

    def _into(self, handed: Handed, inputs: Mapping[str, Any], out: Mapping[str, Any]) -> bool:
        """A run with tensors on the device as their library describes them, all outputs too; whether it was one."""
        if len(inputs) != len(self.inputs) or len(out) != len(self.outputs):
            return False
        try:
            tensors = self._in.pick(inputs) + self._out.pick(out)
        except KeyError:
            return False
        with self._lock:
            return self._opened is not None and handed.set(tensors) and self._passes(handed.passed)

    def _hand_over(self, handed: Handed, values: Sequence[Any]) -> list[Any] | None:
        """The outputs of a run on handed arrays, which it makes; None where it cannot run so; under the lock."""
        if self._opened is None or not handed.set(values):
            return None
        results = handed.make(self._opened)
        return None if results is None or not self._passes(handed.made) else [*results]

    def _passes(self, passed: tuple[Any, ...]) -> bool:
        """Whether a call with what is handed over is a run; under the lock only.

        One that is refused may be made once more in the longer way, which says what is wrong with it.

        Raises:
            RunError: the run began and failed: made once more, it would fail for that.
        """
        status = self._pass(passed)
        if status > Status.DEVICE:  # those up to it are of the call
            raise self._failure(status)
        return not status

    def _pass(self, passed: tuple[Any, ...]) -> int:
        """A run for which all structures stand ready; its status; under the lock only."""
        began = _now()
        status: int = self._call(*passed)
        self._seconds += _now() - began
        self._runs += not status
        return status

    def _again(self, inputs: Mapping[str, Any], out: Mapping[str, Any]) -> dict[str, Any] | None:
        """The outputs of a run that repeats the one before with other arrays of NumPy; None where it may be none."""
        with self._lock:
            if self._repeat is None:  # another thread closed the model, or ran it otherwise
                return None
            try:
                results = self._repeat.set(inputs, out)
            except (BufferError, KeyError, TypeError, ValueError, MemoryError):  # the longer way copes, or says why not
                return None
            if results is not None and (status := self._pass(self._passed)):
                raise self._failure(status)
            return results

    def _run_sized(self, values: Sequence[Any], out: Mapping[str, Any]) -> list[Any]:
        """A run of a model that knows the sizes of its outputs only then; they are taken out of its memory."""
        if not out and (found := self._run_arrays(values)) is not None:
            return found
        given, inputs = Given(), (Tensor * max(len(values), 1))()
        for tensor, value, spec in zip(inputs, values, self.inputs, strict=False):
            there = None if isinstance(value, np.ndarray) else self._borrow(value, f"input {spec.name!r}", spec)
            if there is not None:
                given.point(tensor, there)
            else:
                given.put(tensor, value, spec)
        there_out = {
            spec.name: there
            for spec in self.outputs
            if spec.name in out and (there := self._borrow(out[spec.name], f"output {spec.name!r}", spec, True))
        }
        with self._lock:
            found = self._call_sized(inputs, len(values))
        for spec, result in zip(self.outputs, found, strict=True):
            if spec.name in there_out:
                self._send(result, there_out[spec.name], spec)
            elif spec.name in out:
                put_into(out[spec.name], result, spec)
        return [out.get(spec.name, result) for spec, result in zip(self.outputs, found, strict=True)]

    def _run_arrays(self, values: Sequence[Any]) -> list[Any] | None:
        """The outputs of a run on arrays that are taken as they are; None where values are none, or outputs are not."""
        if not (self._arrays and self._taken and self._sized):
            return None
        with self._lock:
            if self._opened is None or not self._arrays.set(values):
                return None
            if status := self._pass(self._sized):
                raise self._failure(status)
            return self._taken.take()

    def _call_sized(self, inputs: Any, count: int) -> list[Any]:
        """The outputs of a run on these tensors, taken out of the library's memory; under the lock only."""
        if self._opened is None:
            raise RunError(f"model {self.name!r} is closed", "load it again")
        outputs = self._taken.tensors if self._taken else (Tensor * max(len(self.outputs), 1))()
        if status := self._pass((self._passed[0], byref(inputs), count, byref(outputs), len(self.outputs))):
            raise self._failure(status)
        if self._taken:
            return [*self._taken.take()]
        return [taken(tensor, spec) for tensor, spec in zip(outputs, self.outputs, strict=False)]

    def _send(self, result: Array, there: OnDevice, spec: TensorSpec) -> None:
        """Copies a result to a tensor on the device."""
        if result.shape != there.shape:
            raise unlike(spec)
        tensor = Tensor()
        there.point(tensor)
        assert self._opened is not None
        if result.nbytes:
            at = (tensor.data or 0) + tensor.byte_offset
            self._opened.check(self._library.torshc_copy(self._opened.handle, at, address_of(result), result.nbytes))

    def _failure(self, status: int) -> RunError:
        fault = self._library.last_fault()
        message = explain_fault(self._library.last_error(), fault, self._manifest)
        remedy = REMEDIES.get(status) or remedy_for(fault, self._manifest) or self._expects()
        return RunError(f"model {self.name!r}: {message}", remedy)

    def _borrow(self, value: Any, what: str, spec: TensorSpec, writable: bool = False) -> OnDevice | None:
        """A tensor on the model's device; None for what is not a tensor on a device.

        Raises:
            RunError: it is on another device, or of another type or rank.
        """
        found = self._at_a_glance(value, what, writable) or self._view_of(value, what, writable)
        if found is None:
            return None
        code, bits = found.code
        side = self._out if writable else self._in
        want = side.tensors[side.index[spec.name]].dtype
        if (code, bits) != (want.code, want.bits):
            raise RunError(f"{what} has type {dtype_name(code, bits)}; expected {dtype_name(want.code, want.bits)}")
        if len(found.shape) != len(spec.shape):
            raise RunError(f"{what} has shape {list(found.shape)}; expected {spec.shape_text}")
        return found

    def _at_a_glance(self, value: Any, what: str, writable: bool) -> OnDevice | None:
        if self._stream is None:
            return None
        table = exchange_of(value)
        return table.look(value, what, self._place, self._stream, writable) if table is not None else None

    def _view_of(self, value: Any, what: str, writable: bool) -> OnDevice | None:
        if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
            return None
        kind, ordinal = value.__dlpack_device__()
        if kind == CPU:
            return None
        if (kind, ordinal) != self._place:
            raise RunError(
                f"{what} is on {device_name(int(kind), ordinal)}; the model is on {self.device}",
                "move it there, or pass a NumPy array",
            )
        return value if isinstance(value, DeviceArray) else View(value, what, self._stream, writable)

    def _as_input(self, i: int, value: Any) -> Array | OnDevice:
        spec = self.inputs[i]
        if not isinstance(value, np.ndarray) and (found := self._borrow(value, f"input {spec.name!r}", spec)):
            return found
        dtype = self._in.numpy(i)
        try:
            array = value if isinstance(value, np.ndarray) else self._on_host(value, i, dtype)
        except (TypeError, ValueError) as error:
            raise RunError(f"input {spec.name!r} is not an array: {error}", f"pass an array of {dtype}") from error
        if array.dtype != dtype:
            raise RunError(
                f"input {spec.name!r} has type {array.dtype}; expected {dtype}",
                f"pass an array of {dtype}" if array.dtype.kind in "USO" else f"pass it as .astype({dtype.name!r})",
            )
        if array.ndim != len(spec.shape):
            raise RunError(f"input {spec.name!r} has shape {list(array.shape)}; expected {spec.shape_text}")
        flags = array.flags
        return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=("C", "A"))

    def _on_host(self, value: Any, i: int, dtype: np.dtype[Any]) -> Array:
        """An input that is no NumPy array as one: a tensor of another library in its place, other things converted."""
        spec, code = self.inputs[i], self._in.at[i].dtype
        found = host_array(value, f"input {spec.name!r}", dtype, (code.code, code.bits))
        return np.asarray(value) if found is None else found

    def _check_shapes(self, arrays: Sequence[Array | OnDevice]) -> None:
        """Check the shapes that a message can name; the library checks all of them again, and what is more involved."""
        bound: dict[str, int] = {}
        for symbol in self._manifest.symbols:
            if symbol.kind != "dim":
                continue
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
                raise RunError(f"input {spec.name!r} has shape {list(array.shape)}; expected {spec.shape_text}{where}")

    def _output_shape(self, i: int) -> tuple[int, ...]:
        """The shape of an output for the inputs that stand ready; under the lock only."""
        dims = self._out.shapes[i]
        handle = self._opened and self._opened.handle
        ask = self._library.torshc_output_shape
        if not self._static[i] and (status := ask(handle, self._in.tensors, len(self.inputs), i, dims)):
            raise self._failure(status)
        return tuple(dims)

    def _output(self, i: int, given: Any, stay: bool) -> Array | OnDevice:
        """The array that output ``i`` is written to; ``stay``: on the device unless one is given."""
        spec, shape = self.outputs[i], self._out_shapes[i]
        if given is not None and not isinstance(given, np.ndarray):
            found = self._borrow(given, f"out[{spec.name!r}]", spec, writable=True)
            if found is not None and found.shape != shape:
                raise RunError(f"out[{spec.name!r}] has shape {list(found.shape)}; expected {list(shape)}")
            if found is not None:
                return found
        dtype = self._out.numpy(i)
        if given is None and stay:
            assert self._opened is not None
            want = self._out.tensors[i].dtype
            return DeviceArray(self._opened, shape, dtype, (want.code, want.bits))
        if given is None:
            try:
                return self._pool.empty(shape, dtype)
            except (MemoryError, ValueError) as error:
                raise RunError(f"no memory for output {spec.name!r} of shape {list(shape)}") from error
        array = given
        if not isinstance(given, np.ndarray):
            code = self._out.at[i].dtype
            array = host_array(given, f"out[{spec.name!r}]", dtype, (code.code, code.bits), writable=True)
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
            raise RunError(
                f"out[{spec.name!r}] is not an array of {dtype} and shape {list(shape)}",
                "pass a NumPy array, or a tensor that has __dlpack__",
            )
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            raise RunError(f"out[{spec.name!r}] is not contiguous, aligned and writable")
        return array

    def context(self, threads: int | None = None, *, stream: Any = None) -> Model:
        """The same model for another thread: runs of several contexts go on at the same time, with the same weights.

            with ThreadPoolExecutor(4) as pool:
                answers = [pool.submit(context.run, feeds) for context in (model.context() for _ in range(4))]

        Args:
            threads: threads of a run, the caller's included; as many as the model has when None.
            stream: the CUDA stream for all its work; its own when None.

        Raises:
            RunError: the model is closed or of a torshc without contexts, or ``threads`` is not 1 to 1024.
        """
        check_threads(threads)
        with self._lock:
            opened = self._opened
        if opened is None:
            raise RunError(f"model {self.name!r} is closed", "load it again")
        return Model(self._manifest, opened.context(threads, stream_number(stream)))

    def set_weights(self, weights: Mapping[str, Any] | str | os.PathLike[str]) -> None:
        """Gives the model, and its contexts, other weights; runs in progress end with those that they began with.

        Args:
            weights: arrays by the model's names, for a bundle compiled with ``named_weights=True``; others stay as they
                are. Or the ``weights.bin`` of another bundle of the same library, as ``torshc weights`` writes it.

        Raises:
            RunError: the model is closed, a name is unknown, an array is of another type or shape, a weight was folded
                into others when the model was compiled, or the file is not this library's. The model keeps the weights
                that it had.
        """
        with self._lock:
            opened = self._opened
        if opened is None:
            raise RunError(f"model {self.name!r} is closed", "load it again")
        set_weights(opened, self._manifest.named, weights)

    def step(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Makes a training step: computes the loss, and updates the weights.

        Args:
            inputs, out: as of :meth:`run`.

        Returns:
            The loss, before the update.

        Raises:
            RunError: the model was not compiled with ``train``; or as :meth:`run`.
        """
        raise self._does_not_train()

    def state_dict(self) -> dict[str, Array]:
        """Copies of what a model that trains keeps: its trained weights by their names, ``torshc.step`` (how many there
        were), and what the optimizer keeps of a weight (``torshc.momentum/NAME``).

        Raises:
            RunError: the model was not compiled with ``train``.
        """
        raise self._does_not_train()

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """Writes all of :meth:`state_dict` to a file (safetensors). A kill at any time leaves the old or the new one.

        Raises:
            RunError: the file cannot be written, or the model was not compiled with ``train``.
        """
        raise self._does_not_train()

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """Goes on from a file of :meth:`save_state`, with the bits that training without a stop would have.

        Raises:
            RunError: the file is damaged, or of another model or optimizer, and the model keeps its state; or the model
                was not compiled with ``train``.
        """
        raise self._does_not_train()

    def serve(self, threads: int | None = None) -> Model:
        """Opens a model that runs with the weights that this one trains, as they are now.

            served = model.serve()
            worker = threading.Thread(target=answer, args=(served.context(),))
            ...
            model.step(batch)
            model.publish()

        It has weights of its own: steps do not change them until :meth:`publish`, and its contexts on other threads run
        meanwhile.

        Args:
            threads: threads of its runs, the caller's included; as many as the bundle was compiled for when None.

        Raises:
            RunError: the model was not compiled with ``train`` and ``serve_while_training``, or is closed.
        """
        raise self._does_not_train()

    def publish(self) -> int:
        """Gives the weights as they are between two steps to all models of :meth:`serve`, and to their contexts.

        Runs in progress end with the weights that they began with; later ones have the new ones, all of them at once.

        Returns:
            How many updates the weights have seen.

        Raises:
            RunError: the model was not compiled with ``train``, or is closed.
        """
        raise self._does_not_train()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._opened is None

    def _does_not_train(self) -> RunError:
        return RunError(f"model {self.name!r} does not train", 'compile it with train="step.yaml" (--train)')

    @property
    def shared(self) -> dict[str, str]:
        """Outputs that :meth:`run` may write to the array of an input, by name, with that input's name.

            model.run({**feeds, "past": cache}, out={"present": cache})

        They are caches with new rows, which alone are written then. The input has to have the output's shape.
        """
        pairs = ((spec.name, self._library.shared_input(k)) for k, spec in enumerate(self.outputs))
        return {name: self.inputs[k].name for name, k in pairs if k >= 0}

    @property
    def versions(self) -> tuple[str, ...]:
        """The processors that the library has a version for, the best first; :meth:`stats` says which one runs."""
        return self._manifest.versions

    @property
    def variants(self) -> tuple[tuple[SizeRange | InputValue | PaddedInput, ...], ...]:
        """The sizes, and values of inputs, that there are variants for, the better first; :meth:`stats` counts runs."""
        return tuple(filter(None, self._manifest.version.forms))

    def stats(self) -> Stats:
        """Counts and times of the runs since the model was loaded."""
        with self._lock:
            steps = self._step_stats() if self._manifest.profile and self._opened else ()
            return Stats(self._runs, self._seconds, self._manifest.isa, steps, self._form_stats())

    def _form_stats(self) -> tuple[FormStats, ...]:
        version = self._manifest.version
        if self._opened is None or not self._library.counts_forms:
            return ()
        found, runs, missed = [], c_uint64(), c_uint64()
        for number, sizes in enumerate(version.forms):
            if status := self._library.torshc_form_runs(self._opened.handle, number, byref(runs)):
                raise self._failure(status)
            loose = version.loose and number == len(version.forms) - 1
            guarded = any(isinstance(part, InputValue) for part in sizes)
            if guarded and (status := self._library.torshc_form_misses(self._opened.handle, number, byref(missed))):
                raise self._failure(status)
            found.append(FormStats(sizes_text(sizes), loose, runs.value, missed.value if guarded else 0))
        return tuple(found)

    def _step_stats(self) -> tuple[StepStats, ...]:
        found, calls, ns = [], c_uint64(), c_uint64()
        version = self._manifest.version
        for i, step in enumerate(version.steps):
            handle = self._opened and self._opened.handle
            if status := self._library.torshc_profile(handle, i, byref(calls), byref(ns)):
                raise self._failure(status)
            loose = version.loose and step.form == len(version.forms) - 1
            seconds = ns.value / 1e9
            found.append(StepStats(step.kernel, step.template, step.nodes, calls.value, seconds, loose, step.form))
        return tuple(found)

    def close(self) -> None:
        """Gives memory, threads and files back, once no array on the device is left; a second call does nothing."""
        with self._lock:
            self._opened = self._repeat = None
            self._pool.clear()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._opened is None else f"{len(self.inputs)} inputs, {len(self.outputs)} outputs"
        return f"<torshc model {self.name!r}: {state}>"


def check_names(kind: str, given: Mapping[str, Any], known: Collection[str], complete: bool) -> None:
    """Refuse names of inputs or outputs that a model does not have, or that lack some.

    Raises:
        RunError: naming the first.
    """
    if extra := [name for name in given if name not in known]:
        hint = did_you_mean(str(extra[0]), [*known])
        raise RunError(f"there is no {kind} {extra[0]!r}{hint}", f"the {kind}s are {', '.join(map(repr, known))}")
    if complete and (missing := [name for name in known if name not in given]):
        raise RunError(f"{kind} {missing[0]!r} is missing", f"the {kind}s are {', '.join(map(repr, known))}")


def check_threads(threads: int | None) -> None:
    """Raises RunError for a number of threads that is not 1 to 1024."""
    if threads is not None and (not isinstance(threads, int | np.integer) or not 1 <= threads <= 1024):
        raise RunError(f"{threads!r} threads; expected 1 to 1024")
