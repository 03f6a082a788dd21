"""Other weights for an open model, by the model's names or from a weights file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from ctypes import POINTER, c_int64, cast, pointer
from typing import Any

import numpy as np

from torshc.base.errors import RunError, did_you_mean
from torshc.base.manifest import TensorSpec

from .device import Opened
from .dlpack import host_array
from .manifest import REMEDY
from .native import CPU, Dtype, NamedTensor, Tensor
from .values import code_of

NAMED = "compile it with named_weights=True (--named-weights)"


def set_weights(
    opened: Opened, named: Sequence[TensorSpec], weights: Mapping[str, Any] | str | os.PathLike[str]
) -> None:
    """Gives an open model other weights; see :meth:`torshc.runtime.model.Model.set_weights`."""
    if not opened.library.takes_weights:
        raise RunError(f"the bundle of {opened.name!r} is of a torshc that exchanges no weights", REMEDY)
    if not isinstance(weights, Mapping):
        opened.check(opened.library.torshc_set_weights(opened.handle, _path(weights)))
        return
    known = {spec.name: spec for spec in named}
    if not known:
        raise RunError(f"the bundle of {opened.name!r} takes no weights by name", NAMED)
    arrays = _arrays(opened.name, known, weights)  # held until the call is over
    shapes = [(c_int64 * max(a.ndim, 1))(*a.shape) for a in arrays.values()]
    tensors = (NamedTensor * max(len(arrays), 1))()
    for entry, (name, array), shape in zip(tensors, arrays.items(), shapes, strict=False):
        tensor = Tensor(array.__array_interface__["data"][0])
        tensor.device.type, tensor.ndim, tensor.dtype = CPU, array.ndim, Dtype(*code_of(known[name].dtype), 1)
        tensor.shape = cast(shape, POINTER(c_int64))
        entry.name, entry.tensor = name.encode(), pointer(tensor)
    opened.check(opened.library.torshc_set_tensors(opened.handle, tensors, len(arrays)))


def _arrays(model: str, known: Mapping[str, TensorSpec], weights: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The weights as the library takes them.

    Raises:
        RunError: with all that do not fit.
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    faults = []
    for name, value in weights.items():
        try:
            if name not in known:
                raise RunError(f"model {model!r} has no weight {name!r}{did_you_mean(str(name), [*known])}")
            arrays[name] = _array(value, known[name])
        except RunError as error:
            faults.append(error)
    if len(faults) == 1:
        raise faults[0]
    if faults:
        lines = [f"{len(faults)} weights do not fit:", *(f"  - {f.message}" for f in faults)]
        raise RunError("\n".join(lines), "; ".join(dict.fromkeys(f.remedy for f in faults if f.remedy)))
    return arrays


def _path(given: Any) -> bytes:
    if not isinstance(given, str | os.PathLike):
        raise RunError(
            f"weights are {type(given).__name__}", "pass a dictionary of arrays, or the path of a weights.bin"
        )
    path = os.fsencode(given)
    if b"\0" in path:
        raise RunError(f"no file is named {os.fspath(given)!r}")
    return path


def _array(value: Any, spec: TensorSpec) -> np.ndarray[Any, Any]:
    what = f"weight {spec.name!r}"
    found = None if isinstance(value, np.ndarray) else host_array(value, what, spec.numpy, code_of(spec.dtype))
    try:
        array = np.asarray(value) if found is None else np.asarray(found)
    except (TypeError, ValueError) as error:
        raise RunError(f"{what} is not an array: {error}", f"pass an array of {spec.numpy}") from error
    if array.dtype != spec.numpy:
        raise RunError(f"{what} has type {array.dtype}; expected {spec.numpy}", f"pass it as {spec.numpy}")
    if array.shape != spec.shape:
        raise RunError(f"{what} has shape {list(array.shape)}; expected {spec.shape_text}")
    return np.require(array, requirements=("C", "A"))
