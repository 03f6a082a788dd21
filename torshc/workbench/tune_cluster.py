"""Tuning on other machines: a kernel is measured as a whole by a worker of a Dask scheduler that has the device.

A worker is handed bytes and one of the functions here. The bytes are options and names as JSON, and the files that a
compilation reads, which the worker compiles from as this machine would: so nothing of a model is ever unpickled, and
what a kernel is measured against is what the same command would measure there.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from ..base import errors
from ..base.errors import (
    ConfigError,
    InternalError,
    ModelError,
    ToolchainError,
    TorshcError,
    UnsupportedError,
    resource_error,
)
from ..base.folders import scratch_folder
from ..base.options import CompileOptions
from ..bundle.cluster import connect
from ..bundle.devices import Devices, Reply
from ..bundle.host import CPU
from ..formats.files import model_files
from ..kernels.machine import Machine
from ..ops import CustomOperators
from ..pipeline.job import jobs_of
from ..pipeline.records import Record, TuningKey, tuning_key
from ..targets import target_of
from .tune_kernel import Answer, Kernels, OutOfTime, Say, Tuned, TuningBench, kernels_of, measured_here

PROCESSOR, CARD = "processor", "card"  # resources by which workers say what they measure
_MACHINE = ("target", "mcpu", "isa", "triple", "arch", "cc")  # options by which a device is found
_PATHS = {"ops", "rules", "pipeline", "kernels"}  # options that name files
# What workers are not told.
_STAY = {"scheduler", "tuning_records", "loose", "specialize", "observed", "dump", "workdir"}
_USUAL = CompileOptions()
_LISTING_SECONDS = 600.0  # for a worker to read a model


@contextmanager
def tuning_there(path: Path, options: CompileOptions, dims: Mapping[str, int], say: Say) -> Iterator[TuningBench]:
    """Has a model's kernels measured by the workers of a scheduler.

    Raises:
        ConfigError: there is no such scheduler, or its workers have several devices that could be meant.
        ToolchainError: no worker has the device; what each has instead.
        TorshcError: what a worker found wrong with the model or the options.
    """
    if options.dump is not None:
        raise ConfigError("--dump with --scheduler, whose workers compile", "leave one of them out")
    parcel = pack(path, options)
    plain = {"model": parcel.model, "options": parcel.options, "dims": dict(dims)}
    asked = _json({name: getattr(options, name) for name in _MACHINE})
    with connect(options.scheduler) as client:
        devices = Devices(client, _resource(options), describe_device, asked)
        devices.ask()
        devices.wanted = choose_device(options, devices.answers, asked)
        try:
            listed = _list_kernels(devices, plain, parcel, say)
            kernels: dict[str, str] = listed["kernels"]

            def measure(wanted: Sequence[str], end: float) -> Generator[tuple[str, str, Answer], None, None]:
                number = {symbol: f"kernel {k} of {len(wanted)}" for k, symbol in enumerate(wanted, 1)}
                replies = devices.run(
                    measure_kernel,
                    wanted,
                    lambda symbol: _json({**plain, "kernel": symbol, "seconds": end - time.monotonic()}),
                    parcel.files,
                    end,
                    lambda symbol, worker: say(f"{_plain(worker)}: {number[symbol]}, {kernels[symbol]}", 0.0),
                )
                with closing(replies):
                    for reply in replies:
                        try:
                            answer = _answer(reply, parcel)
                        except OutOfTime:
                            continue
                        yield reply.name, reply.worker, answer

            target = target_of(options)(Machine(listed["lanes"]))
            yield TuningBench(_place(devices.wanted), target, kernels, measure)
        finally:
            with suppress(OSError):  # the scheduler may be gone
                client.run(forget, on_error="ignore")


def _list_kernels(devices: Devices, plain: Mapping[str, Any], parcel: Parcel, say: Say) -> dict[str, Any]:
    """What :func:`list_kernels` answers on the first worker that comes to it.

    Raises:
        ToolchainError: none does.
        TorshcError: what it found wrong.
    """
    end = time.monotonic() + _LISTING_SECONDS
    replies = devices.run(
        list_kernels, ["model"], lambda _: _json(plain), parcel.files, end,
        lambda _, worker: say(f"{_plain(worker)}: reading the model", 0.0),
    )  # fmt: skip
    with closing(replies):
        reply = next(replies, None)
    if reply is None or reply.failure:
        why = reply.failure if reply is not None else f"none did so in {_LISTING_SECONDS:.0f} s"
        raise ToolchainError(f"no worker read {parcel.paths[parcel.model]}: {why}", "look at the workers' logs")
    return _opened(reply, parcel)


def _resource(options: CompileOptions) -> str:
    return PROCESSOR if target_of(options).device == CPU else CARD


def _plain(worker: str) -> str:
    """An address without the protocol."""
    return worker.rpartition("://")[2]


def _place(answer: bytes) -> TuningKey:
    return TuningKey(*json.loads(answer)["place"])


def choose_device(options: CompileOptions, answers: Mapping[str, bytes], asked: bytes) -> bytes:
    """What workers have to have: the one device that they have, or of several that of this machine.

    Raises:
        ConfigError: they have several others.
        ToolchainError: they have none.
    """
    having = sorted({answer for answer in answers.values() if answer.startswith(b"{")})
    each = "".join(f"\n  {address}: {_words(answer)}" for address, answer in sorted(answers.items()))
    if not having:
        raise ToolchainError(
            f"no worker of {options.scheduler} can measure kernels for {options.target}{each or ': it has no workers'}",
            f"start one on each machine with `dask worker ADDRESS --nthreads 1 --resources {_resource(options)}=1`",
        )
    if len(having) == 1:
        return having[0]
    own = describe_device(asked)
    if own not in having:
        name = "--mcpu" if target_of(options).device == CPU else "--arch"
        raise ConfigError(
            f"the workers of {options.scheduler} have several devices{each}",
            f"say with {name} which is meant, or have a scheduler for each",
        )
    return own


def _words(answer: bytes) -> str:
    return str(_place(answer)) if answer.startswith(b"{") else answer.decode(errors="replace")


def describe_device(asked: bytes) -> bytes:
    """Runs on a worker: what records of its measurements hold for, as JSON, or why it cannot measure."""
    try:
        options = measured_here(CompileOptions.create(**json.loads(asked)))
        job = jobs_of(options)[0]
        job.target.toolchain.find(job.options, job.isa)  # who has no compiler says so at once
        return _json({"place": dataclasses.astuple(tuning_key(job.target, job.isa))})
    except TorshcError as error:
        return error.message.encode()


def list_kernels(request: bytes, files: bytes) -> bytes:
    """Runs on a worker: the kernels of a model that can be tuned, as JSON."""
    asked = json.loads(request)
    try:
        found = _compiled(_model_of(asked), files)
    except (TorshcError, OSError) as error:
        return _failure(error)
    lanes = found.compilation.target.machine.lanes
    return _json({"lanes": lanes, "kernels": {symbol: str(s) for symbol, s in found.subjects.items()}})


def measure_kernel(request: bytes, files: bytes) -> bytes:
    """Runs on a worker: measures a kernel of a model within some seconds; what came of it, as JSON."""
    asked = json.loads(request)
    end = time.monotonic() + asked["seconds"]
    try:
        found = _compiled(_model_of(asked), files)
        subject = found.subjects.get(asked["kernel"])
        if subject is None:
            return _json({"skipped": "the worker has no such kernel"})
        tuner = found.tuner(end, lambda stage, seconds: None)
        try:
            answer = tuner.answer(subject, asked["kernel"])
        finally:
            tuner.close()
    except OutOfTime:
        return _json({"late": True})
    except (TorshcError, OSError) as error:
        return _failure(error)
    if isinstance(answer, Tuned):
        return _json({"tuned": dataclasses.asdict(answer)})
    return _json({"skipped": answer})


def _model_of(asked: Mapping[str, Any]) -> bytes:
    """What of a request says which model it is."""
    return _json({name: asked[name] for name in ("model", "options", "dims")})


def forget() -> None:
    """Runs on a worker: gives the memory of models back."""
    _compiled.cache_clear()


@lru_cache(maxsize=1)
def _compiled(asked: bytes, files: bytes) -> Kernels:
    """The kernels of a model whose files were sent, kept for the next that is asked for."""
    fields = json.loads(asked)
    with scratch_folder() as folder:
        unpack(files, folder)
        given = {name: _below(folder, value) if name in _PATHS else value for name, value in fields["options"].items()}
        try:
            return kernels_of(
                folder / fields["model"], CompileOptions.create(**given), fields["dims"], lambda stage, seconds: None
            )
        except UnsupportedError:
            raise  # names nodes only
        except TorshcError as error:
            error.message = error.message.replace(f"{folder}/", "")
            raise


def _below(folder: Path, value: Any) -> Any:
    return [str(folder / name) for name in value] if isinstance(value, list) else str(folder / value)


@dataclass(frozen=True)
class Parcel:
    """What a compilation reads, to be sent.

    Attributes:
        model: the name of the model's file in `files`.
        options: fields of :class:`CompileOptions` as JSON has them, whose paths are names in `files`.
        files: a line of JSON with the name and size of each file, and their contents.
        paths: where the files lie here, by their names.
    """

    model: str
    options: Mapping[str, Any]
    files: bytes
    paths: Mapping[str, Path]


def pack(path: Path, options: CompileOptions) -> Parcel:
    """The files of a model, its external data, and operators, rules, a pipeline and edited kernels of options.

    Raises:
        ModelError: the model cannot be read, or names a file that cannot be used.
        ConfigError: another file cannot be read.
    """
    custom = CustomOperators(options.ops).of_files.values()
    paths = {f"model/{f.relative_to(path.parent)}": f for f in model_files(path)}
    for k, file in enumerate(options.ops):
        beside = [f for o in custom if Path(o.declared.file) == file for f in o.files]
        paths |= {f"ops{k}/{f.name}": f for f in (file, *beside)}
    paths |= {f"rules{k}/{file.name}": file for k, file in enumerate(options.rules)}
    if options.pipeline is not None:
        paths[f"pipeline/{options.pipeline.name}"] = options.pipeline
    if options.kernels is not None:
        found = sorted(f for f in options.kernels.glob("*/*") if f.is_file())
        paths |= {f"kernels/{f.relative_to(options.kernels)}": f for f in found}
    names = {str(f): name for name, f in paths.items()} | {str(options.kernels): "kernels"}
    contents = {name: _read(file) for name, file in paths.items()}
    index = _json([[name, len(data)] for name, data in contents.items()])
    fields = {
        f.name: getattr(options, f.name)
        for f in dataclasses.fields(options)
        if f.name not in _STAY and getattr(options, f.name) != getattr(_USUAL, f.name)
    }
    for name in _PATHS & fields.keys():
        value = fields[name]
        fields[name] = [names[str(f)] for f in value] if isinstance(value, tuple) else names[str(value)]
    return Parcel(f"model/{path.name}", fields, b"\n".join([index, b"".join(contents.values())]), paths)


def unpack(files: bytes, folder: Path) -> None:
    """Write the files of a parcel into a folder.

    Raises:
        InternalError: one would lie outside.
    """
    index, _, _ = files.partition(b"\n")
    at = len(index) + 1
    for name, size in json.loads(index):
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts:
            raise InternalError(f"{name[:200]!r} is no name of a file in a parcel")
        (folder / pure).parent.mkdir(parents=True, exist_ok=True)
        (folder / pure).write_bytes(memoryview(files)[at : at + size])
        at += size


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", "check its name and permissions") from error


def _json(value: Any) -> bytes:
    return json.dumps(value, default=lambda v: dict(v) if isinstance(v, Mapping) else str(v)).encode()


def _failure(error: TorshcError | OSError, folder: str = "") -> bytes:
    """An error on its way to whoever asked, without the name of a folder that is gone."""
    if isinstance(error, OSError):
        error = resource_error(error, "a worker cannot go on") or InternalError(f"a worker cannot go on: {error}")
    kind = next(c.__name__ for c in type(error).__mro__ if c.__module__ == errors.__name__)
    body: dict[str, Any] = {"error": kind, "message": error.message, "remedy": error.remedy}
    if isinstance(error, UnsupportedError):
        body |= {"problems": error.problems, "warnings": error.warnings}
    return _json(body)


def _opened(reply: Reply, parcel: Parcel) -> dict[str, Any]:
    """A reply.

    Raises:
        TorshcError: the one that the worker met; it names files as they are called here.
    """
    body: dict[str, Any] = json.loads(reply.data)
    if "error" not in body:
        return body

    def local(text: str) -> str:
        for name, path in parcel.paths.items():
            text = text.replace(name, str(path))
        return text

    kind = getattr(errors, body["error"])
    if kind is UnsupportedError:
        raise UnsupportedError([*map(local, body["problems"])], body["remedy"], body["warnings"])
    where = "" if kind in (ModelError, ConfigError) else f" (on {reply.worker})"
    raise kind(f"{local(body['message'])}{where}", body["remedy"])


def _answer(reply: Reply, parcel: Parcel) -> Answer:
    """What came of measuring a kernel.

    Raises:
        OutOfTime: the worker did not come to the end of it.
        TorshcError: as :func:`_opened`.
    """
    if reply.failure:
        return reply.failure
    body = _opened(reply, parcel)
    if body.get("late"):
        raise OutOfTime
    if "tuned" not in body:
        reason: str | None = body["skipped"]
        return reason
    found = body["tuned"]
    record = found.pop("record")
    choices = tuple((name, tuple(value)) for name, value in record.pop("choices"))
    return Tuned(Record(**record, choices=choices), **found)
