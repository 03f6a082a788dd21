"""An array of a function that is being traced: what NumPy does to it becomes nodes of a graph."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from ...base.errors import ModelError, TorshcError, UnsupportedError
from ...expr import DTYPES, from_numpy
from ...formats.draft import Draft

Array = np.ndarray[Any, Any]
_OWN = (str(Path(__file__).parent), str(Path(np.__file__).parent))

FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""Implementations of NumPy's functions, filled by :mod:`.moves` and :mod:`.functions`."""
UFUNCS: dict[str, Callable[..., Any]] = {}
"""Implementations of NumPy's universal functions by name, of operands that have the types of one of its loops."""
METHODS: dict[str, Callable[..., Any]] = {}
"""NumPy's functions that are methods of arrays too."""


def implements(*functions: Any, method: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: what stands for functions of NumPy, and for a method of arrays."""

    def register(made: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(functions, made))
        if method:
            METHODS[method] = made
        return made

    return register


def line_of() -> tuple[str, int]:
    """The file and the line of the user's code that is being run."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def place_of() -> str:
    """The line of the user's program that is traced, for messages."""
    file, line = line_of()
    text = linecache.getline(file, line).strip()
    return f"{file}:{line}{f', {text!r}' if text else ''}"


def refusal(what: str, remedy: str = "") -> UnsupportedError:
    """The error for what a traced function may not do, with the line that does it."""
    return UnsupportedError([f"{place_of()}: {what}"], remedy)


class Trace:
    """A function that is being traced: its nodes so far.

    Args:
        name: name of the function.
    """

    def __init__(self, name: str) -> None:
        self.draft = Draft(name)
        self.open = True
        self._constants: dict[tuple[Any, ...], str] = {}

    def input(self, name: str, dtype: np.dtype[Any], dims: Sequence[int | str]) -> Traced:
        """An input."""
        found = from_numpy(dtype)
        if found is None or found.is_object:
            raise UnsupportedError([f"argument {name}: arrays of {dtype} cannot be traced"])
        return Traced(self, self.draft.input(name, found, dims))

    def constant(self, value: Any, dtype: np.dtype[Any] | None = None) -> Traced:
        """A number or an array of the function's own."""
        array = np.asarray(value, dtype)
        if from_numpy(array.dtype) is None or array.dtype.kind in "OUTS":
            raise refusal(f"a constant of {array.dtype} cannot be traced")
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size <= 64 else (id(value),)
        if key not in self._constants or array.size > 64:
            self._constants[key] = self.draft.constant(np.array(array))
        return Traced(self, self._constants[key])

    def add(self, op: str, *inputs: Traced | None, **attributes: Any) -> Traced:
        """The result of an operator of ONNX."""
        return self.several(op, 1, *inputs, **attributes)[0]

    def several(self, op: str, count: int, *inputs: Traced | None, domain: str = "", **attributes: Any) -> list[Traced]:
        """The results of an operator; its node is named after the line that it is for."""
        if not self.open:
            raise refusal("uses an array of a trace that has ended", "return what a function computes")
        try:
            file, line = line_of()
            more = {"domain": domain, "name": f"{Path(file).name}:{line}"}
            names = self.draft.add(op, ["" if x is None else x.name for x in inputs], count, **more, **attributes)
        except (ModelError, UnsupportedError) as error:
            raise refusal(f"{op}: {error.message}", error.remedy or "") from error
        return [Traced(self, n) for n in names]

    def lift(self, x: Any, dtype: np.dtype[Any] | None = None) -> Traced:
        """A value as an array of this trace, of a type where one is given."""
        if isinstance(x, Traced):
            if x.trace is not self:
                raise refusal("uses an array of another trace", "return what a function computes")
            return x if dtype is None else x.to(dtype)
        if isinstance(x, list | tuple) and any(isinstance(y, Traced) for y in x):
            return FUNCTIONS[np.stack](self, [self.lift(y, dtype) for y in x])  # type: ignore[no-any-return]
        return self.constant(x, dtype)


class Traced(NDArrayOperatorsMixin):
    """An array whose elements are not known yet, and perhaps not all of its dimensions.

    Args:
        trace: the trace that it belongs to.
        name: name of the value in the model.

    Attributes:
        own: whether it is the result of arithmetic, that no other array shares memory with.
    """

    __array_priority__ = 1000.0

    def __init__(self, trace: Trace, name: str, own: bool = False) -> None:
        self.trace, self.name, self.own = trace, name, own

    # ---- what an array tells ---------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        return DTYPES[self.trace.draft.value(self.name).dtype.name].numpy

    @property
    def dims(self) -> tuple[int | None, ...]:
        """Its dimensions; None for one that is known at run time."""
        return self.trace.draft.shape(self.name)

    @property
    def shape(self) -> tuple[Any, ...]:
        """Its dimensions; one that is known at run time is an array of rank 0."""
        return tuple(d if d is not None else self.extent(k) for k, d in enumerate(self.dims))

    def extent(self, axis: int) -> Any:
        """A dimension: a number, or an array of rank 0."""
        known = self.dims[axis]
        if known is not None:
            return known
        found = self.trace.add("Shape", self, start=axis, end=axis + 1)
        return Size(self.trace, self.trace.add("Squeeze", found, self.trace.constant(np.array([0]))).name)

    @property
    def ndim(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> Any:
        total: Any = 1
        for d in self.shape:
            total = total * d
        return total

    @property
    def T(self) -> Traced:
        return self.trace.add("Transpose", self, perm=list(range(self.ndim))[::-1])

    mT = property(lambda self: np.swapaxes(self, -1, -2))

    def to(self, dtype: Any) -> Traced:
        """Its elements in another type."""
        wanted = np.dtype(dtype)
        if wanted == self.dtype:
            return self
        found = from_numpy(wanted)
        if found is None:
            raise refusal(f"the type {wanted} cannot be traced")
        return self.trace.add("Cast", self, to=found.onnx)

    def astype(self, dtype: Any, **_: Any) -> Traced:
        made = self.to(dtype)
        return Traced(self.trace, made.name, own=True)

    def copy(self) -> Traced:
        return Traced(self.trace, self.name, own=True)

    def flatten(self) -> Traced:
        return Traced(self.trace, FUNCTIONS[np.reshape](self.trace, self, -1).name, own=True)

    def reshape(self, *shape: Any, **more: Any) -> Any:
        return FUNCTIONS[np.reshape](self.trace, self, shape[0] if len(shape) == 1 else shape, **more)

    def transpose(self, *axes: Any) -> Any:
        found = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes or None
        return FUNCTIONS[np.transpose](self.trace, self, found)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name not in METHODS:
            raise refusal(f"the method {name} of arrays cannot be traced")
        function = METHODS[name]
        return lambda *args, **kwargs: function(self.trace, self, *args, **kwargs)

    # ---- what NumPy does -------------------------------------------------------------------------------------------

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out, where = kwargs.pop("out", None), kwargs.pop("where", True)
        dtype = kwargs.pop("dtype", None)
        if where is not True or (out is not None and not isinstance(out[0], Traced)):
            raise refusal(f"{ufunc.__name__} with out= or where= cannot be traced", "use numpy.where on its result")
        if method == "reduce" and ufunc.__name__ in _REDUCTIONS:
            return self._call_function(_REDUCTIONS[ufunc.__name__], inputs, {"axis": 0, "dtype": dtype, **kwargs})
        if method != "__call__" or ufunc.__name__ not in UFUNCS or kwargs:
            named = ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}"
            raise refusal(f"numpy.{named} cannot be traced{f' with {sorted(kwargs)[0]}=' if kwargs else ''}")
        made = apply_ufunc(self.trace, ufunc, inputs, dtype)
        if out is None:
            return made
        return out[0]._overwrite(made)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function not in FUNCTIONS:
            raise refusal(f"{function.__module__}.{function.__name__} cannot be traced")
        return self._call_function(function, args, kwargs)

    def _call_function(self, function: Any, args: Any, kwargs: Any) -> Any:
        try:
            return FUNCTIONS[function](self.trace, *args, **kwargs)
        except TypeError as error:
            raise refusal(f"numpy.{function.__name__}: {error}") from error

    def _overwrite(self, made: Traced) -> Traced:
        """An operation in place: only on what the function itself has computed."""
        if not self.own:
            raise refusal("changes an array in place that may be the caller's", "write x = x + y for x += y")
        if made.dtype != self.dtype and not np.can_cast(made.dtype, self.dtype, "same_kind"):
            raise refusal(f"cannot write {made.dtype} into an array of {self.dtype}")
        self.name = made.to(self.dtype).name
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        raise refusal("writes to elements of an array", "use numpy.where or numpy.concatenate")

    def __getitem__(self, key: Any) -> Any:
        return FUNCTIONS["getitem"](self.trace, self, key)

    def __iter__(self) -> Iterator[Any]:
        count = self.dims[0] if self.ndim else None
        if count is None:
            raise refusal("iterates over a dimension that is known only at run time")
        return (self[k] for k in range(count))

    # ---- what cannot be known --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        count = self.dims[0] if self.ndim else None
        if count is None:
            raise refusal("len() of a dimension that is known only at run time", "use x.shape[0]")
        return count

    def __bool__(self) -> bool:
        raise refusal("Python control flow on a value: if, while, and, or, not, in", "use numpy.where")

    def _number(self) -> Any:
        raise refusal("needs the value of an array as a Python number", "keep it an array")

    __int__ = __float__ = __complex__ = __index__ = item = tolist = _number

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise refusal("makes a NumPy array of a traced one", "use functions of NumPy that keep it traced")

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        shape = ", ".join("?" if d is None else str(d) for d in self.dims)
        return f"<traced array of {self.dtype}[{shape}]>"


class Size(Traced):
    """A dimension that is known at run time: in promotion a number of Python."""


_REDUCTIONS: dict[str, Any] = {
    "add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min, "logical_and": np.all,
    "logical_or": np.any,
}  # fmt: skip


def apply_ufunc(trace: Trace, ufunc: np.ufunc, inputs: Sequence[Any], dtype: Any = None) -> Traced:
    """A universal function, its operands cast as NumPy's promotion says."""
    if any(isinstance(x, complex) for x in inputs):
        raise refusal("complex numbers cannot be traced")
    sizes = all(isinstance(x, Size | int) for x in inputs)
    kinds = [np.dtype(np.int64) if sizes else _weak(x) for x in inputs]
    wanted = [None] * ufunc.nout
    more: dict[str, Any] = {} if dtype is None else {"signature": (*(None for _ in inputs), np.dtype(dtype))}
    try:
        loop = ufunc.resolve_dtypes((*kinds, *wanted), **more)
    except TypeError as error:
        raise refusal(f"numpy.{ufunc.__name__}: {error}") from error
    operands = [trace.lift(x, t) for x, t in zip(inputs, loop, strict=False)]
    made = UFUNCS[ufunc.__name__](trace, *operands)
    if not isinstance(made, Traced):
        raise TorshcError(f"{ufunc.__name__} gave {made!r}")
    result = made.to(loop[len(inputs)])
    return Size(trace, result.name) if sizes and result.dtype == np.int64 else Traced(trace, result.name, own=True)


def _weak(x: Any) -> Any:
    """The type that promotion looks at: that of a Python number, else the element type."""
    if isinstance(x, Size):
        return int
    return x.dtype if isinstance(x, Traced) else type(x) if type(x) in (int, float) else np.asarray(x).dtype
