"""The pipeline: a model file in, a bundle out. Each stage hands its result to the next and none reaches back."""

from __future__ import annotations

import dataclasses
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from . import resources
from ._version import __version__
from .bundle import host as host_module
from .bundle import isa as isa_module
from .bundle.build import build_objects, link_library, work_folder
from .bundle.cache import Cache, cache_folder
from .bundle.manifest import IsaInfo, KernelInfo, Manifest, StepInfo, SymbolInfo, TensorInfo, ToolInfo, WeightsFile
from .bundle.package import BundleWriter
from .bundle.program import Placed, Program, assemble
from .bundle.toolchain import Compiler, find_compiler
from .errors import ConfigError, UnsupportedError, did_you_mean
from .expr import Expr, as_int, dim, substitute, to_text
from .formats import load_graph
from .graph import Graph, Value
from .kernels.base import Kernel
from .kernels.lower import lower
from .kernels.machine import Machine
from .options import CompileOptions
from .passes import PassRecord, optimise
from .plan.fusion import Limits
from .plan.group import Group
from .plan.place import Plan, make_plan
from .targets import c as c_target

TARGETS = ("c",)
Observer = Callable[[str, float], None]


@dataclass(frozen=True)
class Unit:
    """A fusion group with its kernels, in launch order, and their names in C."""

    group: Group
    kernels: tuple[Kernel, ...]
    symbols: tuple[str, ...]

    @property
    def fallback(self) -> str:
        """Why a heavy node runs as a plain loop nest, or empty: no template of its kind takes it as it is."""
        anchor = self.group.anchor
        if anchor is None or any(k.kind not in ("nest", "row") for k in self.kernels):
            return ""
        return f"{anchor.describe()} of {anchor.output.type!r} runs as a plain loop nest"


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
        sources: kernel sources by file name.
        seconds: time of each stage.
        compiled: sources that a compiler had to compile; the others came from the cache.
    """

    name: str
    options: CompileOptions
    graph: Graph
    imported_nodes: int
    records: tuple[PassRecord, ...]
    plan: Plan
    units: tuple[Unit, ...]
    program: Program
    isa: isa_module.Isa
    sources: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    compiled: int = 0

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """What took a slower path, and why."""
        return tuple(u.fallback for u in self.units if u.fallback)

    @property
    def approximations(self) -> tuple[str, ...]:
        """What trades accuracy for speed, by method, with the number of launches."""
        methods = Counter(getattr(k, "approximation", "") for u in self.units for k in u.kernels)
        return tuple(f"{name} in {n} launch{'es' if n > 1 else ''}" for name, n in sorted(methods.items()) if name)

    @property
    def arena_bytes(self) -> Expr:
        return self.program.arena_bytes

    @property
    def weights_bytes(self) -> int:
        return sum(w.nbytes for w in self.program.weights)


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
    if options.target not in TARGETS:
        raise ConfigError(
            f"no target {options.target!r}{did_you_mean(options.target, TARGETS)}", f"one of {', '.join(TARGETS)}"
        )
    clock = Clock(observer)
    with clock.stage("import"):
        graph = source if isinstance(source, Graph) else load_graph(source, shapes=options.shapes or None)
        imported = len(graph.nodes)
    with clock.stage("optimise"):
        records = optimise(graph, options)
    with clock.stage("plan"):
        strategy = "none" if options.opt_level == 0 else options.fusion
        plan = make_plan(graph, Limits(strategy, options.max_fusion_size))
    isa = isa_module.resolve(options.mcpu)
    with clock.stage("lower"):
        machine = Machine(isa.lanes, winograd=options.winograd)
        lowered = [(g, lower(graph, g, plan.storage, machine)) for g in plan.groups]
    with clock.stage("render"):
        units, placed, sources = _render(lowered, isa.lanes)
        program = assemble(plan, placed)
    return Compilation(
        graph.name, options, graph, imported, tuple(records), plan, tuple(units), program, isa, sources, clock.seconds
    )


def _render(lowered: list[tuple[Group, list[Kernel]]], lanes: int) -> tuple[list[Unit], list[Placed], dict[str, str]]:
    units, placed = [], []
    sources: dict[str, str] = {}
    for group, kernels in lowered:
        symbols = []
        for kernel in kernels:
            symbol, text, dims = c_target.render(kernel, lanes)
            sources[f"{symbol}.c"] = text
            symbols.append(symbol)
            placed.append(Placed(kernel, symbol, tuple(dims), _comment(group, kernel)))
        units.append(Unit(group, tuple(kernels), tuple(symbols)))
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
    compiler = None if options.emit == "source" else find_compiler(options.cc or None)
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
        )
        host_sources, host_headers = host_module.host_sources(host)
        commented = {**_commented(compilation), **host_sources}
        headers = {**_headers(), **host_headers}
        embedded = options.embed_weights and weights.bytes > 0
        if compiler is None:
            bundle.add_sources({**commented, **headers})
            library = ""
            tools: tuple[ToolInfo, ...] = ()
        else:
            flags = compile_flags(compilation, compiler)
            with clock.stage("compile"), work_folder(options.workdir, options.keep_intermediates) as folder:
                cache = Cache(cache_folder() if options.cache else None)
                objects = build_objects(
                    {**compilation.sources, **host_sources},
                    headers,
                    compiler,
                    flags,
                    cache,
                    options.workers,
                    folder,
                    lambda done, total, _: observer(f"compile {done}/{total}", 0.0) if observer else None,
                )
                compilation = dataclasses.replace(compilation, compiled=sum(not o.cached for o in objects))
                if options.emit == "objects":
                    bundle.add_objects([folder / o.path for o in objects])
                built = link_library(compiler, objects, folder, bundle.weights if embedded else None)
                library = bundle.add_library(built, embedded)
            if options.keep_intermediates or options.emit == "objects":
                bundle.add_sources({**commented, **headers})
            tools = (ToolInfo(compiler.name, compiler.version, tuple(flags)),)
        bundle.add_text("model.h", host_headers["model.h"])
        file = WeightsFile(weights.bytes, weights.sha256, embedded) if weights.bytes else None
        bundle.commit(_manifest(compilation, file, library, tools))
    return compilation


def compile_flags(compilation: Compilation, compiler: Compiler) -> list[str]:
    """Flags of every source of a library."""
    flags = [*compiler.base_flags(), *compiler.isa_flags(compilation.isa), "-Wno-psabi"]
    if compilation.options.profile:
        flags.append("-DTORSHC_PROFILE")
    return flags


def _headers() -> dict[str, str]:
    folder = resources.templates("c")
    return {name: (folder / name).read_text() for name in c_target.HEADERS}


def _commented(compilation: Compilation) -> dict[str, str]:
    """Kernel sources as people read them: each opens with what it computes; the cache key leaves that comment out.

    Dimensions are called as in the host program, as no name of a model may reach a source.
    """
    dims = {dim(name): dim(f"s{k}") for k, name in enumerate(compilation.program.symbol_names)}
    notes: dict[str, list[str]] = {}
    for unit in compilation.units:
        for kernel, symbol in zip(unit.kernels, unit.symbols, strict=True):
            lines = notes.setdefault(symbol, [])
            numbers = ", ".join(map(str, unit.group.numbers))
            flops, nbytes = (to_text(substitute(e, dims)) for e in (kernel.flops, kernel.nbytes))
            lines.append(f" * {kernel.kind} of nodes {numbers}: {flops} flops, {nbytes} bytes.")
    return {
        f"{symbol}.c": "/*\n" + "\n".join(lines) + "\n */\n" + compilation.sources[f"{symbol}.c"].lstrip()
        for symbol, lines in notes.items()
    }


def _size(e: Expr) -> int | str:
    known = as_int(e)
    return to_text(e) if known is None else known


def _tensor(name: str, v: Value) -> TensorInfo:
    return TensorInfo(name, v.dtype.name, tuple(_size(d) for d in v.shape))


def _manifest(c: Compilation, weights: WeightsFile | None, library: str, tools: tuple[ToolInfo, ...]) -> Manifest:
    import hashlib

    kernels: dict[str, KernelInfo] = {}
    steps = []
    for unit in c.units:
        nodes = [*unit.group.nodes]
        names, ops = tuple(n.name for n in nodes), tuple(n.op.name for n in nodes)
        for kernel, symbol in zip(unit.kernels, unit.symbols, strict=True):
            known = kernels.get(symbol)
            source = hashlib.sha256(c.sources[f"{symbol}.c"].encode()).hexdigest()
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
            steps.append(StepInfo(kernels[symbol].id, names))
    p = c.program
    symbols = tuple(SymbolInfo(n, s.input, s.dim, s.min, s.max) for n, s in zip(p.symbol_names, p.symbols, strict=True))
    return Manifest(
        torshc=__version__,
        model=c.name,
        inputs=tuple(_tensor(v.name, v) for v in c.graph.inputs),
        outputs=tuple(_tensor(n, v) for n, v in zip(c.graph.output_names, c.graph.outputs, strict=True)),
        symbols=symbols,
        target=c.options.target,
        isa=IsaInfo(c.isa.arch, c.isa.mcpu, c.isa.extras, c.isa.lanes),
        opt_level=c.options.opt_level,
        profile=c.options.profile,
        threads=c.options.threads,
        passes=tuple(r.name for r in c.records),
        kernels=tuple(kernels.values()),
        steps=tuple(steps),
        fallbacks=c.fallbacks,
        approximations=c.approximations,
        arena_bytes=_size(c.arena_bytes),
        weights=weights,
        library_sha256=library,
        tools=tools,
    )


def check(source: str | Path, options: CompileOptions) -> list[str]:
    """Everything in a model that torshc cannot do, a line each; empty when it can be compiled."""
    try:
        prepare(source, options)
    except UnsupportedError as error:
        return list(error.problems)
    return []
