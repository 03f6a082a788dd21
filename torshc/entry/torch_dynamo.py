"""``torch.compile(model, backend="torshc")``: PyTorch's graphs, forward and backward, each compiled once.

PyTorch finds this through the entry point ``torch_dynamo_backends``; torshc does not depend on it. AOTAutograd takes
mutations and aliases out of a graph and makes that of its gradients; :mod:`torshc.formats.aten` reads both. What dynamo
leaves out of its graphs runs in PyTorch as ever, and so does a graph with operators that torshc lacks, which a warning
names.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from ..base.errors import ConfigError, TorshcError, UnsupportedError
from ..base.options import CompileOptions
from ..expr import Expr, const
from ..formats.aten import decompositions, read_program
from ..formats.aten.reader import Blank, Order, Port, Program, Result, Step, array_of, inverse
from ..formats.aten.sizes import value_of
from ..runtime import Model
from .compile_and_load import compile_loaded

Call = Callable[..., Any]
Known = dict[Expr, Expr]
_LOG = logging.getLogger("torshc")
_SEE = 'TORCH_LOGS="aot_graphs" shows the graph'


def torshc(module: Any, examples: Sequence[Any], *, options: dict[str, Any] | None = None) -> Call:
    """The backend.

    Args:
        module: a graph of dynamo.
        examples: its inputs, of which only the kind counts.
        options: fields of :class:`torshc.base.options.CompileOptions`, as ``torch.compile(..., options={...})`` passes
            them. Where they do not say otherwise, a run has as many threads as PyTorch, and the target is that of the
            device that the tensors are on.

    Raises:
        ConfigError: an option is none.
    """
    import torch  # optional package
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch import config  # optional package
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    on_card = any(isinstance(e, torch.Tensor) and e.device.type == "cuda" for e in examples)
    usual = {"threads": torch.get_num_threads(), "target": "cuda" if on_card else "c"}
    asked = CompileOptions.create(**{**usual, **(options or {})})
    with config.patch(donated_buffer=False):  # none is written to, so a graph's backward may run again
        made: Call = aot_autograd(
            fw_compiler=lambda graph, _: _accept_one_list(_compile_graph(graph, asked)),
            bw_compiler=lambda graph, _: _accept_one_list(_compile_graph(graph, asked)),
            inference_compiler=lambda graph, _: _accept_one_list(_Inference(graph, asked)),
            decompositions=decompositions(),
            partition_fn=min_cut_rematerialization_partition,
        )(module, examples)
    return made


def _accept_one_list(run: Call) -> Call:
    """A function that says that AOTAutograd may pass one list; what dynamo wraps keeps that of functions alone."""

    def call(values: list[Any]) -> Sequence[Any]:
        found: Sequence[Any] = run(values)
        return found

    call._boxed_call = True  # type: ignore[attr-defined]  # how AOTAutograd tells these calls
    return call


class _Inference:
    """A graph without gradients. Its weights are constants at first; once they change, they are inputs for good.

    Args:
        graph: without mutations, of ATen's operators.
        options: options of the compilations.
    """

    def __init__(self, graph: Any, options: CompileOptions) -> None:
        self.graph, self.options = graph, options
        self.weights: list[tuple[Any, int]] | None = None  # with the number of changes; kept, so that each is itself
        self.run: Call | None = None

    def __call__(self, values: list[Any]) -> Sequence[Any]:
        """Runs it; compiles it in a first run, and in the first with other weights."""
        if self.run is None or self.weights is not None:
            places = [k for k, v in enumerate(values) if _is_weight(v)]
            weights = [(values[k], 0 if values[k].is_inference() else values[k]._version) for k in places]
            if self.run is None:
                constants = {k: array_of(values[k].detach().cpu().contiguous()).copy() for k in places}
                self.weights, self.run = weights, _compile_graph(self.graph, self.options, constants)
            elif [(id(v), n) for v, n in weights] != [(id(v), n) for v, n in self.weights or ()]:
                self.weights, self.run = None, _compile_graph(self.graph, self.options)
        found: Sequence[Any] = self.run(values)
        return found


def _is_weight(value: Any) -> bool:
    import torch  # optional package

    return isinstance(value, torch.nn.Parameter) or getattr(value, "_dynamo_static_input_type", None) is not None


def _compile_graph(graph: Any, options: CompileOptions, constants: Mapping[int, Any] | None = None) -> Call:
    """What runs a graph: torshc, or PyTorch where torshc lacks something, all of which one warning says.

    Args:
        constants: elements of arguments, by their number, that are always these.
    """
    try:
        program = read_program(graph, constants)
        return _Run(program, compile_loaded(program.graph, options) if program.graph.outputs else None)
    except ConfigError:
        raise
    except UnsupportedError as error:
        why = "".join(f"\n  - {p}" for p in error.problems)
    except TorshcError as error:
        why = f" {error}"
    _LOG.warning("torshc leaves a graph to PyTorch:%s\n%s", why, _SEE)

    def in_pytorch(values: Sequence[Any]) -> Any:
        return graph(*values)

    return in_pytorch


class _Run:
    """A program with the model that computes its graph; None where there is nothing to compute."""

    def __init__(self, program: Program, model: Model | None) -> None:
        import torch  # optional package

        self.model, self.symbols = model, program.symbols
        self.no_grad = torch.no_grad
        self.known = lru_cache(maxsize=64)(self._known)
        self.inputs = [partial(_input, torch, port) for port in program.ports]
        self.results = [_result(r) for r in program.results]
        narrow = [spec.dtype == "bf16" for spec in model.outputs] if model is not None else []
        on_processor = [_of_bf16 if n else torch.from_numpy for n in narrow]
        self.adopt = on_processor if program.device == "cpu" else [torch.from_dlpack] * len(narrow)

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        known = self.known(*(values[k] if d is None else values[k].shape[d] for k, d in self.symbols.values()))
        with self.no_grad():
            given = [take(values, known) for take in self.inputs]
            arrays = self.model(*given) if self.model is not None else ()
            made = [adopt(array) for adopt, array in zip(self.adopt, arrays, strict=True)]
            return [give(values, made, known) for give in self.results]

    def _known(self, *sizes: int) -> Known:
        """The values of symbolic sizes."""
        return dict(zip(self.symbols, map(const, sizes), strict=True))


def _input(torch: Any, port: Port, values: Sequence[Any], known: Known) -> Any:
    """What the model takes, on the memory of the tensor if that lies as it was said to."""
    source = port.source
    if isinstance(source, Expr):
        return torch.empty(value_of(source, known), dtype=torch.bool).numpy()
    tensor = values[source].detach() if isinstance(source, int) else _run(torch, source, known)
    if port.order is not None:
        tensor = tensor.permute(port.order)
    return array_of(tensor.contiguous()) if tensor.device.type == "cpu" else tensor.contiguous()


def _result(r: Result) -> Call:
    """What gives a result, from the arguments, the model's outputs and the sizes."""
    import torch  # optional package

    def give(values: Sequence[Any], made: Sequence[Any], known: Known) -> Any:
        if r.output is not None:
            found = _in_order(made[r.output], r.order)
        elif r.argument is not None:
            found = values[r.argument]
        else:
            return value_of(r.other, known) if isinstance(r.other, Expr) else r.other
        for step in r.views:
            found = _run(torch, step, known, found)
        return found

    return give


def _of_bf16(array: Any) -> Any:
    """An array as a tensor on its memory, as ``torch.from_numpy`` makes of types that NumPy has itself."""
    import torch  # optional package

    return torch.from_numpy(array.view("int16")).view(torch.bfloat16)


def _in_order(tensor: Any, order: Order) -> Any:
    return tensor if order is None else tensor.permute(inverse(order))


def _run(torch: Any, step: Step, known: Known, *first: Any) -> Any:
    def plain(arg: Any) -> Any:
        if isinstance(arg, Blank):
            lies = arg.shape if arg.order is None else tuple(arg.shape[k] for k in arg.order)
            sizes = [value_of(d, known) for d in lies]
            return _in_order(torch.empty(sizes, dtype=arg.dtype, device=arg.device), arg.order)
        if isinstance(arg, Expr):
            return value_of(arg, known)
        return [plain(a) for a in arg] if isinstance(arg, list | tuple) else arg

    return step.target(*first, *map(plain, step.args), **{k: plain(v) for k, v in step.kwargs.items()})
