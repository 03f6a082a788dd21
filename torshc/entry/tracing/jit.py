"""Functions that are compiled when they are first called, and traces that are looked at."""

from __future__ import annotations

import dataclasses
import dis
import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...base.errors import UnsupportedError
from ...base.options import CompileOptions
from ...explain import explain, to_text
from ...graph import Graph
from ...pipeline.compiler import prepare
from ...targets import find_target
from .. import inprocess
from ..compile_and_load import compile_loaded
from . import functions as functions  # fills the tables of what can be traced
from .array import Trace, Traced

Array = np.ndarray[Any, Any]
_PLAIN = (int, float, bool, str, bytes, type(None), slice)


@dataclass(frozen=True)
class _Leaf:
    """An array among the arguments or the results: its number."""

    number: int


@dataclass(frozen=True)
class Stats(inprocess.Stats):
    """Costs of a traced function.

    Attributes:
        traces: how often the function was traced.
        hits: calls that found what they needed compiled.
    """

    traces: int = 0
    hits: int = 0


class TracedFunction:
    """A function as a model.

    Attributes:
        name: name of the function.
        form: its results, as the function gives them.
    """

    def __init__(self, name: str, trace: Trace, form: Any) -> None:
        self.name, self.form = name, form
        self._draft = trace.draft

    @property
    def graph(self) -> Graph:
        """The graph; a new one at each call, as compilation changes it."""
        return self._draft.graph()

    def document(self) -> dict[str, Any]:
        """The JSON graph."""
        return self._draft.document()

    def save(self, path: str | Path) -> None:
        """Write it as a JSON graph, which any command takes; large constants lie beside it."""
        self._draft.save(path)

    def explain(self, **options: Any) -> str:
        """How it is compiled, as text: passes, kernels, what is fused and what is not."""
        made = prepare(self.graph, CompileOptions.create(**{"target": "llvm", **options}))
        return to_text(explain(made))

    def compile(self, **options: Any) -> Any:
        """The loaded model; options are fields of :class:`torshc.base.options.CompileOptions`, and `threads`."""
        return _compile_trace(self.graph, {"target": "llvm", **options})


def _compile_trace(graph: Graph, options: Mapping[str, Any]) -> Any:
    if find_target(options["target"]).in_process:
        return inprocess.load_model(graph, **options)
    return compile_loaded(graph, CompileOptions.create(**options))


class Jitted:
    """A function that is compiled for the types and ranks of its arguments when it is first called.

    Args:
        function: what is traced.
        options: fields of :class:`torshc.base.options.CompileOptions`.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._options = function, dict(options)
        self._signature = signature_of(function)
        self._last: tuple[Callable[[Sequence[Any]], Sequence[Any] | None], bool] | None = None
        self._models: dict[Any, tuple[Any, Any]] = {}
        self._lock = threading.Lock()
        self._traces = self._hits = 0

    @property
    def function(self) -> Callable[..., Any]:
        """The function that is traced."""
        return self._function

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        raise UnsupportedError(
            [f"{self.__name__} is a method: an object keeps state"],  # type: ignore[attr-defined]
            "trace a function of arrays",
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's results, computed by the compiled model.

        Raises:
            UnsupportedError: what cannot be traced, with the line.
            RunError: the arguments do not fit together.
        """
        last = self._last
        if last is not None and not kwargs and (found := last[0](args)) is not None:
            self._hits += 1
            return found[0] if last[1] else tuple(found)
        return self._slow(args, kwargs)

    def _slow(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        bound = _bound(self._signature, args, kwargs)
        arrays: list[Array] = []
        form = _take_arrays(dict(bound.arguments), arrays)
        key = (repr(form), tuple((a.dtype.str, tuple(d if d < 2 else -1 for d in a.shape)) for a in arrays))
        with self._lock:
            known = self._models.get(key)
            self._hits += known is not None
            if known is None:
                traced = _trace_function(self._function, self._signature, form, arrays)
                known = self._models[key] = _share_model(traced, self._options), traced.form
                self._traces += 1
        model, shape = known
        results = model(*arrays)
        plain = not kwargs and len(arrays) == len(args) and all(type(a) is np.ndarray for a in args)
        ranks = [r.ndim for r in results]
        simple = shape == _Leaf(0) or shape == tuple(_Leaf(k) for k in range(len(results)))
        fits = plain and simple and all(ranks) and isinstance(model, inprocess.InProcess)
        self._last = (model.again, shape == _Leaf(0)) if fits else None
        return _give_results(shape, results)

    def stats(self) -> Stats:
        """The costs of all calls together."""
        found = [m.stats() for m, _ in self._models.values() if isinstance(m, inprocess.InProcess)]
        sums = {f.name: sum(getattr(s, f.name) for s in found) for f in dataclasses.fields(inprocess.Stats)}
        return Stats(**sums, traces=self._traces, hits=self._hits)


_SHARED: dict[Any, Any] = {}


def _share_model(traced: TracedFunction, options: Mapping[str, Any]) -> Any:
    """The model of a trace: equal traces of a process are one model."""
    key = (repr(traced.document()), repr(sorted(options.items())))
    if key not in _SHARED:
        _SHARED[key] = traced.compile(**options)
    return _SHARED[key]


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The parameters of a function; any where it does not tell, as functions that are written in C may."""
    try:
        return inspect.signature(function)
    except ValueError:
        return inspect.signature(lambda *args, **kwargs: None)


def _bound(signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """Arguments by name, with defaults that hold arrays, which are inputs too; the function takes others by itself.

    NumPy's functions tell an argument that is given from its default.
    """
    bound = signature.bind(*args, **kwargs)
    for name, parameter in signature.parameters.items():
        if name not in bound.arguments and _holds_array(parameter.default):
            bound.arguments[name] = parameter.default
    return bound


def _holds_array(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        return any(map(_holds_array, value.values() if isinstance(value, dict) else value))
    return hasattr(value, "__array__")


def _take_arrays(value: Any, arrays: list[Array]) -> Any:
    """Arguments with a number for each array in them."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        arrays.append(array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")))
        return _Leaf(len(arrays) - 1)
    if isinstance(value, list | tuple):
        return (
            tuple(_take_arrays(v, arrays) for v in value)
            if isinstance(value, tuple)
            else [_take_arrays(v, arrays) for v in value]
        )
    if isinstance(value, dict):
        return {k: _take_arrays(v, arrays) for k, v in value.items()}
    if isinstance(value, (*_PLAIN, np.dtype, type)):
        return value
    if hasattr(value, "__array__"):
        return _take_arrays(np.asarray(value), arrays)
    raise UnsupportedError([f"an argument of type {type(value).__name__} cannot be traced"], "pass arrays and numbers")


def _give_results(form: Any, arrays: Sequence[Any]) -> Any:
    """Results in the form that the function gives them; an array of rank 0 is a number, as NumPy's are."""
    if isinstance(form, _Leaf):
        return arrays[form.number][()] if arrays[form.number].ndim == 0 else arrays[form.number]
    if isinstance(form, list):
        return [_give_results(f, arrays) for f in form]
    if isinstance(form, dict):
        return {k: _give_results(f, arrays) for k, f in form.items()}
    return tuple(_give_results(f, arrays) for f in form)


def _trace_function(
    function: Callable[..., Any], signature: inspect.Signature, form: Any, arrays: Sequence[Array]
) -> TracedFunction:
    """Run a function on arrays that note what happens to them.

    Raises:
        UnsupportedError: what cannot be traced, with the line.
    """
    _require_no_state(function)
    name = getattr(function, "__name__", "function")
    trace = Trace(name if name.isidentifier() else "function")
    inputs = [
        trace.input(f"a{k}", a.dtype, [d if d < 2 else f"a{k}_{n}" for n, d in enumerate(a.shape)])
        for k, a in enumerate(arrays)
    ]
    drawn = np.random.get_state(legacy=False)
    before = (drawn["state"]["pos"], drawn["state"]["key"].tobytes()) if "state" in drawn else None
    bound = signature.bind_partial()
    bound.arguments.update(_put(form, inputs))
    made = function(*bound.args, **bound.kwargs)
    after = np.random.get_state(legacy=False)["state"]
    if before is not None and before != (after["pos"], after["key"].tobytes()):
        raise UnsupportedError(
            [f"{where_of(function)}: draws random numbers, which a trace would freeze"], "pass them in"
        )
    outputs: list[str] = []
    shape = _results(made, trace, outputs, function)
    if not outputs:
        raise UnsupportedError([f"{where_of(function)}: returns nothing"], "return what is computed")
    trace.draft.finish(outputs)
    trace.open = False
    return TracedFunction(name, trace, shape)


def _put(form: Any, inputs: Sequence[Traced]) -> Any:
    """Arguments with traced arrays in place of numbers."""
    if isinstance(form, _Leaf):
        return inputs[form.number]
    if isinstance(form, list):
        return [_put(f, inputs) for f in form]
    if isinstance(form, tuple):
        return tuple(_put(f, inputs) for f in form)
    return {k: _put(f, inputs) for k, f in form.items()} if isinstance(form, dict) else form


def _results(made: Any, trace: Trace, outputs: list[str], function: Any) -> Any:
    """The results of a function, with a number in place of each array."""
    if isinstance(made, Traced | np.ndarray | np.generic | int | float):
        # An output has a name of its own, as it may be an input or another output too.
        outputs.append(trace.add("Identity", trace.lift(made)).name)
        return _Leaf(len(outputs) - 1)
    if isinstance(made, tuple):
        return tuple(_results(m, trace, outputs, function) for m in made)
    if isinstance(made, list):
        return [_results(m, trace, outputs, function) for m in made]
    if isinstance(made, dict):
        return {k: _results(m, trace, outputs, function) for k, m in made.items()}
    what = "nothing" if made is None else f"a {type(made).__name__}"
    raise UnsupportedError(
        [f"{where_of(function)}: returns {what}"], "return arrays, alone or in tuples, lists, dictionaries"
    )


def where_of(function: Any) -> str:
    """Where a function stands, for messages."""
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def _require_no_state(function: Callable[..., Any]) -> None:
    """Refuse a function that writes to names outside of it."""
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for step in dis.get_instructions(code):
        keeps = step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
        keeps = keeps or (step.opname == "STORE_DEREF" and step.argval in code.co_freevars)
        if keeps:
            line = step.positions.lineno if step.positions is not None else code.co_firstlineno
            raise UnsupportedError(
                [f"{code.co_filename}:{line}: keeps state in {step.argval!r}"], "pass it in, and return it"
            )


def jit(function: Callable[..., Any] | None = None, *, target: str = "llvm", **options: Any) -> Any:
    """Decorator: compile a function written in NumPy when it is first called.

    Args:
        function: takes arrays, numbers, and tuples, lists and dictionaries of them; numbers of Python and texts are
            constants, and each has a compilation of its own.
        target: what to compile for.
        options: further fields of :class:`torshc.base.options.CompileOptions`.
    """
    if function is None:
        return lambda f: Jitted(f, {"target": target, **options})
    return Jitted(function, {"target": target, **options})


def trace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> TracedFunction:
    """The model of a function for arguments of these types and ranks; their contents and sizes beyond 1 do not matter.

    Raises:
        UnsupportedError: what cannot be traced, with the line.
    """
    inner = getattr(function, "__wrapped__", function)
    signature = signature_of(inner)
    bound = _bound(signature, args, kwargs)
    arrays: list[Array] = []
    form = _take_arrays(dict(bound.arguments), arrays)
    return _trace_function(inner, signature, form, arrays)


__all__ = ["Jitted", "Stats", "TracedFunction", "jit", "signature_of", "trace", "where_of"]
