"""A loaded model that trains: steps, and what it keeps from one to the next."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from torshc.base.errors import RunError

from .device import Opened
from .locks import opened_in_children
from .manifest import RunInfo
from .model import Array, Model
from .native import Status
from .pool import address_of

_REMEDIES: dict[int, str] = {
    Status.BUILD: "load a state that a bundle of this model and optimizer saved",
    Status.STATE: "name another file: a state that was saved whole, or a place that can be written",
}


class TrainingModel(Model):
    """A model of a bundle that was compiled with ``train``; its weights change with each step."""

    _function = "torshc_train"
    open_served: Callable[[int | None], Model] | None = None  # opens the bundle that runs the model, where there is one

    def __init__(self, manifest: RunInfo, opened: Opened, rank: int = 0, ranks: int = 1) -> None:
        super().__init__(manifest, opened, rank, ranks)
        self._served: weakref.WeakSet[Model] = weakref.WeakSet()
        self._handing = opened_in_children(threading.Lock())  # held while weights are handed over, older ones first

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> NoReturn:
        """Refused: the bundle has the step alone.

        Raises:
            RunError: always.
        """
        raise RunError(
            f"model {self.name!r} trains", "call step(); torshc weights takes what it learns to a bundle that runs"
        )

    def __call__(self, *inputs: Any, **named: Any) -> NoReturn:
        """Refuse a run, as :meth:`run` does."""
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

    def serve(self, threads: int | None = None) -> Model:
        """See :meth:`Model.serve`."""
        if self.open_served is None:
            raise RunError(
                f"the bundle of {self.name!r} has nothing that runs the model",
                "compile it with serve_while_training=True (--serve-while-training)",
            )
        model = self.open_served(threads)
        with self._handing:
            model.set_weights(self._weights())
            self._served.add(model)
        return model

    def publish(self) -> int:
        """See :meth:`Model.publish`."""
        with self._handing:
            states = self.state_dict()
            weights = _own_weights(states)
            for model in [*self._served]:
                if not model.closed:
                    model.set_weights(weights)
        return int(states["torshc.step"])

    def _weights(self) -> dict[str, Array]:
        return _own_weights(self.state_dict())

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


def _own_weights(states: Mapping[str, Array]) -> dict[str, Array]:
    """The states that are weights of the model."""
    return {name: array for name, array in states.items() if not name.startswith("torshc.")}


def _path(given: str | os.PathLike[str]) -> bytes:
    path = os.fsencode(given)
    if not path or b"\0" in path:
        raise RunError(f"no file is named {os.fspath(given)!r}")
    return path
