"""Arrays on a model's device, and the open library that they keep alive."""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from ctypes import byref, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from torshc.base.errors import BundleError, RunError
from torshc.base.webgpu import WEBGPU

from .dlpack import device_name, dtype_name, export
from .locks import opened_in_children
from .manifest import REMEDY
from .native import CPU, Library, Options, Status, Tensor

SPARE_BLOCKS, SPARE_BYTES = 8, 64 << 20  # of one size, and in all, that a model keeps of outputs that are gone
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
    Status.RANKS: "end all processes and start again; TORSHC_RANKS_SECONDS is how long they wait for each other",
    Status.FORKED: "load the model in the process that runs it",
}

NO_WEBGPU = "pip install wgpu brings the library, which needs a driver of Vulkan or Metal; or use --target c"


def _release(library: Library, handle: int, of: Opened | None, spare: Spare) -> None:
    for data in spare.all():
        library.torshc_free(handle, data)
    library.torshc_close(handle)
    if of is None:
        library.unload()


class Opened:
    """An open model of the library; closed when nothing uses it any more, arrays on its device and contexts included.

    Args:
        library: the loaded library.
        name: name of the model, for messages.
        weights: the weights file, unless there is none beside the library.
        threads: number of threads of a run on the processor.
        device: type and number of where it runs.
        stream: the caller's stream, 0 for the library's own.
        profile: what the names of files begin with that tell what runs saw; None for what the environment says.
        of: the open model that this is a context of.
        ranks: address of the table of the processes that share the model; 0 for a model that is whole.
        nccl: path of the library by which their cards exchange tensors.
        comm: the caller's communicator of that library; 0 for one of its own.

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
        profile: bytes | None = None,
        of: Opened | None = None,
        ranks: int = 0,
        nccl: str = "",
        comm: int = 0,
    ) -> None:
        size, path = ctypes.sizeof(Options), os.fsencode(nccl) if nccl else None
        shared = ranks or None, path, comm or None
        options = Options(size, 0, threads, weights, device[1], stream or None, profile, *shared)
        if not ranks:
            options.size = Options.ranks.offset
        if profile is None and not ranks:  # libraries that know only the first fields are opened as they want it
            options.size = (Options.device if device[0] == CPU else Options.profile_path).offset
        handle = c_void_p()
        if of is None:
            status = library.torshc_open(byref(options), byref(handle))
        else:
            status = library.torshc_context_new(of.handle, byref(options), byref(handle))
        if status == Status.DEVICE:
            raise RunError(f"cannot open {name!r}: {library.last_error()}", "name another device")
        if status:
            remedy = NO_WEBGPU if (status, device[0]) == (Status.DRIVER, WEBGPU) else REMEDIES.get(status, REMEDY)
            raise BundleError(f"cannot open {name!r}: {library.last_error()}", remedy)
        assert handle.value is not None
        self.handle: int = handle.value
        if device[1] < 0:  # the library chose
            device = device[0], library.torshc_device_number(self.handle)
        self.library, self.device, self.stream = library, device, stream
        self.name, self.weights, self.threads = name, weights, threads
        self._spare = Spare()
        weakref.finalize(self, _release, library, self.handle, of, self._spare)

    def context(self, threads: int | None, stream: int) -> Opened:
        """Another open model with the same weights.

        Raises:
            RunError: the library has no contexts.
        """
        if not self.library.has_contexts:
            raise RunError(f"the bundle of {self.name!r} is of a torshc without contexts", REMEDY)
        count = self.threads if threads is None else threads
        return Opened(self.library, self.name, self.weights, count, self.device, stream, of=self)

    def take(self, nbytes: int) -> int:
        """Memory on the device for an output: what another had, or fresh.

        Raises:
            RunError: there is none.
        """
        found = self._spare.take(nbytes)
        if found is not None:
            return found
        data = c_void_p()
        status = self.library.torshc_alloc(self.handle, nbytes, byref(data))
        if status == Status.MEMORY and (spare := self._spare.all()):
            for old in spare:
                self.library.torshc_free(self.handle, old)
            status = self.library.torshc_alloc(self.handle, nbytes, byref(data))
        self.check(status)
        return data.value or 0

    def give(self, data: int, nbytes: int, shown: bool) -> None:
        """Memory of an output that nothing uses any more; what other libraries have seen is not given to the next.

        Runs of a model follow each other in its stream, so that the next may write where the last one reads. Other
        libraries may go on in streams of their own, for which freeing waits.
        """
        if shown or not self._spare.keep(data, nbytes):
            self.library.torshc_free(self.handle, data)

    def check(self, status: int) -> None:
        """Raises RunError unless a call succeeded."""
        if status:
            raise RunError(self.library.last_error(), REMEDIES.get(status, ""))


class Spare:
    """Memory of outputs that are gone, for those of the same size to come; threads may share it."""

    def __init__(self) -> None:
        self._blocks: dict[int, list[int]] = {}
        self._bytes = 0
        self._lock = opened_in_children(threading.RLock())  # memory may be collected, and come here, at any time

    def take(self, nbytes: int) -> int | None:
        """A block of this size."""
        with self._lock:
            blocks = self._blocks.get(nbytes)
            if not blocks:
                return None
            self._bytes -= nbytes
            return blocks.pop()

    def keep(self, data: int, nbytes: int) -> bool:
        """Whether a block is kept: there are few, and none is large."""
        with self._lock:
            blocks = self._blocks.setdefault(nbytes, [])
            if len(blocks) == SPARE_BLOCKS or self._bytes + nbytes > SPARE_BYTES:
                return False
            self._bytes += nbytes
            blocks.append(data)
            return True

    def all(self) -> list[int]:
        """All of them, which are no longer here."""
        with self._lock:
            found, self._blocks, self._bytes = self._blocks, {}, 0
        return [data for blocks in found.values() for data in blocks]


def _free(opened: Opened, data: int, nbytes: int, shown: list[bool]) -> None:
    opened.give(data, nbytes, bool(shown))


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
        nbytes = self.nbytes
        self._data, self._shown = opened.take(nbytes), list[bool]()
        weakref.finalize(self, _free, opened, self._data, nbytes, self._shown)

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
        self._shown[:] = [True]
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
