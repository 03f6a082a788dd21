"""Arrays on a model's device, and the open library that they keep alive."""

from __future__ import annotations

import ctypes
import math
import weakref
from ctypes import byref, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from torshc.errors import BundleError, RunError

from .dlpack import device_name, dtype_name, export
from .manifest import REMEDY
from .native import CPU, Library, Options, Status, Tensor

LEGACY_STREAM = 1  # CUDA's name for the default stream that all ordinary streams are ordered with
# Remedies by status; other failures are about the inputs.
REMEDIES: dict[int, str] = {
    Status.CPU: "compile the model for this processor too: --isa names several, --mcpu one; TORSHC_ISA chooses",
    Status.MEMORY: "free memory on the device, or run smaller shapes",
    Status.DRIVER: "install the device's driver or a newer one (nvidia-smi shows NVIDIA's), or use --target c",
    Status.ARCH: "compile the model again with --arch for this card",
    Status.LAUNCH: "restart the process; if it happens again, please report it with the model",
    Status.DEVICE: "move the tensors to the model's device",
    Status.VALUE: "check the values in the inputs: the named operator cannot take them",
    Status.FORKED: "load the model in the process that runs it",
}


def _release(library: Library, handle: int, of: Opened | None) -> None:
    library.torshc_close(handle)
    if of is None:
        library.unload()


class Opened:
    """An open model of the library; closed when nothing uses it any more, arrays on its device and contexts included.

    Args:
        library: the loaded library.
        name: of the model, for messages.
        weights: the weights file, unless there is none beside the library.
        threads: of a run on the processor.
        device: type and number of where it runs.
        stream: the caller's stream, 0 for the library's own.
        of: the open model that this is a context of.

    Raises:
        BundleError: it cannot be opened.
        RunError: there is no such device.
    """

    def __init__(
        self,
        library: Library,
        name: str,
        weights: bytes | None,
        threads: int,
        device: tuple[int, int],
        stream: int,
        of: Opened | None = None,
    ) -> None:
        options = Options(ctypes.sizeof(Options), 0, threads, weights, device[1], stream or None)
        if device[0] == CPU:  # libraries that know only the first fields are opened as they want it
            options.size = Options.device.offset
        handle = c_void_p()
        if of is None:
            status = library.torshc_open(byref(options), byref(handle))
        else:
            status = library.torshc_context_new(of.handle, byref(options), byref(handle))
        if status == Status.DEVICE:
            raise RunError(f"cannot open {name!r}: {library.last_error()}", "name another device")
        if status:
            raise BundleError(f"cannot open {name!r}: {library.last_error()}", REMEDIES.get(status, REMEDY))
        assert handle.value is not None
        self.handle: int = handle.value
        self.library, self.device, self.stream = library, device, stream
        self.name, self.weights, self.threads = name, weights, threads
        weakref.finalize(self, _release, library, self.handle, of)

    def context(self, threads: int | None, stream: int) -> Opened:
        """Another open model with the same weights.

        Raises:
            RunError: the library has no contexts.
        """
        if not self.library.has_contexts:
            raise RunError(f"the bundle of {self.name!r} is of a torshc without contexts", REMEDY)
        count = self.threads if threads is None else threads
        return Opened(self.library, self.name, self.weights, count, self.device, stream, of=self)

    def check(self, status: int) -> None:
        """Raises RunError unless a call succeeded."""
        if status:
            raise RunError(self.library.last_error(), REMEDIES.get(status, ""))


def _free(opened: Opened, data: int) -> None:
    opened.library.torshc_free(opened.handle, data)


class DeviceArray:
    """An output that stays on the device; give it to another library (``torch.from_dlpack(array)``), or take a copy.

    It may outlive its model.

    Attributes:
        shape: its dimensions.
        dtype: its NumPy dtype.
        device: "cuda:0".
        code: DLPack's type code and bits.
    """

    def __init__(self, opened: Opened, shape: tuple[int, ...], dtype: np.dtype[Any], code: tuple[int, int]) -> None:
        self.shape, self.dtype, self.code = shape, dtype, code
        self._opened = opened
        data = c_void_p()
        opened.check(opened.library.torshc_alloc(opened.handle, self.nbytes, byref(data)))
        self._data = data.value or 0
        weakref.finalize(self, _free, opened, self._data)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def device(self) -> str:
        """Where it lies."""
        return device_name(*self._opened.device)

    def numpy(self) -> npt.NDArray[Any]:
        """A copy on the processor.

        Raises:
            RunError: the run that computes it failed.
        """
        array = np.empty(self.shape, self.dtype)
        library, handle = self._opened.library, self._opened.handle
        self._opened.check(library.torshc_copy(handle, array.ctypes.data, self._data, array.nbytes))
        return array

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._opened.device

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        """A capsule for another library; waits for the run unless both use the same stream."""
        if not stream or stream != self._opened.stream:
            self._opened.check(self._opened.library.torshc_synchronize(self._opened.handle))
        return export(self, self._data, self._opened.device, self.code, self.shape)

    def point(self, tensor: Tensor) -> None:
        """Let a tensor of a call be this array."""
        tensor.data, tensor.byte_offset = self._data, 0
        tensor.device.type, tensor.device.id = self._opened.device

    def __repr__(self) -> str:
        return f"<{dtype_name(*self.code)} array {list(self.shape)} on {self.device}>"


def stream_number(stream: Any) -> int:
    """The caller's stream as a number: its handle, or an object of torch or CuPy; 0 when None.

    Raises:
        RunError: it is none of these.
    """
    if stream is None:
        return 0
    for name in ("cuda_stream", "ptr"):
        stream = getattr(stream, name, stream)
    if not isinstance(stream, int):
        raise RunError(f"stream={stream!r} is not a stream", "pass the stream's handle, or a stream of torch or CuPy")
    return stream or LEGACY_STREAM
