"""The graph: values, the nodes that make them, and the graph that holds both.

A graph is in SSA form: each value is made once, by a node, a graph input or a constant. Nodes are in topological
order. The builder adds nodes, the rewriter changes them, and a graph that is planned is frozen.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.errors import InternalError
from ..expr import I64, OPTIONAL, DType, Expr, as_int, const, counter, dim, dims_of, element, from_numpy, runtime_dim
from .data import LIMIT, data_of
from .mark import Mark, RuleName

if TYPE_CHECKING:
    from ..ops.core.base import Op

Shape = tuple[Expr, ...]


@dataclass(frozen=True)
class Partial:
    """A type that is complete only at run time.

    Attributes:
        dtype: element type.
        dims: None for a dimension known only at run time; None altogether when not even the rank is known.
        inner: of a sequence or an optional, what it holds; None while nothing has been put into it. Of a map, its keys,
            whose `inner` are its values.
    """

    dtype: DType
    dims: tuple[Expr | None, ...] | None = ()
    inner: Partial | None = None

    def join(self, other: Partial) -> Partial:
        """The type that holds values of both; one that is sometimes an optional is an optional.

        Raises:
            ValueError: when they hold elements of different types.
        """
        if (self.dtype is OPTIONAL) != (other.dtype is OPTIONAL):
            maybe, sure = (self, other) if self.dtype is OPTIONAL else (other, self)
            return Partial(OPTIONAL, maybe.dims, maybe.inner.join(sure) if maybe.inner else sure)
        if self.dtype is not other.dtype:
            raise ValueError(f"{self.dtype!r} and {other.dtype!r}")
        dims = None
        if self.dims is not None and other.dims is not None and len(self.dims) == len(other.dims):
            dims = tuple(a if a is b else None for a, b in zip(self.dims, other.dims, strict=True))
        inner = self.inner.join(other.inner) if self.inner and other.inner else self.inner or other.inner
        return Partial(self.dtype, dims, inner)


@dataclass(frozen=True)
class TensorType:
    """Element type and logical shape; the dimensions are i64 expressions over the graph's symbols.

    Attributes:
        inner: of a sequence (one dimension), an optional (one dimension, 0 or 1) or a map (one dimension, 2), as of
            :class:`Partial`.
    """

    dtype: DType
    shape: Shape
    inner: Partial | None = None

    @property
    def partial(self) -> Partial:
        """The type as a partial one, which can be joined."""
        return Partial(self.dtype, self.shape, self.inner)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Expr:
        """Number of elements."""
        total = const(1)
        for d in self.shape:
            total = total * d
        return total

    @property
    def nbytes(self) -> Expr:
        return self.size * self.dtype.size

    @property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as integers, or None when a dimension is symbolic."""
        dims: list[int] = []
        for d in self.shape:
            if (known := as_int(d)) is None:
                return None
            dims.append(known)
        return tuple(dims)

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{', '.join(map(repr, self.shape))}]"


class _Freezable:
    """Base of what must not change any more once its graph is planned."""

    __slots__ = ("frozen",)
    frozen: bool

    def freeze(self) -> None:
        object.__setattr__(self, "frozen", True)

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "frozen", False):
            raise InternalError(f"{name} of {self!r} was changed, in a graph that is already planned")
        super().__setattr__(name, value)


class Value(_Freezable):
    """A tensor in the graph.

    Attributes:
        id: number, unique in the graph; generated code speaks of values by it.
        name: the model's own name; never reaches generated code.
        type: element type and shape.
        producer: the node that makes it, or None for inputs and constants.
        const: its contents when they are known (read only), else None.
        data: the contents element by element as expressions, for small tensors such as shapes, else None.
        count: of the number of a loop's round, the symbol that its data holds once something takes it for a size.
        layout: permutation of the dimensions from outermost to innermost in memory, or None for row-major.
        folded: of a constant that was computed from others, the node that made it and which of its results it is, where
            the compilation keeps that; else None.
    """

    __slots__ = ("const", "count", "data", "folded", "id", "layout", "name", "producer", "type")

    def __init__(self, id: int, name: str, type: TensorType) -> None:
        self.id = id
        self.name = name
        self.type = type
        self.producer: Node | None = None
        self.const: np.ndarray[Any, Any] | None = None
        self.data: tuple[Expr, ...] | None = None
        self.count: Expr | None = None
        self.layout: tuple[int, ...] | None = None
        self.folded: tuple[Node, int] | None = None

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def strides(self) -> Shape:
        """Element strides of each logical dimension in the value's layout."""
        out: list[Expr] = [const(0)] * len(self.shape)
        step = const(1)
        for d in reversed(self.layout or range(len(self.shape))):
            out[d] = step
            step = step * self.shape[d]
        return tuple(out)

    def copy(self, known: bool = True) -> Value:
        """A copy of the value for another graph, without its contents if they are not `known` there."""
        copy = Value(self.id, self.name, self.type)
        copy.layout = self.layout
        copy.data = self.data if known else None
        return copy

    def __repr__(self) -> str:
        return f"%{self.id}"


class Node(_Freezable):
    """An operator applied to values.

    Attributes:
        id: number, unique in the graph.
        op: the operator with its attributes.
        inputs: operands; None where an optional one is absent.
        outputs: results, at least one, which it claims.
        name: the model's own name for it (or the names of what it was made from).
        marks: of the rules that matched it, or what it was made from.
    """

    __slots__ = ("__weakref__", "id", "inputs", "marks", "name", "op", "outputs")

    def __init__(
        self, id: int, op: Op, inputs: tuple[Value | None, ...], outputs: tuple[Value, ...], name: str
    ) -> None:
        self.id = id
        self.op = op
        self.inputs = inputs
        self.outputs = outputs
        self.name = name
        self.marks: tuple[Mark, ...] = ()
        for v in self.outputs:
            v.producer = self

    def copy(self, inputs: Iterable[Value | None], outputs: Iterable[Value]) -> Node:
        """A copy of the node for another graph."""
        copy = Node(self.id, self.op, tuple(inputs), tuple(outputs), self.name)
        copy.marks = self.marks
        return copy

    def add_output(self, value: Value) -> None:
        """Have the node make another result, as its operator does by now."""
        value.producer = self
        self.outputs = (*self.outputs, value)

    def mark(self, mark: Mark) -> None:
        """Note that a rule matched this node."""
        self.marks = (*self.marks, mark)

    def inherit(self, *others: Node) -> None:
        """Take over the marks of nodes whose place this one takes."""
        self.marks = tuple(dict.fromkeys((*self.marks, *(m for n in others for m in n.marks))))

    @property
    def operands(self) -> tuple[Value, ...]:
        """The inputs that are present."""
        return tuple([v for v in self.inputs if v is not None])

    @property
    def output(self) -> Value:
        return self.outputs[0]

    def describe(self) -> str:
        """For messages: number, operator and the model's name."""
        return f"node {self.id} ({self.op.name}{f', {self.name!r}' if self.name else ''})"

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self.outputs))} = {self.op.name}({', '.join(map(repr, self.inputs))})"


@dataclass(frozen=True)
class SymbolSource:
    """Where a run reads the value of a symbol.

    Attributes:
        value: the value that it is read from, once that is computed.
        position: of a dimension of it, or of an element of a small integer tensor.
        kind: "dim"; "element"; "clamped", an element that is moved into range instead of being refused when it is out
            of range (the ends of a Slice); or "count", how many elements are not 0.
    """

    value: Value
    position: int
    kind: str = "element"


@dataclass(frozen=True)
class PaddingMask:
    """An input whose zeros say which rows of values are padding, which a variant of the model leaves out.

    Attributes:
        mask: the input, of two dimensions.
        stated: whether rows of padding, in results and wherever one row is picked, are said to mean nothing.
        rows: how many of its elements are not 0, once they are left out.
    """

    mask: Value
    stated: bool = False
    rows: Expr | None = None


@dataclass
class Numbers:
    """Counters of values and nodes, shared by a graph and the bodies in it; and how many nodes were built so far.

    Attributes:
        made: all that were built.
        by_rules: those of them that are replacements of each rewrite.
    """

    values: Iterator[int] = field(default_factory=itertools.count)
    nodes: Iterator[int] = field(default_factory=itertools.count)
    made: int = 0
    by_rules: Counter[RuleName] = field(default_factory=Counter)


def _refuse(*_: object, **__: object) -> Any:
    raise InternalError("a graph that is already planned was changed")


class _FixedList(list[Any]):
    """A list of a frozen graph."""

    extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def append(self, item: Any, /) -> None:
        _refuse()


class _FixedFacts(_FixedList):
    """The constraints of a frozen graph; the parts of a composite node may state again what it stated."""

    def append(self, fact: Any, /) -> None:
        if fact not in self:
            _refuse()


class _FixedTable(dict[Any, Any]):
    """A table of a frozen graph."""

    pop = popitem = clear = update = setdefault = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse


@dataclass(frozen=True)
class Recomputation:
    """Values of a forward pass that a training step can compute again instead of keeping them.

    Attributes:
        values: what is not kept then.
        nodes: how many compute it again.
        bytes: what need not be kept.
        cost: bytes that the kernels move, or their operations in bytes that take as long.
        chosen: whether it is done.
    """

    values: tuple[Value, ...]
    nodes: int
    bytes: int
    cost: int
    chosen: bool = False


@dataclass(frozen=True)
class State:
    """A tensor that an open model keeps from run to run.

    Attributes:
        name: what state files call it.
        first: a constant, what it holds when the model is opened; zeros where there is none.
        trained: whether it is a weight of the model, and not the optimiser's.
        whole: where each rank keeps an equally long part of its elements, the dimensions of the whole.
    """

    name: str
    first: Value | None = None
    trained: bool = False
    whole: Shape | None = None


@dataclass
class Graph:
    """Inputs, nodes in topological order, outputs.

    Attributes:
        name: the model's name, for people only.
        output_names: the model's names of the outputs, which stay when a rewrite replaces the values behind them.
        constraints: pairs of dimensions that must be equal at run time (found where symbolic shapes met).
        choices: what the import chose a branch by, which runs check; nodes that compute it are needed as outputs are.
        sources: where symbols come from that are not dimensions of inputs; shared with bodies of control flow.
        demands: what the last outputs are about, a word each: booleans of rank 0 that no caller sees, each of which
            says that the run must be refused (an index or a length is out of range).
        warnings: what the import passed over in the model, a line each.
        meetings: dimensions of inputs, by name, that broadcasting took to be equal to others, though they may be 1.
        loose: those of them that may be 1 in this graph, which is the loose form of its model.
        weights: the model's own weights by name, where the import was asked to keep them.
        place: name of the node that is being imported, after which symbols of nameless values are called.
        custom: operators of the model that users declare.
        states: what runs keep for the next run: the last inputs hold them, and the last results take their places.
        recomputes: whether a training step computes images again on the way back, to need less memory.
        recomputations: what could be computed again, the best first, once a pass has looked for it.
        bound: for a bound of memory, how many segments the forward pass is cut into for that, and which of the
            recomputations are done, by their numbers; None where there is none.
        padding: the mask of rows that are left out; None where all rows are computed.
        rank, ranks: which of how many processes that share the model it is for; 0 ranks for a model that is whole.
        file_sha256: gives the SHA-256 of the file that the model was read from, without what lies beside it,
            hexadecimal; empty where there was none.
    """

    name: str = ""
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    constraints: list[tuple[Expr, Expr]] = field(default_factory=list)
    choices: list[Expr] = field(default_factory=list)
    sources: dict[str, SymbolSource] = field(default_factory=dict)
    demands: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    meetings: frozenset[str] = frozenset()
    loose: frozenset[str] = frozenset()
    weights: dict[str, Value] = field(default_factory=dict)
    place: str = ""
    custom: tuple[type[Any], ...] = ()
    states: tuple[State, ...] = ()
    recomputes: bool = False
    recomputations: tuple[Recomputation, ...] = ()
    bound: tuple[int, Container[int]] | None = None
    padding: PaddingMask | None = None
    rank: int = 0
    ranks: int = 0
    file_sha256: Callable[[], str] = str
    faults: dict[Value, str] = field(default_factory=dict)  # demands of a graph whose outputs are not known yet
    taken: set[str] = field(default_factory=set)  # names of symbols around this graph
    marks: dict[RuleName, int] = field(default_factory=dict)  # places that rules have marked
    frozen: bool = False
    numbers: Numbers = field(default_factory=Numbers)

    def freeze(self) -> None:
        """Planning begins: who reads the graph from here on relies on its nodes and values, which do not change.

        Constants are left out, as graphs share them.
        """
        for part in (*self.nodes, *(v for v in self.values() if v.const is None)):
            part.freeze()
        for name in ("inputs", "nodes", "outputs", "output_names", "demands"):
            setattr(self, name, _FixedList(getattr(self, name)))
        self.constraints = _FixedFacts(self.constraints)
        for name in ("sources", "faults"):
            setattr(self, name, _FixedTable(getattr(self, name)))
        self.frozen = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "frozen", False):
            raise InternalError(f"{name} of a graph that is already planned was changed")
        super().__setattr__(name, value)

    @property
    def results(self) -> list[Value]:
        """The outputs that a caller sees."""
        return self.outputs[: len(self.outputs) - len(self.demands)]

    @property
    def given(self) -> list[Value]:
        """The inputs that a caller gives."""
        return self.inputs[: len(self.inputs) - len(self.states)]

    @property
    def returned(self) -> list[Value]:
        """The results that a caller is given."""
        results = self.results
        return results[: len(results) - len(self.states)]

    @property
    def updates(self) -> list[tuple[State, Value, Value]]:
        """Each state with the input that holds it and the result that takes its place."""
        inputs, results = self.inputs[len(self.given) :], self.results[len(self.returned) :]
        return [*zip(self.states, inputs, results, strict=True)]

    def declare_inputs(self, values: Iterable[Value]) -> None:
        """Make values without a producer the inputs."""
        self.inputs = list(values)

    def declare_outputs(self, values: Iterable[Value], names: Iterable[str]) -> None:
        """Make values the results, in place of those before if there are any; what is demanded stays demanded."""
        self.faults = {**dict(zip(self.outputs[len(self.results) :], self.demands, strict=True)), **self.faults}
        self.demands = []
        self.outputs, self.output_names = list(values), list(names)
        self.settle_demands()

    def add_result(self, value: Value) -> None:
        """Make a value the last of the outputs that a caller sees."""
        end = len(self.results)
        self.outputs.insert(end, value)
        self.output_names.insert(end, value.name)

    def declare_states(self, states: Iterable[State]) -> None:
        """Make the last inputs what runs keep, and the last results its new contents, once both are declared."""
        self.states = tuple(states)

    def demand(self, fault: Value, what: str) -> None:
        """Have a run refused when `fault` turns out true; while nodes are added, before the outputs are known."""
        self.faults[fault] = what

    def settle_demands(self) -> None:
        """Make outputs of what is demanded by now, and one of those that have become the same."""
        shown = self.results
        found = dict(reversed([*zip(self.outputs[len(shown) :], self.demands, strict=True), *self.faults.items()]))
        self.faults.clear()
        found = {v: what for v, what in reversed(found.items()) if v.const is None or v.const.any()}
        self.outputs = [*shown, *found]
        self.demands = [*found.values()]
        self.output_names[len(shown) :] = [""] * len(self.demands)

    def drop_demands(self, but: str = "") -> None:
        """Forget them but those of a word, for targets that cannot refuse a run in its midst."""
        kept = [
            (v, what) for v, what in zip(self.outputs[len(self.results) :], self.demands, strict=True) if what == but
        ]
        self.outputs, self.demands = [*self.results, *(v for v, _ in kept)], [what for _, what in kept]
        del self.output_names[len(self.outputs) :]

    def forget(self, symbols: Collection[str]) -> None:
        """Take out symbols that nothing needs any more, and the constraints that name them."""
        self.constraints = [pair for pair in self.constraints if not set(dims_of(*pair)).intersection(symbols)]
        for name in symbols:
            self.sources.pop(name, None)

    def unite_constraints(self) -> None:
        """Keep one of those that are equal."""
        self.constraints = list(dict.fromkeys(self.constraints))

    def new_mark(self, rule: RuleName) -> Mark:
        """A mark for the nodes of another place that a rule matches."""
        self.marks[rule] = self.marks.get(rule, 0) + 1
        return Mark(rule, self.marks[rule])

    def new_value(
        self,
        type: TensorType,
        name: str = "",
        data: tuple[Expr, ...] | None = None,
        layout: tuple[int, ...] | None = None,
    ) -> Value:
        value = Value(next(self.numbers.values), name, type)
        value.data = data
        value.layout = layout
        return value

    def new_node(self, op: Op, inputs: Iterable[Value | None], outputs: Iterable[Value], name: str = "") -> Node:
        """Make a node; it is not yet in the list of nodes."""
        return Node(next(self.numbers.nodes), op, tuple(inputs), tuple(outputs), name)

    def constant(self, array: np.ndarray[Any, Any], name: str = "") -> Value:
        """A value with known contents."""
        dtype = from_numpy(array.dtype)
        if dtype is None:
            raise TypeError(f"no element type for numpy {array.dtype}")
        value = self.new_value(TensorType(dtype, tuple(const(int(d)) for d in array.shape)), name)
        value.const = array
        value.data = data_of(array)
        return value

    def constant_like(self, v: Value, array: np.ndarray[Any, Any]) -> Value:
        """A value with known contents, of the name and the element type of another, which NumPy may lack."""
        value = self.constant(array, v.name)
        value.type = TensorType(v.dtype, value.type.shape)
        return value

    def users(self) -> dict[Value, list[Node]]:
        """The nodes that read each value, in order, a node once for each of its reads."""
        table: dict[Value, list[Node]] = {}
        for node in self.nodes:
            for v in node.operands:
                table.setdefault(v, []).append(node)
        return table

    def values(self) -> Iterator[Value]:
        """Every value that is in use, once: inputs, operands, results."""
        seen: dict[Value, None] = dict.fromkeys(self.inputs)
        for node in self.nodes:
            seen.update(dict.fromkeys((*node.operands, *node.outputs)))
        seen.update(dict.fromkeys(self.outputs))
        return iter(seen)

    def symbols(self) -> list[str]:
        """Names of the symbols, in order: symbolic dimensions of the inputs, then elements."""
        return [*dims_of(*(d for v in self.inputs for d in v.shape)), *self.sources]

    def elements_of(
        self, value: Value, clamped: bool = False, known: Sequence[Expr | None] = ()
    ) -> tuple[Expr, ...] | None:
        """The elements of a value where some are known; see :meth:`Builder.elements_of`."""
        shape = value.type.static_shape
        if value.data is None and shape is not None and math.prod(shape) <= LIMIT and not value.dtype.is_float:
            found = known or [None] * math.prod(shape)
            value.data = tuple(self._element(value, k) if e is None else e for k, e in enumerate(found))
        for e in value.data or () if clamped else ():
            if e.op == "element":
                name = str(e.data)
                self.sources[name] = replace(self.sources[name], kind="clamped")
        return value.data

    def _element(self, value: Value, position: int) -> Expr:
        own = f"value{value.id}"
        name = self._fresh(f"{value.name or (f'{self.place}/{own}' if self.place else own)}[{position}]")
        self.sources[name] = SymbolSource(value, position)
        return element(name)

    def _fresh(self, name: str) -> str:
        taken = {*self.sources, *self.taken, *dims_of(*(d for v in self.inputs for d in v.shape))}
        while name in taken:
            name += "'"
        return name

    def new_runtime_value(self, partial: Partial, name: str = "") -> Value:
        """A new value of a type whose unknown dimensions become symbols, which a run reads from the value.

        The rank must be known.
        """
        assert partial.dims is not None
        value = self.new_value(TensorType(partial.dtype, (), partial.inner), name)
        shape = []
        for k, d in enumerate(partial.dims):
            shape.append(self.new_dimension(value, k) if d is None else d)
        value.type = TensorType(partial.dtype, tuple(shape), partial.inner)
        return value

    def new_counter(self, rounds: Expr | None) -> Value:
        """The number of a loop's round as a new value of rank 0.

        Args:
            rounds: how many there are at most, if that is known.
        """
        value = self.new_value(TensorType(I64, ()))
        name = self._fresh(f"{self.place}/round" if self.place else "round")
        self.sources[name] = SymbolSource(value, 0)
        value.count = counter(name) if rounds is None else counter(name, rounds)
        return value

    def new_dimension(self, value: Value, k: int) -> Expr:
        """A new symbol for a dimension of a value, which a run reads when it has made the value."""
        symbol = self._fresh(f"{value.name or self.place or f'value{value.id}'}.{k}")
        self.sources[symbol] = SymbolSource(value, k, "dim")
        return runtime_dim(symbol)

    def count_rows(self) -> Expr:
        """A new symbol for the rows of the padding mask that are kept, which a run counts."""
        assert self.padding is not None
        mask = self.padding.mask
        name = self._fresh(f"{mask.name}.rows")
        self.sources[name] = SymbolSource(mask, 0, "count")
        self.padding = replace(self.padding, rows=dim(name))
        return dim(name)

    def child(self, name: str = "") -> Graph:
        """An empty graph for the body of a branch or loop, whose numbers and symbols are this one's too."""
        taken = {*self.taken, *dims_of(*(d for v in self.inputs for d in v.shape))}
        return Graph(name, sources=self.sources, taken=taken, numbers=self.numbers, marks=self.marks)
