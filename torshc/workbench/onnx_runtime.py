"""ONNX Runtime on models: in this process, whose calls can be timed, and in a child, which it may end.

On some models it does, such as a GRU on no rows. Files in a folder carry what goes to the child and comes back: numbers
as .npy, all else as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import errors
from ..base.errors import ConfigError, RunError, TorshcError, UnsupportedError
from ..base.manifest import ML_DTYPES, TensorSpec

if TYPE_CHECKING:
    from .feeds import Array, Arrays

_BY_ML_DTYPE = {name: short for short, name in ML_DTYPES.items()}
_OTHER_SIZES = "give other sizes with --dims"
_GIVEN, _FOUND = "given", "found"


def ort_session(path: Path, threads: int = 1) -> Any:
    """An ONNX Runtime session on the CPU.

    Raises:
        ConfigError: ONNX Runtime is not installed.
        UnsupportedError: it cannot open the model.
        ModelError: the model names a file that cannot be used: ONNX Runtime opens these by itself.
    """
    from ..formats.files import model_files  # start-up: the child has no use for it

    model_files(path)
    return _open(path, threads)


def _open(path: Path, threads: int = 1) -> Any:
    try:
        import onnxruntime  # optional package
    except ImportError as error:
        raise ConfigError("ONNX Runtime is not installed", "pip install onnxruntime") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions share no public base
        raise UnsupportedError([f"ONNX Runtime cannot open {path}: {error}"]) from error


def run_ort(session: Any, feeds: Arrays, names: list[str] | None = None) -> list[Any]:
    """What ONNX Runtime computes; all outputs where `names` is None.

    Raises:
        RunError: it fails.
    """
    try:
        found: list[Any] = session.run(names, feeds)
    except Exception as error:  # its exceptions share no public base
        raise RunError(f"ONNX Runtime failed with {_sizes(feeds)}: {error}", _OTHER_SIZES) from error
    return found


def _sizes(feeds: Arrays) -> str:
    return ", ".join(f"{name!r} {list(array.shape)}" for name, array in feeds.items()) or "no inputs"


def ort_outputs_here(path: Path, names: Sequence[str], feeds: Arrays) -> dict[str, Any]:
    """What ONNX Runtime computes in this process, of a model whose files are known to be good: outputs by name.

    Raises:
        ConfigError, UnsupportedError: as :func:`ort_session`.
        RunError: it fails, or the model has other inputs or outputs.
    """
    from .feeds import plain, require_interface  # start-up: bench has no use for it

    session = _open(path)
    inputs, outputs = ([v.name for v in found] for found in (session.get_inputs(), session.get_outputs()))
    require_interface(path, inputs, outputs, names, feeds)
    return dict(zip(names, map(plain, run_ort(session, feeds, list(names))), strict=True))


def ort_outputs(path: Path, names: Sequence[str], feeds: Arrays) -> dict[str, Any]:
    """What ONNX Runtime computes in a process of its own: outputs by name.

    Raises:
        ConfigError, UnsupportedError, ModelError: as :func:`ort_session`.
        RunError: it fails, or ends its process, or the model has other inputs or outputs.
    """
    from ..base.folders import scratch_folder  # start-up: the child has no use for these
    from ..formats.files import model_files
    from ..targets.processes import execute

    model_files(path)
    with scratch_folder() as folder:
        _write(folder, _GIVEN, {"path": str(path), "names": list(names), "feeds": dict(feeds)})
        # It finds the modules that are found here; -P: not those of the folder that it starts in.
        modules = {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
        command = [sys.executable, "-P", "-m", __name__, str(folder)]
        status, _, messages = execute(command, Path.cwd(), None, modules)
        if status:
            raise _ended(status, messages, feeds)
        found = _read(folder, _FOUND)
    if "error" in found:
        kind, what, remedy = found["error"]
        raise getattr(errors, kind)(what, remedy)
    outputs: dict[str, Any] = found["outputs"]
    return outputs


def _ended(status: int, messages: str, feeds: Arrays) -> RunError:
    """The error for a child that told nothing."""
    if status < 0:
        how = f"signal {-status} ({signal.strsignal(-status)})"
    else:
        how = f"exit status {status} ({(messages.splitlines() or [''])[-1]})"
    return RunError(
        f"ONNX Runtime ended its process with {how}, given {_sizes(feeds)}",
        f"{_OTHER_SIZES}, or compare with --against reference",
    )


def _write(folder: Path, name: str, value: Any) -> None:
    arrays: list[Array] = []
    (folder / f"{name}.json").write_text(json.dumps(_packed(value, arrays)))
    for k, array in enumerate(arrays):
        np.save(folder / f"{name}{k}.npy", array, allow_pickle=False)


def _packed(value: Any, arrays: list[Array]) -> Any:
    """A value as JSON, which names the arrays of numbers in it by their places in a list that gets them."""
    if isinstance(value, list):
        return [_packed(item, arrays) for item in value]
    if isinstance(value, dict):
        return {"keys": list(value), "values": [_packed(item, arrays) for item in value.values()]}
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.object_:
        return {"strings": value.reshape(-1).tolist(), "shape": value.shape}
    short = _BY_ML_DTYPE.get(value.dtype.name)
    arrays.append(value.view(f"V{value.itemsize}") if short else value)  # NumPy reads those types from no file
    return {"array": len(arrays) - 1, "dtype": short}


def _read(folder: Path, name: str) -> Any:
    return _unpacked(json.loads((folder / f"{name}.json").read_text()), folder / name)


def _unpacked(told: Any, files: Path) -> Any:
    """The value that JSON tells of, with arrays from files whose names begin so."""
    if isinstance(told, list):
        return [_unpacked(item, files) for item in told]
    if not isinstance(told, dict):
        return told
    if "keys" in told:
        return dict(zip(told["keys"], _unpacked(told["values"], files), strict=True))
    if "strings" in told:
        return np.array(told["strings"], np.object_).reshape(told["shape"])
    array = np.load(f"{files}{told['array']}.npy", allow_pickle=False)
    return array.view(TensorSpec("", told["dtype"], ()).numpy) if told["dtype"] else array


def _answer(folder: Path) -> None:
    """What the child does."""
    given = _read(folder, _GIVEN)
    try:
        found: dict[str, Any] = {"outputs": ort_outputs_here(Path(given["path"]), given["names"], given["feeds"])}
    except TorshcError as error:
        what = list(error.problems) if isinstance(error, UnsupportedError) else error.message
        found = {"error": [type(error).__name__, what, error.remedy]}
    _write(folder, _FOUND, found)


if __name__ == "__main__":
    _answer(Path(sys.argv[1]))
