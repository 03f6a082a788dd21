"""Reads a graph of ATen's operators: what torshc computes of it, and what PyTorch does before and behind that.

Weights are inputs, so that a step of an optimiser changes no graph. An input whose elements lie in another order than
row by row, such as channels last, is read in the order in which they lie; so are results written. Random numbers are
inputs, which PyTorch draws. A result that is a view of an input, or a reshape of another result, is made by PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import InternalError, ModelError, UnsupportedError
from ...expr import BOOL, Expr, as_int, dim, dims_of
from ...graph import Builder, Graph, Node, TensorType, Value, arrange
from ...ops import Unsupported
from ...ops.core.gradient import as_shape
from ...ops.core.tensor import Tensor
from ..model import Array
from .call import CALLS, Call, dtype_of, name_of
from .random import is_drawn
from .sizes import size_of

Order = tuple[int, ...] | None
"""Dimensions from outermost to innermost in memory; None for row by row."""


@dataclass(frozen=True)
class Step:
    """An operator that PyTorch runs, on a tensor unless it makes one.

    Attributes:
        target: PyTorch's name of the operator.
        args, kwargs: behind that tensor; sizes are expressions.
    """

    target: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Blank:
    """A tensor of which only type, sizes and order in memory count."""

    shape: tuple[Expr, ...]
    dtype: Any
    device: Any
    order: Order


@dataclass(frozen=True)
class Port:
    """An input of the graph.

    Attributes:
        source: number of the argument that it is; what draws it; or a size, which is the length of an input that is
            there for nothing else.
        order: in which its elements lie.
    """

    source: int | Step | Expr
    order: Order = None


@dataclass(frozen=True)
class Result:
    """What a caller gets: an output of the graph, an argument, or something else.

    Attributes:
        output: number of the graph's output.
        argument: number of the argument, where it is none.
        order: in which an output's elements lie.
        views: what PyTorch makes of it.
        other: a size, or what is no tensor.
    """

    output: int | None = None
    argument: int | None = None
    order: Order = None
    views: tuple[Step, ...] = ()
    other: Any = None


@dataclass(frozen=True)
class Program:
    """A graph of PyTorch's.

    Attributes:
        graph: what torshc computes.
        ports: its inputs.
        results: what the whole program returns.
        symbols: for each symbolic size, the argument that is this size, or has it as a dimension.
        device: where its tensors lie, as "cpu".
    """

    graph: Graph
    ports: tuple[Port, ...]
    results: tuple[Result, ...]
    symbols: Mapping[Expr, tuple[int, int | None]]
    device: str


def read_program(module: Any, constants: Mapping[int, Array] | None = None) -> Program:
    """The program of a graph.

    Args:
        module: a ``torch.fx.GraphModule`` without mutations, whose nodes say what they give (``meta["val"]``).
        constants: elements of arguments, by their number, that are always these.

    Raises:
        UnsupportedError: with all that is not supported.
    """
    return _Reader(module, constants or {}).read()


@dataclass
class _Reader:
    module: Any
    constants: Mapping[int, Array]
    graph: Graph = field(default_factory=lambda: Graph("torch"))
    values: dict[Any, Any] = field(default_factory=dict)
    ports: dict[Value, Port] = field(default_factory=dict)
    places: dict[Any, int] = field(default_factory=dict)  # of placeholders among the arguments
    problems: dict[str, None] = field(default_factory=dict)
    symbols: dict[Expr, tuple[int, int | None]] = field(default_factory=dict)
    seen: dict[str, None] = field(default_factory=dict)  # names of symbols
    devices: dict[str, None] = field(default_factory=dict)

    def read(self) -> Program:
        results: tuple[Result, ...] = ()
        for node in self.module.graph.nodes:
            self.graph.place = node.name
            try:
                if node.op == "placeholder":
                    self.placeholder(node)
                elif node.op == "get_attr":
                    self.values[node] = self.attribute(node)
                elif node.op == "output":
                    results = self.outputs(node.args[0])
                else:
                    self.values[node] = self.call(node)
            except Unsupported as e:
                self.problem(node, str(e))
            except ModelError as e:
                self.problem(node, e.message)
            except UnsupportedError as e:
                self.problem(node, "; ".join(e.problems))
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
                raise InternalError(f"{node.name} ({node.target}): {e!r}", "please report this graph") from e
        if len(self.devices) > 1:
            self.problems[f"tensors on several devices: {', '.join(self.devices)}"] = None
        if self.problems:
            raise UnsupportedError([*self.problems])
        self.declare()
        device = next(iter(self.devices), "cpu")
        return Program(self.graph, tuple(self.ports[v] for v in self.graph.inputs), results, self.symbols, device)

    def problem(self, node: Any, why: str) -> None:
        """Note it, and go on with values of the types that PyTorch states, to find what else there is."""
        self.problems[f"{node.target}: {why}" if node.op == "call_function" else f"{node.name}: {why}"] = None
        stated = node.meta.get("val")
        try:
            made = [None if t is None else self.tensor(self.graph.new_value(t)) for t in self.types(stated)]
        except Unsupported:
            made = [None] * 64
        self.values[node] = made if isinstance(stated, tuple | list) else made[0]

    def tensor(self, value: Value) -> Tensor:
        return Tensor(Builder(self.graph), value)

    def size(self, size: Any) -> Expr:
        found = size_of(size)
        self.seen.update(dict.fromkeys(dims_of(found)))
        return found

    def type(self, stated: Any) -> TensorType:
        return TensorType(dtype_of(stated.dtype), tuple(map(self.size, stated.shape)))

    def types(self, stated: Any) -> tuple[TensorType | None, ...]:
        import torch  # optional package

        found = stated if isinstance(stated, tuple | list) else [stated]
        return tuple(self.type(v) if isinstance(v, torch.Tensor) else None for v in found)

    # -- inputs -----------------------------------------------------------------------------------------------------

    def placeholder(self, node: Any) -> None:
        import torch  # optional package

        place, stated = len(self.places), node.meta.get("val")
        self.places[node] = place
        if isinstance(stated, torch.SymInt):
            size = self.size(stated)
            if size.op == "dim":
                self.symbols[size] = place, None
            self.values[node] = size
        elif not isinstance(stated, torch.Tensor):
            self.values[node] = stated
        elif place in self.constants:
            self.devices[str(stated.device)] = None
            self.values[node] = self.tensor(self.graph.constant(self.constants[place], node.name))
        else:
            self.devices[str(stated.device)] = None
            t = self.type(stated)
            for k, d in enumerate(t.shape):
                if d.op == "dim" and d not in self.symbols:
                    self.symbols[d] = place, k
            self.values[node] = self.input(t, place, order_of(stated), node.name)

    def input(self, t: TensorType, source: int | Step, order: Order, name: str) -> Tensor:
        """A new input, in the order in which its elements lie, as the tensor that it is."""
        lies = t if order is None else TensorType(t.dtype, tuple(t.shape[k] for k in order))
        value = self.graph.new_value(lies, name)
        self.ports[value] = Port(source, order)
        found = self.tensor(value)
        return found if order is None else found.transpose(*inverse(order))

    def attribute(self, node: Any) -> Any:
        import torch  # optional package

        found = self.module
        for part in node.target.split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            raise Unsupported("a graph inside this one")
        dtype = dtype_of(found.dtype)
        with torch.no_grad():
            array = array_of(found.detach().cpu().contiguous()).astype(dtype.numpy)
        return self.tensor(self.graph.constant(array, node.name))

    # -- nodes ------------------------------------------------------------------------------------------------------

    def call(self, node: Any) -> Any:
        import torch  # optional package

        stated = node.meta.get("val")
        if getattr(node.target, "__name__", "") == "getitem":
            return self.values[node.args[0]][node.args[1]]
        if isinstance(stated, torch.SymInt | torch.SymFloat):
            return self.size(stated)
        if stated is None or isinstance(stated, torch.SymBool | bool | int | float):
            return stated  # what only checks sizes, or is known
        name = name_of(node.target)
        drawn = is_drawn(name) and (name != "native_dropout.default" or self.drops(node))
        if name not in CALLS and not drawn:
            raise Unsupported("torshc has no operator for it")
        builder = Builder(self.graph, name=node.name)
        call = Call(builder, node, self.types(stated))
        if drawn and name != "native_dropout.default":
            return self.input(call.type, self.draw(node), order_of(stated), node.name)
        kwargs = {k: self.argument(v) for k, v in node.kwargs.items()}
        if drawn:
            kwargs["drawn"] = self.kept(node, call)
        made = CALLS[name](call, *map(self.argument, node.args), **kwargs)
        if isinstance(made, Tensor):
            return self.checked(made, call.types[0])
        return [None if v is None else self.checked(v, t) for v, t in zip(made, call.types, strict=True)]

    def argument(self, arg: Any) -> Any:
        import torch  # optional package

        if isinstance(arg, torch.fx.Node):
            return self.values[arg]
        if isinstance(arg, tuple | list):
            return [self.argument(a) for a in arg]
        if isinstance(arg, torch.dtype):
            return dtype_of(arg)
        return self.size(arg) if isinstance(arg, torch.SymInt | torch.SymFloat) else arg

    def checked(self, made: Tensor, stated: TensorType | None) -> Tensor:
        """A result under the shape that PyTorch states.

        Raises:
            Unsupported: it is of another type.
        """
        if stated is None:
            return made
        pairs = zip(made.shape, stated.shape, strict=False)
        differ = any(a is not b and as_int(a) is not None and as_int(b) is not None for a, b in pairs)
        if made.dtype is not stated.dtype or made.rank != len(stated.shape) or differ:
            raise Unsupported(f"it would be {made.type!r}, and is {stated!r} in PyTorch")
        return as_shape(made, stated.shape)

    # -- random numbers ---------------------------------------------------------------------------------------------

    def drops(self, node: Any) -> bool:
        return node.args[2] is not False and node.args[1] > 0

    def kept(self, node: Any, call: Call) -> Tensor:
        """What a dropout keeps, drawn as ``torch.nn.functional.dropout`` draws it."""
        import torch  # optional package

        x = node.args[0].meta["val"]
        order = order_of(x)
        blank = Blank(call.shape, x.dtype, x.device, order)
        draw = Step(torch.Tensor.bernoulli_, (blank, 1 - node.args[1]), {})
        t = TensorType(call.dtype, call.shape)
        return self.input(t, draw, order, node.name).cast(BOOL)

    def draw(self, node: Any) -> Step:
        import torch  # optional package

        def blank(arg: Any) -> Any:
            if isinstance(arg, torch.fx.Node) and isinstance(arg.meta["val"], torch.Tensor):
                stated = arg.meta["val"]
                return Blank(self.type(stated).shape, stated.dtype, stated.device, order_of(stated))
            return [blank(a) for a in arg] if isinstance(arg, tuple | list) else self.plain(arg)

        return Step(node.target, [blank(a) for a in node.args], {k: self.plain(v) for k, v in node.kwargs.items()})

    def plain(self, arg: Any) -> Any:
        """An argument as PyTorch takes it in a run, but for sizes."""
        import torch  # optional package

        if isinstance(arg, tuple | list):
            return [self.plain(a) for a in arg]
        return self.argument(arg) if isinstance(arg, torch.fx.Node | torch.SymInt | torch.SymFloat) else arg

    # -- outputs ----------------------------------------------------------------------------------------------------

    def outputs(self, returned: Sequence[Any]) -> tuple[Result, ...]:
        import torch  # optional package

        made: dict[Any, int] = {}
        found, values = list[Result](), list[Tensor]()
        for node in returned:
            if not isinstance(node, torch.fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
                found.append(Result(other=self.argument(node)))
                continue
            base, views = self.base(node)
            if base.op == "placeholder":
                found.append(Result(argument=self.places[base], views=views))
                continue
            order = order_of(base.meta["val"])
            if base not in made:
                made[base] = len(values)
                value = self.values[base]
                values.append(value if order is None else value.transpose(*order))
            found.append(Result(made[base], order=order, views=views))
        if not self.problems:
            names = [f"output{k}" for k in range(len(values))]
            self.graph.declare_outputs([v.value for v in values], names)
        return tuple(found)

    def base(self, node: Any) -> tuple[Any, tuple[Step, ...]]:
        """The tensor that a result is a view of, and the views: all of an argument's, of others what keeps all."""
        views: list[Step] = []
        chain, at = [node], node
        while is_view(at):
            at = at.args[0]
            chain.append(at)
        for k, below in enumerate(reversed(chain)):
            taken = chain[: len(chain) - 1 - k]
            if below.op == "placeholder" or all(keeps_all(v) for v in taken):
                for view in reversed(taken):
                    views.append(Step(view.target, self.plain(view.args[1:]), dict(view.kwargs)))
                return below, tuple(views)
        return node, ()

    def declare(self) -> None:
        """Leave out what no output needs. Inputs are those that are read, and sizes that none of them has."""
        used = set[Value]()
        stack = [*self.graph.outputs]
        done = set[Node]()
        while stack:
            v = stack.pop()
            used.add(v)
            if v.producer is not None and v.producer not in done:
                done.add(v.producer)
                stack += v.producer.operands
        arrange(self.graph, [n for n in self.graph.nodes if n in done])
        inputs = [v for v in self.ports if v in used]
        bound = {d for v in inputs for d in v.shape}
        for name in self.seen:
            if dim(name) not in bound:
                if dim(name) not in self.symbols:
                    raise UnsupportedError([f"the size {name}, which no argument has"])
                value = self.graph.new_value(TensorType(BOOL, (dim(name),)), f"size_{name}")
                self.ports[value] = Port(dim(name))
                inputs.append(value)
        self.graph.declare_inputs(inputs)


def is_view(node: Any) -> bool:
    """Whether a node is a view of its first argument, and the only result."""
    return node.op == "call_function" and bool(getattr(node.target, "is_view", False)) and hasattr(node.args[0], "op")


_KEEP = ("view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze", "alias", "detach", "_unsafe_view")


def keeps_all(node: Any) -> bool:
    """Whether a view has all elements of a tensor that lies densely, and lies so itself."""
    known = name_of(node.target).partition(".")[0] in _KEEP
    return known and is_dense(node.meta["val"]) and is_dense(node.args[0].meta["val"])


def _hints(sizes: Sequence[Any]) -> list[int] | None:
    """Sizes as they were when PyTorch traced; None where it does not know them."""
    found = [s if isinstance(s, int) else s.node.hint for s in sizes]
    return None if any(not isinstance(s, int) for s in found) else found


def _order(stated: Any) -> tuple[int, ...] | None:
    """Dimensions from outermost to innermost of a tensor that lies densely; None for others."""
    sizes, strides = _hints(stated.shape), _hints(stated.stride())
    if sizes is None or strides is None:
        return None
    count = len(sizes)

    def steps(order: Sequence[int]) -> list[int]:
        return [math.prod(sizes[j] for j in order[k + 1 :]) for k in range(count)]

    def lies(order: Sequence[int]) -> bool:
        return all(sizes[d] == 1 or strides[d] == s for d, s in zip(order, steps(order), strict=True))

    if 0 in sizes or lies(range(count)):
        return tuple(range(count))
    order = sorted(range(count), key=lambda d: (-strides[d], d))
    return tuple(order) if lies(order) else None


def is_dense(stated: Any) -> bool:
    """Whether the elements of a tensor lie without gaps, each once."""
    return _order(stated) is not None


def order_of(stated: Any) -> Order:
    """In which order the elements of a tensor lie, as PyTorch states; what does not lie densely is copied to rows."""
    found = _order(stated)
    return None if found == tuple(range(len(stated.shape))) else found


def inverse(order: Sequence[int]) -> list[int]:
    """The order that undoes one."""
    return [*map([*order].index, range(len(order)))]


def array_of(tensor: Any) -> Array:
    """A contiguous tensor of the processor as an array on the same memory."""
    import torch  # optional package

    if tensor.dtype is not torch.bfloat16:
        found: Array = tensor.numpy()
        return found
    return tensor.view(torch.int16).numpy().view(dtype_of(tensor.dtype).numpy)  # type: ignore[no-any-return]


__all__ = ["Blank", "Order", "Port", "Program", "Result", "Step", "array_of", "inverse", "read_program"]
