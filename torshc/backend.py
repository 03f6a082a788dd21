"""torshc as a backend of the ONNX project: ``onnx.backend.base.Backend``, so that its conformance suite can run it.

import torshc.backend as backend
outputs = backend.prepare(model, device="CPU").run([x])
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep

from .bundle.survey import survey
from .compiler import compile_model
from .errors import ConfigError, ModelError, TorshcError, UnsupportedError
from .formats import load_graph
from .options import CompileOptions
from .runtime import Model, load
from .targets import TARGETS

DEVICES = {"CPU": "c"} | {name.upper(): name for name, target in TARGETS.items() if target.device != 1}
_SMALL = 1024  # elements; integer inputs of a node up to here may be shapes, axes and the like


class TorshcRep(BackendRep):
    """A compiled model. Its bundle is kept in a temporary folder as long as the object lives."""

    def __init__(self, model: Model, folder: tempfile.TemporaryDirectory[str]) -> None:
        self.model = model
        self._folder = folder

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Runs the model.

        Args:
            inputs: arrays in the order of the model's inputs, a dictionary by name, or one array.

        Raises:
            RunError: the inputs do not fit the model.
        """
        if isinstance(inputs, Mapping):
            return tuple(self.model.run(inputs).values())
        values = inputs if isinstance(inputs, list | tuple) else (inputs,)
        return self.model(*(np.asarray(v) for v in values))


class TorshcBackend(Backend):
    """Compiles on the machine that it runs on; keyword arguments are fields of :class:`CompileOptions`."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether every operator of a model is supported."""
        try:
            load_graph(_serialised(model))
        except UnsupportedError:
            return False
        except TorshcError:
            return True  # prepare says what is wrong
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **kwargs: Any) -> TorshcRep:
        """Compiles a model.

        Raises:
            TorshcError: a member of the family, by cause.
        """
        target, ordinal = _target(device)
        options = CompileOptions.create(**{"target": target, **kwargs})
        graph = load_graph(_serialised(model), options.shapes or None)
        folder = tempfile.TemporaryDirectory(prefix="torshc-backend-")
        try:
            bundle = Path(folder.name) / "model.tsc"
            compile_model(graph, bundle, options)
            return TorshcRep(load(bundle, options.threads or None, device=ordinal), folder)
        except BaseException:
            folder.cleanup()
            raise

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
            inputs: an array for each input that is present, in order, or a dictionary by name.
            outputs_info: ignored; types follow from the inputs.
            kwargs: ``opset_version``, and fields of :class:`CompileOptions`.
        """
        opset = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        names = [name for name in dict.fromkeys(node.input) if name]
        values = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
        arrays = {name: np.asarray(values[name]) for name in names}
        try:
            return cls._run_node(node, arrays, {}, device, opset, kwargs)
        except UnsupportedError:
            # A shape, an axis, a repeat count must be known when compiling.
            fixed = {n: a for n, a in arrays.items() if a.dtype.kind in "iu" and a.size <= _SMALL}
            if not fixed:
                raise
        return cls._run_node(node, arrays, fixed, device, opset, kwargs)

    @classmethod
    def _run_node(
        cls,
        node: NodeProto,
        arrays: Mapping[str, Any],
        fixed: Mapping[str, Any],
        device: str,
        opset: int,
        options: Mapping[str, Any],
    ) -> tuple[Any, ...]:
        free = {n: a for n, a in arrays.items() if n not in fixed}
        constants: list[TensorProto] = [numpy_helper.from_array(a, n) for n, a in fixed.items()]
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in free.items()
        ]
        outputs = [ValueInfoProto(name=name) for name in node.output if name]
        graph = helper.make_graph([node], "node", inputs, outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
        return cls.prepare(model, device, **options).run(dict(free))

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether models can be compiled and run here for a device, by its name and an optional number ("CUDA:0")."""
        name = device.partition(":")[0]
        if name not in DEVICES or name == "CPU":
            return name in DEVICES
        found = survey(TARGETS[DEVICES[name]].toolchain)
        return bool(found.tools) and not found.missing


def _target(device: str) -> tuple[str, int]:
    """The target of a device, and which of several it is; there is one processor."""
    name, _, number = device.partition(":")
    if name not in DEVICES or not (number or "0").isdecimal():
        raise ConfigError(f"no device {device!r}", f"one of {', '.join(DEVICES)}, with a number as in CUDA:0")
    return DEVICES[name], 0 if name == "CPU" else int(number or 0)


def _serialised(model: ModelProto) -> bytes:
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
