"""The pipeline: a model file in, a bundle out. Each stage hands its result to the next and none reaches back."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ._version import __version__
from .bundle.build import build_objects, link_library, work_folder
from .bundle.build_script import build_script
from .bundle.cache import Cache
from .bundle.host import CPU
from .bundle.host_source import host_sources
from .bundle.manifest import (
    ConditionInfo,
    IsaInfo,
    KernelInfo,
    Manifest,
    OperatorInfo,
    StepInfo,
    SymbolInfo,
    TensorInfo,
    ToolInfo,
    WeightsFile,
)
from .bundle.package import BundleWriter
from .bundle.program import Placed, Program, assemble
from .bundle.script import assemble_script
from .errors import UnsupportedError
from .expr import Expr, as_int, dims_of, to_text
from .formats import load_graph
from .graph import Graph, Partial, Value
from .kernels.base import Kernel
from .kernels.machine import Machine
from .options import CompileOptions
from .passes import PassRecord, pipeline_of, run_pipeline
from .passes.policy import Policy, policy_of
from .plan.group import Group
from .plan.partition import drop_unneeded, is_plain, partition
from .plan.place import Plan, make_plan
from .plan.residence import segments_for_host
from .plan.script import Script
from .resources import cache_folder
from .targets import NoKernel, Target, find_target
from .targets.isa import Isa, resolve

Observer = Callable[[str, float], None]


@dataclass(frozen=True)
class Unit:
    """A fusion group with its kernels, in launch order, and their names.

    Attributes:
        suffix: ending of their sources.
        refused: why the target has no kernel, so that those of the processor stand in; empty when it has.
        device: where the kernels run, by DLPack's code.
    """

    group: Group
    kernels: tuple[Kernel, ...]
    symbols: tuple[str, ...]
    suffix: str = ".c"
    refused: str = ""
    device: int = CPU

    @property
    def files(self) -> tuple[str, ...]:
        """Names of the kernels' sources."""
        return tuple(symbol + self.suffix for symbol in self.symbols)

    @property
    def fallback(self) -> str:
        """What took a slower path and why, or empty: the processor, or a plain loop nest for a heavy node."""
        anchor = self.group.anchor
        if self.refused:
            names = ", ".join(n.describe() for n in self.group.nodes)
            return f"{names} runs on the processor: {self.refused}"
        if anchor is None or any(k.kind not in ("nest", "row") for k in self.kernels):
            return ""
        return f"{anchor.describe()} of {anchor.operands[0].type!r} runs as a plain loop nest"


@dataclass(frozen=True)
class Compilation:
    """Everything about a compilation up to the rendered sources.

    Attributes:
        name: the model's name.
        graph: the optimised graph.
        imported_nodes: nodes that the model had when it came in.
        records: what each pass did.
        plan, units: fusion groups, and their kernels.
        program: the host program as data.
        isa: instruction set of the processor.
        target: what was compiled for.
        sources: kernel sources by file name.
        seconds: time of each stage.
        compiled: sources that a compiler had to compile; the others came from the cache.
        script: what the host does between segments, when only a run knows sizes or steps.
        spans: the groups of each segment of a script.
        warnings: what the import passed over in the model.
    """

    name: str
    options: CompileOptions
    graph: Graph
    imported_nodes: int
    records: tuple[PassRecord, ...]
    plan: Plan
    units: tuple[Unit, ...]
    program: Program
    isa: Isa
    target: Target
    sources: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    compiled: int = 0
    script: Script | None = None
    spans: tuple[range, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """What took a slower path, and why."""
        return tuple(u.fallback for u in self.units if u.fallback)

    @property
    def refusals(self) -> tuple[str, ...]:
        """What runs on the processor because the target has no kernel for it, and why."""
        return tuple(u.fallback for u in self.units if u.refused)

    @property
    def approximations(self) -> tuple[str, ...]:
        """What trades accuracy for speed, by method, with the number of launches."""
        methods = Counter(getattr(k, "approximation", "") for u in self.units for k in u.kernels)
        found = [f"{name} in {_count(n, 'launch', 'es')}" for name, n in sorted(methods.items()) if name]
        if self.options.precision != "f32":
            halves = Counter(n.operands[0].dtype.name for n in self.graph.nodes if getattr(n.op, "out", ""))
            found += [f"{name} operands in {_count(n, 'node', 's')}" for name, n in sorted(halves.items())]
        return tuple(found)

    @property
    def arena_bytes(self) -> Expr:
        return self.program.arena_bytes

    @property
    def weights_bytes(self) -> int:
        return sum(w.nbytes for w in self.program.weights)


def _count(n: int, what: str, plural: str) -> str:
    return f"{n} {what}{plural if n != 1 else ''}"


class Clock:
    """Times stages and tells an observer about each."""

    def __init__(self, observer: Observer | None) -> None:
        self.seconds: dict[str, float] = {}
        self.observer = observer

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        if self.observer:
            self.observer(name, 0.0)
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
        if self.observer:
            self.observer(name, self.seconds[name])


def prepare(source: str | Path | Graph, options: CompileOptions, observer: Observer | None = None) -> Compilation:
    """Import, optimise, fuse and render a model; runs no compiler.

    Args:
        source: path of an ONNX or JSON model, or a graph (which is changed).

    Raises:
        TorshcError: a member of the family, by cause.
    """
    clock = Clock(observer)
    pipeline = pipeline_of(options)
    policy = policy_of(options, pipeline)
    options = dataclasses.replace(options, fusion=policy.strategy)
    with clock.stage("import"):
        graph = source if isinstance(source, Graph) else load_graph(source, shapes=options.shapes or None)
        imported = len(graph.nodes)
    kind = find_target(options.target)
    if kind.device != CPU:
        graph.drop_demands()
    drop_unneeded(graph)
    plain = is_plain(graph)
    script = None if plain else partition(graph)
    if script is not None and kind.device != CPU:
        script.for_host = segments_for_host(script)
    parts = script.segments if script is not None else [graph]
    with clock.stage("optimise"):
        records = [r for part in parts for r in run_pipeline(part, pipeline, options)]
    with clock.stage("plan"):
        plans = [make_plan(part, policy) for part in parts]
    isa = resolve(options.mcpu)
    machine = Machine(
        isa.lanes,
        compiler=kind.toolchain.c_compiler(options),
        winograd=options.winograd,
        archs=kind.toolchain.archs(options),
    )
    target = kind(machine)
    with clock.stage("lower"):
        here = script.for_host if script is not None else ()
        targets = [find_target("c")(machine) if k in here else target for k in range(len(plans))]
        lowered = [_lower(p.graph, p, t, options.fallback) for p, t in zip(plans, targets, strict=True)]
    with clock.stage("render"):
        rendered = [_render(groups, t) for groups, t in zip(lowered, targets, strict=True)]
        sources = {name: text for _, _, found in rendered for name, text in found.items()}
        placed = [p for _, p, _ in rendered]
        program = assemble_script(graph, script, plans, placed) if script else assemble(plans[0], placed[0])
    units = tuple(u for found, _, _ in rendered for u in found)
    whole, spans = _joined(graph, plans, policy) if script is not None else (plans[0], ())
    return Compilation(
        graph.name, options, whole.graph, imported, tuple(records), whole, units, program, isa, target, sources,
        clock.seconds, script=script, spans=spans, warnings=tuple(graph.warnings),
    )  # fmt: skip


def _joined(graph: Graph, plans: list[Plan], policy: Policy) -> tuple[Plan, tuple[range, ...]]:
    """The plans of a script's segments as one, for those who look at a compilation, and the groups of each segment."""
    whole = Graph(graph.name, graph.inputs, graph.results, graph.output_names[: len(graph.results)])
    out, spans = Plan(whole, policy), []
    for plan in plans:
        spans.append(range(len(out.groups), len(out.groups) + len(plan.groups)))
        whole.nodes += plan.graph.nodes
        for group in plan.groups:
            group.id = len(out.groups)
            out.groups.append(group)
        out.storage |= plan.storage
        out.boundaries += plan.boundaries
        out.apart += plan.apart
        out.stored |= plan.stored
    return out, tuple(spans)


Lowered = tuple[Group, list[Kernel], Target, str]


def _lower(graph: Graph, plan: Plan, target: Target, fallback: bool) -> list[Lowered]:
    """Each group with its kernels, the target that they are for, and why that is not the one asked for.

    Raises:
        UnsupportedError: naming every group that the target cannot compute, when there is no falling back.
    """
    lowered: list[Lowered] = []
    problems = []
    for group in plan.groups:
        try:
            lowered.append((group, target.lower(graph, group, plan.storage), target, ""))
        except NoKernel as reason:
            if not fallback:
                problems.append(f"{', '.join(n.describe() for n in group.nodes)}: {reason}")
                continue
            processor = find_target("c")(target.machine)
            lowered.append((group, processor.lower(graph, group, plan.storage), processor, str(reason)))
    if problems:
        raise UnsupportedError(problems, "leave out --no-fallback to run them on the processor")
    return lowered


def _render(lowered: list[Lowered], wanted: Target) -> tuple[list[Unit], list[Placed], dict[str, str]]:
    units, placed = [], []
    sources: dict[str, str] = {}
    for group, kernels, target, refused in lowered:
        symbols = []
        away = bool(refused) and wanted.device != CPU  # operands of a fallback are copied from a device only
        for kernel in kernels:
            made = target.render(kernel)
            sources[made.symbol + target.suffix] = made.source
            symbols.append(made.symbol)
            comment, threads = _comment(group, kernel), target.threads(kernel)
            placed.append(Placed(kernel, made.symbol, made.dims, comment, threads, away))
        units.append(Unit(group, tuple(kernels), tuple(symbols), target.suffix, refused, target.device))
    return units, placed, sources


def _comment(group: Group, kernel: Kernel) -> str:
    numbers = group.numbers
    shown = " ".join(map(str, numbers[:12])) + (" ..." if len(numbers) > 12 else "")
    return f"{kernel.kind}: nodes {shown}"


def compile_model(
    source: str | Path | Graph, out: str | os.PathLike[str], options: CompileOptions, observer: Observer | None = None
) -> Compilation:
    """Compile a model and write its bundle.

    Args:
        source: path of an ONNX or JSON model, or a graph.
        out: the bundle folder; replaced as a whole when it is a bundle already.

    Raises:
        TorshcError: a member of the family, by cause; nothing is left half-written then.
    """
    target = find_target(options.target)
    isa = resolve(options.mcpu)
    tools = None if options.emit == "source" else target.toolchain.find(options, isa)
    compilation = prepare(source, options, observer)
    clock = Clock(observer)
    clock.seconds = compilation.seconds
    with BundleWriter(Path(out)) as bundle:
        with clock.stage("weights"):
            program = compilation.program
            weights = bundle.write_weights((w.array() for w in program.weights), embed=options.embed_weights)
        host = program.host(
            weights_bytes=weights.bytes,
            weights_id=weights.id,
            embed_weights=options.embed_weights and weights.bytes > 0,
            cpu_features=compilation.isa.cpu_features,
            device=target.device,
        )
        own_sources, host_headers = host_sources(host, target.host)
        commented = {**_commented(compilation), **own_sources}
        headers = {**kernel_headers(compilation), **host_headers}
        embedded = options.embed_weights and weights.bytes > 0
        if tools is None:
            bundle.add_sources({**commented, **headers, **build_script(target, isa, options)})
            library = ""
        else:
            with clock.stage("compile"), work_folder(options.workdir, options.keep_intermediates) as folder:
                cache = Cache(cache_folder() if options.cache else None)
                objects = build_objects(
                    {**compilation.sources, **own_sources},
                    headers,
                    tools.compiler,
                    tools.flags,
                    cache,
                    options.workers,
                    folder,
                    lambda done, total, _: observer(f"compile {done}/{total}", 0.0) if observer else None,
                )
                compilation = dataclasses.replace(compilation, compiled=sum(not o.cached for o in objects))
                if options.emit == "objects":
                    bundle.add_objects([folder / o.path for o in objects])
                built = link_library(tools.compiler, objects, folder, bundle.weights if embedded else None)
                library = bundle.add_library(built, embedded)
            if options.keep_intermediates or options.emit == "objects":
                bundle.add_sources({**commented, **headers})
        bundle.add_text("model.h", host_headers["model.h"])
        file = WeightsFile(weights.bytes, weights.sha256, embedded) if weights.bytes else None
        used = () if tools is None else (ToolInfo(tools.compiler.name, tools.compiler.version, tools.flags),)
        bundle.commit(_manifest(compilation, file, library, used))
    return compilation


def kernel_headers(compilation: Compilation) -> dict[str, str]:
    """What the kernels include, by file name: the target's, and those of C when some of it runs on the processor."""
    texts = compilation.target.header_texts()
    if any(unit.device != compilation.target.device for unit in compilation.units):
        texts |= find_target("c")(compilation.target.machine).header_texts()
    return texts


def _commented(compilation: Compilation) -> dict[str, str]:
    """Kernel sources as people read them: each opens with what it computes; the cache key leaves that comment out.

    Dimensions are called as in the host program, as no name of a model may reach a source.
    """
    names = {name: f"s{k}" for k, name in enumerate(compilation.program.names)}
    notes: dict[str, list[str]] = {}
    for unit in compilation.units:
        for kernel, file in zip(unit.kernels, unit.files, strict=True):
            lines = notes.setdefault(file, [])
            numbers = ", ".join(map(str, unit.group.numbers))
            flops, nbytes = (to_text(e, 64, names) for e in (kernel.flops, kernel.nbytes))
            lines.append(f" * {kernel.kind} of nodes {numbers}: {flops} flops, {nbytes} bytes.")
    return {
        file: "/*\n" + "\n".join(lines) + "\n */\n" + compilation.sources[file].lstrip()
        for file, lines in notes.items()
    }


def _size(e: Expr) -> int | str:
    known = as_int(e)
    return to_text(e) if known is None else known


def _tensor(name: str, v: Value) -> TensorInfo:
    return TensorInfo(name, v.dtype.name, tuple(_size(d) for d in v.shape), _inner(v.type.inner))


def _inner(p: Partial | None) -> TensorInfo | None:
    """What a sequence or an optional holds; "?" for a dimension that differs from element to element."""
    if p is None:
        return None
    dims = ("...",) if p.dims is None else tuple("?" if d is None else _size(d) for d in p.dims)
    return TensorInfo("", p.dtype.name, dims, _inner(p.inner))


def _manifest(c: Compilation, weights: WeightsFile | None, library: str, tools: tuple[ToolInfo, ...]) -> Manifest:
    kernels: dict[str, KernelInfo] = {}
    steps = []
    for unit in c.units:
        nodes = [*unit.group.nodes]
        names, ops = tuple(n.name for n in nodes), tuple(n.op.name for n in nodes)
        for kernel, symbol, file in zip(unit.kernels, unit.symbols, unit.files, strict=True):
            known = kernels.get(symbol)
            source = hashlib.sha256(c.sources[file].encode()).hexdigest()
            kernels[symbol] = KernelInfo(
                known.id if known else len(kernels),
                symbol,
                kernel.template,
                (*(known.nodes if known else ()), *names),
                (*(known.ops if known else ()), *ops),
                _size(kernel.flops),
                _size(kernel.nbytes),
                source,
            )
            steps.append(StepInfo(kernels[symbol].id, names, unit.device))
    p = c.program
    symbols = tuple(
        SymbolInfo(n, s.input, s.dim, s.min, s.max, s.kind) for n, s in zip(p.names, p.symbols, strict=False)
    )
    return Manifest(
        torshc=__version__,
        model=c.name,
        inputs=tuple(_tensor(v.name, v) for v in c.graph.inputs),
        outputs=tuple(_tensor(n, v) for n, v in zip(c.graph.output_names, c.graph.results, strict=False)),
        symbols=symbols,
        conditions=tuple(
            ConditionInfo(to_text(c.left), to_text(c.right), tuple(dims_of(c.left, c.right))) for c in p.conditions
        ),
        target=c.options.target,
        device=c.target.device,
        isa=IsaInfo(c.isa.arch, c.isa.mcpu, c.isa.extras, c.isa.lanes),
        opt_level=c.options.opt_level,
        profile=c.options.profile,
        threads=c.options.threads,
        passes=tuple(r.name for r in c.records),
        kernels=tuple(kernels.values()),
        steps=tuple(steps),
        operators=tuple(OperatorInfo(n.id, n.op.name, n.name) for n in c.script.operators()) if c.script else (),
        fallbacks=c.fallbacks,
        approximations=c.approximations,
        dynamic=c.script is not None,
        arena_bytes=_size(c.arena_bytes),
        weights=weights,
        library_sha256=library,
        tools=tools,
    )


@dataclass(frozen=True)
class Findings:
    """What a look at a model finds, a line each: what torshc cannot do, and what it passes over."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check(source: str | Path, options: CompileOptions) -> Findings:
    """Everything in a model that torshc cannot do; no problems when it can be compiled."""
    try:
        graph = load_graph(source, shapes=options.shapes or None)
    except UnsupportedError as error:
        return Findings(error.problems, error.warnings)
    warnings = tuple(graph.warnings)
    try:
        prepare(graph, options)
    except UnsupportedError as error:
        return Findings(error.problems, warnings)
    return Findings(warnings=warnings)
