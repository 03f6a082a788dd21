"""The C source of a host program.

``host.c.j2`` renders it, with ``launch.j2`` of the target's folders for what differs; the checks, the memory and the
threads that every model shares are in plain C beside it (:class:`torshc.targets.base.HostFiles`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, count
from typing import TypeVar

from ..base.manifest import Manifest, TensorSpec
from ..expr import SYMBOLS, Expr, as_expr, as_int, condition_text, const, dims_of
from ..graph import Value
from ..ops.core.bounds import refusal
from ..ops.core.custom_kernel import word_text
from ..ops.core.host import HostOp
from ..plan.script import Branch, Call, Check, Operate, Repeat, flat
from ..targets.base import HostFiles, environment
from .copies import Copy, Loop
from .host import (
    Condition,
    Constant,
    HostProgram,
    HostScript,
    Launch,
    Move,
    NamedWeight,
    Port,
    Size,
    check_program,
    sizes_of,
)
from .interface import Interface
from .names import c_text
from .script import HEADERS as SCRIPT_HEADERS
from .script import script_files
from .sizes import Part, Sizes

OWN = "t_named.c"
VERSIONS = "t_versions.c"
STATES = "t_state.c"  # of libraries that train
STRETCH = 128  # steps or sizes in a C function; compilers take a time that grows with the square of its length
T = TypeVar("T")
EQUATION = 40  # nodes of a condition that its message shows


@dataclass(frozen=True)
class Stretch:
    """Steps that one C function makes.

    Attributes:
        steps: the steps in order.
        first: number of the first one.
        moves: what is copied behind them.
        awaits: whether exchanges have to be done before that, and before the run ends.
    """

    steps: Sequence[Launch]
    first: int
    moves: Sequence[Move] = ()
    awaits: bool = False

    @property
    def idle(self) -> bool:
        """Whether no step has work, whatever the symbols."""
        return not self.moves and all(_int(step.tasks) == 0 for step in self.steps)

    @property
    def sizes(self) -> list[Size]:
        """The sizes that the steps are written with."""
        found: list[Size] = []
        for step in self.steps:
            found += [*(b.offset for b in step.buffers), step.tasks, *step.host_scratch, *step.bytes, *step.dims]
            found += [s for s in step.spans if s is not None]
            found += [count for _, _, count in step.results]
        return [*found, *(move.source.offset for move in self.moves)]


@dataclass(frozen=True)
class PortView:
    """An input or output as a row of the tables of C.

    Attributes:
        port: its type and dimensions.
        kind: "input" or "output".
        index: its number among these.
        first: where its dimensions begin in the tables of dimensions.
        places: where a run has each dimension; -1 for a number and for what only the run computes.
        shown: its dimensions as C.
        name: the model's name of it as C, NULL where it has none.
        dim_names: the same of its symbolic dimensions, NULL for numbers.
    """

    port: Port
    kind: str
    index: int
    first: int
    places: tuple[int, ...]
    shown: Sequence[str]
    name: str
    dim_names: Sequence[str]

    @property
    def id(self) -> str:
        """Its name in C."""
        return f"{self.kind}{self.index}"


@dataclass(frozen=True)
class ProgramView:
    """A program as the template renders it.

    Attributes:
        p: the program.
        x: ends its names in C.
        first: number of its first step.
        steps: how many there are; for a script, those of its segments.
        spelled: what messages call the symbols.
        scripted: whether a script says what the host does between segments.
        named: inputs and outputs with the model's names, where it has them.
    """

    p: HostProgram
    spelled: Mapping[str, str]
    x: str = ""
    first: int = 0
    steps: int = 0
    scripted: bool = False
    named: Mapping[str, Sequence[TensorSpec]] = field(default_factory=dict)

    @cached_property
    def _writer(self) -> Sizes:
        conditions = [e for c in self.p.conditions for e in (c.left, c.right)]
        return Sizes(self.p.names, sizes=[*sizes_of(self.p), *conditions, *self.run_sizes], given=self.p.given)

    def text(self, size: Size | None) -> str:
        """A size as C."""
        return self._writer.text(size)

    def place(self, size: Size | None) -> int:
        """Where a run has a size of an input or output: the symbol's number, or behind the symbols; -1 for others."""
        return -1 if size is None or not _symbolic(size) else self._places[as_expr(size)]

    @property
    def _bound(self) -> int:
        """How many symbols there are, with those that steps bind and the one that says which form a run takes."""
        return len(self.p.names)

    @cached_property
    def _places(self) -> dict[Expr, int]:
        sizes = (d for port in (*self.p.inputs, *self.p.outputs) for d in port.dims if d is not None and _symbolic(d))
        found = dict.fromkeys(map(as_expr, sizes), 0)
        numbers, behind = {n: k for k, n in enumerate(self.p.names)}, count(self._bound)
        return {e: numbers[str(e.data)] if e.op in SYMBOLS else next(behind) for e in found}

    @property
    def computed(self) -> list[Expr]:
        """Sizes of inputs and outputs that are computed from the symbols, each once."""
        return [e for e, place in self._places.items() if place >= self._bound]

    @property
    def places(self) -> int:
        """How many symbols and computed sizes a run has."""
        return self._bound + len(self.computed)

    @cached_property
    def ports(self) -> list[PortView]:
        """The inputs, then the outputs."""
        kinds = [("input", k, x) for k, x in enumerate(self.p.inputs)]
        kinds += [("output", k, x) for k, x in enumerate(self.p.outputs)]
        firsts = accumulate((len(x.dims) for _, _, x in kinds), initial=0)
        return [self._port(x, kind, k, first) for (kind, k, x), first in zip(kinds, firsts, strict=False)]

    def _port(self, port: Port, kind: str, index: int, first: int) -> PortView:
        known = self.named[kind][index] if kind in self.named else None
        name = "NULL" if known is None else c_text(known.name)
        dims = () if known is None else known.dims
        names = ["NULL" if isinstance(d, int) else c_text(d) for d in dims]
        return PortView(port, kind, index, first, tuple(map(self.place, port.dims)), self.texts(port.dims), name, names)

    @staticmethod
    def cut(items: Sequence[T]) -> list[Sequence[T]]:
        """Parts of them that a C function is to have; one at least."""
        return [items[k : k + STRETCH] for k in range(0, max(len(items), 1), STRETCH)]

    def texts(self, sizes: Iterable[Size | None]) -> list[str]:
        """Sizes as C."""
        return [self.text(size) for size in sizes]

    def needs(self, sizes: Iterable[Size | None]) -> tuple[list[int], list[Part]]:
        """Numbers of symbols and named parts that sizes are written with."""
        return self._writer.needs(sizes)

    def equation(self, c: Condition) -> str:
        """A condition for a message, in terms of the inputs."""
        return equation(c, self.spelled)

    def refusal(self, what: str) -> str:
        """Why a run ends whose demand, of this word, is not met."""
        return refusal(what)

    @property
    def distinct(self) -> list[Size]:
        """The sizes that depend on symbols, each once."""
        return list(dict.fromkeys(s for s in sizes_of(self.p) if _symbolic(s)))

    @property
    def scratches(self) -> list[Size]:
        """Scratch of the steps that depends on symbols, each once."""
        return list(dict.fromkeys(s for step in self.p.steps for s in step.host_scratch if _symbolic(s)))

    @property
    def scratch_floor(self) -> int:
        """The most scratch of the other steps."""
        scratches = (s for step in self.p.steps for s in step.host_scratch)
        return max((_int(s) or 0 for s in scratches), default=0)

    @property
    def stretches(self) -> list[Stretch]:
        """All steps."""
        *parts, last = self.cut(self.p.steps)
        found = [Stretch(steps, self.first + k * STRETCH) for k, steps in enumerate(parts)]
        going_on = bool(last) and (last[-1].begins or last[-1].meanwhile)
        return [*found, Stretch(last, self.first + len(parts) * STRETCH, self.p.moves, going_on)]

    @property
    def run_sizes(self) -> list[Size]:
        """The sizes that the steps are written with."""
        return [size for stretch in self.stretches for size in stretch.sizes]


def _int(size: Size) -> int | None:
    return size if isinstance(size, int) else as_int(size)


def _symbolic(size: Size) -> bool:
    return _int(size) is None


def equation(c: Condition, spelled: Mapping[str, str]) -> str:
    """A condition for a message: ``in0.shape[1] == in1.shape[0]``."""
    return condition_text(c.left, c.right, EQUATION, spelled)


def spell(program: HostProgram) -> dict[str, str]:
    """Names of the symbols in messages of C: ``in0.shape[1]`` for a dimension, ``in0[1]`` for an element."""
    spelled = {name: f"s{k}" for k, name in enumerate(program.names)}
    for name, s in zip(program.names, program.symbols, strict=False):
        spelled[name] = f"in{s.input}.shape[{s.dim}]" if s.kind == "dim" else f"in{s.input}[{s.dim}]"
        spelled[name] = f"nonzeros(in{s.input})" if s.kind == "count" else spelled[name]
    return spelled


@dataclass(frozen=True)
class NamedView:
    """Weights by name as the template renders them: in one list each, with what belongs to it as a range of another."""

    weights: Sequence[NamedWeight]

    @property
    def copies(self) -> list[Copy]:
        """Of all weights."""
        return [copy for w in self.weights for copy in w.copies]

    @property
    def loops(self) -> list[Loop]:
        """Of all copies."""
        return [loop for copy in self.copies for loop in copy.loops]

    @property
    def rows(self) -> list[tuple[NamedWeight, int, int]]:
        """Each weight, the number of its first copy, and where its dimensions begin in the table of all."""
        copies = accumulate((len(w.copies) for w in self.weights), initial=0)
        dims = accumulate((len(w.dims) for w in self.weights), initial=0)
        return [*zip(self.weights, copies, dims, strict=False)]

    @property
    def nests(self) -> list[tuple[Copy, int]]:
        """Each copy and the number of its first loop."""
        return [*zip(self.copies, accumulate((len(c.loops) for c in self.copies), initial=0), strict=False)]


class Lists:
    """Lists of numbers in one table of C, as lists in a function would lie on its stack.

    Args:
        name: name of the table.

    Attributes:
        all: the numbers of all lists, in order.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.all: list[int] = []
        self._firsts: dict[tuple[int, ...], int] = {}

    @property
    def texts(self) -> list[str]:
        """The numbers as C."""
        return [word_text(n) for n in self.all]

    def put(self, numbers: Iterable[int]) -> str:
        """Where C finds a list, which is added unless it is there; NULL for an empty one."""
        found = tuple(numbers)
        if not found:
            return "NULL"
        if found not in self._firsts:
            self._firsts[found] = len(self.all)
            self.all += found
        return f"{self._name} + {self._firsts[found]}"


class ScriptView:
    """A script as the template renders it.

    Args:
        host: the script.
        spelled: what messages call the symbols.
        segments: the programs of its segments.
        x: ends its names in C.

    Attributes:
        parts: its steps, those of a C function at a time.
        slots: lists of slots that steps have.
        integers: lists of the operators' integers.
    """

    def __init__(
        self, host: HostScript, spelled: Mapping[str, str], segments: Sequence[ProgramView], x: str = ""
    ) -> None:
        self.host, self.script, self._spelled = host, host.script, spelled
        self.segments, self.x, self.name = segments, x, f"script{x}"
        self._numbers = {n: k for k, n in enumerate(self.script.symbols)}
        self._places = {v: k for k, (v, _) in enumerate(host.stacked)}
        self.parts = ProgramView.cut(self.script.steps)
        self.slots, self.integers = Lists(f"slots{x}"), Lists(f"integers{x}")

    @property
    def functions(self) -> list[str]:
        """The C functions of the operators of the host, each once."""
        return list(dict.fromkeys(n.op.function for n in self.script.operators() if isinstance(n.op, HostOp)))

    @property
    def constants(self) -> list[tuple[Constant, int]]:
        """The constants, and where the dimensions of each begin in the table of all."""
        firsts = accumulate((len(c.port.dims) for c in self.host.constants), initial=0)
        return [*zip(self.host.constants, firsts, strict=False)]

    @property
    def most_ports(self) -> int:
        """The most inputs and outputs that a segment has."""
        return max((len(p.inputs) + len(p.outputs) for p in self.host.segments), default=0)

    @property
    def most_operands(self) -> int:
        """The most operands or results that an operator of the host has."""
        operators = (s for s in flat(self.script.steps) if isinstance(s, Operate))
        return max((max(len(s.inputs), len(s.outputs)) for s in operators), default=0)

    @property
    def most_states(self) -> int:
        """The most states that a loop has."""
        return max((len(s.states) for s in flat(self.script.steps) if isinstance(s, Repeat)), default=0)

    def segment(self, step: Call) -> str:
        """The suffix of the names of the segment of a step."""
        return self.segments[step.number].x

    def node(self, step: Operate | Branch | Repeat) -> int:
        """The number of a step's node in the manifest."""
        return self.host.first_node + step.node.id

    def number(self, symbol: str) -> int:
        """The number of a symbol."""
        return self._numbers[symbol]

    def sizes(self, *sizes: Expr) -> tuple[list[str], list[Part]]:
        """Expressions over the symbols, in 128 bits, and their named parts."""
        writer = Sizes(self.script.symbols, "(t_wide)s[{}]".format)
        return [writer.text(e) for e in sizes], writer.parts

    def condition(self, step: Check) -> Condition:
        """The condition of a step."""
        return self.host.checks[step]

    def equation(self, step: Check) -> str:
        """A condition for a message, in terms of the inputs."""
        return equation(self.condition(step), self._spelled)

    def port_name(self, v: Value) -> str:
        """The name in C of a stacked result's port."""
        return f"stacked_{self._places[v]}{self.x}"

    def dims(self, v: Value) -> list[Expr]:
        """A stacked result's dimensions when there was no round; one that only rounds tell is still 0 then."""
        bound = set(self.script.symbols)
        return [const(0), *(d if set(dims_of(d)) <= bound else const(0) for d in v.shape[1:])]


def render_host(program: HostProgram, files: HostFiles, manifest: Manifest | None = None, identity: str = "") -> str:
    """The source of host.c; it knows the names in the manifest.

    Args:
        identity: what it defines for programs that were compiled for its inputs and outputs (`Interface.identity`).

    Raises:
        InternalError: the program contradicts itself.
    """
    spelled = spell(program)
    forms: list[ProgramView] = []
    segments: list[ProgramView] = []
    scripts: list[ScriptView] = []
    steps = 0
    for form in program.forms:
        x = f"_variant{len(forms)}" if forms else "_fast"
        x = "_loose" if form is program.loose else x
        check_program(form)
        forms.append(ProgramView(form, spelled, x, steps, scripted=form.script is not None))
        steps += len(form.steps)
        if form.script is None:
            continue
        own: list[ProgramView] = []
        for segment in form.script.segments:
            check_program(segment)
            own.append(ProgramView(segment, spelled, f"_{len(segments) + len(own)}", steps, len(segment.steps)))
            steps += len(segment.steps)
        segments += own
        scripts.append(ScriptView(form.script, spelled, own, x if scripts else ""))
    named = {} if manifest is None else {"input": manifest.inputs, "output": manifest.outputs}
    whole = ProgramView(program, spelled, steps=steps, scripted=program.script is not None, named=named)
    return (
        environment(files.search)
        .get_template("host.c.j2")
        .render(
            p=program,
            forms=forms if len(forms) > 1 else [],
            variants=forms[1 : 1 + len(program.variants)],
            parts=[*segments, whole],
            scripts=scripts,
            named=NamedView(program.named),
            state_rows=[
                *zip(program.states, accumulate((len(s.dims) for s in program.states), initial=0), strict=False)
            ],
            text=c_text,
            launchers=files.launchers,
            chooses=bool(files.choice[0]) and program.is_chosen_by_values,
            identity=identity,
        )
    )


def host_sources(
    program: HostProgram, files: HostFiles, manifest: Manifest | None = None, others: Sequence[HostProgram] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """The sources that a library has beside its kernels, and the headers that they include, by file name.

    With the manifest, the library has the model's names, and its own functions if there is a prefix. `others` are the
    programs for lesser processors, the best first.
    """
    if program.states:
        files = replace(files, sources=(*files.sources, STATES))
    if program.ranks:
        more = files.ranks
        files = replace(files, sources=(*files.sources, *more[0]), headers=(*files.headers, *more[1]))
    if program.is_chosen_by_values:
        more = files.choice
        files = replace(files, sources=(*files.sources, *more[0]), headers=(*files.headers, *more[1]))
    for version in (program, *others):
        for form in version.forms:
            if form.script is not None:
                files = script_files(files, form.script.script)
    sources = {name: files.text(name) for name in files.sources}
    headers = {name: files.text(name) for name in files.headers}
    identity = ""
    if manifest is not None and manifest.prefix:
        own = Interface(manifest.prefix, program, manifest.inputs, manifest.outputs)
        sources[OWN] = own.source(files)
        identity = own.identity
    for version in (program, *others):
        sources[f"host{version.version}.c"] = render_host(version, files, manifest, identity)
        identity = ""
    versions = environment(files.search).get_template("versions.c.j2")
    sources[VERSIONS] = versions.render(versions=(program, *others))
    return sources, headers


def all_headers(files: HostFiles) -> dict[str, str]:
    """The headers of :func:`host_sources` for any program, by file name."""
    return {name: files.text(name) for name in (*files.headers, *files.ranks[1], *files.choice[1], *SCRIPT_HEADERS)}


def own_header(program: HostProgram, files: HostFiles, manifest: Manifest) -> str:
    """The header ``NAME.h`` for the functions with the manifest's prefix. No source includes it: objects are shared."""
    return Interface(manifest.prefix, program, manifest.inputs, manifest.outputs).header(files)
