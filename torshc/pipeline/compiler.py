"""The pipeline: a model file in, a bundle out. Each stage hands its result to the next and none reaches back."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..base.budget import Budget, spending
from ..base.cache import Cache
from ..base.clock import Clock, Observer
from ..base.digest import file_sha256
from ..base.errors import ConfigError, InternalError, UnsupportedError
from ..base.manifest import SERVE, Manifest, PaddedInput, ToolInfo, WeightInfo, WeightsFile
from ..base.options import HALVES, CompileOptions
from ..base.resources import cache_folder
from ..base.variants import Case, read_cases
from ..bundle.browser import browser_files, require_device_only
from ..bundle.build import Build, Object, link_library, make_archive, work_folder
from ..bundle.build_script import build_script
from ..bundle.cluster import compile_on
from ..bundle.custom import CustomFiles, blaming_users
from ..bundle.host import CPU, HostProgram
from ..bundle.host_source import all_headers, host_sources, own_header
from ..bundle.layout import weights_layout
from ..bundle.linking import link_files
from ..bundle.names import prefix_of
from ..bundle.package import HEADER, SBOM, BundleWriter
from ..bundle.program import Weight, assemble
from ..bundle.sbom import sbom_text
from ..bundle.script import assemble_script
from ..bundle.state_file import state_header
from ..bundle.stored import is_narrow, memory_bytes, stored_parts, stored_table
from ..bundle.weight_names import Array, with_values
from ..bundle.weights import WeightsInfo
from ..expr import DTYPES
from ..formats import load_graph
from ..formats.files import model_files
from ..graph import Graph, PaddingMask
from ..ops import CustomOperators
from ..ops.core.bounds import EXCHANGE
from ..passes import run_pipeline
from ..passes.assume_values import assume_values
from ..passes.half_products import warn_of_range
from ..passes.policy import Policy
from ..plan.finalise import finalise
from ..plan.partition import drop_unneeded, is_plain, partition
from ..plan.place import Plan, make_plan
from ..plan.residence import segments_for_host
from ..plan.uses import input_needs
from ..targets import Target
from ..targets.isa import VERSIONS
from ..targets.size_names import with_names
from ..targets.toolchain import Archiver, Tools, soname
from ..training import Training, make_training_graph, require_straight
from .accuracy import account_for, slack_of
from .compilation import (
    Compilation,
    commented_sources,
    constant_bytes,
    manifest_of,
    origins_of,
    put_forms,
)
from .forms import Compiled, Pins, with_forms
from .job import Job, jobs_of
from .kernel_sources import KernelSources, kernel_sources
from .lowering import lower_groups, render_groups
from .observed import Profile, observed_cases, padded_input, read_profiles, recorded_runs, without_padded
from .pinned import with_pinned
from .serving import first_weights, other_weights, require_given, serving_options
from .tolerance import loosest, tolerances_of
from .train_memory import fit_memory
from .training import trained_model, training_graph
from .weight_names import named_in, with_shared_weights


def prepare(
    source: str | Path | bytes | Graph,
    options: CompileOptions,
    observer: Observer | None = None,
    weights: Mapping[str, Array] | None = None,
    training: Training | None = None,
) -> Compilation:
    """Import, optimise, fuse and render a model; runs no compiler.

    Args:
        source: path or bytes of an ONNX or JSON model, or a graph (which is changed).
        weights: arrays in place of the model's weights of these names.
        training: the step that is made, in place of that in a file.

    Raises:
        TorshcError: a member of the family, by cause.
    """
    job = jobs_of(options)[0]
    return _prepare(source, dataclasses.replace(job, training=training or job.training), observer, weights or {})


def _prepare(
    source: str | Path | bytes | Graph, job: Job, observer: Observer | None, weights: Mapping[str, Array]
) -> Compilation:
    """A model with all its forms."""
    clock = Clock(observer)
    with spending(job.options.budget):
        if job.training is not None:
            return _asking_for_what_it_uses(_training_step(source, job, job.training, clock))
        cases: dict[Case, str] = dict.fromkeys(read_cases(job.options.specialize), "")
        if job.options.drop_padding:
            cases.setdefault((PaddedInput(job.options.drop_padding),), "")
        graph = _import_source(source, job.options, clock, weights)
        loose = graph.meetings
        fast = _compile_form(graph, job, clock)
        again = None if isinstance(source, Graph) else partial(_form, source, job, clock, weights)
        if job.options.observed:
            profile = read_profiles(job.options.observed, fast.model_sha256)
            cases = {**_observed(fast, profile, cases, again), **cases}
            warnings, recorded = (*fast.warnings, *profile.notes), recorded_runs(profile)
            fast = dataclasses.replace(fast, warnings=warnings, recorded=recorded)
        return _asking_for_what_it_uses(with_forms(fast, cases, loose, again))


def _observed(
    fast: Compilation, profile: Profile, asked: Mapping[Case, str], again: Compiled | None
) -> dict[Case, str]:
    """The cases that a profile is worth. Where rows of padding can be left out, sizes of such runs have no variants."""
    found = padded_input(fast, profile)
    if found is None:
        return dict(observed_cases(fast, profile))
    padded, seen = found
    case: Case = next((c for c in asked if c and isinstance(c[0], PaddedInput)), (padded,))
    alone = with_forms(fast, {case: seen}, frozenset(), again)
    rest = profile if alone.variants[0].form is None else without_padded(fast, profile, padded)
    return {case: seen, **dict(observed_cases(fast, rest))}


def _asking_for_what_it_uses(c: Compilation) -> Compilation:
    """A compilation that asks for tiles, which a system may refuse, only where kernels use them.

    A version that was named is left as it is, since others of the library are told from it by what it asks for.
    """
    if c.options.mcpu in VERSIONS:
        return c
    needs = {need for form in c.forms for u in form.units for k in u.kernels for need in k.needs}
    return dataclasses.replace(c, isa=c.isa.asking_for(needs))


def _training_step(source: str | Path | bytes | Graph, job: Job, training: Training, clock: Clock) -> Compilation:
    """A training step of a model. It has no loose form.

    Raises:
        UnsupportedError: sizes or steps are known only at run time.
    """
    trained = trained_model(source, training)
    with clock.stage("differentiate"):
        graph = training_graph(lambda weights: _import_source(source, job.options, Clock(None), weights), training)
    drop_unneeded(graph)
    require_straight(graph, "; or train only weights that come after it")
    if not is_plain(graph):
        found = [n.describe() for n in graph.nodes if n.op.family == "host"] or ["the model"]
        why = "sizes or contents are known only in a run, which no training step can have"
        raise UnsupportedError([f"{who}: {why}" for who in found], "pin the inputs' shapes with --shapes")
    bound = job.options.train_memory
    graph.bound = (1, ()) if bound else None
    done = _compile_form(graph, job, clock)
    if bound:
        done = fit_memory(done, bound, partial(_with_less_memory, source, job, training))
    return dataclasses.replace(done, trained=trained, seconds=clock.seconds)


def _with_less_memory(
    source: str | Path | bytes | Graph, job: Job, training: Training, segments: int, chosen: Container[int]
) -> Compilation:
    """The same step that is cut into so many segments, and makes some of its recomputations."""
    graph = _import_source(source, job.options, Clock(None), {})
    make_training_graph(graph, training)
    drop_unneeded(graph)
    graph.bound = segments, chosen
    return _compile_form(graph, job, Clock(None))


def prepare_versions(
    source: str | Path | bytes | Graph,
    jobs: Sequence[Job],
    observer: Observer | None = None,
    weights: Mapping[str, Array] | None = None,
) -> list[Compilation]:
    """As :func:`prepare`, for each version of a library, with one weights file and one tolerance of an output for all.

    Raises:
        ConfigError: several versions of a graph, which the first would change.
    """
    if len(jobs) > 1 and isinstance(source, Graph):
        raise ConfigError("a Graph is compiled once, and changed by that", "give isa one version, or a model's file")
    done = [_version(source, job, observer, weights or {}) for job in jobs]
    if len({manifest_of(c).interface_id for c in done}) > 1:
        raise InternalError("versions of a model have other inputs, outputs or conditions")
    tolerances = loosest(c.tolerances for c in done)
    done = [dataclasses.replace(c, tolerances=tolerances) for c in done]
    with spending(jobs[0].options.budget):
        return with_shared_weights(done)


def _version(
    source: str | Path | bytes | Graph, job: Job, observer: Observer | None, weights: Mapping[str, Array]
) -> Compilation:
    """As :func:`prepare`, with the weights by name if the library is to know them."""
    done = _prepare(source, job, observer, weights)
    if not job.options.named_weights:
        return done
    clock = Clock(observer)
    clock.seconds = done.seconds
    with clock.stage("names"):
        if isinstance(source, Graph):
            return named_in(done, None)
        there = [v for v in done.variants if v.form is not None]
        values = [{g.name: g.value for g in v.guards} for v in there]
        padded = [next(iter(v.padded), None) for v in there]
        names = [frozenset[str]() for _ in range(1 + len(values))]
        if done.loose is not None and done.loose.form is not None:
            names.append(frozenset(done.loose.sizes))
        forms = zip(done.forms, names, [{}, *values, {}], [None, *padded, None], strict=False)
        return put_forms(
            done, [named_in(f, partial(_again, source, job, f, loose, v, p, weights)) for f, loose, v, p in forms]
        )


def _import_source(
    source: str | Path | bytes | Graph,
    options: CompileOptions,
    clock: Clock,
    weights: Mapping[str, Array],
    loose: frozenset[str] = frozenset(),
) -> Graph:
    with clock.stage("import"):
        if isinstance(source, Graph):
            return source
        custom = CustomOperators(options.ops)
        named = options.named_weights or options.train is not None
        return load_graph(source, options.shapes or None, weights if named else None, loose, custom)


def _form(
    source: str | Path | bytes,
    job: Job,
    clock: Clock,
    weights: Mapping[str, Array],
    name: str,
    pins: Pins | None,
    loose: frozenset[str],
    values: Mapping[str, int],
    padded: PaddedInput | None,
) -> Compilation:
    """Another form of a model: with some dimensions of inputs pinned, or as sizes known only in a run, with inputs that
    are a number throughout, and with rows left out that an input says are padding."""
    job = job.of_form(name)
    if pins:
        job = dataclasses.replace(
            job, options=dataclasses.replace(job.options, shapes=_pin_dimensions(job.options, pins))
        )
    with spending(job.options.budget):
        return _compile_form(_import_source(source, job.options, clock, weights, loose), job, clock, values, padded)


def _again(
    source: str | Path | bytes,
    job: Job,
    form: Compilation,
    loose: frozenset[str],
    values: Mapping[str, int],
    padded: PaddedInput | None,
    first: Mapping[str, Array],
    weights: Mapping[str, Array],
) -> Compilation:
    """A form of a model with other weights than those that it had at first."""
    job = dataclasses.replace(job, options=form.options)
    with spending(job.options.budget):
        graph = _import_source(source, job.options, Clock(None), {**first, **weights}, loose)
        return _compile_form(graph, job, Clock(None), values, padded)


def _pin_dimensions(options: CompileOptions, pins: Pins) -> Pins:
    """The shapes that are asked for, with some dimensions as numbers."""
    known = options.shapes
    return {
        **known,
        **{
            name: tuple(new if new is not None else old for new, old in zip(dims, known.get(name, dims), strict=True))
            for name, dims in pins.items()
        },
    }


def _compile_form(
    graph: Graph,
    job: Job,
    clock: Clock,
    values: Mapping[str, int] | None = None,
    padded: PaddedInput | None = None,
) -> Compilation:
    """One form of a model as a compilation, up to its sources.

    Args:
        values: numbers that inputs are throughout.
        padded: an input whose zeros are rows of padding, which are left out.
    """
    options, target = job.options, job.target
    imported, constants, origins = len(graph.nodes), constant_bytes(graph), origins_of(graph)
    needs, tolerances = input_needs(graph), tolerances_of(graph, options, job.features)
    if values:
        assume_values(graph, values)
    if target.device != CPU:
        graph.drop_demands(but=EXCHANGE)
    if padded is not None:
        mask = next(v for v in graph.given if v.name == padded.name)
        graph.padding = PaddingMask(mask, padded.stated)
    drop_unneeded(graph)
    script = None if is_plain(graph) else partition(graph)
    if script is not None and target.device != CPU:
        script.for_host = segments_for_host(script)
    parts = script.segments if script is not None else [graph]
    with clock.stage("optimise"):
        records = [r for part in parts for r in run_pipeline(part, job.pipeline, options, job.features)]
        final = [finalise(part, job.policy) for part in parts]
    with clock.stage("plan"):
        plans = [make_plan(part) for part in final]
    with clock.stage("lower"):
        slack = slack_of([p.graph for p in plans], options, job.features, on_device=target.device != CPU)
        target = target.with_slack(slack)
        targets = [target.on_processor() if script and k in script.for_host else target for k in range(len(plans))]
        lowered = [lower_groups(p.graph, p, t, options, job.tuning) for p, t in zip(plans, targets, strict=True)]
    with clock.stage("render"):
        rendered = [render_groups(groups, t) for groups, t in zip(lowered, targets, strict=True)]
        texts = {name: text for _, _, found in rendered for name, text in found.items()}
        placed = [p for _, p, _ in rendered]
        program = assemble_script(graph, script, plans, placed) if script else assemble(plans[0], placed[0])
    units = tuple(u for found, _, _ in rendered for u in found)
    whole, spans = _join_plans(graph, plans, job.policy) if script is not None else (plans[0], ())
    done_by = [(u.group, u.kernels) for u in units]
    on_device = target.device != CPU
    accuracy, tolerances = account_for(whole.graph, done_by, tolerances, options, job.features, on_device)
    done = Compilation(
        name=graph.name,
        options=options,
        graph=whole.graph,
        imported_nodes=imported,
        records=tuple(records),
        plan=whole,
        units=units,
        program=program,
        isa=job.isa,
        target=target,
        texts=texts,
        sources={name: with_names(text) for name, text in texts.items()},
        seconds=clock.seconds,
        script=script,
        spans=spans,
        warnings=(*_warnings(graph, parts, program.weights, options), *job.tuning.warnings),
        needs=needs,
        dims_of_kernels={p.symbol: p.dims for segment in placed for p in segment},
        constants_bytes=constants,
        origins=origins,
        tolerances=tolerances,
        accuracy=accuracy,
        custom=graph.custom,
        rank=(graph.rank, graph.ranks),
        model_sha256=graph.file_sha256(),
    )
    return with_pinned(done, options.kernels) if options.kernels is not None else done


def _warnings(graph: Graph, parts: Sequence[Graph], weights: Sequence[Weight], options: CompileOptions) -> list[str]:
    """Warnings of the import, of passes over a model's segments, and of how weights are stored, each once."""
    lines = [w for g in (graph, *parts) for w in g.warnings]
    if options.weights_dtype in HALVES:
        narrow = dict.fromkeys(w.source for w in weights if is_narrow(w, options.weights_dtype))
        lines += warn_of_range("--weights-dtype", DTYPES[options.weights_dtype], narrow)
    return list(dict.fromkeys(lines))


def _join_plans(graph: Graph, plans: list[Plan], policy: Policy) -> tuple[Plan, tuple[range, ...]]:
    """The plans of a script's segments as one, for those who look at a compilation, and the groups of each segment."""
    nodes = [n for plan in plans for n in plan.graph.nodes]
    whole = Graph(graph.name, graph.inputs, graph.results, graph.output_names[: len(graph.results)], nodes)
    out, spans = Plan(whole, policy), []
    for plan in plans:
        spans.append(range(len(out.groups), len(out.groups) + len(plan.groups)))
        for group in plan.groups:
            group.id = len(out.groups)
            out.groups.append(group)
        out.storage |= plan.storage
        out.boundaries += plan.boundaries
        out.apart += plan.apart
        out.stored |= plan.stored
    return out, tuple(spans)


def compile_model(
    source: str | Path | bytes | Graph,
    out: str | os.PathLike[str],
    options: CompileOptions,
    observer: Observer | None = None,
    test: Callable[[Compilation], Mapping[str, bytes]] | None = None,
    training: Training | None = None,
    given: Mapping[str, Array] | None = None,
    check: Callable[[Compilation], None] | None = None,
    cache: Cache | None = None,
    keep: Callable[[Path, Compilation], None] | None = None,
) -> Compilation:
    """Compile a model and write its bundle.

    Args:
        source: path or bytes of an ONNX or JSON model, or a graph (which is changed).
        out: the bundle folder; replaced as a whole when it is a bundle already.
        test: gives the files of the bundle's ``test/``.
        training: the step that the library makes, in place of that in a file.
        given: values that weights have in the bundle, of a library that takes weights by name. It is compiled with
            other ones, so that what these happen to be decides nothing (a scale of ones is no operation, say).
        check: raises where the model, whose kernels are compiled next, is not what is wanted.
        cache: where objects are kept; by default the cache of all that torshc keeps, if the options let it be used.
        keep: is shown the folder of the whole bundle before it is at its place.

    Raises:
        TorshcError: a member of the family, by cause; nothing is left half-written then.
    """
    options = dataclasses.replace(options, prefix=options.prefix or prefix_of(Path(out)))
    jobs = jobs_of(options)
    if training is not None:
        jobs = [dataclasses.replace(job, training=training) for job in jobs]
    toolchain = jobs[0].target.toolchain
    built = options.emit not in ("source", "page")
    tools = [toolchain.find(job.options, job.isa) for job in jobs] if built else []
    archiver = toolchain.archiver(options) if options.emit == "archive" else None
    cache = cache if cache is not None else Cache(cache_folder() if options.cache else None)
    with BundleWriter(Path(out)) as bundle, _building(options, tools, cache) as build:
        if build is not None:
            _add_shared(build, jobs[0].target, tools[0])
        versions = prepare_versions(source, jobs, observer, other_weights(given or {}))
        compilation = versions[0]
        if check is not None:
            check(compilation)
        clock = Clock(observer)
        clock.seconds = compilation.seconds
        kernels = kernel_sources(versions, tools)
        if build is not None:
            build.add(kernels.sources, kernels.headers, kernels.flags.__getitem__, kernels.holds)
        with clock.stage("weights"):
            # Those of all versions.
            arrays: Iterable[Iterable[Array]] = (
                stored_parts(w, options.weights_dtype) for w in compilation.program.weights
            )
            if given is not None:
                arrays = ([found] for found in with_values(compilation.program, compilation.named, given))
            weights = bundle.write_weights(arrays, embed=options.embed_weights)
        embedded = options.embed_weights and weights.bytes > 0
        manifest = dataclasses.replace(manifest_of(*versions), model_sha256=versions[0].model_sha256)
        hosts = [_host(c, manifest, weights, embedded) for c in versions]
        library = ""
        if options.emit == "page":
            _add_page(bundle, hosts[0], manifest, weights, compilation)
        else:
            bundle.add_test(test(compilation) if test is not None else {})
            library, compilation = _add_library(
                bundle, hosts, manifest, kernels, tools, build, archiver, versions, clock
            )
        file = _weights_file(versions, weights, embedded)
        used = tuple(ToolInfo(t.compiler.name, t.compiler.version, t.flags) for t in tools)
        glibc = bundle.glibc
        manifest = dataclasses.replace(manifest, weights=file, library_sha256=library, tools=used, glibc=glibc)
        if options.serve_while_training:
            given = first_weights(compilation)
            served = compile_model(source, bundle.folder / SERVE, serving_options(options), observer, given=given)
            require_given(given, served)
        if options.sbom:
            bundle.add_text(SBOM, sbom_text(manifest, _hashes(source), bundle.folder))
        bundle.commit(manifest, (lambda folder: keep(folder, compilation)) if keep is not None else None)
    return compilation


def _hashes(source: str | Path | bytes | Graph) -> dict[str, str]:
    """SHA-256 of the files that a model was read from."""
    if isinstance(source, Graph):
        return {}
    if isinstance(source, bytes):
        return {"model": hashlib.sha256(source).hexdigest()}
    return {path.name: file_sha256(path) for path in model_files(Path(source))}


def _host(c: Compilation, manifest: Manifest, weights: WeightsInfo, embedded: bool) -> HostProgram:
    held, at = c.program.weights, c.program.offsets
    stored = stored_table(held, at, weights.offsets, c.options.weights_dtype)
    loose = None if c.loose is None or c.loose.form is None else _host(c.loose.form, manifest, weights, embedded)
    variants = tuple(_host(v.form, manifest, weights, embedded) for v in c.variants if v.form is not None)
    return c.program.host(
        variants=variants,
        loose=loose,
        interface_id=manifest.interface_id,
        model_sha256=manifest.model_sha256,
        weights_bytes=memory_bytes(held, at) if stored else weights.bytes,
        file_bytes=weights.bytes,
        stored=stored,
        named=c.named,
        weights_id=weights.id,
        embed_weights=embedded,
        cpu_features=c.isa.cpu_features,
        isa=c.isa.name,
        version=c.target.machine.version,
        device=c.target.device,
        recorded=c.recorded,
        rank=c.rank[0],
        ranks=c.rank[1],
        state_header=state_header(c.program.states, c.trained.model) if c.trained is not None else "",
    )


@contextlib.contextmanager
def _building(options: CompileOptions, tools: Sequence[Tools], cache: Cache) -> Iterator[Build | None]:
    """Compilers for a library's sources, in a work folder; None where only sources are written."""
    if not tools:
        yield None
        return
    compiler, seconds = tools[0].compiler, Budget(**options.budget).compiling
    with (
        work_folder(options.workdir, options.keep_intermediates) as folder,
        compile_on(options, compiler) as workers,
        Build(compiler, cache, options.workers, folder, None, seconds, workers) as build,
    ):
        yield build


def _add_shared(build: Build, target: Target, tools: Tools) -> None:
    """Compile what all libraries of a target have, while Python reads the model."""
    sources = {name: target.host.text(name) for name in target.host.sources}
    build.add(sources, all_headers(target.host), tools.host or tools.flags)


def _add_library(
    bundle: BundleWriter,
    hosts: Sequence[HostProgram],
    manifest: Manifest,
    kernels: KernelSources,
    tools: Sequence[Tools],
    build: Build | None,
    archiver: Archiver | None,
    versions: Sequence[Compilation],
    clock: Clock,
) -> tuple[str, Compilation]:
    """The library with its headers, or their sources alone; the hash of its file, and the first compilation.

    Args:
        tools: of each version; none where only sources are written.
        build: where the kernels are compiled.
    """
    compilation, custom = versions[0], kernels.custom
    options, target = compilation.options, type(compilation.target)
    own, headers = host_sources(hosts[0], target.host, manifest, hosts[1:])
    own = {**own, **custom.sources}
    _describe(bundle, hosts[0], manifest, target, archiver is not None, custom.libraries)
    if options.keep_intermediates or options.emit in ("source", "objects"):
        headers = {**kernels.own_headers, **headers, **custom.headers}
        script = build_script(target, {c.target.machine.version: c.isa for c in versions}, options, custom)
        commented = {name: text for c in kernels.forms for name, text in commented_sources(c).items()}
        bundle.add_sources({**commented, **own, **headers, **script})
    if build is None:
        return "", compilation
    flags = {name: (*(tools[0].host or tools[0].flags), *custom.flags.get(name, ())) for name in own}

    def tell(done: int, total: int, _: Object) -> None:
        if clock.observer:
            clock.observer(f"compile {done}/{total}", 0.0)

    with clock.stage("compile"), blaming_users(custom, compilation.custom):
        build.progress = tell
        build.add(own, kernels.headers, flags.__getitem__, fresh=custom.flags)
        library, compiled = _link(bundle, build, options, archiver, custom)
    warnings = (*compilation.warnings, *([build.cache.problem] if build.cache.problem else []))
    return library, dataclasses.replace(compilation, compiled=compiled, warnings=warnings)


def _link(
    bundle: BundleWriter, build: Build, options: CompileOptions, archiver: Archiver | None, custom: CustomFiles
) -> tuple[str, int]:
    """Link the library into the bundle: the hash of its file, and how many sources a compiler compiled."""
    objects, compiler, folder = build.objects(), build.compiler, build.workdir
    if options.emit == "objects":
        bundle.add_objects([folder / o.path for o in objects])
    name = soname(options.prefix)
    inside = bundle.weights if options.embed_weights and bundle.weights.exists() else None
    if archiver is not None:
        bundle.add_archive(make_archive(archiver, compiler, objects, folder, inside, options.prefix))
    built = link_library(compiler, objects, folder, inside, name=name, libraries=custom.libraries)
    return bundle.add_library(built, inside is not None, name), sum(not o.cached for o in objects)


def _add_page(
    bundle: BundleWriter, host: HostProgram, manifest: Manifest, weights: WeightsInfo, compilation: Compilation
) -> None:
    """What a browser runs.

    Raises:
        UnsupportedError: naming all that it cannot.
    """
    operators = compilation.script.operators() if compilation.script is not None else ()
    require_device_only(host, [node.describe() for node in operators])
    kernels = {Path(file).stem: text for form in compilation.forms for file, text in form.sources.items()}
    bundle.add_texts(browser_files(host, compilation.target.host, manifest, kernels, weights))


def _weights_file(versions: Sequence[Compilation], weights: WeightsInfo, embedded: bool) -> WeightsFile | None:
    if not weights.bytes:
        return None
    layout = weights_layout(*(form.program for c in versions for form in c.forms))
    known = tuple(WeightInfo(w.name, w.dtype, w.dims, w.why) for w in versions[0].named)
    return WeightsFile(weights.bytes, weights.sha256, embedded, layout, versions[0].options.weights_dtype, known)


def _describe(
    bundle: BundleWriter,
    host: HostProgram,
    manifest: Manifest,
    target: type[Target],
    archived: bool,
    libraries: Sequence[str],
) -> None:
    """What programs and their builds read of the bundle: headers, and where its libraries are."""
    apart = host.weights_bytes > 0 and not host.embed_weights
    prefix, files = manifest.prefix, target.host
    bundle.add_texts({HEADER: files.text(HEADER), f"{prefix}.h": own_header(host, files, manifest)})
    bundle.add_texts(link_files(prefix, files.search, archived, apart, libraries))


@dataclass(frozen=True)
class Findings:
    """What checking a model finds, a line each: what torshc cannot do, and what it ignores."""

    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def check(source: str | Path, options: CompileOptions) -> Findings:
    """Everything in a model that torshc cannot do; no problems when it can be compiled."""
    try:
        with spending(options.budget):
            graph = load_graph(source, shapes=options.shapes or None, custom=CustomOperators(options.ops))
    except UnsupportedError as error:
        return Findings(error.problems, error.warnings)
    warnings = tuple(graph.warnings)
    try:
        prepare(graph if options.train is None else source, options)
    except UnsupportedError as error:
        return Findings(error.problems, warnings)
    return Findings(warnings=warnings)
