"""Makes a graph of a source model: names become values, nodes become operators, problems are gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..base.budget import OverBudget, afford
from ..base.errors import InternalError, ModelError, UnsupportedError
from ..expr import MAP, OPTIONAL, STRING, call
from ..graph import Builder, Graph, TensorType, Value, require_fit, require_shape
from ..ops import NONE, REGISTRY, CustomOperators, Op, SourceNode, Unsupported
from ..ops.core.axes import require
from ..ops.core.base import Meeting
from ..ops.core.custom import serve_calls
from ..ops.text import strings
from . import called, control, differentiate, flex, legacy, schemas, unroll
from .attribute_values import check_values
from .calls import DEPTH, CallSizes
from .model import (
    Array,
    Misfit,
    Reference,
    SourceFunction,
    SourceGraph,
    SourceModel,
    SourceOp,
    TypeDecl,
    Unusable,
    several,
)
from .order import sort_nodes
from .pins import Pins, dimension, forced_pins, input_shapes
from .repeats import without_repeats

_ATTEMPTS = 64  # imports to find out which branches fit
_Attempt = Callable[[Pins, Mapping[str, bool]], Graph]


def build(
    model: SourceModel,
    pins: Pins,
    lenient: bool = False,
    weights: Mapping[str, Array] | None = None,
    loose: frozenset[str] = frozenset(),
    custom: CustomOperators = NONE,
) -> Graph:
    """The graph of a source model; where no sizes fit it but some of 1 that are broadcast, with these `loose`.

    Args:
        pins: dimensions that inputs are fixed to.
        lenient: attributes come from JSON, which cannot distinguish an int from a float.
        weights, loose, custom: see :func:`torshc.formats.load_graph`.

    Raises:
        ModelError, UnsupportedError, ConfigError: see :func:`torshc.formats.import_model`.
    """
    if weights is not None:
        constants = {**model.graph.constants, **weights}
        model = replace(model, graph=replace(model.graph, constants=constants), keeps_weights=True)

    met = set[str]()

    def attempt(pins: Pins, chosen: Mapping[str, bool]) -> Graph:
        graph = _Importer(model, lenient, chosen, loose, custom).run(pins)
        met.update(graph.meetings)
        return graph

    try:
        graph = _choose_branches(attempt, pins, {}, iter(range(_ATTEMPTS)))
    except ModelError as error:
        if loose or not met:
            raise
        try:
            graph = build(model, pins, lenient, weights, frozenset(met), custom)
        except (ModelError, UnsupportedError):
            raise error from None
        graph.warnings.append(f"only sizes of 1 that are broadcast fit, of {', '.join(sorted(met))}: {error.message}")
        return graph
    if loose and not graph.meetings <= loose:
        return build(model, pins, lenient, weights, loose | graph.meetings, custom)
    return graph


def _choose_branches(attempt: _Attempt, pins: Pins, chosen: Mapping[str, bool], budget: Iterator[int]) -> Graph:
    """The graph with some branches chosen, and more of them where need be.

    Where sizes choose between branches of different ranks, as in what PyTorch makes of ``x.squeeze(1)``, the rest of
    the model mostly fits one of them alone. That one is taken, and a run checks that its sizes choose it.
    """
    try:
        graph = attempt(pins, chosen)
        while forced := forced_pins(graph, pins):
            pins, met = forced, graph.meetings
            graph = attempt(pins, chosen)
            graph.meetings |= met
        return graph
    except _Fork as e:
        fork = e
    sides = [_side(attempt, pins, {**chosen, fork.place: choice}, budget) for choice in (True, False)]
    fitting = [side for side in sides if isinstance(side, Graph)]
    if len(fitting) == 1 and next(budget, None) is not None:
        return fitting[0]
    lacks = [side for side in sides if not isinstance(side, Graph)]
    shared = [p for p in lacks[0] if p in lacks[1]] if len(lacks) == 2 else []
    raise UnsupportedError([fork.problem, *shared])


def _side(attempt: _Attempt, pins: Pins, chosen: Mapping[str, bool], budget: Iterator[int]) -> Graph | tuple[str, ...]:
    """The graph with one branch more chosen, or what is unsupported then: nothing when the rest contradicts it."""
    try:
        return _choose_branches(attempt, pins, chosen, budget) if next(budget, None) is not None else ()
    except ModelError:
        return ()
    except UnsupportedError as e:
        return e.problems


def _describe_undeclared(name: str, t: TypeDecl) -> str:
    """A message about what the model does not state of an input, and its remedy."""
    if t.dtype is None:
        return "the model does not state its element type"
    return f"the model does not state its rank; give its shape, such as --shapes {name}:1x3x224x224"


class _Fork(Exception):
    """Sizes choose between branches of different ranks, and no choice was made yet."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(problem)
        self.place = place
        self.problem = problem


class _Placed(Misfit):
    """A fault whose place is already in the message."""


@dataclass
class _Scope:
    """Values by name, in a graph, a branch or a call of a function; None is what could not be imported."""

    values: dict[str, Value | None]
    opsets: Mapping[str, int]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    prefix: str = ""
    depth: int = 0


class _Importer:
    def __init__(
        self,
        model: SourceModel,
        lenient: bool,
        chosen: Mapping[str, bool],
        loose: frozenset[str] = frozenset(),
        custom: CustomOperators = NONE,
    ) -> None:
        self.model = model
        self.custom = custom
        self.used: dict[type[Op], None] = {}
        self.chosen = chosen
        self.loose = loose
        self.lenient = lenient
        self.graph = Graph(name=model.graph.name, loose=loose)
        self.problems: dict[str, None] = {}
        self.mistakes: list[ModelError] = []
        self.warnings: dict[str, str] = {}  # by what they say of a node, which may be imported often
        self._stated: Mapping[str, TypeDecl] | None = None
        self.unfolded = 0
        self.sizes = CallSizes(model.functions)

    def run(self, pins: Pins) -> Graph:
        try:
            self.check_opsets(self.model.opsets)
            if self.problems:  # what nodes of an unknown opset mean is unknown too
                raise UnsupportedError(list(self.problems))
            scope = _Scope({}, self.model.opsets)
            try:
                self.inputs(pins, scope)
                self.body(self.model.graph, scope)
                self.outputs(scope)
            except _Fork:
                if not self.mistakes:  # which no choice of a branch can mend
                    raise
            if self.mistakes:
                raise several(self.mistakes)
        except ModelError as e:
            raise ModelError(f"{self.model.file}: {e.message}", e.remedy) from e
        if self.problems:
            raise UnsupportedError(list(self.problems), warnings=[*self.warnings.values()])
        self.graph.warnings = [*self.warnings.values()]
        self.graph.custom = tuple(dict.fromkeys((*self.used, *self.graph.custom)))
        met = (pair.symbols for pair in self.graph.constraints if isinstance(pair, Meeting))
        self.graph.meetings = frozenset(name for names in met for name in names)
        if self.model.keeps_weights:
            found = ((name, scope.values[name]) for name in self.model.graph.constants)
            self.graph.weights = {name: v for name, v in found if v is not None}
        return self.graph

    def problem(self, text: str) -> None:
        self.problems[text] = None

    def mistake(self, error: ModelError, scope: _Scope) -> None:
        """Note that a node contradicts the model; of what is inside a function or a branch, once it is left."""
        if scope.depth:
            raise error
        self.mistakes.append(error)

    def warn(self, op: SourceOp, scope: _Scope, text: str) -> None:
        line = f"{op.describe()}: {text}"
        self.warnings.setdefault(line, scope.prefix + line)

    def check_opsets(self, opsets: Mapping[str, int]) -> None:
        version = opsets.get("")
        if version is not None and version < 1:
            raise Misfit(f"opset {version} does not exist")
        if version is not None and version > schemas.NEWEST:
            self.problem(f"opset {version}: the newest that the installed onnx package knows is {schemas.NEWEST}")

    def inputs(self, pins: Pins, scope: _Scope) -> None:
        declared: dict[str, TypeDecl] = {}
        seen: set[str] = set()
        for name, t in self.model.graph.inputs:
            if name in seen or not name:
                raise Misfit(f"two inputs are named {name!r}" if name else "an input has no name")
            seen.add(name)
            if name not in self.model.graph.constants:
                declared[name] = t
        shapes = input_shapes(declared, pins, self.model.file, self.loose)
        found: dict[str, Value] = {}
        for name, t in declared.items():
            if t.holds(MAP):
                self.problem(f"input {name!r}: maps are supported as outputs only")
                scope.values[name] = None
                continue
            if t.problem or t.dtype is None or name not in shapes:
                self.problem(f"input {name!r}: {t.problem or _describe_undeclared(name, t)}")
                scope.values[name] = None
                continue
            require_shape(shapes[name], f"input {name!r}")
            inner = t.partial.inner if t.partial is not None else None
            value = self.graph.new_value(TensorType(t.dtype, shapes[name], inner), name)
            scope.values[name] = found[name] = value
        self.graph.declare_inputs(found.values())

    def body(self, graph: SourceGraph, scope: _Scope) -> None:
        """Import the constants and nodes of a graph into a scope."""
        for name, array in graph.constants.items():
            scope.values[name] = self.constant(array, name)
        own = {name for name, _ in graph.inputs} | set(graph.constants)
        for op in sort_nodes(without_repeats(graph), own, set(scope.values) - own):
            self.node(op, scope)

    def constant(self, array: Array | Unusable, name: str) -> Value | None:
        if isinstance(array, Unusable):
            self.problem(f"initializer {name!r}: {array.reason}")
            return None
        return self.graph.constant(array, name)

    def node(self, op: SourceOp, scope: _Scope) -> None:
        """Import a node: its outputs enter the scope, as None when it could not be imported."""
        self.unfolded += scope.depth > 0
        attributes = {}
        for key, v in op.attributes.items():
            v = scope.attributes.get(v.name) if isinstance(v, Reference) else v
            if v is not None:
                attributes[key] = v
        op = replace(op, attributes=attributes)
        operands = [scope.values[name] if name else None for name in op.inputs]
        known = all(value is not None or not name for name, value in zip(op.inputs, operands, strict=True))
        made: Sequence[Value | None] = ()
        mistakes = len(self.mistakes)
        before = len(self.graph.constraints)
        self.graph.place = op.name or next(filter(None, op.outputs), "")
        try:
            self.expects(self.sizes.of(op))
            made = self.call(op, operands, scope, known)
            require_fit(self.graph.constraints[before:])
        except Unsupported as e:
            self.problem(f"{scope.prefix}{op.describe()}: {e}")
        except OverBudget as e:
            where = f"{scope.prefix}{op.describe()}"
            raise UnsupportedError([f"{where}: {p}" for p in e.problems], e.remedy) from e
        except _Placed as e:
            self.mistake(e, scope)
        except (ArithmeticError, LookupError, TypeError, ValueError) as e:
            where = f"{self.model.file}: {scope.prefix}{op.describe()}"
            raise InternalError(f"{where}: {type(e).__name__}: {e}", "please report this model") from e
        except ModelError as e:
            self.mistake(_Placed(f"{scope.prefix}{op.describe()}: {e.message}", e.remedy), scope)
        wrong = len(self.mistakes) > mistakes
        for k, name in enumerate(op.outputs):
            if not name:
                continue
            value = made[k] if k < len(made) else None if wrong else self.guess(name, scope)
            if value is not None:
                value.name = value.name or name
            scope.values[name] = value

    def expects(self, more: int) -> None:
        """Refuse nodes of functions and bodies, those that were made and some that will be, beyond their budget."""
        count = self.unfolded + more
        text = str(count) if count < 1 << 62 else f"more than 2^{count.bit_length() - 1}"
        afford("expanded", count, f"functions and bodies expand to {text} nodes")

    def call(
        self, op: SourceOp, operands: list[Value | None], scope: _Scope, known: bool, lenient: bool | None = None
    ) -> Sequence[Value | None]:
        """The outputs of a node; none when an operand could not be imported."""
        lenient = self.lenient if lenient is None else lenient
        function = self.model.functions.get((op.domain, op.op_type))
        if function is not None:
            return self.expand(op, function, operands, scope, op.attributes)
        version = scope.opsets.get(op.domain, 1 if op.domain else None)
        if version is None:
            raise Misfit(f"the model does not say which version of domain {op.domain or 'ai.onnx'!r} it uses")
        version = schemas.meant(op, version)
        schema = schemas.schema_of(op.op_type, op.domain, version)
        cls = self.operator(op)
        attributes = op.attributes
        if schema is not None:
            attributes, unknown = schemas.check(op, schema, lenient)
            for text in unknown:
                self.warn(op, scope, text)
        elif cls is not None:
            attributes = schemas.check_fields(op, cls, lenient)
        check_values(op, attributes, schema.since_version if schema is not None else version)
        if schema is not None:
            schemas.check_types(op, schema, operands)
        if op.op_type in ("If", "Loop", "Scan", "SequenceMap") and not op.domain:
            op = replace(op, attributes=attributes)
            make = self.branch if op.op_type == "If" else partial(self.repeat, version)
            return make(op, operands, scope) if known else ()
        if (op.domain, op.op_type) == differentiate.OPERATOR:
            return self.gradient(op, operands, scope) if known else ()
        if (op.domain, op.op_type) == ("ai.onnx.preview", "FlexAttention"):
            builder = Builder(self.graph, name=scope.prefix + op.name)
            return flex.attend(op, operands, lambda g, xs: self.nested(op, scope, g, xs), builder) if known else ()
        if cls is None or (known and not cls.takes(attributes, op.outputs, operands)):
            body = schemas.expansion(op, version, operands) if known else None
            if body is None and schemas.is_function(schema):
                return ()
            if body is None:
                raise Unsupported(schemas.unknown(op, self.custom))
            defaults = schemas.defaults(op.op_type, op.domain, version)
            return self.expand(op, body, operands, scope, {**defaults, **attributes})
        for value in attributes.values():
            if isinstance(value, Unusable):
                raise Unsupported(value.reason)
        read = strings.reader(cls, operands)
        if not known:
            return ()
        while operands and operands[-1] is None:
            operands.pop()
        name = scope.prefix + (op.name or next((o for o in op.outputs if o), ""))
        count = len(op.outputs)
        while count > 1 and not op.outputs[count - 1]:
            count -= 1
        builder = Builder(self.graph, name=name)
        if schema is not None and schemas.is_legacy(schema, version):
            attributes = legacy.translate(op.op_type, schema.since_version, attributes, operands, builder)
        t = self.stated(op.outputs[0]) if op.outputs and not scope.depth else None
        rank = len(t.dims) if t is not None and t.dims is not None else None
        node = SourceNode(op.op_type, version, attributes, operands, count, builder, stated_rank=rank)
        node.apply, node.note = partial(self.apply, node, scope.depth), self.note
        return read(node)

    def gradient(self, op: SourceOp, operands: list[Value | None], scope: _Scope) -> Sequence[Value | None]:
        """The results of a Gradient; what has none is a problem each."""
        builder = Builder(self.graph, name=scope.prefix + op.name)
        try:
            return differentiate.differentiate(op, operands, scope.values, builder)
        except UnsupportedError as e:
            for text in e.problems:
                self.problem(f"{scope.prefix}{op.describe()}: {text}")
            return ()

    def operator(self, op: SourceOp) -> type[Op] | None:
        """The class of a node's operator: torshc's own, or else one that a user declares."""
        own = REGISTRY.get((op.domain, op.op_type))
        if own is not None or schemas.exists(op.domain, op.op_type):
            return own
        found = self.custom.find(op.domain, op.op_type)
        if found is not None:
            self.note(found)
        return found

    def note(self, cls: type[Op]) -> None:
        """Note an operator of a user that the model holds."""
        self.used[cls] = None

    def apply(
        self,
        node: SourceNode,
        depth: int,
        domain: str,
        name: str,
        operands: Sequence[Any],
        attributes: Mapping[str, Any],
        outputs: int,
    ) -> Sequence[Value]:
        """The results of an operator that a user's function calls, checked as a node of a model is."""
        op, values = called.node_of(node.builder, domain, name, operands, attributes, outputs)
        made = self.call(op, values, _Scope({}, called.OPSETS, depth=depth + 1), known=True, lenient=True)
        return [v for v in made if v is not None]

    def stated(self, name: str) -> TypeDecl | None:
        """The type that the model states of a value of the main graph."""
        if self._stated is None:
            self._stated = self.model.stated()
        return self._stated.get(name)

    def guess(self, name: str, scope: _Scope) -> Value | None:
        """A stand-in for a value that could not be made, so that what reads it is looked at too."""
        if scope.depth:
            return None
        t = self.stated(name)
        if t is None or t.dtype is None or t.dims is None:
            return None
        dims = [dimension(d) for d in t.dims]
        if any(d is None for d in dims):
            return None
        return self.graph.new_value(TensorType(t.dtype, tuple(d for d in dims if d is not None)), name)

    def expand(
        self,
        op: SourceOp,
        function: SourceFunction,
        operands: list[Value | None],
        scope: _Scope,
        attributes: Mapping[str, Any],
    ) -> Sequence[Value | None]:
        """Import the body of a function in place of a call of it."""
        if scope.depth >= DEPTH:
            raise Misfit("functions call each other too deeply, or in a circle")
        if len(operands) > len(function.inputs):
            raise Misfit(f"it takes {len(function.inputs)} inputs, and {len(operands)} are given")
        self.check_opsets(function.opsets)
        missing = dict.fromkeys(function.inputs[len(operands) :])
        given = dict(zip(function.inputs, operands, strict=False))
        absent = {n for n, v in zip(function.inputs, op.inputs, strict=False) if not v} | set(missing)
        nodes = [replace(n, inputs=tuple("" if i in absent else i for i in n.inputs)) for n in function.nodes]
        inner = _Scope(
            {**given, **missing},
            {**self.model.opsets, **function.opsets},
            {**function.defaults, **attributes},
            f"{scope.prefix}{op.name or op.op_type}/",
            scope.depth + 1,
        )
        self.body(SourceGraph(inputs=[(name, TypeDecl()) for name in function.inputs], nodes=nodes), inner)
        wanted = [name for name, given in zip(function.outputs, op.outputs, strict=False) if given]
        if len(op.outputs) > len(function.outputs):
            raise Misfit(f"it has {len(function.outputs)} outputs, and {len(op.outputs)} are named")
        return [self.result(inner, name) if name in wanted else None for name in function.outputs]

    def branch(self, op: SourceOp, operands: Sequence[Value | None], scope: _Scope) -> Sequence[Value | None]:
        """The chosen branch of an If whose condition is known; else both."""
        condition = operands[0] if len(operands) == 1 else None
        if condition is None:
            raise Misfit("If needs a condition")
        data = condition.data
        if condition.const is not None and condition.const.size == 1:
            chosen = bool(condition.const.reshape(-1)[0])
        elif data is not None and len(data) == 1 and data[0].op == "const":
            chosen = bool(data[0].data)
        elif data is not None and (place := scope.prefix + op.describe()) in self.chosen:
            chosen = self.chosen[place]
            require(self.graph.constraints, call("eq", data[0], chosen), f"its branch {chosen} does not fit the model")
            self.graph.choices.append(data[0])
        else:
            return self.both(op, condition, scope)
        body = op.attributes.get("then_branch" if chosen else "else_branch")
        if not isinstance(body, SourceGraph) or len(body.outputs) != len(op.outputs):
            raise Misfit("If needs two branches with as many outputs as it has")
        if scope.depth >= DEPTH:
            raise Misfit("branches are nested too deeply")
        inner = replace(scope, values=dict(scope.values), depth=scope.depth + 1)
        self.body(body, inner)
        return [self.result(inner, name) for name, _ in body.outputs]

    def both(self, op: SourceOp, condition: Value, scope: _Scope) -> Sequence[Value | None]:
        """An If that is decided at run time."""
        importer = control.Importer(self.inside, lambda body, values: self.nested(op, scope, body, values))
        try:
            return control.branch(op, condition, importer, Builder(self.graph, name=scope.prefix + op.name))
        except control.RanksDiffer as e:
            place = scope.prefix + op.describe()
            if condition.data is not None and len(condition.data) == 1:
                raise _Fork(place, f"{place}: {e}") from e
            raise

    def repeat(self, version: int, op: SourceOp, operands: list[Value | None], scope: _Scope) -> Sequence[Value | None]:
        """A Loop, Scan or SequenceMap: its rounds one after the other when they are few, else run by the host."""
        if scope.depth >= DEPTH:
            raise Misfit("loops are nested too deeply")
        if op.op_type == "Scan" and any(v is not None and v.dtype is STRING for v in operands):
            raise Unsupported("Scan over strings")
        body = op.attributes.get("body")
        if isinstance(body, SourceGraph):
            results = max(0, len(body.outputs) - (op.op_type == "Loop"))  # a Loop's first is its condition
            if any(op.outputs[results:]):
                raise Misfit(f"its body gives {results} results, and {len(op.outputs)} outputs are named")
        builder = Builder(self.graph, name=scope.prefix + op.name)
        if unroll.is_short(op, version, operands):

            def once(body: SourceGraph, values: Sequence[Value], number: int) -> list[Value | None]:
                return self.nested(op, scope, body, values, f"{number}/")

            try:
                return unroll.unroll(op, version, operands, once, builder)
            except unroll.Endless:
                pass  # a condition depends on data after all
        importer = control.Importer(self.inside, lambda body, values: self.nested(op, scope, body, values))
        make = {"Loop": control.loop, "Scan": control.scan, "SequenceMap": control.sequence_map}[op.op_type]
        return make(op, operands, importer, builder)

    @contextmanager
    def inside(self) -> Iterator[Graph]:
        """Nodes are added to a graph of their own, the body of a branch or loop."""
        around, self.graph = self.graph, self.graph.child(self.graph.name)
        try:
            yield self.graph
        finally:
            self.graph = around

    def nested(
        self, op: SourceOp, scope: _Scope, body: SourceGraph, values: Sequence[Value], suffix: str = ""
    ) -> list[Value | None]:
        """The outputs of a body for its inputs."""
        if scope.depth >= DEPTH:
            raise Misfit("bodies are nested too deeply")
        given = {name: v for (name, _), v in zip(body.inputs, values, strict=True)}
        prefix = f"{scope.prefix}{op.name or op.op_type}/{suffix}"
        inner = replace(scope, values={**scope.values, **given}, prefix=prefix, depth=scope.depth + 1)
        self.body(body, inner)
        return [self.result(inner, name) for name, _ in body.outputs]

    def result(self, scope: _Scope, name: str) -> Value | None:
        if name not in scope.values:
            raise Misfit(f"nothing produces its output {name!r}")
        return scope.values[name]

    def outputs(self, scope: _Scope) -> None:
        """Note the graph's outputs, and refuse those whose declared element type is not what was found.

        Of shapes, what was found counts: exporters of classical models declare wrong ones, and runtimes pass over that.
        """
        if not self.model.graph.outputs:
            raise Misfit("the model has no outputs")
        names: set[str] = set()
        found: dict[str, Value] = {}
        for name, t in self.model.graph.outputs:
            if name not in scope.values:
                self.mistake(Misfit(f"nothing produces the output {name!r}"), scope)
            elif name in names:
                self.warnings[name] = f"two outputs are named {name!r}: it is given once, at the first place"
            names.add(name)
            value = scope.values.get(name)
            if t.problem:
                self.problem(f"output {name!r}: {t.problem}")
            if value is None:
                continue
            # What an optional holds when it is there may be what is declared.
            if t.dtype not in (None, value.dtype) and value.dtype is not OPTIONAL:
                self.mistake(Misfit(f"output {name!r} is declared as {t.dtype!r}, and {value.type!r} was found"), scope)
            found[name] = value
        self.graph.declare_outputs(found.values(), found)


def _call_alone(
    node: SourceNode, domain: str, name: str, operands: Sequence[Any], attributes: Mapping[str, Any], outputs: int
) -> Sequence[Value]:
    """Apply an operator, as :meth:`_Importer.apply` does, to a graph that was imported before."""
    importer = _Importer(SourceModel("", SourceGraph(), {}), lenient=True, chosen={})
    importer.graph = node.builder.graph
    return importer.apply(node, 0, domain, name, operands, attributes, outputs)


serve_calls(_call_alone)
