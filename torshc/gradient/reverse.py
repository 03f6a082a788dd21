"""Reverse mode over the nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..base.errors import InternalError, UnsupportedError
from ..graph import Builder, Node, Value
from ..ops.core.base import Op, same_dim
from ..ops.core.custom import Custom
from ..ops.core.custom_kernel import CustomKernel
from ..ops.core.functions import identity
from ..ops.core.gradient import RULES, Backward, Gradients, NoGradient, as_shape, spread, stated_parts, zeros
from ..ops.core.pointwise import Pointwise
from ..ops.core.tensor import Tensor
from .nest import nest_parts
from .pointwise import pointwise_gradients

Rule = Callable[[Any, Backward], Gradients]
T = TypeVar("T")


@dataclass(frozen=True)
class _Step:
    """A node that gradients pass by its rule, and the node of the model that it is part of."""

    node: Node
    rule: Rule
    owner: Node


@dataclass(frozen=True)
class _Renaming:
    """Results of a node that was taken apart, and the values that they are."""

    outputs: Sequence[Value]
    parts: Sequence[Value]


def gradients(builder: Builder, y: Value, xs: Sequence[Value], seed: Value | None = None) -> list[Value]:
    """Add what computes the gradients of y with respect to some values, each of its value's type.

    An operator without a rule is taken apart, and what it is made of is differentiated. Integers, and what they alone
    lead to, are constant. Where y does not depend on a value, the gradient is 0.

    Args:
        builder: adds the nodes to the graph that y is in.
        y: a value of floats.
        xs: values of floats: inputs, constants or results of nodes. Each counts as independent of the others.
        seed: the gradient of y; ones when absent, so that it is the sum of y that is differentiated.

    Raises:
        UnsupportedError: operators between xs and y have no gradient; all of them are named.
    """
    whole = Tensor(builder, y)
    change = spread(whole.constant(1.0), y.shape) if seed is None else Tensor(builder, seed)
    return gradients_of_several(builder, [(y, change)], xs)


def gradients_of_several(builder: Builder, seeds: Sequence[tuple[Value, Tensor]], xs: Sequence[Value]) -> list[Value]:
    """The gradients of several values together, each given with its own gradient; see :func:`gradients`."""
    way = _Way(builder, set(xs))
    way.visit(_behind([y for y, _ in seeds], way.active), None)
    found: dict[Value, Tensor] = {}
    for y, change in seeds:
        _add(found, y, change)
    for step in reversed(way.steps):
        if isinstance(step, _Renaming):
            for output, part in zip(step.outputs, step.parts, strict=False):
                if output in found and part is not output:
                    _add(found, part, found[output])
            continue
        given = tuple(None if v in xs else found.get(v) for v in step.node.outputs)
        if all(g is None for g in given):
            continue
        for v, gradient in zip(step.node.inputs, way.back(step, given), strict=False):
            if v is not None and gradient is not None and v in way.active:
                _add(found, v, gradient)
    if way.problems:
        raise UnsupportedError([*way.problems], "differentiate with respect to values behind them, or a result before")
    return [(found[x] if x in found else zeros(Tensor(builder, x))).value for x in xs]


def replaced(builder: Builder, y: Value, pairs: Mapping[Value, Value]) -> tuple[Value, list[Value]]:
    """Recompute a value with some of the values behind it replaced.

    Args:
        pairs: values, each with what takes its place, of its type; maybe itself.

    Returns:
        The value, and what stands for each of those that were replaced. Of other values that is a copy, so that
        gradients with respect to it are of this place alone.

    Raises:
        ModelError: the shapes of a pair differ.
        UnsupportedError: an operator of the host would have to be computed again.
    """
    constraints, now = builder.graph.constraints, dict[Value, Value]()
    for old, new in pairs.items():
        if new is not old:
            for a, b in zip(old.shape, new.shape, strict=True):
                same_dim(a, b, constraints, f"what takes the place of {old.name!r}")
            now[old] = as_shape(identity(Tensor(builder, new)), old.shape).value
    for node in _behind([y], pairs) if now else ():
        if not any(v in now for v in node.operands):
            continue
        if node.op.family == "host":
            raise UnsupportedError(
                [f"{node.describe()} would have to be computed again"], "give the values that are named"
            )
        inputs = [None if v is None else now.get(v, v) for v in node.inputs]
        now.update(zip(node.outputs, builder.add(node.op, inputs, node.name), strict=True))
    return now.get(y, y), [now.get(old, old) for old in pairs]


def _behind(results: Sequence[Value], stops: Collection[Value]) -> list[Node]:
    """The nodes that compute some values, in order, as far as certain values."""
    order: dict[Node, None] = {}
    stack = [(v.producer, False) for v in reversed(results) if v not in stops]
    while stack:
        node, done = stack.pop()
        if node is None or node in order:
            continue
        if done:
            order[node] = None
            continue
        stack.append((node, True))
        stack += [(v.producer, False) for v in reversed(node.operands) if v not in stops]
    return list(order)


def _add(found: dict[Value, Tensor], v: Value, gradient: Tensor) -> None:
    if gradient.dtype is not v.dtype:
        raise InternalError(f"the gradient of {v!r}: {v.type!r} is of {gradient.dtype!r}")
    gradient = as_shape(gradient, v.shape)
    found[v] = found[v] + gradient if v in found else gradient


@dataclass
class _Way:
    """The steps from some values on, in order, and what is in the way of gradients.

    Attributes:
        active: values that depend on them.
    """

    builder: Builder
    active: set[Value]
    steps: list[_Step | _Renaming] = field(default_factory=list)
    problems: dict[str, None] = field(default_factory=dict)

    def visit(self, nodes: Sequence[Node], owner: Node | None) -> None:
        """Take the nodes that gradients pass; those without a rule are taken apart.

        Args:
            owner: the node of the model that these are made of, if any.
        """
        for node in nodes:
            results = [v for v in node.outputs if v.dtype.is_float]
            if not results or not any(v in self.active for v in node.operands):
                continue
            model = owner or node
            rule = _rule_of(node.op)
            if rule is not None or not self._apart(node, model):
                self.steps.append(_Step(node, rule or _none, model))
                self.active.update(results)

    def _apart(self, node: Node, owner: Node) -> bool:
        """Visit what a node is made of; whether it can be taken apart."""
        made: list[Node] = []
        builder = Builder(self.builder.graph, made, node.name)
        parts = _parts_of(builder, node)
        if parts is None:
            return False
        self.builder.adopt(*made)
        self.visit(_behind(parts, node.operands), owner)
        self.steps.append(_Renaming(node.outputs, parts))
        self.active.update(v for v, part in zip(node.outputs, parts, strict=False) if part in self.active)
        return True

    def back(self, step: _Step, given: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of a node's operands from those of its results."""
        node, builder = step.node, Builder(self.builder.graph, self.builder.nodes, step.node.name)
        inputs = tuple(None if v is None else Tensor(builder, v) for v in node.inputs)
        outputs = tuple(Tensor(builder, v) for v in node.outputs)
        wanted = tuple(v is not None and v in self.active for v in node.inputs)
        gradients = tuple(None if g is None else Tensor(builder, g.value) for g in given)
        try:
            made = step.rule(node.op, Backward(inputs, outputs, gradients, wanted))
            return [made] if made is None or isinstance(made, Tensor) else made
        except NoGradient as e:
            self._refuse(step.owner, node.op, str(e))
        except UnsupportedError as e:  # of what is inside a branch or a loop
            self.problems.update(dict.fromkeys(e.problems))
        return [zeros(x) if x is not None and x.dtype.is_float else None for x in inputs]  # to find what else is

    def _refuse(self, owner: Node, op: Op, why: str) -> None:
        inside = "" if owner.op is op else f", as {op.name}, which it is made of, has none"
        self.problems[f"{owner.describe()}: {owner.op.name} has no gradient{inside}{why and f': {why}'}"] = None


def _none(op: Op, at: Backward) -> Gradients:
    if isinstance(op, CustomKernel):
        what = f"@ops.gradient_of({op.types.__name__})"
        raise NoGradient(f"a function in C computes it; state its gradient by {what}, after {op.declared.place}")
    raise NoGradient


def _of_user(op: Custom, at: Backward) -> Gradients:
    """The gradients that the user's function states; the gradient of a result that nothing depends on is 0."""
    builder = at.outputs[0].builder
    given = [zeros(y) if g is None else g for y, g in zip(at.outputs, at.gradients, strict=True)]
    slope = type(op).__gradient__
    assert slope is not None
    return slope(op, builder, at.inputs, given)


def _rule_of(op: Op) -> Rule | None:
    if isinstance(op, Custom) and type(op).__gradient__ is not None:
        return _of_user
    found = _look_up(RULES, op)
    return pointwise_gradients if found is None and isinstance(op, Pointwise) else found


def _parts_of(builder: Builder, node: Node) -> list[Value] | None:
    """A node's results by other operators, which have gradients; None where none are stated."""
    stated = stated_parts(node.op, [None if v is None else Tensor(builder, v) for v in node.inputs])
    if stated is not None:
        return [t.value for t in stated]
    made = node.op.decompose(builder, node.inputs)
    return nest_parts(builder, node) if made is None else made


def _look_up(table: Mapping[type[Op], T], op: Op) -> T | None:
    return next((table[kind] for kind in type(op).__mro__ if kind in table), None)
