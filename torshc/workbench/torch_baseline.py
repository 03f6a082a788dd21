"""PyTorch beside torshc: a module of a user's file, eager and compiled. torshc does not depend on PyTorch."""

from __future__ import annotations

import os
import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import ConfigError, RunError

TORCH, TORCH_COMPILE, TORCH_AUTOTUNE = "torch", "torch-compile", "torch-max-autotune"
PYTORCH = (TORCH, TORCH_COMPILE, TORCH_AUTOTUNE)
_SHOWN = {TORCH: "PyTorch", TORCH_COMPILE: "torch.compile", TORCH_AUTOTUNE: "torch max-autotune"}
CUDA = 2  # DLPack's code
_FORMS = "name it with --torch-module: FILE.pt2, as torch.export.save writes it, or FILE.py:NAME"
Call = Callable[[], Any]


def torch_calls(
    names: Sequence[str],
    model: Path,
    module: str,
    feeds: Mapping[str, np.ndarray[Any, Any]],
    expected: Sequence[np.ndarray[Any, Any]],
    threads: int,
    device: int = 1,
) -> dict[str, Call]:
    """Calls of a module by the names that people see: inputs are arrays of the host, and so are results.

    Args:
        names: which systems are asked for, some of :data:`PYTORCH`.
        model: the model's file; a module in a .pt2 beside it needs no naming.
        module: where the module is, as _FORMS says; empty for beside the model.
        feeds: the inputs, in the model's order.
        expected: the model's outputs, whose shapes the module's have to have.
        threads: 0 for one a processor.
        device: where torshc computes, by DLPack's code; PyTorch does on the card where that is CUDA's.

    Raises:
        ConfigError: PyTorch is not installed, has no such device, or there is no module.
        RunError: the module cannot be run on these inputs, or gives something of another shape.
    """
    try:
        import torch  # optional package
    except ImportError as error:
        raise ConfigError("PyTorch is not installed", "pip install torch, or leave out --against torch") from error
    place = "cuda" if device == CUDA else "cpu"
    if device == CUDA and not torch.cuda.is_available():
        raise ConfigError("PyTorch finds no card here", "install a build of it for CUDA, or leave out --against torch")
    torch.set_num_threads(threads or os.cpu_count() or 1)
    eager = _module(torch, _place(model, module))
    if isinstance(eager, torch.nn.Module):
        eager = eager.to(place)
    made = {}
    for name in names:
        function = eager if name == TORCH else torch.compile(eager, mode=_mode(name, place))
        call = _call(torch, function, feeds, place)
        _check(call, name, expected)
        made[_SHOWN[name]] = call
    return made


def _mode(name: str, place: str) -> str:
    """The mode of torch.compile that is fastest there: on a card a launch costs more than many kernels do."""
    if name == TORCH_AUTOTUNE:
        return "max-autotune"
    return "reduce-overhead" if place == "cuda" else "default"


def _place(model: Path, module: str) -> str:
    if module:
        return module
    beside = model.with_suffix(".pt2")
    if not beside.is_file():
        raise ConfigError(f"--against torch needs the module that {model.name} was made of", _FORMS)
    return str(beside)


def _module(torch: Any, place: str) -> Any:
    """What a file holds: an exported program's module, or something of a Python file that can be called.

    Raises:
        ConfigError: it cannot be read, or holds no such thing.
    """
    file, colon, name = place.rpartition(":")
    try:
        if place.endswith(".pt2"):
            return torch.export.load(place).module()
        if not colon:
            raise ValueError("it is neither a .pt2 file nor FILE.py:NAME")
        found = runpy.run_path(file)[name]
    except KeyError:
        raise ConfigError(f"--torch-module {place}: {file} defines no {name!r}", _FORMS) from None
    except Exception as error:  # the user's own code, and PyTorch's, raise what comes
        raise ConfigError(f"--torch-module {place}: {_reason(error)}", _FORMS) from error
    if not callable(found) or isinstance(found, type):
        raise ConfigError(
            f"--torch-module {place} is {type(found).__name__}", "name a module, not its class, or a function"
        )
    return found.eval() if isinstance(found, torch.nn.Module) and hasattr(found, "eval") else found


def _call(torch: Any, function: Any, feeds: Mapping[str, np.ndarray[Any, Any]], place: str) -> Call:
    arrays = list(feeds.values())

    def call() -> list[Any]:
        with torch.no_grad():
            given = [torch.from_numpy(a).to(place) for a in arrays]
            return [t.cpu().numpy() for t in _flat(function(*given))]

    return call


def _flat(found: Any) -> list[Any]:
    """The tensors of a module's result, in order."""
    if isinstance(found, Mapping):
        found = list(found.values())
    return [t for x in found for t in _flat(x)] if isinstance(found, list | tuple) else [found]


def _check(call: Call, name: str, expected: Sequence[np.ndarray[Any, Any]]) -> None:
    """A run, whose outputs need the model's shapes."""
    try:
        found = call()
    except Exception as error:  # as above
        raise RunError(f"--against {name}: the module cannot be run: {_reason(error)}",
                       "it is called with the model's inputs, in their order") from error  # fmt: skip
    shapes, wanted = ([tuple(a.shape) for a in arrays] for arrays in (found, expected))
    if shapes != wanted:
        raise RunError(
            f"--against {name}: the module gives {shapes}, the model {wanted}", "name the model's own module"
        )


def _reason(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__
