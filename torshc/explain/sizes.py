"""Sizes for people: symbolic ones evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..base.errors import ConfigError, did_you_mean
from ..expr import Expr, as_int, const, dim, element, runtime_dim, substitute, to_text
from ..graph import TensorType
from ..pipeline.compilation import Compilation, manifest_of
from ..pipeline.fitting import fit_sizes


def bind(symbols: Sequence[str], dims: Mapping[str, int], default: int = 1) -> dict[str, int]:
    """A value for each symbol: the one given, else the default.

    Raises:
        ConfigError: a dimension is given that the model does not have.
    """
    for name in dims:
        if name not in symbols:
            hint = did_you_mean(name, list(symbols)) or f"; it has {', '.join(map(repr, symbols)) or 'none'}"
            raise ConfigError(f"the model has no symbolic dimension {name!r}{hint}")
    return {name: dims.get(name, default) for name in symbols}


def choose_sizes(compilation: Compilation, dims: Mapping[str, int]) -> dict[str, int]:
    """A value for each symbol of a compilation: the one given, else 1, or what the model can take.

    Raises:
        ConfigError: a dimension is given that the model does not have.
        NoSizes: none were found that the model can take.
    """
    names = compilation.program.sizes
    sizes, needs = bind(names, dims), manifest_of(compilation).needs
    told = {name: sizes[name] for name in names[: len(compilation.program.symbols)]}  # the others only a run knows
    return sizes | fit_sizes(told, list(dims), needs.conditions, needs.preferences)


_LIMIT = 16  # nodes of a size that people are shown


class Evaluator:
    """Evaluates sizes at given values of the symbols; the rest of a size that has none stays text."""

    def __init__(self, values: Mapping[str, int]) -> None:
        self.values = dict(values)
        self._known = {
            leaf(name): const(value) for name, value in values.items() for leaf in (dim, element, runtime_dim)
        }

    def integer(self, size: Expr) -> int | None:
        """The value of a size, None when it holds a symbol without a value."""
        return as_int(size) if not self._known else as_int(substitute(size, self._known))

    def total(self, sizes: Iterable[Expr]) -> int:
        """The sum of sizes; one that cannot be evaluated counts as 0."""
        return sum(self.integer(size) or 0 for size in sizes)


def plain(size: Expr) -> int | str:
    """A size for JSON: a number, or text such as ``4*batch``."""
    value = as_int(size)
    return to_text(size) if value is None else value


def type_text(type: TensorType) -> str:
    """Element type and shape, mostly without spaces; of long sizes, ``...`` stands for parts.

    >>> from ..expr import F32
    >>> type_text(TensorType(F32, (dim("batch"), const(10))))
    'f32[batch,10]'
    """
    return f"{type.dtype.name}[{','.join(to_text(d, _LIMIT) for d in type.shape)}]"
