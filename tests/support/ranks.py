"""Ranks as threads of one process: a table of functions that passes messages between them, in place of MPI."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from ctypes import CFUNCTYPE, POINTER, c_double, c_int, c_int32, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import torshc
from torshc.runtime.native import Dtype

Array = np.ndarray[Any, Any]

_REQUEST = POINTER(c_void_p)
_SEND = CFUNCTYPE(c_int, c_void_p, c_void_p, c_size_t, c_int32, c_int32, _REQUEST)
_SUM = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, Dtype, _REQUEST)
_GATHER = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_size_t, _REQUEST)
_TEST = CFUNCTYPE(c_int, c_void_p, _REQUEST, POINTER(c_int))
_MESSAGE = CFUNCTYPE(c_void_p, c_void_p)  # ctypes would free a text that it makes itself
_ABORT = CFUNCTYPE(None, c_void_p, c_int)
_CUT = ctypes.create_string_buffer(b"the wire is cut")
_TYPES = {(2, 32): np.float32, (2, 64): np.float64, (0, 32): np.int32, (0, 64): np.int64}


class Table(ctypes.Structure):
    """``torshc_ranks`` of model.h."""

    _fields_ = (
        ("size", c_uint32),
        ("rank", c_int32),
        ("count", c_int32),
        ("broken", c_int32),
        ("seconds", c_double),
        ("context", c_void_p),
        ("isend", _SEND),
        ("irecv", _SEND),
        ("iallreduce", _SUM),
        ("iallgather", _GATHER),
        ("ireduce_scatter", _SUM),
        ("test", _TEST),
        ("message", _MESSAGE),
        ("abort", _ABORT),
    )


@dataclass
class World:
    """Ranks that exchange messages.

    Attributes:
        count: how many.
        seconds: how long an exchange may take, which by default is long enough for any machine with other work.
        of_runs: the same once :meth:`run` has opened the model, which takes long on a machine with other work; 0: as
            before.
        refuses: whether all exchanges fail.
        stops: seconds for which a rank is stopped when it first looks at an exchange.
        log: what was exchanged, by rank: the function and its bytes or elements.
    """

    count: int
    seconds: float = 200.0
    of_runs: float = 0.0
    refuses: bool = False
    stops: float = 0.0
    log: dict[int, list[tuple[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._mail: dict[tuple[int, int, int], list[bytes]] = {}
        self._rounds: dict[tuple[str, int], dict[int, bytes]] = {}
        self._kept: list[Any] = []  # what C may still call

    def table(self, rank: int) -> Table:
        """The table of a rank."""
        pending: dict[int, Callable[[], bool]] = {}
        numbers = itertools.count(1)
        stopped = set[int]()
        turns = {"sum": 0, "gather": 0, "scatter": 0}
        self.log[rank] = []

        def begin(request: Any, done: Callable[[], bool]) -> int:
            number = next(numbers)
            pending[number] = done
            request[0] = number
            return int(self.refuses)

        def send(_: Any, data: int, nbytes: int, to: int, tag: int, request: Any) -> int:
            self.log[rank].append(("send", nbytes))
            with self._lock:
                self._mail.setdefault((rank, to, tag), []).append(ctypes.string_at(data, nbytes) if nbytes else b"")
            return begin(request, lambda: True)

        def receive(_: Any, data: int, nbytes: int, source: int, tag: int, request: Any) -> int:
            self.log[rank].append(("receive", nbytes))

            def done() -> bool:
                with self._lock:
                    mail = self._mail.get((source, rank, tag))
                    if not mail:
                        return False
                    found = mail.pop(0)
                assert len(found) == nbytes
                ctypes.memmove(data, found, nbytes)
                return True

            return begin(request, done)

        def together(kind: str, data: int, nbytes: int, finish: Callable[[list[bytes]], None], request: Any) -> int:
            key = kind, turns[kind]
            turns[kind] += 1
            with self._lock:
                parts = self._rounds.setdefault(key, {})
                parts[rank] = ctypes.string_at(data, nbytes) if nbytes else b""

            def done() -> bool:
                with self._lock:
                    if len(parts) < self.count:
                        return False
                finish([parts[r] for r in range(self.count)])
                return True

            return begin(request, done)

        def add(_: Any, source: int, to: int, count: int, dtype: Dtype, request: Any) -> int:
            self.log[rank].append(("sum", count))
            kind = np.dtype(_TYPES[dtype.code, dtype.bits])

            def finish(parts: list[bytes]) -> None:
                total = np.sum([np.frombuffer(p, kind) for p in parts], 0, kind).tobytes()
                ctypes.memmove(to, total, len(total))

            return together("sum", source, count * kind.itemsize, finish, request)

        def scatter(_: Any, source: int, to: int, count: int, dtype: Dtype, request: Any) -> int:
            self.log[rank].append(("scatter", count))
            kind = np.dtype(_TYPES[dtype.code, dtype.bits])

            def finish(parts: list[bytes]) -> None:
                total = np.sum([np.frombuffer(p, kind).reshape(self.count, -1) for p in parts], 0, kind)[rank].tobytes()
                ctypes.memmove(to, total, len(total))

            return together("scatter", source, count * self.count * kind.itemsize, finish, request)

        def gather(_: Any, source: int, to: int, nbytes: int, request: Any) -> int:
            self.log[rank].append(("gather", nbytes))

            def finish(parts: list[bytes]) -> None:
                ctypes.memmove(to, b"".join(parts), nbytes * self.count)

            return together("gather", source, nbytes, finish, request)

        def test(_: Any, request: Any, done: Any) -> int:
            if self.stops and rank not in stopped:
                stopped.add(rank)
                time.sleep(self.stops)
                done[0] = 0
                return 0
            number = int(request[0])
            done[0] = int(pending[number]())
            if done[0]:
                del pending[number]
                request[0] = None
            return 0

        functions = (
            _SEND(send), _SEND(receive), _SUM(add), _GATHER(gather), _SUM(scatter), _TEST(test),
            _MESSAGE(lambda _: ctypes.addressof(_CUT)), _ABORT(lambda _, status: None),
        )  # fmt: skip
        table = Table(ctypes.sizeof(Table), rank, self.count, 0, self.seconds, None, *functions)
        self._kept.append((table, functions))
        return table

    def each(self, what: Callable[[int, Table], None]) -> None:
        """Does something on all ranks at the same time, with their tables; raises what one of them raises."""
        raised = list[BaseException]()

        def one(rank: int, table: Table) -> None:
            try:
                what(rank, table)
            except BaseException as error:  # of a test that fails
                raised.append(error)

        threads = [threading.Thread(target=one, args=(rank, self.table(rank))) for rank in range(self.count)]
        # A rank that collected an earlier test's model would close it, which waits for all work of emulated cards: for
        # that of another rank too, which waits for this one.
        gc.collect()
        gc.disable()
        try:
            for t in threads:
                t.start()
            for t in threads:
                t.join()
        finally:
            gc.enable()
        if raised:
            raise raised[0]

    def run(
        self,
        bundle: Path,
        feeds: Mapping[str, Array] | Sequence[Mapping[str, Array]],
        ranks: Sequence[int] | None = None,
    ) -> list[dict[str, Array] | torshc.TorshcError]:
        """The outputs of a bundle's ranks, or what each raises; those that are not asked for do not answer.

        Args:
            feeds: inputs of all ranks, or of several runs.
        """
        each = [feeds] if isinstance(feeds, Mapping) else feeds
        asked = range(self.count) if ranks is None else ranks
        found: dict[int, Any] = {}

        def one(rank: int) -> None:
            try:
                table = self.table(rank)
                model = torshc.load(bundle, ranks=ctypes.addressof(table))
                assert (model.rank, model.ranks) == (rank, self.count)
                table.seconds = self.of_runs or self.seconds
                for given in each:
                    found[rank] = model.run(given)
            except torshc.TorshcError as error:
                found[rank] = error

        threads = [threading.Thread(target=one, args=(rank,)) for rank in asked]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return [found[rank] for rank in asked]
