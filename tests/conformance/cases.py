"""The test cases that the onnx package brings, with their inputs and outputs as arrays."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray[Any, Any]
STORED = ("simple", "pytorch-operator", "pytorch-converted")  # kinds that lie on disk in the package
SMALL = 1024  # elements; integer inputs up to here may be shapes, axes and the like
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
        data_sets: inputs and outputs in the model's order; anything but an array is a sequence or an absent value.
        rtol, atol: as the package states them.
    """

    name: str
    operator: str
    model: onnx.ModelProto
    data_sets: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...]
    rtol: float
    atol: float

    def feeds(self, index: int) -> dict[str, Any]:
        """Inputs of a data set by name."""
        return dict(zip((v.name for v in _free_inputs(self.model)), self.data_sets[index][0], strict=False))

    @property
    def has_arrays_only(self) -> bool:
        return all(isinstance(a, np.ndarray) for ins, outs in self.data_sets for a in (*ins, *outs))


@lru_cache(maxsize=1)
def all_cases() -> tuple[Case, ...]:
    """All cases, ordered by name; takes some seconds, as the package computes them."""
    found = [*_node_cases(), *(c for kind in STORED for c in _stored_cases(kind))]
    return tuple(sorted({c.name: c for c in found}.values(), key=lambda c: c.name))


def _node_cases() -> list[Case]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    plain = {c.name: c.model.graph.node[0].op_type for c in loaded if not _EXPANDED.search(c.name)}
    out = []
    for c in loaded:
        origin = _EXPANDED.sub("", c.name)
        operator = plain[c.name] if c.name in plain else f"({plain.get(origin, 'functions')})"
        sets = tuple((tuple(map(_array, ins)), tuple(map(_array, outs))) for ins, outs in c.data_sets)
        out.append(Case(c.name.removeprefix("test_"), operator, c.model, sets, c.rtol, c.atol))
    return out


def _stored_cases(kind: str) -> list[Case]:
    from onnx.backend.test.loader import load_model_tests

    out = []
    for c in load_model_tests(kind=kind):
        if c.model_dir is None:
            continue
        folder = Path(c.model_dir)
        model = onnx.load(folder / "model.onnx")
        sets = tuple(
            (_stored(place, "input", _free_inputs(model)), _stored(place, "output", model.graph.output))
            for place in sorted(folder.glob("test_data_set_*"))
        )
        out.append(Case(c.name.removeprefix("test_"), f"[{kind}]", model, sets, c.rtol, c.atol))
    return out


def _free_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs without a value of their own; old models list their weights among the inputs."""
    weights = {t.name for t in model.graph.initializer}
    return [v for v in model.graph.input if v.name not in weights]


def _stored(folder: Path, what: str, infos: Any) -> tuple[Any, ...]:
    values: list[Any] = []
    for k, info in enumerate(infos):
        file = folder / f"{what}_{k}.pb"
        is_tensor = info.type.WhichOneof("value") == "tensor_type" and file.exists()
        values.append(numpy_helper.to_array(onnx.TensorProto.FromString(file.read_bytes())) if is_tensor else None)
    return tuple(values)


def _array(x: Any) -> Any:
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    return np.asarray(x) if isinstance(x, np.ndarray | np.generic | int | float) else x


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
