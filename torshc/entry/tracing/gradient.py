"""Gradients of functions that can be traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import update_wrapper
from typing import Any

import numpy as np

from ...base.errors import UnsupportedError
from ...formats.differentiate import OPERATOR
from .array import Trace, Traced, refusal
from .jit import Jitted, signature_of, where_of


class Differentiated:
    """A function that gives the gradient of another. Of arrays it is compiled; inside a trace it becomes part of that.

    Args:
        function: gives one number, a float.
        argnums: the arguments, by place, that the gradient is with respect to.
        valued: whether the value is given too, before the gradient.
    """

    def __init__(self, function: Callable[..., Any], argnums: int | Sequence[int], valued: bool) -> None:
        self._function: Callable[..., Any] = function.function if isinstance(function, Jitted) else function
        # Not __wrapped__, as what is traced is this function.
        names = ("__name__", "__qualname__", "__doc__", "__module__")
        update_wrapper(self, self._function, names, ())
        del self.__dict__["__wrapped__"]
        self.__signature__ = signature_of(self._function)
        self.__code__ = getattr(self._function, "__code__", None)  # for messages: where it stands
        self._single = isinstance(argnums, int)
        self._argnums = (argnums,) if isinstance(argnums, int) else tuple(argnums)
        self._valued = valued
        self._jitted = Jitted(self, {"target": "llvm"})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The gradient, in the form of the argument, or a tuple of gradients of several arguments.

        Raises:
            UnsupportedError: what cannot be traced or has no gradient, with its line.
        """
        given = list(args)
        for k in self._argnums:
            if not -len(args) <= k < len(args):
                raise refusal(f"argument {k}, which the gradient is with respect to, is not given by position")
            given[k] = _map_leaves(given[k], _floats)
        if not _leaves([given[k] for k in self._argnums]):
            raise refusal("the gradient with respect to nothing")
        inside = next((x.trace for x in _leaves([*given, *kwargs.values()]) if isinstance(x, Traced)), None)
        return self._jitted(*given, **kwargs) if inside is None else self._trace_gradient(inside, given, kwargs)

    def _trace_gradient(self, trace: Trace, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
        """The gradient as part of a trace; copies of the arguments stand for what it is with respect to."""
        xs: list[Traced] = []

        def copied(x: Any) -> Traced:
            xs.append(trace.add("Identity", trace.lift(x)))
            return xs[-1]

        for k in dict.fromkeys(k % len(args) for k in self._argnums):
            args[k] = _map_leaves(args[k], copied)
        wanted = [args[k] for k in self._argnums]
        y = self._number(trace, self._function(*args, **kwargs))
        names = [x.name for x in xs]
        found = trace.several(OPERATOR[1], len(xs), *xs, domain=OPERATOR[0], xs=names, y=y.name)
        by_name = dict(zip(names, found, strict=True))
        made = tuple(_map_leaves(a, lambda x: by_name[x.name]) for a in wanted)
        gradient = made[0] if self._single else made
        return (y, gradient) if self._valued else gradient

    def _number(self, trace: Trace, y: Any) -> Traced:
        """The function's result, which is one number."""
        what, remedy = f"a {type(y).__name__}", "return one number, as a sum or a mean"
        if isinstance(y, Traced | np.ndarray | np.generic | float):
            found = trace.lift(y)
            if found.ndim == 0 and found.dtype.kind == "f":
                return found
            what = f"an array of rank {found.ndim} of {found.dtype}"
        raise UnsupportedError([f"{where_of(self._function)}: returns {what}, and gradients are of one float"], remedy)


def _floats(x: Any) -> Any:
    """An array of floats, traced or not; a number of Python is one of f64."""
    array = np.asarray(x) if isinstance(x, float) or (not isinstance(x, Traced) and hasattr(x, "__array__")) else x
    if getattr(array, "dtype", np.dtype(bool)).kind != "f":
        what = f"an array of {x.dtype}" if hasattr(x, "dtype") else f"a {type(x).__name__}"
        raise refusal(f"the gradient with respect to {what}", "pass floats")
    return array


def _map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """What tuples, lists and dictionaries hold, changed."""
    if isinstance(value, tuple):
        return tuple(_map_leaves(v, change) for v in value)
    if isinstance(value, list):
        return [_map_leaves(v, change) for v in value]
    return {k: _map_leaves(v, change) for k, v in value.items()} if isinstance(value, dict) else change(value)


def _leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    _map_leaves(value, found.append)
    return found


def grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Differentiated:
    """The function that gives the gradient of a function's result, one float, with respect to arguments.

    Args:
        argnums: their places; arrays of floats, or tuples, lists and dictionaries of these. The gradient of one has its
            form; of several it is a tuple.
    """
    return Differentiated(function, argnums, valued=False)


def value_and_grad(function: Callable[..., Any], argnums: int | Sequence[int] = 0) -> Differentiated:
    """As :func:`grad`; gives the function's result and the gradient."""
    return Differentiated(function, argnums, valued=True)


__all__ = ["Differentiated", "grad", "value_and_grad"]
