"""Elements of fewer than 8 bits through DLPack: only where each takes a byte."""

from __future__ import annotations

import ctypes
import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from torshc.base.errors import RunError
from torshc.runtime import dlpack


class Tensor:
    """Two elements of i4 on card 0, with some flags."""

    def __init__(self, flags: int) -> None:
        self.dims = (ctypes.c_int64 * 1)(2)
        self.managed = dlpack._Versioned(major=1, minor=1, flags=flags)
        tensor = self.managed.tensor
        tensor.data, tensor.ndim, tensor.device.type = 4096, 1, 2
        tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = 0, 4, 1
        tensor.shape = ctypes.cast(self.dims, ctypes.POINTER(ctypes.c_int64))

    def __dlpack__(self, **_: Any) -> Any:
        return dlpack._new(ctypes.addressof(self.managed), b"dltensor_versioned", None)


def test_packed_elements_are_refused() -> None:
    padded = Tensor(flags=4)
    assert dlpack.View(padded, "input 'x'", None).code == (0, 4)
    packed = Tensor(flags=0)
    with pytest.raises(RunError, match="input 'x' has several elements in a byte"):
        dlpack.View(packed, "input 'x'", None)
    with pytest.raises(RunError, match="int4 cannot be exported"):
        dlpack.export(None, 4096, (2, 0), (0, 4), (2,))


def test_names_of_types() -> None:
    names = [dlpack.dtype_name(*t) for t in ((10, 8), (14, 8), (17, 4), (1, 2), (2, 32), (6, 8))]
    assert names == ["float8_e4m3fn", "float8_e8m0fnu", "float4_e2m1fn", "uint2", "float32", "bool"]


class Foreign:
    """A tensor of another library on the processor; knows whether its capsule is still held."""

    def __init__(self, array: np.ndarray[Any, Any], code: tuple[int, int] = (2, 32)) -> None:
        self.array, self.code = array, code

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **how: Any) -> Any:
        if self.code == (2, 32):
            return self.array.__dlpack__(**how)
        return dlpack.export(self, self.array.ctypes.data, (1, 0), self.code, self.array.shape)


def test_memory_of_another_library_is_read_and_written_in_place() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for part in (array, array.T, array[::2, 1:], array[:0], np.array(array[1, 2])):
        seen = dlpack.host_array(Foreign(part), "input 'x'", np.dtype("f4"), (2, 32))
        assert seen.shape == part.shape and np.array_equal(seen, part)
    seen = dlpack.host_array(Foreign(array), "out['y']", np.dtype("f4"), (2, 32), writable=True)
    seen[1, 1] = 99
    assert array[1, 1] == 99


def test_memory_lives_as_long_as_its_view() -> None:
    owner = Foreign(np.arange(4, dtype=np.uint16), (4, 16))
    gone = weakref.ref(owner)
    seen = dlpack.host_array(owner, "input 'x'", np.dtype(ml_dtypes.bfloat16), (4, 16))
    del owner
    assert gone() is not None and seen.view(np.uint16).tolist() == [0, 1, 2, 3]
    del seen
    gc.collect()
    assert gone() is None


def test_what_is_no_tensor_there_is_left_alone_and_another_type_refused() -> None:
    assert dlpack.host_array([1.0], "input 'x'", np.dtype("f4"), (2, 32)) is None
    with pytest.raises(RunError, match="input 'x' has type float32; expected bfloat16"):
        dlpack.host_array(Foreign(np.zeros(2, np.float32)), "input 'x'", np.dtype("f2"), (4, 16))
    with pytest.raises(RunError, match="runs backwards"):
        dlpack.host_array(Foreign(np.zeros(3, np.float32)[::-1]), "input 'x'", np.dtype("f4"), (2, 32))
    fixed = np.zeros(2, np.float32)
    fixed.setflags(write=False)
    with pytest.raises(RunError, match=r"read-only|cannot be read through DLPack"):
        dlpack.host_array(Foreign(fixed), "out['y']", np.dtype("f4"), (2, 32), writable=True)


@pytest.mark.parametrize(("gradient", "remedy"), [(True, ".detach()"), (False, "NumPy array")])
def test_the_remedy_for_a_tensor_that_is_not_given_works_on_it(gradient: bool, remedy: str) -> None:
    """PyTorch gives a tensor with a gradient neither to DLPack nor to NumPy."""

    class Kept(Foreign):
        requires_grad = gradient

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("not this one")

    with pytest.raises(RunError) as caught:
        dlpack.host_array(Kept(np.zeros(2, np.float32)), "input 'x'", np.dtype("f4"), (2, 32))
    assert remedy in caught.value.remedy
