"""A model that is written node by node, and knows the type of each value as soon as it is made."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import ModelError, UnsupportedError
from ..expr import DType, as_int, from_numpy
from ..graph import Graph, Value
from .build import _Importer, _Scope, build
from .model import Array, SourceGraph, SourceModel, SourceOp, TypeDecl
from .schemas import NEWEST

_OPSETS = {"": NEWEST, "torshc": 1}
_WRITTEN = 4096  # elements of a constant that the JSON holds; more lie in a file beside it


class Draft:
    """A model in the making; names of values are numbers with a letter before them.

    Args:
        name: the model's name.
    """

    def __init__(self, name: str) -> None:
        self.source = SourceGraph(name)
        self._importer = _Importer(SourceModel(name, SourceGraph(name), _OPSETS), True, {})
        self._scope = _Scope({}, _OPSETS)

    def input(self, name: str, dtype: DType, dims: Sequence[int | str]) -> str:
        """Add an input; a dimension that is a name is known at run time."""
        declared = TypeDecl(dtype, tuple(dims))
        self.source.inputs.append((name, declared))
        self._importer.model.graph.inputs[:] = [(name, declared)]
        self._importer.inputs({}, self._scope)
        return name

    def constant(self, array: Array) -> str:
        """Add a constant."""
        name = f"c{len(self.source.constants)}"
        self.source.constants[name] = array
        self._scope.values[name] = self._importer.constant(array, name)
        return name

    def add(
        self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", name: str = "", **attributes: Any
    ) -> list[str]:
        """Add a node.

        Args:
            op: ONNX's name of the operator, of the newest operator set of its domain.
            inputs: names; "" where an optional one is absent.
            name: name of the node, for messages.

        Raises:
            ModelError, UnsupportedError: the operands do not fit, or torshc cannot do it.
        """
        made = tuple(f"v{len(self.source.nodes)}{f'_{k}' if k else ''}" for k in range(outputs))
        node = SourceOp(op, domain, name, tuple(inputs), made, attributes)
        self._importer.node(node, self._scope)
        if self._importer.mistakes:
            raise self._importer.mistakes.pop()
        if problems := list(self._importer.problems):
            self._importer.problems.clear()
            raise UnsupportedError(problems)
        self.source.nodes.append(node)
        return list(made)

    def value(self, name: str) -> Value:
        """A value, for its type."""
        found = self._scope.values[name]
        assert found is not None
        return found

    def finish(self, outputs: Sequence[str]) -> None:
        """Say what the outputs are. Dimensions of inputs that have to be equal get one name, so that loops are too."""
        self.source.outputs = [(name, TypeDecl()) for name in outputs]
        names: dict[str, str] = {}

        def last(name: str) -> str:
            while name in names:
                name = names[name]
            return name

        for a, b in self._importer.graph.constraints:
            if a.op == b.op == "dim" and last(str(a.data)) != last(str(b.data)):
                names[last(str(b.data))] = last(str(a.data))
        for k, (name, t) in enumerate(self.source.inputs):
            dims = tuple(last(d) if isinstance(d, str) else d for d in t.dims or ())
            self.source.inputs[k] = name, TypeDecl(t.dtype, dims)

    def graph(self) -> Graph:
        """The graph, made anew at each call."""
        return build(SourceModel(self.source.name, self.source, _OPSETS), {}, lenient=True)

    def document(self, folder: Path | None = None, stem: str = "") -> dict[str, Any]:
        """The model as a JSON graph.

        Args:
            folder: where large constants are written, as ``<stem>.<name>.npy``; all are in the document when None.
        """
        source = self.source
        weights = {}
        for name, array in source.constants.items():
            assert isinstance(array, np.ndarray)
            dtype = from_numpy(array.dtype)
            assert dtype is not None
            weights[name] = {"dtype": dtype.name, "shape": list(array.shape)}
            if folder is not None and array.size > _WRITTEN:
                file = f"{stem}.{name}.npy"
                np.save(folder / file, array)
                weights[name]["file"] = file
            else:
                weights[name]["data"] = array.reshape(-1).tolist()
        nodes: list[dict[str, Any]] = []
        for node in source.nodes:
            spec = {"op": node.op_type, "inputs": list(node.inputs), "outputs": list(node.outputs)}
            spec |= {"domain": node.domain} if node.domain else {}
            nodes.append(spec | ({"attributes": dict(node.attributes)} if node.attributes else {}))
        inputs = {n: {"dtype": _dtype(t).name, "shape": list(t.dims or ())} for n, t in source.inputs}
        return {
            "torshc": 1, "name": source.name, "inputs": inputs, "weights": weights, "nodes": nodes,
            "outputs": [name for name, _ in source.outputs],
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the model as a JSON graph; large constants lie beside it.

        Raises:
            ModelError: the file cannot be written.
        """
        place = Path(path)
        try:
            place.write_text(json.dumps(self.document(place.parent, place.stem), indent=1) + "\n", encoding="utf-8")
        except OSError as e:
            raise ModelError(f"{place} cannot be written: {e.strerror}") from e

    def shape(self, name: str) -> tuple[int | None, ...]:
        """Dimensions, None for those that are known at run time."""
        return tuple(as_int(d) for d in self.value(name).shape)


def _dtype(t: TypeDecl) -> DType:
    assert t.dtype is not None
    return t.dtype


__all__ = ["Draft"]
