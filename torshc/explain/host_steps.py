"""What the host does between the launches of a model whose sizes or steps are known only at run time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..graph import Node
from ..plan.script import Bind, Branch, Call, Operate, Repeat, Script, Step


@dataclass(frozen=True)
class Course:
    """A line of what the host does, indented by its depth in branches and loops.

    Attributes:
        what: "launch", "operator", "if", "else", "loop", "size".
        text: for people.
        groups: the groups that a launch runs.
        node: number of the node that it comes from, or None.
    """

    depth: int
    what: str
    text: str
    groups: tuple[int, ...] = ()
    node: int | None = None


def course(script: Script, spans: Sequence[range]) -> tuple[Course, ...]:
    """The steps of a script; `spans` are the groups of each segment."""
    return tuple(_lines(script.steps, spans, script.for_host, 0))


def _lines(steps: Sequence[Step], spans: Sequence[range], host: frozenset[int], depth: int) -> Iterator[Course]:
    bound = 0
    for step in steps:
        if bound and not isinstance(step, Bind):
            yield _size_step(depth, bound)
            bound = 0
        match step:
            case Call():
                groups = tuple(spans[step.number])
                last = f" to {groups[-1]}" if len(groups) > 1 else ""
                where = ", on the processor" if step.number in host else ""
                text = f"group{'s' if last else ''} {groups[0] if groups else '-'}{last}{where}"
                yield Course(depth, "launch", text, groups)
            case Operate():
                yield Course(depth, "operator", _node(step.node), (), step.node.id)
            case Bind():
                bound += 1
            case Branch():
                yield Course(depth, "if", f"if the condition of {_node(step.node)} holds", (), step.node.id)
                yield from _lines(step.then, spans, host, depth + 1)
                yield Course(depth, "else", "else", (), step.node.id)
                yield from _lines(step.other, spans, host, depth + 1)
            case Repeat():
                yield Course(depth, "loop", f"in each iteration of {_node(step.node)}", (), step.node.id)
                yield from _lines(step.steps, spans, host, depth + 1)
    if bound:
        yield _size_step(depth, bound)


def _size_step(depth: int, sizes: int) -> Course:
    return Course(depth, "size", "a size becomes known" if sizes == 1 else f"{sizes} sizes become known")


def _node(node: Node) -> str:
    return f"{node.op.name}{f' {node.name!r}' if node.name else ''} (node {node.id})"
