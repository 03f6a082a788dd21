"""torshc's own JSON graph: simple enough to write by hand; ``graph.schema.json`` is its definition."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arrays import SLACK, load_array
from ..base.errors import ModelError
from ..expr import BOOL, DTYPES, from_numpy, parse_size
from ..graph import Graph
from ..ops import NONE, CustomOperators
from . import json_schema
from .build import build
from .contents import read_file
from .external import locate
from .model import Array, Misfit, SourceGraph, SourceModel, SourceOp, TypeDecl, Unusable, several
from .onnx_tensor import checked_size
from .schemas import NEWEST

_OPERATOR = re.compile(r"[-+*/%()<>=!&|^~?]")

Pins = Mapping[str, Sequence[int | str | None]]


def import_json(
    path: str | Path | bytes,
    shapes: Pins | None = None,
    weights: Mapping[str, Array] | None = None,
    loose: frozenset[str] = frozenset(),
    custom: CustomOperators = NONE,
    data: memoryview | None = None,
) -> Graph:
    """Import a JSON graph.

    Args:
        path: a file, or the bytes of one; weights in files are looked for below its folder.
        shapes: dimensions that inputs are fixed to.
        weights, loose, custom: see :func:`torshc.formats.load_graph`.
        data: the file's bytes, if they are at hand.

    Raises:
        ModelError: names the file and the place in it, such as ``nodes[3].inputs``, or the line of a syntax error.
        UnsupportedError: with all that torshc cannot do in this model.
        ConfigError: when `shapes` does not fit the model.
    """
    file = "the graph" if isinstance(path, bytes) else str(path)
    folder = None if isinstance(path, bytes) else Path(path).parent
    try:
        if data is None:
            data = memoryview(path) if isinstance(path, bytes) else read_file(Path(path))
        return build(read_json(parse(bytes(data)), file, folder), shapes or {}, True, weights, loose, custom)
    except Misfit as e:
        raise ModelError(f"{file}: {e.message}", e.remedy) from e


def parse(text: bytes) -> Any:
    """A JSON document.

    Raises:
        Misfit: for a syntax error, with its line, or a name that an object has twice.
    """
    try:
        plain = text.decode("utf-8-sig")
        found = json.loads(plain, object_pairs_hook=_unique)
        if re.search(r"\\u[dD][89a-fA-F]", plain):  # half of a character, which no name can be
            json.dumps(found, ensure_ascii=False).encode()
        return found
    except json.JSONDecodeError as e:
        raise Misfit(f"line {e.lineno}, column {e.colno}: {e.msg}") from e
    except UnicodeDecodeError as e:
        raise Misfit(f"not UTF-8 text: {e.reason} at byte {e.start}") from e
    except UnicodeEncodeError as e:
        raise Misfit("a text holds half of a character, a lone surrogate") from e
    except RecursionError as e:
        raise Misfit("its values are nested too deeply") from e
    except ValueError as e:  # a number with thousands of digits
        raise Misfit(str(e)) from e


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, value in pairs:
        if name in out:
            raise Misfit(f"an object has {name!r} twice")
        out[name] = value
    return out


def read_json(document: Any, file: str, folder: Path | None) -> SourceModel:
    """The source model of a document.

    Raises:
        Misfit: names the places that are wrong.
    """
    json_schema.require(document, json_schema.schema("graph.schema.json"))
    graph = SourceGraph(document.get("name", ""))
    faults: list[Misfit] = []
    for name, spec in document["inputs"].items():
        with _gather_faults(faults):
            _check_dims(spec["shape"], f"inputs.{name}.shape")
        graph.inputs.append((name, TypeDecl(DTYPES[spec["dtype"]], tuple(spec["shape"]))))
    for name, spec in document.get("weights", {}).items():
        if name in document["inputs"]:
            faults.append(Misfit(f"weights.{name}: there is an input of this name"))
        with _gather_faults(faults):
            graph.constants[name] = _tensor(spec, f"weights.{name}", folder)
    for k, spec in enumerate(document["nodes"]):
        where, attributes = f"nodes[{k}]", {}
        for name, value in spec.get("attributes", {}).items():
            with _gather_faults(faults):
                attributes[name] = _attribute(value, f"{where}.attributes.{name}", folder)
        domain = spec.get("domain", "")
        domain = "" if domain == "ai.onnx" else domain
        inputs, outputs = tuple(spec["inputs"]), tuple(spec["outputs"])
        graph.nodes.append(SourceOp(spec["op"], domain, spec.get("name", ""), inputs, outputs, attributes, where))
    if faults:
        raise several(faults)
    graph.outputs = [(name, TypeDecl()) for name in document["outputs"]]
    return SourceModel(file, graph, {"": NEWEST, "torshc": 1})


@contextlib.contextmanager
def _gather_faults(faults: list[Misfit]) -> Iterator[None]:
    """What is wrong inside joins the others, so that all of it is told at once."""
    try:
        yield
    except Misfit as e:
        faults.append(e)


def _check_dims(shape: Sequence[int | str], path: str) -> None:
    """A dimension's text with an operator in it is an expression, and no name.

    Raises:
        Misfit: it is none that can be read.
    """
    for k, d in enumerate(shape):
        if isinstance(d, str) and _OPERATOR.search(d):
            try:
                parse_size(d)
            except ValueError as e:
                remedy = "write a number, a name, or an expression of those with + - * // % and brackets"
                raise Misfit(f"{path}[{k}]: {d!r} is no size", remedy) from e


def _attribute(value: Any, path: str, folder: Path | None) -> Any:
    if isinstance(value, dict):
        return _tensor(value, path, folder)
    for number in value if isinstance(value, list) else [value]:
        if isinstance(number, int) and not -(1 << 63) <= number < 1 << 63:
            raise Misfit(f"{path}: {number} does not fit in 64 bits")
    return value


def _tensor(spec: Mapping[str, Any], path: str, folder: Path | None) -> Array | Unusable:
    dtype, shape = DTYPES[spec["dtype"]], tuple(spec["shape"])
    if ("data" in spec) == ("file" in spec):
        raise Misfit(f"{path} needs either data or file")
    try:
        count = checked_size(shape)
        array = _load_array(spec["file"], folder, max(count * dtype.numpy.itemsize, SLACK)) if "file" in spec else None
    except Misfit as e:
        raise Misfit(f"{path}: {e.message}", e.remedy) from e
    if array is not None:
        if from_numpy(array.dtype) is not dtype or array.shape != shape:
            raise Misfit(f"{path}: {spec['file']!r} holds {array.dtype}{list(array.shape)}, not {dtype!r}{list(shape)}")
        return array
    try:
        given = np.array(spec["data"])
    except (ValueError, OverflowError) as e:
        raise Misfit(f"{path}.data: {e}") from e
    kinds = {"f": "fiu", "i": "iu", "u": "iu", "b": "biu"}[dtype.kind]
    if given.size and given.dtype.kind not in kinds:
        raise Misfit(f"{path}.data has an element that is not {dtype!r}")
    if given.size != count or (given.ndim > 1 and given.shape != shape):
        raise Misfit(f"{path}.data holds {given.size} elements; {dtype!r}{list(shape)} takes {count}")
    low, high = dtype.range if dtype.is_int else (0, 1) if dtype is BOOL else (None, None)
    if given.size and low is not None and high is not None and not low <= int(given.min()) <= int(given.max()) <= high:
        raise Misfit(f"{path}.data has numbers outside the range of {dtype!r}")
    return given.astype(dtype.numpy).reshape(shape)


def _load_array(name: str, folder: Path | None, most: int) -> Array:
    """The array of a .npy file."""
    path = locate(folder, name)
    try:
        array = load_array(path, most)
    except (OSError, ValueError) as e:
        raise Misfit(f"{name!r} is not a usable .npy file: {e}") from e
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
