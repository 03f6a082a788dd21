"""Models in the process: compiled by LLVM and loaded at once, without a C compiler and without a file.

Equal kernels are loaded once in a process, and their objects are in the cache that bundles are compiled through.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..base.cache import Cache, content_key
from ..base.errors import RunError, UnsupportedError
from ..base.manifest import TensorSpec
from ..base.options import CompileOptions
from ..base.resources import cache_folder
from ..bundle.host import BYTES_MAX, Buffer, HostProgram, Launch, Port, sizes_of
from ..bundle.host_source import equation, spell
from ..expr import DTYPES, Expr, as_expr, as_int, const, dim, element, runtime_dim, substitute
from ..graph import Graph
from ..pipeline.compilation import Compilation
from ..pipeline.compiler import prepare
from ..pipeline.weight_names import with_shared_weights
from ..plan.script import Branch, Operate, Repeat, Script, flat
from ..runtime.locks import opened_in_children
from ..runtime.model import check_names
from ..runtime.pool import address_of
from ..runtime.values import unlike
from ..targets.native import (
    ALIGN,
    HEAD,
    TEAMS,
    Loaded,
    Machine,
    Team,
    aligned,
    is_known_layout,
    llvm_version,
    machine_of,
    object_of,
    require_this_machine,
    runner_text,
)

Array = npt.NDArray[Any]
TARGET = "llvm"
WORTH = 400_000  # bytes or operations of a step, below which other threads are not asked to help
PIECES = 4  # of a step for each thread
_NDARRAY, _EMPTY, _NOW = np.ndarray, np.empty, time.perf_counter  # for calls of few microseconds
_BASES = {"weights": 0, "arena": 1}


@dataclass(frozen=True)
class Stats:
    """What a model in the process has cost.

    Attributes:
        runs: runs that succeeded.
        seconds: seconds in kernels and between them, of all runs.
        launches: kernels that were run.
        bytes: bytes that kernels read and wrote at the least.
        kernels: distinct kernels that were loaded: those of the fast form, and of another one once a run took it.
        cached: how many of these were in memory or in the cache.
        compile_seconds: seconds from the graph to what can be run.
    """

    runs: int = 0
    seconds: float = 0.0
    launches: int = 0
    bytes: int = 0
    kernels: int = 0
    cached: int = 0
    compile_seconds: float = 0.0


class _Kernels:
    """Kernels of this process by their symbols, as long as a model uses them."""

    def __init__(self) -> None:
        self._loaded: weakref.WeakValueDictionary[tuple[str, Machine], Loaded] = weakref.WeakValueDictionary()
        self._lock = opened_in_children(threading.Lock())

    def load(self, sources: Mapping[str, str], machine: Machine, cache: Cache) -> tuple[dict[str, Loaded], int]:
        """What holds each kernel, and how many there were already."""
        with self._lock:
            found = {name: old for name in sources if (old := self._loaded.get((name, machine))) is not None}
            missing = [name for name in sources if name not in found]
            count, objects = len(found), []
            for name in missing:
                key = content_key(["in the process", sources[name], llvm_version(), str(machine)])
                data = cache.get(key)
                count += data is not None
                if data is None:
                    data = object_of(sources[name], machine)
                    cache.put(key, data)
                objects.append(data)
            if missing:
                made = Loaded(objects, missing, machine)
                for name in missing:
                    found[name] = self._loaded[name, machine] = made
            return found, count


_KERNELS = _Kernels()


class _Unfit(RunError):
    """Sizes do not fit a form of a model.

    Attributes:
        is_one: whether one of the sizes that have to be equal is 1, so that the loose form says better what is wrong.
    """

    def __init__(self, message: str, is_one: bool = False) -> None:
        super().__init__(message)
        self.is_one = is_one


def _evaluator(values: Mapping[Expr, Expr]) -> Callable[[Expr | int], int]:
    """What computes sizes by the values of symbols."""

    def size(e: Expr | int) -> int:
        found = as_int(substitute(as_expr(e), values))
        assert found is not None
        return found

    return size


@lru_cache(maxsize=2)
def _runner(machine: Machine) -> Loaded:
    cache = Cache(cache_folder())
    key = content_key(["in the process", runner_text(), llvm_version(), str(machine)])
    data = cache.get(key)
    if data is None:
        data = object_of(runner_text(), machine)
        cache.put(key, data)
    return Loaded([data], ["t_run", "t_call", "t_team"], machine)


@dataclass
class _Bound:
    """A model for inputs of some sizes: its steps as numbers, and what they need.

    Attributes:
        steps: as ``run.ll`` reads them.
        demands: what each of them demands of elements.
        dims: what kernels get as sizes, which `steps` has the addresses of.
        call: arguments of the runner.
        outputs: shapes and types of the results.
        bytes: that the steps move at the least.
        objects: addresses of the arrays of a call, which `place` leads to; see ``t_call`` in ``run.ll``.
    """

    steps: Array
    demands: list[str]
    dims: list[Array]
    memory: list[Array]
    call: tuple[Any, ...]
    outputs: list[tuple[tuple[int, ...], np.dtype[Any]]]
    bytes: int
    objects: Any = None
    place: int = 0


class InProcess:
    """A model that was compiled into this process.

    Runs of threads take turns.

    Attributes:
        name: name of the model.
        inputs, outputs: in the model's order.
        compilation: what was compiled.
    """

    def __init__(self, compilation: Compilation, threads: int, seconds: float = 0.0) -> None:
        began = time.perf_counter()
        if compilation.script is not None:
            raise UnsupportedError(
                _find_host_steps(compilation.script), "compile a bundle for the target c, and load that"
            )
        self.name, self.compilation = compilation.name, compilation
        weights = sum(w.nbytes for w in compilation.program.weights) + (1 << 40)
        self._forms = [(form.program.host(weights_bytes=weights), form) for form in compilation.forms]
        self.program: HostProgram = self._forms[0][0]
        graph = compilation.interface
        results = zip(graph.output_names, self.program.outputs, strict=False)
        self.inputs = tuple(_spec(v.name, p) for v, p in zip(graph.inputs, self.program.inputs, strict=True))
        self.outputs = tuple(_spec(name, p) for name, p in results)
        self._machine = machine = machine_of(compilation.isa)
        self._cache = Cache(cache_folder() if compilation.options.cache else None)
        self._kernels: dict[str, Loaded] = {}
        self._cached = 0
        self._load(compilation)
        self._runner = _runner(machine)
        self._threads = threads or os.cpu_count() or 1
        if self._threads not in TEAMS:
            TEAMS[self._threads] = Team(self._runner, self._threads)
        self._weights, self._arena = _weights(compilation), np.empty(0, np.uint8)
        count = len(self.inputs) + len(self.program.outputs)
        self._bases = (ctypes.c_void_p * (2 + count))()
        self._bases[0] = self._weights.ctypes.data
        kinds = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds, ctypes.c_int64, ctypes.c_void_p)
        self._run = kind(self._runner.addresses["t_run"])
        self._quick = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(self._runner.addresses["t_call"])
        self._last: _Bound | None = None
        self._dtypes = [DTYPES[p.dtype].numpy for p in self.program.inputs]
        self._read = [s for s in self.program.symbols if s.kind not in ("dim", "count")]
        self._bound: dict[Any, _Bound] = {}
        self._lock = opened_in_children(threading.Lock())
        self._runs, self._seconds, self._launches, self._bytes = 0, 0.0, 0, 0
        self._compile_seconds = seconds + time.perf_counter() - began

    def __call__(self, *inputs: Any) -> tuple[Array, ...]:
        """Runs the model on its inputs in order; returns its outputs in order."""
        return tuple(self.call(inputs))

    def run(self, inputs: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """Runs the model.

        Args:
            inputs: an array for each input, by name, of its element type; what is not contiguous is copied.
            out: arrays to write outputs to, by name, contiguous and of exact type and shape; those left out are made.

        Returns:
            All outputs by name, in the model's order.

        Raises:
            RunError: an input is missing, unknown, or of the wrong type, rank or shape.
        """
        names = [x.name for x in self.inputs]
        if not isinstance(inputs, Mapping):
            raise RunError(f"the inputs of model {self.name!r} are {names}, not {type(inputs).__name__}")
        check_names("input", inputs, names, complete=True)
        targets = [x.name for x in self.outputs]
        check_names("output", out or {}, targets, complete=False)
        into = [out.get(n) for n in targets] if out else None
        return dict(zip(targets, self.call([inputs[n] for n in names], into), strict=True))

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held beyond the object itself."""

    def call(self, inputs: Sequence[Any], out: Sequence[Array | None] | None = None) -> list[Array]:
        """As :meth:`__call__`, of a sequence, into arrays where some are given."""
        found = self.again(inputs) if out is None else None
        return self._check_arguments(inputs, out) if found is None else found

    def again(self, inputs: Sequence[Any]) -> list[Array] | None:
        """As :meth:`call`, for inputs exactly as those of the call before; None, and nothing is done, for others."""
        bound = self._last
        if bound is None or len(inputs) != len(self._dtypes):
            return None
        with self._lock:
            objects, k = bound.objects, 0
            for a in inputs:
                if type(a) is not _NDARRAY:
                    return None
                objects[k] = id(a)
                k += 1
            results = [_EMPTY(shape, dtype) for shape, dtype in bound.outputs]
            for a in results:
                objects[k] = id(a)
                k += 1
            began = _NOW()
            status = self._quick(bound.place)
            if status < 0:
                return None
            self._seconds += _NOW() - began
            if status:
                raise self._out_of_range_error(bound, status - 1)
            self._runs += 1
            self._launches += len(bound.demands)
            self._bytes += bound.bytes
        return results

    def _check_arguments(self, inputs: Sequence[Any], out: Sequence[Array | None] | None) -> list[Array]:
        arrays = [
            a if type(a) is np.ndarray and a.dtype == dtype and a.flags.c_contiguous else self._convert_input(k, a)
            for k, (a, dtype) in enumerate(zip(inputs, self._dtypes, strict=False))
        ]
        if len(inputs) != len(self._dtypes):
            raise RunError(f"{len(inputs)} inputs; expected {len(self._dtypes)}")
        key: Any = tuple([a.shape for a in arrays])
        if self._read:
            key = (key, tuple(int(arrays[s.input].reshape(-1)[s.dim]) for s in self._read))
        with self._lock:
            bound = self._bound.get(key)
            if bound is None:
                bound = self._bound[key] = self._bind(key[0] if self._read else key, key[1] if self._read else ())
            results = [np.empty(shape, dtype) for shape, dtype in bound.outputs]
            if out is not None:
                pairs = zip(results, out, strict=True)
                results = [a if b is None else self._fitting(k, a, b) for k, (a, b) in enumerate(pairs)]
            bases = self._bases
            k = 2
            for a in arrays:
                bases[k] = address_of(a)
                k += 1
            for a in results:
                bases[k] = address_of(a)
                k += 1
            began = time.perf_counter()
            status = self._run(*bound.call)
            self._seconds += time.perf_counter() - began
            if status:
                raise self._out_of_range_error(bound, int(status) - 1)
            self._runs += 1
            self._launches += len(bound.demands)
            self._bytes += bound.bytes
            if not self._read:
                self._last = self._note_addresses(bound, arrays)
        return results

    def _note_addresses(self, bound: _Bound, arrays: Sequence[Array]) -> _Bound | None:
        """The same with what :meth:`again` needs, where NumPy's arrays lie as they did for decades."""
        if bound.objects is None and is_known_layout():
            count = len(arrays) + len(bound.outputs)
            bound.objects = (ctypes.c_void_p * max(count, 1))()
            expected = np.array([x for a in arrays for x in (id(a.dtype), a.ndim, *a.shape)] or [0], np.int64)
            call = np.array([
                ctypes.addressof(bound.objects), len(arrays), count, HEAD, expected.ctypes.data,
                *(x or 0 for x in bound.call),
            ], np.int64)  # fmt: skip
            bound.memory += [expected, call]
            bound.place = int(call.ctypes.data)
        return bound if bound.objects is not None else None

    def stats(self) -> Stats:
        """What has run since the model was loaded."""
        with self._lock:
            return Stats(
                self._runs, self._seconds, self._launches, self._bytes,
                len(self._kernels), self._cached, self._compile_seconds,
            )  # fmt: skip

    def _fitting(self, k: int, made: Array, given: Array) -> Array:
        flags = given.flags
        if given.shape != made.shape or given.dtype != made.dtype or not (flags.c_contiguous and flags.writeable):
            raise unlike(self.outputs[k])
        return given

    def _convert_input(self, k: int, value: Any) -> Array:
        """An input as a contiguous array of its type."""
        array = np.asarray(value)
        if array.dtype != self._dtypes[k]:
            raise RunError(f"input {self.inputs[k].name!r} is of {array.dtype}; expected {self._dtypes[k]}")
        return np.ascontiguousarray(array).reshape(array.shape)

    def _out_of_range_error(self, bound: _Bound, step: int) -> RunError:
        return RunError(f"model {self.name!r}: an index or a length is out of range ({bound.demands[step]})")

    def _load(self, form: Compilation) -> None:
        """Load the kernels of a form that are not there yet; another one's when a run first takes it."""
        sources = {name.removesuffix(".ll"): text for name, text in form.sources.items()}
        missing = {name: text for name, text in sources.items() if name not in self._kernels}
        found, cached = _KERNELS.load(missing, self._machine, self._cache)
        self._kernels |= found
        self._cached += cached

    # ---- sizes -----------------------------------------------------------------------------------------------------

    def _bind(self, shapes: tuple[tuple[int, ...], ...], elements: tuple[int, ...]) -> _Bound:
        """The steps for inputs of some shapes: those of a variant for them, or of the loose form where only that fits.

        Raises:
            RunError: the shapes do not fit.
        """
        values = self._symbols(shapes, elements)
        unfit: list[_Unfit] = []
        for program, form in (pair for pair in self._forms if not pair[0].is_variant):
            try:
                self._require_fit(program, shapes, values)
            except _Unfit as error:
                unfit.append(error)
                continue
            variant = None if unfit else self._variant(shapes, values)
            return self._steps(*(variant or (program, form)), values)
        raise unfit[-1] if unfit[0].is_one else unfit[0]

    def _variant(
        self, shapes: tuple[tuple[int, ...], ...], values: dict[Expr, Expr]
    ) -> tuple[HostProgram, Compilation] | None:
        """The first variant for sizes that the fast form takes, of those that are not for values of inputs too."""
        size = _evaluator(values)
        for program, form in self._forms:
            sizes = [(b, size(dim(program.names[b.symbol]))) for b in program.taken]
            if sizes and not program.guards and not program.padded and all(b.least <= s <= b.most for b, s in sizes):
                try:
                    self._require_fit(program, shapes, values)
                except _Unfit:
                    continue
                return program, form
        return None

    def _require_fit(self, p: HostProgram, shapes: tuple[tuple[int, ...], ...], values: dict[Expr, Expr]) -> None:
        """Refuse inputs of shapes that a form does not take, by the values of its symbols.

        Raises:
            RunError: it does not.
        """
        size = _evaluator(values)
        for k, port in enumerate(p.inputs):
            self._check_shape(k, port, shapes[k], size)
        for c in p.conditions:
            left, right = size(c.left), size(c.right)
            if left != right:
                sides = "" if c.stated is not None else f", {left} is not {right}"
                what = f"the shapes do not fit together: {equation(c, spell(p))} does not hold{sides}"
                raise _Unfit(what, 1 in (left, right))
        for e in sizes_of(p):
            if (number := size(e)) < 0:
                raise _Unfit(f"model {self.name!r}: inputs of these shapes give a dimension below zero")
            if number > BYTES_MAX:
                raise _Unfit(f"model {self.name!r}: inputs of these shapes need more than 2^47 bytes")

    def _steps(self, p: HostProgram, form: Compilation, values: dict[Expr, Expr]) -> _Bound:
        """The steps of a form that takes the sizes of a run, by the values of its symbols."""
        size = _evaluator(values)
        self._load(form)
        scratch = max((size(s.scratch) for s in p.steps), default=0)
        scratch = -(-scratch // ALIGN) * ALIGN
        kernels = [k for u in form.units for k in u.kernels]
        numbers: list[int] = []
        demands: list[str] = []
        dims: list[Array] = []
        total = 0
        for step, kernel in zip(p.steps, kernels, strict=True):
            tasks = size(step.tasks)
            if tasks <= 0:
                continue
            demands.append(", ".join(what for _, what in step.demands))
            moved = size(kernel.nbytes)
            total += moved
            helped = self._threads > 1 and tasks > 1 and max(moved, size(kernel.flops)) >= WORTH
            each = max(1, tasks // (self._threads * PIECES)) if helped else 0
            dims.append(np.array([size(d) for d in step.dims], np.int64))
            numbers += self._step(step, tasks, each, dims[-1], size)
        outputs = [(tuple(size(d) for d in x.dims if d is not None), DTYPES[x.dtype].numpy) for x in p.outputs]
        most = max((len(s.buffers) + len(s.demands) for s in p.steps), default=0)
        return self._bind_sizes(numbers, demands, dims, size(p.arena_bytes), scratch, most, outputs, total)

    def _bind_sizes(
        self,
        numbers: list[int],
        demands: list[str],
        dims: list[Array],
        arena_bytes: int,
        scratch: int,
        most: int,
        outputs: list[tuple[tuple[int, ...], np.dtype[Any]]],
        total: int,
    ) -> _Bound:
        team = TEAMS.get(self._threads)
        threads = 1 + (team.helpers if team is not None else 0)
        steps = np.array(numbers or [0], np.int64)
        memory, buffers = aligned(scratch * threads), np.zeros(most + 1, np.int64)
        arguments = (
            ctypes.addressof(self._bases), steps.ctypes.data, len(demands), buffers.ctypes.data, memory.ctypes.data,
            scratch, team.memory.ctypes.data if team is not None and team.helpers else None,
        )  # fmt: skip
        if self._arena.nbytes < arena_bytes:  # runs use the largest that any sizes needed, one at a time
            self._arena = aligned(arena_bytes)
            self._bases[1] = self._arena.ctypes.data
        return _Bound(steps, demands, dims, [memory, buffers], arguments, outputs, total)

    def _step(self, step: Launch, tasks: int, each: int, dims: Array, size: Any) -> list[int]:
        places = [*step.buffers, *(b for b, _ in step.demands)]
        numbers = [
            self._kernels[step.symbol].addresses[step.symbol], tasks, each, dims.ctypes.data,
            len(step.buffers), len(step.demands),
        ]  # fmt: skip
        for b in places:
            numbers += [self._base(b), size(b.offset)]
        return numbers

    def _base(self, b: Buffer) -> int:
        if b.space in _BASES:
            return _BASES[b.space]
        return 2 + b.index + (len(self.program.inputs) if b.space == "output" else 0)

    def _symbols(self, shapes: tuple[tuple[int, ...], ...], elements: tuple[int, ...]) -> dict[Expr, Expr]:
        """The value of each symbol."""
        values: dict[Expr, Expr] = {}
        read = iter(elements)
        for name, s in zip(self.program.names, self.program.symbols, strict=False):
            if s.kind == "dim":
                shape = shapes[s.input]
                if s.dim >= len(shape):
                    port = self.program.inputs[s.input]
                    raise RunError(
                        f"input {self.inputs[s.input].name!r} has {len(shape)} dimensions; expected {len(port.dims)}"
                    )
                values |= dict.fromkeys((dim(name), runtime_dim(name), element(name)), const(shape[s.dim]))
                continue
            if s.kind == "count":  # such a variant is not taken here
                values[dim(name)] = const(0)
                continue
            value = next(read)
            if s.kind == "clamped":
                value = min(max(value, s.min), s.max)
            if not s.min <= value <= s.max:
                raise RunError(f"element {s.dim} of input {self.inputs[s.input].name!r} is {value}: out of range")
            values[dim(name)] = values[element(name)] = const(value)  # what kernels get is called by name
        return values

    def _check_shape(self, k: int, port: Port, shape: tuple[int, ...], size: Any) -> None:
        expected = tuple(None if d is None else size(d) for d in port.dims)
        if len(expected) != len(shape) or any(e is not None and e != s for e, s in zip(expected, shape, strict=True)):
            raise _Unfit(f"input {self.inputs[k].name!r} has the shape {list(shape)}; expected {list(expected)}")


def _spec(name: str, port: Port) -> TensorSpec:
    shape = (-1 if d is None else as_int(as_expr(d)) for d in port.dims)
    shown = tuple(str(d) if n is None else n for n, d in zip(shape, port.dims, strict=True))
    return TensorSpec(name, port.dtype, shown)


def _find_host_steps(script: Script) -> list[str]:
    """What keeps a model out of the process: nodes that the host runs, or on which steps depend."""
    nodes = [s.node for s in flat(script.steps) if isinstance(s, Operate | Branch | Repeat)]
    named = [f"{n.describe()}: the host runs it, in C" for n in dict.fromkeys(nodes)]
    return named or ["the model has sizes that are known only while it runs"]


def _weights(compilation: Compilation) -> Array:
    """The constants of a model, as the weights of a bundle lie."""
    program = compilation.program
    end = max((o + w.nbytes for o, w in zip(program.offsets, program.weights, strict=True)), default=0)
    memory = aligned(end)
    for offset, weight in zip(program.offsets, program.weights, strict=True):
        for part in weight.parts():
            raw = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            memory[offset : offset + raw.size] = raw
            offset += raw.size
    return memory


def load_model(source: str | os.PathLike[str] | bytes | Graph, threads: int | None = None, **options: Any) -> InProcess:
    """Compile a model into this process; no C compiler is needed, and no file is left.

    Args:
        source: path or bytes of an ONNX or JSON model, or a graph, which is changed.
        threads: that large kernels run on; the processor's when 0, one when None.
        options: fields of :class:`torshc.base.options.CompileOptions`.

    Raises:
        TorshcError: a member of the family, by cause; :class:`UnsupportedError` lists all that there is no kernel for.
    """
    began = time.perf_counter()
    asked = CompileOptions.create(**{**options, "target": TARGET, "fallback": False})
    require_this_machine(asked.mcpu, asked.triple)
    model = Path(source) if isinstance(source, str | os.PathLike) else source
    (compilation,) = with_shared_weights([prepare(model, asked)])
    return InProcess(compilation, 1 if threads is None else threads, time.perf_counter() - began)


__all__ = ["InProcess", "Stats", "load_model"]
