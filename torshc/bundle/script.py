"""A script as the host template renders it: its segments as programs, its constants and symbols with their numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import UnsupportedError
from ..expr import Expr, as_int, call, const, dims_of
from ..graph import Graph, Partial, Value
from ..passes.policy import Policy
from ..plan.place import Plan
from ..plan.script import Repeat, Script, Step, flat
from .host import UNKNOWN, HostFiles, HostProgram, Port, Symbol
from .program import Assembler, Placed, Program, Weight, bind_symbols
from .sizes import Size, Sizes
from .weights import weight_offsets

RANK_MAX = 16  # T_VALUE_RANK
_FILES = ("t_frame.c", "t_value.c")
_HEADERS = ("t_frame.h", "t_value.h", "t_ops.h")


@dataclass(frozen=True)
class Constant:
    """A slot that holds a constant from the start: its type, shape and place in the weights."""

    slot: int
    dlpack: tuple[int, int]
    dims: tuple[int, ...]
    offset: int


@dataclass
class ScriptProgram:
    """All that the template needs of a script.

    Attributes:
        script: the steps.
        segments: the program of each segment.
        constants: slots that hold constants.
        stacked: results that loops join, numbered, with what they are when there was no round.
        inputs, outputs: of the model.
        symbols: those that inputs tell.
        weights: of all segments, and the constants.
    """

    script: Script
    segments: list[Program] = field(default_factory=list)
    constants: list[Constant] = field(default_factory=list)
    stacked: list[tuple[int, Port]] = field(default_factory=list)
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    weights: list[Weight] = field(default_factory=list)
    parts: tuple[Size, ...] = ()
    programs: tuple[HostProgram, ...] = ()
    places: dict[Value, int] = field(default_factory=dict)

    def number(self, symbol: str) -> int:
        """The number of a symbol."""
        return self.script.symbols.index(symbol)

    def sizes(self, *exprs: Expr) -> tuple[list[Size], list[str]]:
        """Expressions over the symbols, in 128 bits, and their named parts."""
        writer = Sizes({n: f"(t_wide)s[{k}]" for k, n in enumerate(self.script.symbols)})
        return [writer.text(e) for e in exprs], writer.parts

    def port_name(self, v: Value) -> str:
        """The name in C of a stacked result's port."""
        return f"stacked_{self.places[v]}"

    def dims(self, v: Value) -> list[Expr]:
        """A stacked result's dimensions when there was no round; one that only rounds tell is still 0 then."""
        bound = set(self.script.symbols)
        return [const(0), *(d if set(dims_of(d)) <= bound else const(0) for d in v.shape[1:])]

    @property
    def symbol_names(self) -> tuple[str, ...]:
        """Names of the symbols that inputs tell."""
        return self.script.bound

    @property
    def all_symbols(self) -> tuple[str, ...]:
        """Names of all symbols, by number."""
        return self.script.symbols

    @property
    def arena_bytes(self) -> Expr:
        """Bytes of the largest segment's intermediate values."""
        most = const(0)
        for p in self.segments:
            most = call("max", most, p.arena_bytes)
        return most

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.script.steps

    @property
    def slots(self) -> int:
        return self.script.slots

    def host(self, **more: Any) -> HostProgram:
        """What surrounds the segments; their programs become known to the template."""
        scope = max(len(self.script.symbols), 1)
        shared = {"device": more["device"], "weights_bytes": more["weights_bytes"], "scope": scope}
        self.programs = tuple(p.host(**shared) for p in self.segments)
        return HostProgram(inputs=self.inputs, outputs=self.outputs, symbols=self.symbols, parts=self.parts, **more)


def assemble_script(
    graph: Graph, script: Script, plans: Sequence[Plan], placed: Sequence[Sequence[Placed]]
) -> ScriptProgram:
    """Give the operands of all segments their places.

    Raises:
        UnsupportedError: when a value has more dimensions than a frame holds.
    """
    names = script.symbols
    assemblers: list[Assembler] = []
    for plan, kernels in zip(plans, placed, strict=True):
        assemblers.append(Assembler(plan, kernels, names, assemblers[0] if assemblers else None))
        assemblers[-1].weigh()
    first = assemblers[0] if assemblers else Assembler(Plan(Graph(), Policy("", ())), (), names)
    out = ScriptProgram(script, weights=first.list)
    for v in script.constants.values():
        first.add_weight(v)
    out.segments = [a.run() for a in assemblers]
    starts = weight_offsets([w.nbytes for w in first.list])
    for slot, v in script.constants.items():
        dims = tuple(int(d) for d in v.type.static_shape or ())
        out.constants.append(Constant(slot, Port(v.dtype.name).dlpack, dims, starts[first.weights[v, ""]]))
    sizes = Sizes({n: f"s{k}" for k, n in enumerate(script.bound)})
    out.inputs = tuple(port(v, script.bound, sizes) for v in graph.inputs)
    out.outputs = tuple(port(v, script.bound, sizes) for v in graph.results)
    out.symbols = bind_symbols(graph, script.bound)
    out.parts = tuple(sizes.parts)
    for step in flat(script.steps):
        for stack in step.stacks if isinstance(step, Repeat) else ():
            out.places[stack.value] = len(out.stacked)
            out.stacked.append((len(out.stacked), port(stack.value, (), sizes)))
    deep = [v for v in _values(graph, script) if v.type.rank > RANK_MAX]
    if deep:
        raise UnsupportedError([f"{deep[0].name!r} has {deep[0].type.rank} dimensions; at most {RANK_MAX} here"])
    return out


def port(v: Value, names: Sequence[str], sizes: Sizes) -> Port:
    """A value as a port; dimensions that hang on other symbols than these are unknown."""
    dims = tuple(sizes.text(d) if set(dims_of(d)) <= set(names) else UNKNOWN for d in v.shape)
    return Port(v.dtype.name, dims, _inner(v.type.inner))


def _inner(p: Partial | None) -> Port | None:
    if p is None:
        return None
    dims = tuple(UNKNOWN if d is None or as_int(d) is None else int(as_int(d) or 0) for d in p.dims or ())
    return Port(p.dtype.name, dims, _inner(p.inner), p.dims is not None)


def _values(graph: Graph, script: Script) -> list[Value]:
    return [*graph.inputs, *graph.results, *(v for g in script.segments for v in (*g.inputs, *g.outputs))]


def script_files(files: HostFiles, script: Script) -> HostFiles:
    """The files of a library whose steps a script tells."""
    own = dict.fromkeys(f for n in script.operators() for f in getattr(n.op, "file", "").split())
    headers = dict.fromkeys((*files.headers, *_HEADERS))
    pending = list(own)
    while pending:
        found = re.findall(r'^#include "(\w+\.h)"', files.text(pending.pop()), re.MULTILINE)
        pending += [h for h in found if h not in headers]
        headers.update(dict.fromkeys(found))
    return replace(files, sources=(*files.sources, *_FILES, *own), headers=tuple(headers))
