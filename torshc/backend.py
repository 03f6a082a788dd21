"""torshc as a backend of the ONNX project: ``onnx.backend.base.Backend``, so that its conformance suite can run it.

import torshc.backend as backend
outputs = backend.prepare(model, device="CPU").run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import EncodeError
from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto, defs, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from .base.errors import ConfigError, ModelError, RunError, TorshcError, UnsupportedError
from .base.folders import scratch_folder
from .base.options import CompileOptions
from .bundle.host import CPU
from .entry.inprocess import InProcess, load_model
from .formats import load_graph
from .ops import CustomOperators
from .pipeline.compiler import compile_model
from .runtime import Model, load
from .targets import TARGETS

DEVICES = {"CPU" if name == "c" else name.upper(): name for name in TARGETS}
_SMALL = 1024  # elements; integer inputs of a node up to here may be shapes, axes and similar
_TOLERANCES = ("rtol", "atol")  # onnx's runner passes its own tolerances on to prepare


class TorshcRep(BackendRep):
    """A compiled model. Its bundle is loaded, and no longer in any folder."""

    def __init__(self, model: Model | InProcess) -> None:
        self.model = model

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs the model.

        Args:
            inputs: values in the order of the model's inputs, a dictionary by name, or one array. A tensor is an array
                (or a tensor on the model's device, see :meth:`torshc.runtime.Model.run`), a sequence a list, an absent
                optional None.
            kwargs: ignored, as the interface allows any.

        Returns:
            The outputs in the model's order: arrays (strings as objects), lists, None, or dictionaries for maps.

        Raises:
            RunError: the inputs do not fit the model.
        """
        if isinstance(inputs, Mapping):
            return tuple(self.model.run(inputs).values())
        return self.model(*(inputs if isinstance(inputs, list | tuple) else (inputs,)))


class TorshcBackend(Backend):
    """Compiles on the machine that it runs on; keyword arguments are fields of :class:`CompileOptions`."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator of a model is supported."""
        try:
            load_graph(_serialise(model), custom=CustomOperators(CompileOptions.create(**kwargs).ops))
        except UnsupportedError:
            return False
        except TorshcError:
            return True  # prepare says what is wrong
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> TorshcRep:
        """Compiles a model.

        Args:
            device: "CPU", or a target's name in upper case with an optional number, as in "CUDA:0".
            kwargs: fields of :class:`CompileOptions`; the tolerances that onnx's runner adds are ignored.

        Raises:
            TorshcError: a member of the family, by cause.
        """
        target, ordinal = _target(device)
        fields = {name: value for name, value in kwargs.items() if name not in _TOLERANCES}
        options = CompileOptions.create(**{"target": target, **fields})
        source = _serialise(model)
        if TARGETS[target].in_process:
            return TorshcRep(load_model(source, **fields))
        with scratch_folder() as folder:
            compile_model(source, folder / "model.tsc", options)
            return TorshcRep(load(folder / "model.tsc", options.threads or None, device=ordinal))

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compiles a model and runs it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls, node: NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """Runs one node.

        Args:
            inputs: a value for each input that is present, or for each of ``node.input`` with None for absent ones, in
                order; or a dictionary by name, which also gives what a subgraph captures.
            outputs_info: ignored; types follow from the inputs.
            kwargs: ``opset_version`` of the node's domain (the newest that onnx has), and fields of
                :class:`CompileOptions`.

        Raises:
            TorshcError: a member of the family, by cause.
        """
        opset = kwargs.pop("opset_version", None) or _newest_opset(node.domain)
        values = _name_inputs(node, inputs)
        try:
            return cls._run_node(node, values, {}, device, opset, kwargs)
        except UnsupportedError:
            # A shape, an axis, a repeat count must be known when compiling.
            fixed = {n: np.asarray(v) for n, v in values.items() if _may_be_shape(v)}
            if not fixed:
                raise
        return cls._run_node(node, values, fixed, device, opset, kwargs)

    @classmethod
    def _run_node(
        cls,
        node: NodeProto,
        values: Mapping[str, Any],
        fixed: Mapping[str, Any],
        device: str,
        opset: int,
        options: Mapping[str, Any],
    ) -> tuple[Any, ...]:
        model, absent = _model_of(node, values, fixed, opset)
        free = {n: v for n, v in values.items() if n not in fixed and n not in absent}
        return cls.prepare(model, device, **options).run(free)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can be compiled and run here for a device, by its name and an optional number ("CUDA:0")."""
        try:
            target, _ = _target(device)
        except ConfigError:
            return False
        found = TARGETS[target].toolchain.survey()
        return bool(found.tools) and not found.missing


def _target(device: str) -> tuple[str, int]:
    """The target of a device, and which of several it is; there is one processor."""
    name, _, number = device.partition(":")
    if name not in DEVICES or not (number or "0").isdecimal():
        raise ConfigError(f"no device {device!r}", f"one of {', '.join(DEVICES)}, with a number as in CUDA:0")
    target = DEVICES[name]
    return target, 0 if TARGETS[target].device == CPU else int(number or 0)


def _newest_opset(domain: str) -> int:
    versions = [s.since_version for s in defs.get_all_schemas_with_history() if s.domain == domain]
    return defs.onnx_opset_version() if not domain else max(versions, default=1)


def _name_inputs(node: NodeProto, inputs: Any) -> dict[str, Any]:
    """The inputs of a node by name."""
    present = [name for name in dict.fromkeys(node.input) if name]
    if isinstance(inputs, Mapping):
        if missing := [name for name in present if name not in inputs]:
            raise RunError(f"input {missing[0]!r} is missing", f"the inputs are {', '.join(map(repr, present))}")
        return dict(inputs)
    given = inputs if isinstance(inputs, list | tuple) else (inputs,)
    if len(given) == len(present):
        return dict(zip(present, given, strict=True))
    if len(given) == len(node.input):
        return {name: value for name, value in zip(node.input, given, strict=True) if name}
    raise RunError(f"{len(given)} inputs; expected {len(present)}", f"the inputs are {', '.join(map(repr, present))}")


def _may_be_shape(value: Any) -> bool:
    if value is None or isinstance(value, list | tuple):
        return False
    array = np.asarray(value)
    return array.dtype.kind in "iu" and array.size <= _SMALL


def _model_of(
    node: NodeProto, values: Mapping[str, Any], fixed: Mapping[str, Any], opset: int
) -> tuple[ModelProto, set[str]]:
    """A model of one node with some inputs as constants; and which inputs are absent.

    None is an empty optional where the operator takes one, and an absent input elsewhere.
    """
    taken = _types_taken(node, opset)
    some = next((e for e in map(_element, values.values()) if e), TensorProto.FLOAT)
    absent = {n for n, v in values.items() if v is None and not any(map(_is_optional, taken.get(n, ())))}
    only = NodeProto()
    only.CopyFrom(node)
    only.input[:] = ["" if name in absent else name for name in node.input]
    constants: list[TensorProto] = [numpy_helper.from_array(a, n) for n, a in fixed.items()]
    inputs = [
        helper.make_value_info(n, _type_of(v, taken.get(n, ()), some))
        for n, v in values.items()
        if n not in fixed and n not in absent
    ]
    outputs = [ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([only], "node", inputs, outputs, constants)
    opsets = {"": defs.onnx_opset_version(), node.domain: opset}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*pair) for pair in opsets.items()]), absent


def _types_taken(node: NodeProto, opset: int) -> dict[str, Sequence[str]]:
    """Types that the operator takes for each input ("optional(tensor(float))"); nothing for one without a schema."""
    if not defs.has(node.op_type, opset, node.domain):
        return {}
    formal = defs.get_schema(node.op_type, opset, node.domain).inputs
    last = len(formal) - 1
    return {name: sorted(formal[min(k, last)].types) for k, name in enumerate(node.input) if formal}


def _is_optional(kind: str) -> bool:
    return kind.startswith("optional(")


def _element(value: Any) -> int:
    """The ONNX element type of an array or of a list's first array; 0 for None and what is empty."""
    if isinstance(value, list | tuple):
        return next((e for e in map(_element, value) if e), 0)
    if value is None:
        return 0
    dtype = np.asarray(value).dtype
    return TensorProto.STRING if dtype.kind in "OUST" else int(helper.np_dtype_to_tensor_dtype(dtype))


def _type_of(value: Any, taken: Sequence[str], some: int) -> TypeProto:
    """The type of a value for an operator that takes these types; ``some``: the element type of what is empty."""
    if (taken and all(map(_is_optional, taken))) or value is None:
        inner = [kind.removeprefix("optional(") for kind in taken]
        empty = helper.make_tensor_type_proto(some, None)
        return helper.make_optional_type_proto(empty if value is None else _type_of(value, inner, some))
    if isinstance(value, list | tuple):
        shapes = {np.shape(v) for v in value}
        shape = shapes.pop() if len(shapes) == 1 else None
        return helper.make_sequence_type_proto(helper.make_tensor_type_proto(_element(value) or some, shape))
    return helper.make_tensor_type_proto(_element(value), np.shape(value))


def _serialise(model: ModelProto) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except (EncodeError, ValueError) as error:
        raise ModelError(
            f"the model cannot be serialised: {error}", "save it with external data and compile it"
        ) from error


is_compatible = TorshcBackend.is_compatible
prepare = TorshcBackend.prepare
run_model = TorshcBackend.run_model
run_node = TorshcBackend.run_node
supports_device = TorshcBackend.supports_device

__all__ = [
    "TorshcBackend", "TorshcRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device",
]  # fmt: skip
