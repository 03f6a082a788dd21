"""Compile sources on other machines, by the workers of a Dask scheduler.

A worker is handed bytes and one function, :func:`compile_source`; an object comes back as bytes, and is linked here. It
is the object that this machine would make: a worker compiles only where its compiler has the fingerprint of this
machine's. Dask starts a source again where a worker died.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._version import __version__
from ..base.errors import ConfigError, ToolchainError, TorshcError
from ..base.folders import scratch_folder
from ..base.options import CompileOptions
from ..targets import find_target
from ..targets.isa import resolve
from ..targets.toolchain import Compiler, TooSlow
from .sources import write_sources

_CONNECT_SECONDS = 10
_OBJECT, _FAILED, _TOO_SLOW, _OTHER = b"o", b"f", b"s", b"d"  # what a reply begins with


@dataclass
class Workers:
    """Workers that compile for this machine, as :func:`compile_on` connects them.

    Attributes:
        client: Dask's client.
        place: how a worker finds the compiler.
        compiler: the fingerprint that a worker's compiler must have.
        addresses: addresses of the workers that have this compiler.
        threads: how many threads these workers have together.
    """

    client: Any
    place: Mapping[str, str]
    compiler: Sequence[str]
    addresses: Sequence[str]
    threads: int
    _futures: list[Any] = field(default_factory=list)

    def headers(self, texts: Mapping[str, str]) -> Any:
        """Headers, sent once, for :meth:`compile`."""
        # As the result of a function, which Dask can call again: what is only scattered is lost with its worker.
        return self.client.submit(pass_on, json.dumps(dict(texts)).encode(), pure=False)

    def compile(self, name: str, text: str, headers: Any, flags: Sequence[str], seconds: int) -> bytes:
        """The object of a source.

        Raises:
            TooSlow: the compiler took longer than `seconds`.
            ToolchainError: it failed, a worker has another one, or no worker is left.
        """
        request = {
            "place": dict(self.place), "compiler": list(self.compiler), "name": name, "text": text,
            "flags": list(flags), "seconds": seconds,
        }  # fmt: skip
        future = self.client.submit(
            compile_source, json.dumps(request).encode(), headers,
            workers=list(self.addresses), allow_other_workers=True, pure=False,
        )  # fmt: skip
        self._futures.append(future)
        try:
            reply = future.result()
        except Exception as error:  # whatever Dask raises: workers that died one after another, a lost scheduler
            raise ToolchainError(
                f"compiling {name} on the scheduler's workers: {type(error).__name__}: {str(error)[:400]}",
                "look at the workers' logs, or leave --scheduler out",
            ) from error
        return _object_of(name, reply)

    def stop(self) -> None:
        """Cancel what was not compiled yet; threads that wait in :meth:`compile` are released."""
        if unfinished := [f for f in self._futures if not f.done()]:
            self.client.cancel(unfinished, force=True)


@contextlib.contextmanager
def connect(scheduler: str) -> Iterator[Any]:
    """Dask's client of a scheduler.

    Raises:
        ConfigError: Dask is not installed, or no scheduler answers at the address.
    """
    try:
        distributed = importlib.import_module("distributed")
    except ImportError as error:
        raise ConfigError(
            "--scheduler needs Dask, which is not installed", "pip install 'torshc[cluster]', or leave it out"
        ) from error
    try:
        client = distributed.Client(scheduler, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (
        OSError,
        ValueError,
    ) as error:  # ValueError: an address of another form; for tls:// without certificates too
        raise ConfigError(
            f"--scheduler {scheduler}: no Dask scheduler answers there ({str(error)[:200]})",
            "start one with `dask scheduler`, and workers with `dask worker ADDRESS`; tls:// needs Dask's certificates",
        ) from error
    with client:
        yield client


@contextlib.contextmanager
def compile_on(options: CompileOptions, compiler: Compiler) -> Iterator[Workers | None]:
    """Workers of the scheduler that options name, with the compiler of this machine; None where they name none.

    Raises:
        ConfigError: as :func:`connect`.
        ToolchainError: no worker has the compiler; what each has instead.
    """
    if not options.scheduler:
        yield None
        return
    with connect(options.scheduler) as client:
        place = {
            "target": options.target,
            "cc": options.cc or compiler.name,
            "triple": options.triple,
            "arch": options.arch,
        }
        wanted = fingerprint(compiler)
        found = client.run(describe_compiler, json.dumps(place).encode(), on_error="return")
        have = {address: _words(answer) for address, answer in sorted(found.items())}
        usable = [address for address, words in have.items() if words == wanted]
        if not usable:
            each = "".join(f"\n  {address}: {' '.join(words)}" for address, words in have.items())
            raise ToolchainError(
                f"no worker of {options.scheduler} compiles as this machine does, by {' '.join(wanted)}"
                f"{each or ': it has no workers'}",
                "start workers with the same torshc and compiler, or name another compiler with --cc",
            )
        threads = client.nthreads()
        workers = Workers(client, place, wanted, usable, sum(threads.get(address, 1) for address in usable))
        try:
            yield workers
        finally:
            workers.stop()


def _words(answer: bytes | BaseException) -> tuple[str, ...]:
    """What a worker answers about its compiler; one that has no torshc cannot."""
    return tuple(json.loads(answer)) if isinstance(answer, bytes) else (f"{type(answer).__name__}: {answer}",)


def fingerprint(compiler: Compiler) -> tuple[str, ...]:
    """What two machines have in common where they make equal objects of a source."""
    return (*compiler.fingerprint(), platform.machine(), f"torshc {__version__}")


def pass_on(data: bytes) -> bytes:
    """Runs on a worker: its argument, for others to fetch."""
    return data


def describe_compiler(place: bytes) -> bytes:
    """Runs on a worker: the fingerprint of its compiler as JSON, or the reason why there is none."""
    try:
        return json.dumps(fingerprint(_compiler(json.loads(place)))).encode()
    except TorshcError as error:
        return json.dumps([error.message]).encode()


def compile_source(request: bytes, headers: bytes) -> bytes:
    """Runs on a worker: compiles a source.

    Args:
        request: JSON with the place of the compiler, its fingerprint, and a source's name, text, flags and seconds.
        headers: JSON, texts by file name.

    Returns:
        A letter that says what follows: an object, or a message and a remedy as JSON.
    """
    asked = json.loads(request)
    try:
        compiler = _compiler(asked["place"])
        own = fingerprint(compiler)
        if list(own) != asked["compiler"]:
            return _OTHER + json.dumps([f"a worker on {platform.node()} has {' '.join(own)}", ""]).encode()
        with scratch_folder() as folder:
            write_sources(folder / "src", {**json.loads(headers), asked["name"]: asked["text"]})
            compiler.compile(f"src/{asked['name']}", "object.o", [*asked["flags"], "-Isrc"], folder, asked["seconds"])
            return _OBJECT + (folder / "object.o").read_bytes()
    except TooSlow as error:
        return _TOO_SLOW + json.dumps([error.message, error.remedy]).encode()
    except TorshcError as error:
        return _FAILED + json.dumps([f"{error.message} (on {platform.node()})", error.remedy]).encode()
    except OSError as error:
        remedy = "make room in the temporary folder of that machine"
        return _FAILED + json.dumps([f"compiling {asked['name']} on {platform.node()}: {error}", remedy]).encode()


def _compiler(place: Mapping[str, str]) -> Compiler:
    options = CompileOptions(target=place["target"], cc=place["cc"], triple=place["triple"], arch=place["arch"])
    return find_target(options.target).toolchain.find(options, resolve(None, options.triple)).compiler


def _object_of(name: str, reply: bytes) -> bytes:
    kind, rest = reply[:1], reply[1:]
    if kind == _OBJECT:
        return rest
    message, remedy = json.loads(rest)
    if kind == _TOO_SLOW:
        raise TooSlow(message, remedy)
    if kind == _OTHER:
        raise ToolchainError(f"compiling {name}: {message}, not this machine's compiler", "stop that worker")
    raise ToolchainError(message, remedy)
