"""What a call of the library is given: structures for inputs and outputs, which stay from one run to the next."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from ctypes import addressof, byref, c_int64, c_size_t, c_void_p, string_at
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from torshc.base.manifest import TensorSpec

from .device import DeviceArray, Opened
from .dlpack import View
from .exchange import Places
from .native import CPU, Library, Tensor
from .pool import Pool, address_of, buffer_of

Array = npt.NDArray[Any]
OnDevice = View | DeviceArray  # what a call passes that is no NumPy array
_ndarray = np.ndarray  # bound once, as runs of small models look it up


def _picker(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """What takes the values of these names, and raises KeyError where one is missing."""
    if len(names) == 1:  # itemgetter gives no tuple then
        (name,) = names
        return lambda given: (given[name],)
    return itemgetter(*names) if names else lambda _: ()


class Side:
    """The inputs or the outputs, with the structures that a call passes; used under the model's lock only."""

    def __init__(self, library: Library, kind: str, specs: Sequence[TensorSpec], place: tuple[int, int]) -> None:
        self.kind, self.specs, self.place = kind, tuple(specs), place
        self.index = {spec.name: i for i, spec in enumerate(specs)}
        self.pick = _picker([spec.name for spec in specs])
        self.tensors = (Tensor * max(len(specs), 1))()
        self.at = list(self.tensors)  # the same structures; a look into an array of ctypes makes an object
        self.shapes = [(c_int64 * len(spec.shape))() for spec in specs]
        self.held: list[tuple[int, ...]] = [()] * len(specs)  # the shape that shapes[i] has now
        self.away = [False] * len(specs)  # whether tensors[i] is on another device than the processor now
        self.is_away = False  # whether one may be
        self.dtypes: list[np.dtype[Any] | None] = [None] * len(specs)
        for i in range(len(specs)):
            dtype, dims = library.info(kind, i)
            tensor = self.at[i]
            tensor.device.type, tensor.ndim, tensor.dtype = CPU, len(dims), dtype
            tensor.shape = ctypes.cast(self.shapes[i], ctypes.POINTER(c_int64))
            self.shapes[i][:] = list(dims)

    def numpy(self, i: int) -> np.dtype[Any]:
        """NumPy dtype of tensor ``i``; late, because bf16 needs a package that a user may not have."""
        found = self.dtypes[i]
        if found is None:
            found = self.dtypes[i] = self.specs[i].numpy
        return found

    def put(self, i: int, array: Array | OnDevice) -> None:
        tensor = self.at[i]
        if isinstance(array, np.ndarray):
            tensor.data = address_of(array)
            if self.away[i]:
                tensor.device.type, tensor.device.id, tensor.byte_offset, self.away[i] = CPU, 0, 0, False
                self.is_away = any(self.away)
        else:
            array.point(tensor)
            self.away[i] = self.is_away = True
        if array.shape != self.held[i]:
            self.held[i] = array.shape
            self.shapes[i][:] = list(array.shape)


def prepared(handle: int, given: Any, inputs: Side, taken: Any, outputs: Side) -> tuple[Any, ...]:
    """Arguments of ``torshc_run`` for :meth:`Library.plain`, with arrays of structures for inputs and outputs."""
    return (c_void_p(handle), byref(given), len(inputs.specs), byref(taken), len(outputs.specs), None, c_size_t(0))


class Handed:
    """What runs on a device pass whose tensors are all of one type, one that has DLPack's table of functions.

    Their library writes the structures, and the model's library checks them. So nothing is read here but what has to be
    known of the inputs where outputs are to be made.

    Attributes:
        set: lets the structures of inputs, or of inputs and outputs, be these tensors; False where they may not be.
        passed: arguments of ``torshc_run``.
        made: the same where :meth:`make` makes the outputs.
    """

    def __init__(self, handle: int, inputs: Side, outputs: Side, stream: int | None) -> None:
        given, taken = (Tensor * max(len(inputs.specs), 1))(), (Tensor * max(len(outputs.specs), 1))()
        made = (Tensor * max(len(outputs.specs), 1))()
        self.passed = prepared(handle, given, inputs, taken, outputs)
        self.made = prepared(handle, given, inputs, made, outputs)
        places = [*given[: len(inputs.specs)], *taken[: len(outputs.specs)]]
        self.set = Places(places, outputs.place, stream).fill
        self._inputs, self._outputs = given, list(made)
        self._forms = struct.Struct("=" + len(inputs.specs) * "8xiii4xQ16x")  # place, rank, and where the sizes are
        self._expected: list[tuple[tuple[int, int, int], bytes]] | None = None
        self._wanted: list[tuple[Tensor, tuple[int, ...], np.dtype[Any], tuple[int, int]]] = []

    def expect(self, shapes: Sequence[tuple[int, ...]], outputs: Side, out_shapes: Sequence[tuple[int, ...]]) -> None:
        """The shapes of inputs on the device for which outputs are made, and those of the outputs."""
        place = outputs.place
        self._expected = [((*place, len(shape)), struct.pack(f"{len(shape)}q", *shape)) for shape in shapes]
        self._wanted = []
        for i, (tensor, shape) in enumerate(zip(self._outputs, out_shapes, strict=False)):
            ctypes.pointer(tensor)[0] = outputs.at[i]
            self._wanted.append((tensor, shape, outputs.numpy(i), (tensor.dtype.code, tensor.dtype.bits)))

    def expect_nothing(self) -> None:
        """Nothing is known of inputs any more."""
        self._expected = None

    def make(self, opened: Opened) -> list[DeviceArray] | None:
        """Outputs for inputs that are as expected; None where they are not."""
        if self._expected is None:
            return None
        found = self._forms.unpack(string_at(self._inputs, self._forms.size))
        for k, (form, shape) in enumerate(self._expected):
            if found[4 * k : 4 * k + 3] != form or (shape and string_at(found[4 * k + 3], len(shape)) != shape):
                return None
        arrays = [DeviceArray(opened, shape, dtype, code) for _, shape, dtype, code in self._wanted]
        for (tensor, *_), array in zip(self._wanted, arrays, strict=True):
            array.point(tensor)
        return arrays


class Repeat:
    """What runs check and set whose arrays are of NumPy and of the shapes of the run before: as little as there is."""

    def __init__(
        self, inputs: Side, outputs: Side, shapes: Sequence[Any], out_shapes: Sequence[Any], pool: Pool
    ) -> None:
        self._inputs = [
            (spec.name, inputs.at[i], inputs.numpy(i), shape)
            for i, (shape, spec) in enumerate(zip(shapes, inputs.specs, strict=True))
        ]
        self._outputs = [
            (spec.name, outputs.at[i], outputs.numpy(i), shape, pool.maker(shape, outputs.numpy(i)))
            for i, (shape, spec) in enumerate(zip(out_shapes, outputs.specs, strict=True))
        ]

    def set(self, inputs: Mapping[str, Any], out: Mapping[str, Any]) -> dict[str, Any] | None:
        """Lets the structures of a call be these arrays; the outputs, or None where a closer look is needed.

        A buffer of ctypes is writable and contiguous, or there is none.

        Raises:
            BufferError, TypeError, ValueError: an array has no such buffer.
            KeyError: an input is missing.
            MemoryError: there is none for an output.
        """
        if len(inputs) != len(self._inputs):
            return None
        for name, tensor, dtype, shape in self._inputs:
            value = inputs[name]
            if type(value) is not _ndarray or value.shape != shape:
                return None
            if value.dtype is not dtype and value.dtype != dtype:  # of arrays from pickle it is another object
                return None
            at = addressof(buffer_of(value))
            if at & 15 and not value.flags.aligned:
                return None
            tensor.data = at
        results, given = {}, 0
        for name, tensor, dtype, shape, make in self._outputs:
            if out and name in out:
                value = out[name]
                if type(value) is not _ndarray or value.dtype is not dtype or value.shape != shape:
                    return None
                at = addressof(buffer_of(value))
                if at & 15 and not value.flags.aligned:
                    return None
                given += 1
            else:
                value, at = make()
            tensor.data = at
            results[name] = value
        return results if given == len(out) else None
