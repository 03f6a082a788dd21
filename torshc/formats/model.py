"""What every front end hands over: a model as plain data, before its nodes become operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.errors import ModelError
from ..expr import DType, const
from ..graph import Partial

Array = np.ndarray[Any, Any]
COMPLETE = "check that the file was downloaded or exported completely"  # a remedy
_SHOWN = 20  # mistakes


class Misfit(ModelError):
    """A fault inside a model whose place the importer still has to add."""


def truncated() -> Misfit:
    """The error for bytes that end early or are no message of protobuf."""
    return Misfit("the file is truncated, or is not an ONNX model", COMPLETE)


def several(faults: Sequence[ModelError]) -> ModelError:
    """One error for all that is wrong with a model, of which there is something; one fault stays as it is."""
    if len(faults) == 1:
        return faults[0]
    lines = [f"  - {f.message}" for f in faults[:_SHOWN]]
    if len(faults) > _SHOWN:
        lines.append(f"  and {len(faults) - _SHOWN} more")
    remedies = dict.fromkeys(f.remedy for f in faults if f.remedy)
    return Misfit("\n".join([f"{len(faults)} mistakes in this model:", *lines]), "; ".join(remedies))


@dataclass(frozen=True)
class TypeDecl:
    """A declared type.

    Attributes:
        dtype: element type, or None when it is not declared or is one that torshc lacks.
        dims: a number, a name (or expression) or None (unknown) each; None when not even the rank is declared.
        problem: why the type cannot be used, or "".
        inner: the type of what a sequence or an optional holds.
    """

    dtype: DType | None = None
    dims: tuple[int | str | None, ...] | None = None
    problem: str = ""
    inner: TypeDecl | None = None

    def holds(self, dtype: DType) -> bool:
        """Whether it is of this element type, or a sequence or an optional of such."""
        return self.dtype is dtype or (self.inner is not None and self.inner.holds(dtype))

    @property
    def partial(self) -> Partial | None:
        """The type as far as it is declared; None when not even the element type is."""
        if self.dtype is None:
            return None
        dims = None if self.dims is None else tuple(const(d) if isinstance(d, int) else None for d in self.dims)
        return Partial(self.dtype, dims, self.inner.partial if self.inner is not None else None)


@dataclass(frozen=True)
class Reference:
    """An attribute's value inside a function: the attribute of the call with this name."""

    name: str


@dataclass(frozen=True)
class Unusable:
    """A constant or an attribute of a kind that torshc lacks; the reason becomes a problem where it is used."""

    reason: str


@dataclass
class SourceOp:
    """A node as written in the model.

    Attributes:
        inputs: names; "" where an optional one is absent.
        outputs: names; "" where unused.
        where: its place in the file where it has no name, such as "nodes[3]".
    """

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    def describe(self) -> str:
        """For messages."""
        label = self.name or next((o for o in self.outputs if o), "")
        return f"node {label!r} ({self.op_type})" if label else f"{self.where or 'a node'} ({self.op_type})"


@dataclass
class SourceGraph:
    """A graph, or the body of a control-flow branch."""

    name: str = ""
    inputs: list[tuple[str, TypeDecl]] = field(default_factory=list)
    constants: dict[str, Array | Unusable] = field(default_factory=dict)
    nodes: list[SourceOp] = field(default_factory=list)
    outputs: list[tuple[str, TypeDecl]] = field(default_factory=list)


@dataclass
class SourceFunction:
    """A function of the model, or one that defines an operator in terms of others."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: list[SourceOp]
    opsets: Mapping[str, int]
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class SourceModel:
    """A model.

    Attributes:
        file: its path, for messages.
        opsets: version of each domain; "" is ONNX's own.
        stated: types by value name as the model states them, to go on past an unsupported node.
        keeps_weights: whether the graph keeps the main graph's constants by name.
    """

    file: str
    graph: SourceGraph
    opsets: Mapping[str, int]
    functions: Mapping[tuple[str, str], SourceFunction] = field(default_factory=dict)
    stated: Callable[[], Mapping[str, TypeDecl]] = dict
    keeps_weights: bool = False


_KINDS: dict[str, type | tuple[type, ...]] = {
    "FLOAT": float, "INT": int, "STRING": (str, bytes), "TENSOR": (np.ndarray, Unusable), "GRAPH": SourceGraph,
    "SPARSE_TENSOR": (np.ndarray, Unusable), "TYPE_PROTO": (TypeDecl, Unusable),
}  # fmt: skip


def fits(value: Any, kind: str) -> bool:
    """Whether an attribute is of a kind that a schema names."""
    if kind.endswith("S") and kind[:-1] in _KINDS:
        return isinstance(value, tuple) and all(fits(v, kind[:-1]) for v in value)
    return isinstance(value, _KINDS.get(kind, object)) and not isinstance(value, bool)
