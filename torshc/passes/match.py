"""Matching of patterns against a graph, and building of graphs from them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base.budget import budget
from ..base.errors import ConfigError, TorshcError, UnsupportedError
from ..expr import Expr, as_int
from ..graph import Builder, Graph, Node, RuleName, Value
from .pattern import Absent, Apply, Capture, Constant, Named, Number, Part, Pattern, Variable

COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)

_STEPS_A_NODE = 100


@dataclass(frozen=True)
class Match:
    """What a pattern bound.

    Attributes:
        values: by variable, constant or name of an inner value.
        attributes: captured attributes by name.
        gathered: constants of ``$name+``, in the order in which they were met.
        nodes: the nodes that the pattern covers, the root among them.
    """

    values: Mapping[str, Value] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    gathered: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def bind(self, name: str, value: Value) -> Match | None:
        """With a name bound, or None when it is bound to something else."""
        known = self.values.get(name)
        if known is not None:
            return self if _same(known, value) else None
        return Match({**self.values, name: value}, self.attributes, self.gathered, self.nodes)


def _same(a: Value, b: Value) -> bool:
    if a is b:
        return True
    if a.const is None or b.const is None or a.type != b.type:
        return False
    return a.const is b.const or a.const.tobytes() == b.const.tobytes()


class Search:
    """How one rule is looked for in a graph, and how many more steps that may take.

    Args:
        rule: its name, with its place if it is the user's.
        graph: where it is looked for.
        parts: alternatives of the parts that its patterns name.
        through: look through views for operators that are none.
    """

    def __init__(
        self, rule: RuleName, graph: Graph, parts: Mapping[str, Sequence[Pattern]] | None = None, through: bool = False
    ) -> None:
        self.rule, self.parts, self.through = rule, parts or {}, through
        self.most = self.left = budget().matching + _STEPS_A_NODE * len(graph.nodes)

    def step(self) -> None:
        """One step of matching.

        Raises:
            ConfigError: there were too many, for a rule of the user's.
            UnsupportedError: likewise, for a rule of torshc's own.
        """
        self.left -= 1
        if self.left < 0:
            raise self.refusal(f"takes more than {self.most} steps")

    def refusal(self, why: str) -> TorshcError:
        """The error of a search that has no end in sight."""
        what = f"finding the rule {self.rule.name!r} in this model {why}"
        if self.rule.where:
            return ConfigError(f"{self.rule.where}: {what}", "name operators in place of any(...) and of '...'")
        return UnsupportedError([what], "raise the budget with --budget matching=NUMBER")


def match(pattern: Pattern, value: Value, search: Search) -> Iterator[Match]:
    """The ways in which a value fits a pattern, the likeliest first.

    Raises:
        ConfigError, UnsupportedError: the search takes too many steps, or parts lead too deep into the graph.
    """
    try:
        yield from _match(pattern, value, Match(), search)
    except RecursionError as error:
        raise search.refusal("leads too deep, by parts that name each other") from error


def _match(pattern: Pattern, value: Value | None, found: Match, search: Search) -> Iterator[Match]:
    search.step()
    if isinstance(pattern, Absent) or value is None:
        if isinstance(pattern, Absent) and value is None:
            yield found
        return
    if isinstance(pattern, Part):
        for alternative in search.parts[pattern.name]:
            yield from _match(alternative, value, found, search)
        return
    if isinstance(pattern, Named):
        bound = found.bind(pattern.name, value)
        if bound is not None:
            yield from _match(pattern.inside, value, bound, search)
        return
    if isinstance(pattern, Apply):
        yield from _apply(pattern, value, found, search)
        return
    bound = _leaf(pattern, value, found)
    if bound is not None:
        yield bound


def _leaf(pattern: Variable | Constant | Number, value: Value, found: Match) -> Match | None:
    if isinstance(pattern, Variable):
        return found.bind(pattern.name, value)
    if value.const is None:
        return None
    if isinstance(pattern, Number):
        return found if _is_number(value.const, pattern) else None
    if not pattern.many:
        return found.bind(pattern.name, value)
    gathered = {**found.gathered, pattern.name: (*found.gathered.get(pattern.name, ()), value)}
    return Match(found.values, found.attributes, gathered, found.nodes)


def _is_number(array: np.ndarray[Any, Any], number: Number) -> bool:
    if array.size == 0 or array.size > 1 << 16:
        return False
    if array.dtype.kind in "iub":
        return bool(np.all(array == number.value))
    wanted = np.asarray(number.value, dtype=array.dtype)
    if number.tolerance:
        return bool(np.all(np.abs(array - wanted) <= number.tolerance * abs(number.value)))
    # -0.0 == 0.0, but x + 0.0 and x - 0.0 differ there; a rule says which it means.
    return bool(np.all((array == wanted) & (np.signbit(array) == np.signbit(wanted))))


def behind_views(value: Value) -> tuple[Value, list[Node]]:
    """The value that a chain of one-operand views starts from, and the views, nearest to the reader first."""
    chain: list[Node] = []
    while (node := value.producer) is not None and node.op.family == "view" and len(node.operands) == 1:
        chain.append(node)
        value = node.operands[0]
    return value, chain


def _apply(pattern: Apply, value: Value, found: Match, search: Search) -> Iterator[Match]:
    node, through = value.producer, search.through
    if through and node is not None and not pattern.fits(node.op):
        value = behind_views(value)[0]
        node = value.producer
    # What replaces a value has to be the node's only result; whether two nodes are together, any result shows.
    if node is None or not pattern.fits(node.op) or not (through or node.output is value):
        return
    if len(pattern.args) > len(node.inputs) or (len(pattern.args) < len(node.inputs) and not pattern.more):
        return
    captured = _attributes(pattern, node, found)
    if captured is None:
        return
    start: Match | None = Match(found.values, captured, found.gathered, (*found.nodes, node))
    if pattern.name and start is not None:
        start = start.bind(pattern.name, value)
    if start is None:
        return
    for order in _orders(pattern, node):
        yield from _operands(pattern.args, order, start, search)


def _orders(pattern: Apply, node: Node) -> Iterator[tuple[Value | None, ...]]:
    """The operands that the arguments may be: any order of a commutative operator's, a selection where more are let."""
    count = len(pattern.args)
    if node.op.name in COMMUTATIVE and len(node.inputs) <= 4:
        return itertools.permutations(node.inputs, count)
    return itertools.combinations(node.inputs, count) if pattern.more else iter([node.inputs])


def _operands(
    patterns: Sequence[Pattern], values: Sequence[Value | None], found: Match, search: Search
) -> Iterator[Match]:
    if not patterns:
        yield found
        return
    for head in _match(patterns[0], values[0], found, search):
        yield from _operands(patterns[1:], values[1:], head, search)


def _attributes(pattern: Apply, node: Node, found: Match) -> Mapping[str, Any] | None:
    captured = dict(found.attributes)
    for name, wanted in pattern.attributes:
        actual = getattr(node.op, name)
        if isinstance(wanted, Capture):
            if wanted.name in captured and captured[wanted.name] != actual:
                return None
            captured[wanted.name] = actual
        elif _plain(actual) != wanted:
            return None
    return captured


def _plain(attribute: Any) -> Any:
    """An attribute with constant expressions as integers."""
    if isinstance(attribute, Expr):
        return as_int(attribute)
    return tuple(_plain(a) for a in attribute) if isinstance(attribute, tuple) else attribute


def covers(found: Match, root: Value, uses: Mapping[Value, int]) -> bool:
    """Whether nothing outside the match reads its inner values, so that a replacement computes nothing twice."""
    inside = set(found.nodes)
    for node in inside:
        for v in node.outputs:
            if v is root:
                continue
            reads = sum(operand is v for reader in inside for operand in reader.operands)
            if uses.get(v, 0) > reads:
                return False
    return True


def build(pattern: Pattern, builder: Builder, found: Match, like: Value) -> Value | None:
    """The graph that a pattern describes; an inner value whose name is bound is there already.

    Args:
        like: a value whose dtype the pattern's numbers take.
    """
    if isinstance(pattern, Absent):
        return None
    if isinstance(pattern, Variable | Constant):
        return found.values[pattern.name]
    if isinstance(pattern, Number):
        return builder.constant(np.asarray(pattern.value, dtype=like.dtype.numpy))
    assert isinstance(pattern, Apply)
    if pattern.name in found.values:
        return found.values[pattern.name]
    args = [build(a, builder, found, like) for a in pattern.args]
    fields = {k: _attribute(v, found) for k, v in pattern.attributes}
    return builder.add(pattern.ops[0](**fields), args)[0]


def _attribute(value: Any, found: Match) -> Any:
    if not isinstance(value, Capture):
        return value
    if value.name in found.attributes:
        return found.attributes[value.name]
    constant = found.values[value.name].const
    assert constant is not None
    return constant.reshape(-1)[0].item()
