"""A loaded model that trains: steps, and what it keeps from one to the next."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from torshc.base.errors import RunError

from .call_frame import address_of
from .device import Opened
from .model import Array, Model
from .native import Status

_REMEDIES: dict[int, str] = {
    Status.BUILD: "load a state that a bundle of this model and optimizer saved",
    Status.STATE: "name another file: a state that was saved whole, or a place that can be written",
}


class TrainingModel(Model):
    """A model of a bundle that was compiled with ``train``; its weights change with each step."""

    _function = "torshc_train"

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> NoReturn:
        """Refused: the bundle has the step alone.

        Raises:
            RunError: always.
        """
        raise RunError(
            f"model {self.name!r} trains", "call step(); torshc weights takes what it learns to a bundle that runs"
        )

    def __call__(self, *inputs: Any, **named: Any) -> NoReturn:
        """As :meth:`run`."""
        self.run({})

    def context(self, threads: int | None = None, *, stream: Any = None) -> NoReturn:
        """Refused: contexts share weights, which steps change.

        Raises:
            RunError: always.
        """
        raise RunError(f"model {self.name!r} trains, and has no contexts", "load the bundle once more")

    def step(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """See :meth:`Model.step`."""
        return super().run(inputs, out)

    def state_dict(self) -> dict[str, Array]:
        """See :meth:`Model.state_dict`."""
        with self._lock:
            opened = self._open()
            found = {}
            for k, spec in enumerate(self._manifest.states):
                array = found[spec.name] = np.empty([int(d) for d in spec.dims], spec.numpy)
                opened.check(self._library.torshc_state_read(opened.handle, k, address_of(array), array.nbytes))
            return found

    def save_state(self, path: str | os.PathLike[str]) -> None:
        """See :meth:`Model.save_state`."""
        with self._lock:
            self._check(self._library.torshc_state_save(self._open().handle, _path(path)))

    def load_state(self, path: str | os.PathLike[str]) -> None:
        """See :meth:`Model.load_state`."""
        with self._lock:
            self._check(self._library.torshc_state_load(self._open().handle, _path(path)))

    def _open(self) -> Opened:
        if self._opened is None:
            raise RunError(f"model {self.name!r} is closed", "load it again")
        return self._opened

    def _check(self, status: int) -> None:
        if status:
            raise RunError(f"model {self.name!r}: {self._library.last_error()}", _REMEDIES.get(status, ""))


def _path(given: str | os.PathLike[str]) -> bytes:
    path = os.fsencode(given)
    if not path or b"\0" in path:
        raise RunError(f"no file is named {os.fspath(given)!r}")
    return path
