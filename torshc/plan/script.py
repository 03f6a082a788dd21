"""A run whose sizes are known only at run time: fused segments, and the host's steps between them, as data.

A script works on slots, each of which holds a value that knows its own shape, and on symbols, which are bound to the
shapes and contents of values as soon as these are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..expr import Expr
from ..graph import Graph, Node, Value


@dataclass(frozen=True)
class Call:
    """Runs segment `number`: a program of kernels over slots."""

    kind: ClassVar[str] = "call"
    number: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Operate:
    """Runs an operator of the host; a slot of -1 is absent."""

    kind: ClassVar[str] = "operate"
    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Bind:
    """Gives a symbol its value: a dimension or an element of what a slot holds."""

    kind: ClassVar[str] = "bind"
    symbol: str
    slot: int
    position: int
    what: str


@dataclass(frozen=True)
class Check:
    """Demands that two expressions are equal."""

    kind: ClassVar[str] = "check"
    left: Expr
    right: Expr


@dataclass(frozen=True)
class Move:
    """Slot `target` shares what slot `source` holds."""

    kind: ClassVar[str] = "move"
    target: int
    source: int


@dataclass(frozen=True)
class Drop:
    """Nobody reads these slots any more."""

    kind: ClassVar[str] = "drop"
    slots: tuple[int, ...]


@dataclass(frozen=True)
class Branch:
    """One of two lists of steps."""

    kind: ClassVar[str] = "branch"
    node: Node
    condition: int
    then: tuple[Step, ...]
    other: tuple[Step, ...]


@dataclass(frozen=True)
class Stack:
    """Results of the steps of a loop: slot `each`, joined in slot `joined` along a new first dimension.

    Attributes:
        many: a slot that gathers them.
    """

    each: int
    many: int
    joined: int
    value: Value


@dataclass(frozen=True)
class Repeat:
    """Steps over and over.

    Attributes:
        limit: slot of the number of times, or -1 for no limit.
        condition: slot of whether to begin at all, or -1.
        number, going: slots that the steps read the number of the round from, and the condition; -1 when they do not.
        states: (slot that the steps read, slot that it starts from, slot that the next round takes it from, slot of the
            last one).
        after: slot of whether to go on, or -1 when it does not matter.
        stacks: what is gathered.
        spent: slots that are emptied at the end of a round.
    """

    kind: ClassVar[str] = "repeat"
    node: Node
    limit: int
    condition: int
    number: int
    going: int
    states: tuple[tuple[int, int, int, int], ...]
    after: int
    stacks: tuple[Stack, ...]
    steps: tuple[Step, ...]
    spent: tuple[int, ...]


Step = Call | Operate | Bind | Check | Move | Drop | Branch | Repeat


@dataclass
class Script:
    """A run as steps.

    Attributes:
        segments: graphs of the segments, by number; what they read and write is in the calls.
        slots: number of slots.
        inputs, outputs: slots of the model's inputs and outputs.
        constants: slots that hold constants from the start.
        bound: symbols that are bound before the first step, as they are dimensions or elements of inputs.
        computed: symbols that steps bind.
        for_host: segments that run on the processor although the target is a device.
    """

    segments: list[Graph] = field(default_factory=list)
    slots: int = 0
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    constants: dict[int, Value] = field(default_factory=dict)
    bound: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()
    for_host: frozenset[int] = frozenset()

    @property
    def symbols(self) -> tuple[str, ...]:
        """All symbols; number k is ``s[k]`` in generated code."""
        return (*self.bound, *self.computed)

    def operators(self) -> Iterator[Node]:
        """The operators of the host, those in bodies too."""
        for step in flat(self.steps):
            if isinstance(step, Operate):
                yield step.node


def flat(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps with those inside them."""
    for step in steps:
        yield step
        if isinstance(step, Branch):
            yield from flat(step.then)
            yield from flat(step.other)
        elif isinstance(step, Repeat):
            yield from flat(step.steps)


def reads(step: Step) -> set[int]:
    """The slots that a step looks at."""
    match step:
        case Call() | Operate():
            found = set(step.inputs)
        case Bind():
            found = {step.slot}
        case Move():
            found = {step.source}
        case Branch():
            found = {step.condition, *(s for x in (*step.then, *step.other) for s in reads(x))}
        case Repeat():
            starts = {start for _, start, _, _ in step.states}
            found = {step.limit, step.condition, *starts, *(s for x in step.steps for s in reads(x))}
            found |= {step.after, *(s.each for s in step.stacks), *(s for _, _, s, _ in step.states)}
        case _:
            found = set()
    return found - {-1}


def with_drops(steps: Sequence[Step], own: set[int], kept: set[int]) -> tuple[Step, ...]:
    """The steps, with those of the `own` slots dropped that are no longer read, unless they are `kept`."""
    last: dict[int, int] = {}
    for k, step in enumerate(steps):
        for slot in (*reads(step), *_written(step)):
            last[slot] = k
    out: list[Step] = []
    for k, step in enumerate(steps):
        out.append(step)
        done = tuple(sorted(s for s, at in last.items() if at == k and s in own and s not in kept))
        if done:
            out.append(Drop(done))
    return tuple(out)


def _written(step: Step) -> tuple[int, ...]:
    match step:
        case Call() | Operate():
            return tuple(s for s in step.outputs if s >= 0)
        case Move():
            return (step.target,)
        case Branch():
            return tuple(x for s in (*step.then, *step.other) if isinstance(s, Move) for x in (s.target,))
        case Repeat():
            return (*(s[3] for s in step.states if s[3] >= 0), *(s.joined for s in step.stacks))
    return ()
