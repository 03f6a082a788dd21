"""The C interface of ``model.h`` through ctypes."""

from __future__ import annotations

import _ctypes
import ctypes
import enum
import os
import threading
from collections import deque
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint8, c_uint16, c_uint32, c_uint64
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torshc.base.errors import BundleError

from .locks import opened_in_children

ABI_VERSION = 1
CPU = 1


class Status(enum.IntEnum):
    """The status codes that the runtime distinguishes."""

    DEVICE = 10
    MEMORY = 12
    CPU = 15
    FORKED = 16
    DRIVER = 18
    ARCH = 19
    LAUNCH = 20
    VALUE = 21
    BUILD = 23
    STATE = 24
    RANKS = 25


class Device(ctypes.Structure):
    _fields_ = (("type", c_int32), ("id", c_int32))


class Dtype(ctypes.Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", c_int32),
        ("dtype", Dtype),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


class Options(ctypes.Structure):
    _fields_ = (
        ("size", c_uint32),
        ("flags", c_uint32),
        ("threads", c_int32),
        ("weights_path", c_char_p),
        ("device", c_int32),
        ("stream", ctypes.c_void_p),
        ("profile_path", c_char_p),
        ("ranks", ctypes.c_void_p),
        ("nccl_path", c_char_p),
        ("nccl_comm", ctypes.c_void_p),
    )


class Fault(ctypes.Structure):
    """Where a call failed, by the numbers of the manifest; -1 for what does not apply."""

    _fields_ = (
        ("step", c_int32),
        ("node", c_int32),
        ("condition", c_int32),
        ("left", c_int64),
        ("right", c_int64),
    )


class NamedTensor(ctypes.Structure):
    """A weight of the model by its name, and what it is to hold."""

    _fields_ = (("name", c_char_p), ("tensor", POINTER(Tensor)))


_MODEL = ctypes.c_void_p
_INFO = (c_int32, POINTER(Dtype), POINTER(c_int32), POINTER(POINTER(c_int64)))
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "torshc_abi_version": (c_int, ()),
    "torshc_last_error": (c_char_p, ()),
    "torshc_last_fault": (None, (POINTER(Fault),)),
    "torshc_status_text": (c_char_p, (c_int,)),
    "torshc_open": (c_int, (POINTER(Options), POINTER(_MODEL))),
    "torshc_close": (None, (_MODEL,)),
    "torshc_interface_id": (c_uint64, ()),
    "torshc_input_count": (c_int32, ()),
    "torshc_output_count": (c_int32, ()),
    "torshc_step_count": (c_int32, ()),
    "torshc_input_info": (c_int, _INFO),
    "torshc_output_info": (c_int, _INFO),
    "torshc_output_shape": (c_int, (_MODEL, POINTER(Tensor), c_int32, c_int32, POINTER(c_int64))),
    "torshc_workspace_size": (c_int, (_MODEL, POINTER(Tensor), c_int32, POINTER(c_size_t))),
    "torshc_run": (
        c_int,
        (_MODEL, POINTER(Tensor), c_int32, POINTER(Tensor), c_int32, ctypes.c_void_p, c_size_t),
    ),
    "torshc_profile": (c_int, (_MODEL, c_int32, POINTER(c_uint64), POINTER(c_uint64))),
}
# Functions of libraries whose output sizes are known only at run time.
_DYNAMIC_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "torshc_run_sized": (c_int, (_MODEL, POINTER(Tensor), c_int32, POINTER(Tensor), c_int32)),
}
# Functions of libraries that train.
_TRAINING_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "torshc_train": (
        c_int,
        (_MODEL, POINTER(Tensor), c_int32, POINTER(Tensor), c_int32, ctypes.c_void_p, c_size_t),
    ),
    "torshc_state_count": (c_int32, ()),
    "torshc_state_read": (c_int, (_MODEL, c_int32, ctypes.c_void_p, c_size_t)),
    "torshc_state_save": (c_int, (_MODEL, c_char_p)),
    "torshc_state_load": (c_int, (_MODEL, c_char_p)),
}
# What older libraries do not have.
_LATER_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "torshc_context_new": (c_int, (_MODEL, POINTER(Options), POINTER(_MODEL))),
    "torshc_device_number": (c_int32, (_MODEL,)),
    "torshc_isa": (c_char_p, ()),
    "torshc_set_weights": (c_int, (_MODEL, c_char_p)),
    "torshc_set_tensors": (c_int, (_MODEL, POINTER(NamedTensor), c_size_t)),
    "torshc_shared_input": (c_int32, (c_int32,)),
    "torshc_keep": (c_int, (_MODEL, c_int32, POINTER(ctypes.c_void_p))),
    "torshc_form_runs": (c_int, (_MODEL, c_int32, POINTER(c_uint64))),
    "torshc_form_misses": (c_int, (_MODEL, c_int32, POINTER(c_uint64))),
}
# What only libraries for devices are asked for; older ones for processors do not have them.
_DEVICE_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "torshc_device_type": (c_int32, ()),
    "torshc_alloc": (c_int, (_MODEL, c_size_t, POINTER(ctypes.c_void_p))),
    "torshc_free": (c_int, (_MODEL, ctypes.c_void_p)),
    "torshc_copy": (c_int, (_MODEL, ctypes.c_void_p, ctypes.c_void_p, c_size_t)),
    "torshc_synchronize": (c_int, (_MODEL,)),
}


@dataclass
class _Loaded:
    """A version of a library file that is loaded: what the file was, and how many use it."""

    identity: tuple[int, int, int]
    users: int = 0


_loaded_lock = opened_in_children(threading.Lock())
_loaded: dict[Path, list[_Loaded | None]] = {}
_left: deque[tuple[Path, int]] = deque()  # what is given back, without the lock: models may be collected at any time


def _enter(path: Path) -> tuple[int, str]:
    """An absolute name for the file that no other version of it in this process has.

    The loader takes two equal names for one library and would go on using the old one after a bundle was replaced
    while a model of it was open; ``/a/./b`` is another name for ``/a/b``.
    """
    status = path.stat()
    identity = (status.st_dev, status.st_ino, status.st_mtime_ns)
    with _loaded_lock:
        while _left:
            _forget(*_left.popleft())
        slots = _loaded.setdefault(path, [])
        at = next((i for i, slot in enumerate(slots) if slot and slot.identity == identity), None)
        if at is None:
            at = slots.index(None) if None in slots else len(slots)
            slots[at : at + 1] = [_Loaded(identity)]
        slot = slots[at]
        assert slot is not None
        slot.users += 1
        return at, os.fspath(path.parent) + "/." * at + "/" + path.name


def _forget(path: Path, at: int) -> None:
    slot = _loaded[path][at]
    assert slot is not None
    slot.users -= 1
    if not slot.users:
        _loaded[path][at] = None


class Library:
    """A loaded ``libmodel.so``.

    Args:
        path: absolute; nothing is searched for.
        device: whether it is for a device other than the processor.
        dynamic: whether the sizes of its outputs are known only at run time.
        trains: whether it trains its model.

    Raises:
        BundleError: it cannot be loaded, or has another interface.
    """

    def __init__(self, path: Path, device: bool = False, dynamic: bool = False, trains: bool = False) -> None:
        try:
            self._path = path
            self._slot, name = _enter(path)
            try:
                self._library = ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
            except OSError:
                _left.append((path, self._slot))
                raise
        except OSError as error:
            raise BundleError(f"cannot load {path}: {error}", "compile the model again on this machine") from error
        more = (_DEVICE_FUNCTIONS if device else {}) | (_DYNAMIC_FUNCTIONS if dynamic else {})
        more |= _TRAINING_FUNCTIONS if trains else {}
        for name, (result, arguments) in (_FUNCTIONS | more | _LATER_FUNCTIONS).items():
            function = getattr(self._library, name, None)
            if function is None and name in _LATER_FUNCTIONS:
                continue
            if function is None:
                self.unload()
                raise BundleError(
                    f"{path} lacks {name}: it is not a library of a torshc bundle", "compile the model again"
                )
            function.restype, function.argtypes = result, arguments
        if (version := self.torshc_abi_version()) != ABI_VERSION:
            self.unload()
            raise BundleError(f"{path} has interface version {version}; this torshc knows {ABI_VERSION}")

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("torshc_"):
            raise AttributeError(name)
        function = getattr(self._library, name)
        setattr(self, name, function)  # found directly from now on
        return function

    def plain(self, name: str) -> Any:
        """A function whose arguments are passed on as they are: what ctypes converts costs more than a small model.

        They have to be of ctypes, or numbers that fit an int.
        """
        return self._library[name]

    @property
    def has_contexts(self) -> bool:
        """Whether models of the library have contexts."""
        return hasattr(self._library, "torshc_context_new")

    @property
    def takes_weights(self) -> bool:
        """Whether open models of the library can be given other weights."""
        return hasattr(self._library, "torshc_set_tensors")

    def shared_input(self, output: int) -> int:
        """Number of the input whose buffer an output may be; -1 for none."""
        return int(self.torshc_shared_input(output)) if hasattr(self._library, "torshc_shared_input") else -1

    @property
    def gives_memory(self) -> bool:
        """Whether outputs of ``torshc_run_sized`` can be kept."""
        return hasattr(self._library, "torshc_keep")

    @property
    def counts_forms(self) -> bool:
        """Whether models of the library say how many runs took each of their forms."""
        return hasattr(self._library, "torshc_form_runs")

    @property
    def isa(self) -> str:
        """The version of the library that runs here; "" where none can, or a library does not say."""
        return bytes(self.torshc_isa()).decode() if hasattr(self._library, "torshc_isa") else ""

    def last_error(self) -> str:
        """The message of this thread's last failed call."""
        return bytes(self.torshc_last_error()).decode(errors="replace")

    def last_fault(self) -> Fault:
        """Where this thread's last failed call failed."""
        fault = Fault()
        self.torshc_last_fault(byref(fault))
        return fault

    def info(self, kind: str, index: int) -> tuple[Dtype, tuple[int, ...]]:
        """Type and dimensions (-1: symbolic) of input or output ``index``; ``kind`` is "input" or "output"."""
        dtype, ndim, dims = Dtype(), c_int32(), POINTER(c_int64)()
        if getattr(self, f"torshc_{kind}_info")(index, byref(dtype), byref(ndim), byref(dims)):
            raise BundleError(f"{kind} {index}: {self.last_error()}")
        return dtype, tuple(dims[i] for i in range(ndim.value))

    def unload(self) -> None:
        """Takes the library out of the process; nothing of it may be used afterwards."""
        _ctypes.dlclose(self._library._handle)
        _left.append((self._path, self._slot))
