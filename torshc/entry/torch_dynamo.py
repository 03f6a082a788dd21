"""``torch.compile(model, backend="torshc")``: PyTorch's graphs, each compiled when it first runs. For inference.

PyTorch finds this through the entry point ``torch_dynamo_backends``; torshc does not depend on it. AOTAutograd takes
mutations and aliases out of a graph, ``torch.onnx.export`` makes it an ONNX model, and parameters and buffers become
its weights. What dynamo leaves out of its graphs runs in PyTorch as ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..base.errors import ConfigError, RunError, TorshcError
from ..base.options import CompileOptions
from ..formats.torch_program import to_onnx
from ..runtime import Model
from .compile_and_load import compile_loaded

Call = Callable[..., Any]
_LOG = logging.getLogger("torshc")
_DTYPES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "bool": "bool"} | {
    f"{sign}{bits}": f"{'u' * (sign == 'u')}int{bits}" for sign in "iu" for bits in (8, 16, 32, 64)
}


def torshc(module: Any, examples: Sequence[Any], *, options: dict[str, Any] | None = None) -> Call:
    """The backend.

    Args:
        module: a graph of dynamo.
        examples: its inputs, of which only the kind counts.
        options: fields of :class:`torshc.base.options.CompileOptions`, as ``torch.compile(..., options={...})`` passes
            them.

    Raises:
        RunError: gradients are wanted.
        ConfigError: an option is none.
    """
    from torch._dynamo.backends.common import aot_autograd  # optional package

    asked = CompileOptions.create(**(options or {}))

    def inference(graph: Any, _: Any) -> Call:
        return _Compiled(graph, asked)

    made: Call = aot_autograd(fw_compiler=_no_gradients, bw_compiler=_no_gradients, inference_compiler=inference)(
        module, examples
    )
    return made


def _no_gradients(graph: Any, examples: Any) -> Call:
    raise RunError("torshc computes no gradients", "call the model under torch.no_grad() or torch.inference_mode()")


class _Compiled:
    """A graph of PyTorch's, compiled for each combination of shapes that it meets.

    Args:
        graph: without mutations, of ATen's operators.
        options: of the compilations.
    """

    _boxed_call = True  # AOTAutograd passes one list, which a callee may empty

    def __init__(self, graph: Any, options: CompileOptions) -> None:
        self.graph, self.options = graph, options
        self.models: dict[Any, Model | None] = {}
        self.weights: list[tuple[Any, int]] = []  # each with the number of its changes, and kept, so that it is itself

    def __call__(self, values: list[Any]) -> Sequence[Any]:
        """Runs it; in PyTorch where torshc does not support the graph, which a warning says once."""
        import torch  # optional package

        static = [_is_weight(v) for v in values]
        weights = [(v, 0 if v.is_inference() else v._version) for v, s in zip(values, static, strict=True) if s]
        if [(id(v), n) for v, n in weights] != [(id(v), n) for v, n in self.weights]:  # others were loaded, say
            self.models, self.weights = {}, weights
        key = tuple((tuple(v.shape), v.dtype) if isinstance(v, torch.Tensor) else v for v in values)
        if key not in self.models:
            self.models[key] = self._compiled(values, static)
        model = self.models[key]
        if model is None:
            found: Sequence[Any] = self.graph(*values)
            return found
        given = [v.detach() for v, s in zip(values, static, strict=True) if isinstance(v, torch.Tensor) and not s]
        return self._run(model, given)

    def _run(self, model: Model, given: list[Any]) -> list[Any]:
        import torch  # optional package

        device = given[0].device if given else "cpu"
        out = {
            spec.name: torch.empty(spec.shape, dtype=getattr(torch, _DTYPES[spec.dtype]), device=device)
            for spec in model.outputs
            if all(isinstance(d, int) for d in spec.shape)
        }
        inputs = {spec.name: value.contiguous() for spec, value in zip(model.inputs, given, strict=True)}
        found = iter(torch.as_tensor(v) for v in model.run(inputs, out).values())
        returned = self.graph.graph.output_node().args[0]
        return [next(found) if hasattr(value, "op") else value for value in returned]

    def _compiled(self, values: list[Any], static: list[bool]) -> Model | None:
        try:
            with ThreadPoolExecutor(
                1
            ) as fresh:  # this one is inside AOTAutograd, whose dispatch the exporter cannot bear
                exported = fresh.submit(_exported, self.graph, values, static).result()
            return compile_loaded(exported, self.options)
        except ConfigError:
            raise
        except TorshcError as error:
            _LOG.warning("torshc leaves a graph to PyTorch: %s", error)
            return None


def _is_weight(value: Any) -> bool:
    import torch  # optional package

    return isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None


def _exported(graph: Any, values: list[Any], static: list[bool]) -> Any:
    """The graph as an ONNX model whose inputs are the tensors that are no weights.

    Raises:
        RunError: PyTorch cannot export it.
    """
    import torch  # optional package

    class Frozen(torch.nn.Module):  # type: ignore[misc]  # PyTorch is not there when types are checked
        def __init__(self) -> None:
            super().__init__()
            for k, (value, fixed) in enumerate(zip(values, static, strict=True)):
                if fixed:
                    self.register_buffer(f"weight{k}", value.detach())

        def forward(self, *given: Any) -> Any:
            rest = iter(given)
            places = enumerate(zip(values, static, strict=True))
            found = graph(*(self._place(k, v, s, rest) for k, (v, s) in places))
            return tuple(v for v in found if isinstance(v, torch.Tensor))

        def _place(self, k: int, value: Any, fixed: bool, rest: Any) -> Any:
            if fixed:
                return getattr(self, f"weight{k}")
            return next(rest) if isinstance(value, torch.Tensor) else value

    given = tuple(v.detach() for v, s in zip(values, static, strict=True) if isinstance(v, torch.Tensor) and not s)
    return to_onnx(Frozen().eval(), given)
