"""A script with its segments as programs, its constants and symbols with their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..base.errors import UnsupportedError
from ..expr import Expr, as_int, call, const, dims_of
from ..graph import Graph, Partial, Value
from ..ops.core.host import HostOp
from ..plan.place import Plan
from ..plan.script import Check, Repeat, Script, flat
from ..targets.base import HostFiles
from .host import Condition, Constant, HostScript, Port
from .program import Assembler, Placed, Program, bind_symbols
from .weights import weight_offsets

RANK_MAX = 16  # T_VALUE_RANK
_FILES = ("t_frame.c", "t_segment.c", "t_value.c")
HEADERS = ("t_frame.h", "t_value.h", "t_text.h", "t_decimal.h")


def assemble_script(graph: Graph, script: Script, plans: Sequence[Plan], placed: Sequence[Sequence[Placed]]) -> Program:
    """Give the operands of all segments their places.

    Raises:
        UnsupportedError: when a value has more dimensions than a frame holds.
    """
    deep = [v for v in _values(graph, script) if v.type.rank > RANK_MAX]
    if deep:
        raise UnsupportedError([f"{v.name!r} has {v.type.rank} dimensions; at most {RANK_MAX} here" for v in deep])
    assemblers: list[Assembler] = []
    for plan, kernels in zip(plans, placed, strict=True):
        assemblers.append(
            Assembler(plan.graph, plan.storage, kernels, script.symbols, assemblers[0] if assemblers else None)
        )
        assemblers[-1].weigh()
    first = assemblers[0] if assemblers else Assembler(Graph(), {}, (), script.symbols)
    for v in script.constants.values():
        first.add_weight(v)
    segments: list[Program] = []
    conditions: list[Condition] = []
    for assembler in assemblers:
        segments.append(assembler.run(first=len(conditions)))
        conditions += segments[-1].conditions
    checks = dict.fromkeys(s for s in flat(script.steps) if isinstance(s, Check))
    numbered = {s: Condition(len(conditions) + k, s.left, s.right) for k, s in enumerate(checks)}
    starts = weight_offsets([w.nbytes for w in first.list])
    constants = [
        Constant(slot, Port(v.dtype.name, v.shape), starts[first.weights[v, ""]])
        for slot, v in script.constants.items()
    ]
    stacked = [s.value for step in flat(script.steps) if isinstance(step, Repeat) for s in step.stacks]
    return Program(
        first.list,
        starts,
        _largest(segments),
        inputs=tuple(port(v, script.bound) for v in graph.inputs),
        outputs=tuple(port(v, script.bound) for v in graph.results),
        symbols=bind_symbols(graph, script.bound),
        names=script.symbols,
        conditions=(*conditions, *numbered.values()),
        segments=tuple(segments),
        script=HostScript(
            script, constants=tuple(constants), stacked=tuple((v, port(v, ())) for v in stacked), checks=numbered
        ),
    )


def _largest(segments: Sequence[Program]) -> Expr:
    """Bytes of the largest segment's intermediate values."""
    most = const(0)
    for p in segments:
        most = call("max", most, p.arena_bytes)
    return most


def port(v: Value, names: Sequence[str]) -> Port:
    """A value as a port; dimensions that depend on other symbols than these are run-time dependent."""
    return Port(
        v.dtype.name, tuple(d if set(dims_of(d)) <= set(names) else None for d in v.shape), _inner(v.type.inner)
    )


def _inner(p: Partial | None) -> Port | None:
    if p is None:
        return None
    dims = tuple(None if d is None else as_int(d) for d in p.dims or ())
    return Port(p.dtype.name, dims, _inner(p.inner), p.dims is not None)


def _values(graph: Graph, script: Script) -> list[Value]:
    return [*graph.inputs, *graph.results, *(v for g in script.segments for v in (*g.inputs, *g.outputs))]


def script_files(files: HostFiles, script: Script) -> HostFiles:
    """The files of a library whose steps are in a script."""
    own = dict.fromkeys(f for n in script.operators() if isinstance(n.op, HostOp) for f in n.op.file.split())
    return replace(files, sources=(*files.sources, *_FILES, *own), headers=(*files.headers, *HEADERS))
