"""The test cases that the onnx package brings, with their inputs and outputs as Python objects.

A tensor is an array (strings: an object array of ``str``), a sequence a list, an absent optional ``None``. Inputs may
also be NumPy's scalars and texts of other kinds, which onnx's own runner passes to a backend as they are.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import DATA_DIR, load_model_tests

from torshc.base.cache import content_key
from torshc.base.folders import private_folder
from torshc.base.resources import cache_folder

Array = np.ndarray[Any, Any]
DataSet = tuple[tuple[Any, ...], tuple[Any, ...]]
STORED = ("simple", "pytorch-operator", "pytorch-converted")  # kinds that lie on disk with their inputs and outputs
SMALL = 1024  # elements; integer inputs up to here may be shapes, axes and similar
FLOATS = (
    "Dropout",
    "MelWeightMatrix",
    "OneHot",
    "Range",
    "Resize",
    "Upsample",
)  # their bounds, scales and depths may be floats
_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")


@dataclass(frozen=True)
class Case:
    """A model with inputs and the outputs that they give.

    Attributes:
        name: as in the onnx package, without "test_".
        operator: that the case is about; "(op)" for its definition by other operators, or the kind of a stored case.
        data_sets: inputs, as onnx's own runner passes them, and outputs, in the model's order.
        rtol, atol: as the package states them.
    """

    name: str
    operator: str
    model: onnx.ModelProto
    data_sets: tuple[DataSet, ...]
    rtol: float
    atol: float

    def passed(self, index: int) -> dict[str, Any]:
        """Inputs of a data set by name, as onnx's own runner passes them."""
        return dict(zip((v.name for v in free_inputs(self.model)), self.data_sets[index][0], strict=True))

    def feeds(self, index: int) -> dict[str, Any]:
        """Inputs of a data set by name, with arrays for scalars."""
        return {name: _plain(value) for name, value in self.passed(index).items()}

    @property
    def values(self) -> Iterator[Any]:
        """All inputs and outputs, with arrays for scalars."""
        return (_plain(value) for inputs, outputs in self.data_sets for value in (*inputs, *outputs))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Element types of its inputs and outputs, ordered; strings are "string"."""
        return tuple(sorted({t for value in self.values for t in _dtypes(value)}))

    @property
    def is_core(self) -> bool:
        """Whether all inputs and outputs are tensors of numbers or truth values, and no node has a subgraph."""
        dense = all(isinstance(v, np.ndarray) and v.dtype != object for v in self.values)
        nodes = [*self.model.graph.node, *(n for f in self.model.functions for n in f.node)]
        return dense and not any(a.HasField("g") or a.graphs for n in nodes for a in n.attribute)


def _dtypes(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for element in value:
            yield from _dtypes(element)
    elif value is not None:
        yield "string" if value.dtype == object else value.dtype.name


@lru_cache(maxsize=1)
def all_cases() -> tuple[Case, ...]:
    """All cases, ordered by name. The package computes them for some seconds, so they are kept for other processes."""
    place = private_folder(cache_folder() / "tests") / f"cases-{state()[:16]}.pickle"
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # others wait for the one that computes them
        if not place.exists():
            part = place.with_suffix(f".{os.getpid()}")
            part.write_bytes(pickle.dumps(_made_cases()))
            part.replace(place)
    kept: tuple[Case, ...] = pickle.loads(place.read_bytes())
    return kept


def state() -> str:
    """A key of what the cases are computed by."""
    versions = [package.__version__ for package in (onnx, np, ml_dtypes)]
    return content_key([*versions, Path(__file__).read_bytes()])


def _made_cases() -> tuple[Case, ...]:
    found = [*_node_cases(), *(c for kind in STORED for c in _stored_cases(kind)), *_light_cases()]
    return tuple(sorted({c.name: c for c in found}.values(), key=lambda c: c.name))


def _node_cases() -> list[Case]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    plain = {c.name: c.model.graph.node[0].op_type for c in loaded if c.model and not _EXPANDED.search(c.name)}
    out = []
    for c in loaded:
        assert c.model is not None and c.data_sets is not None
        origin = _EXPANDED.sub("", c.name)
        operator = plain[c.name] if c.name in plain else f"({plain.get(origin, 'functions')})"
        sets = tuple((tuple(map(_normal, ins)), tuple(map(_plain, outs))) for ins, outs in c.data_sets)
        out.append(Case(c.name.removeprefix("test_"), operator, c.model, sets, c.rtol, c.atol))
    return out


def _stored_cases(kind: str) -> list[Case]:
    out = []
    for c in load_model_tests(kind=kind):
        folder = Path(DATA_DIR, kind, c.name)
        model = onnx.load(folder / "model.onnx")
        sets = tuple(
            (_stored(place, "input", free_inputs(model)), _stored(place, "output", model.graph.output))
            for place in sorted(folder.glob("test_data_set_*"))
        )
        out.append(Case(c.name.removeprefix("test_"), f"[{kind}]", model, sets, c.rtol, c.atol))
    return out


def _light_cases() -> Iterator[Case]:
    """Whole networks whose weights are ConstantOfShape, so that the files are small. Their input is a ramp.

    The package keeps their descriptions under "real" and their models and outputs under "light".
    """
    for c in load_model_tests(kind="real"):
        url = json.loads(Path(DATA_DIR, "real", c.name, "data.json").read_text())["url"]
        file = Path(DATA_DIR, "light", url.rpartition("/")[2])
        model = onnx.load(file)
        inputs = tuple(_ramp([d.dim_value for d in v.type.tensor_type.shape.dim]) for v in free_inputs(model))
        stored = [file.with_name(f"{file.stem}_output_{k}.pb") for k in range(len(model.graph.output))]
        outputs = tuple(numpy_helper.to_array(onnx.TensorProto.FromString(s.read_bytes())) for s in stored)
        yield Case(c.name.removeprefix("test_"), "[light]", model, ((inputs, outputs),), c.rtol, c.atol)


def _ramp(shape: list[int]) -> Array:
    """What the package's runner feeds these models: k / n at element k of n."""
    n = int(np.prod(shape))
    return (np.arange(n).reshape(shape) / n).astype(np.float32)


def free_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs without a value of their own; old models list their weights among the inputs."""
    weights = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in weights]


def _stored(folder: Path, what: str, infos: Any) -> tuple[Any, ...]:
    return tuple(_parsed((folder / f"{what}_{k}.pb").read_bytes(), info.type) for k, info in enumerate(infos))


def _parsed(data: bytes, kind: onnx.TypeProto) -> Any:
    match kind.WhichOneof("value"):
        case "tensor_type":
            return _plain(onnx.TensorProto.FromString(data))
        case "sequence_type":
            return _plain(numpy_helper.to_list(onnx.SequenceProto.FromString(data)))
        case "optional_type":
            return _plain(numpy_helper.to_optional(onnx.OptionalProto.FromString(data)))
        case other:
            raise NotImplementedError(f"a stored value of kind {other}")


def _normal(x: Any) -> Any:
    """What onnx's own runner does to a value."""
    return numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x


def _plain(x: Any) -> Any:
    if x is None:
        return None
    if isinstance(x, list | tuple):
        return [_plain(element) for element in x]
    array = np.asarray(_normal(x))
    if array.dtype.kind not in "OSU":
        return array
    texts = np.empty(array.shape, object)
    for place, text in np.ndenumerate(array):
        texts[place] = text.decode() if isinstance(text, bytes) else str(text)
    return texts


def with_constants(case: Case) -> onnx.ModelProto | None:
    """The model with its small integer inputs, and those of the operators in `FLOATS`, as constants; or None.

    Shapes, axes and counts that the cases pass as inputs stand in models as constants.
    """
    feeds = case.feeds(0)
    wanted = {
        name: a
        for name, a in feeds.items()
        if isinstance(a, np.ndarray) and (_is_shape_like(a) or (case.operator in FLOATS and a.ndim < 2))
    }
    if not wanted or len(case.data_sets) != 1:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    model.graph.ClearField("input")
    model.graph.input.extend(v for v in case.model.graph.input if v.name not in wanted)
    model.graph.initializer.extend(numpy_helper.from_array(a, name) for name, a in wanted.items())
    return model


def _is_shape_like(a: Array) -> bool:
    return a.dtype.kind in "iub" and a.ndim <= 1 and a.size <= SMALL
