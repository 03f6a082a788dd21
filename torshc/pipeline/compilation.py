"""What is known of a compilation once its sources are rendered, and what its bundle says of it."""

from __future__ import annotations

import hashlib
import itertools
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .._version import __version__
from ..base.manifest import (
    ConditionSpec,
    CustomInfo,
    FormInfo,
    InputValue,
    IsaInfo,
    KernelInfo,
    LooseInfo,
    Manifest,
    OperatorInfo,
    PaddedInput,
    SharedSpec,
    SizeRange,
    StateInfo,
    StepInfo,
    SymbolSpec,
    TensorSpec,
    ToleranceSpec,
    TrainingInfo,
    UseSpec,
    VariantInfo,
    VersionInfo,
)
from ..base.options import HALVES, CompileOptions
from ..base.variants import Case
from ..bundle.host import CPU, Condition, NamedWeight, shared_by_all
from ..bundle.program import Program
from ..bundle.stored import is_narrow, stored_bytes
from ..expr import SYMBOLS, Expr, as_int, dims_of, to_text
from ..graph import Graph, Partial, Value
from ..kernels.base import Kernel
from ..ops.core.custom import Custom
from ..passes import PassRecord
from ..plan.group import Group
from ..plan.place import Plan
from ..plan.script import Script
from ..plan.uses import InputNeeds, Use
from ..targets import Target
from ..targets.isa import Isa
from ..targets.size_names import with_names
from ..training import name_of
from .accuracy import Accuracy
from .tolerance import Tolerance
from .training import Trained


@dataclass(frozen=True)
class Unit:
    """A fusion group with its kernels, in launch order, and their names.

    Attributes:
        sizes: the sizes that each kernel is given, in order.
        suffix: ending of their sources.
        refused: why the target has no kernel, so that those of the processor are used; empty when it has.
        device: where the kernels run, by DLPack's code.
        tuned: the choices of a tuning record that they were made with, as text; empty for the usual ones.
    """

    group: Group
    kernels: tuple[Kernel, ...]
    symbols: tuple[str, ...]
    sizes: tuple[tuple[Expr, ...], ...]
    suffix: str = ".c"
    refused: str = ""
    device: int = CPU
    tuned: str = ""

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
class Loose:
    """What a compilation has for sizes of 1 that its own form, the fast one, cannot broadcast.

    Attributes:
        sizes: names of the dimensions of inputs that may be 1 and are broadcast, in order.
        form: the model compiled once more, with these sizes as sizes known only in a run; or None.
        why: why there is no such form; empty where there is.
    """

    sizes: tuple[str, ...]
    form: Compilation | None = None
    why: str = ""


@dataclass(frozen=True)
class Variant:
    """What a compilation has for some sizes, and values of inputs, beside its own form.

    Attributes:
        case: sizes of symbols and values of inputs, as they were asked for.
        seen: what profiles saw of them; empty where a person named them.
        form: the model compiled once more with these; or None.
        why: why there is no such form, so that runs with these sizes take the usual one; empty where there is.
    """

    case: Case
    seen: str = ""
    form: Compilation | None = None
    why: str = ""

    @property
    def sizes(self) -> tuple[SizeRange, ...]:
        """The sizes in the case."""
        return tuple(c for c in self.case if isinstance(c, SizeRange))

    @property
    def guards(self) -> tuple[InputValue, ...]:
        """The values of inputs in the case, which a run looks at before it takes the form."""
        return tuple(c for c in self.case if isinstance(c, InputValue))

    @property
    def padded(self) -> tuple[PaddedInput, ...]:
        """The inputs in the case whose zeros say which rows the form leaves out."""
        return tuple(c for c in self.case if isinstance(c, PaddedInput))


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
        texts: kernel sources by file name, with marks in place of the names of sizes.
        sources: the same with names of each kernel's own, as they are compiled.
        seconds: time of each stage.
        compiled: sources that a compiler had to compile; the others came from the cache.
        script: what the host does between segments, when sizes or steps are known only at run time.
        spans: the groups of each segment of a script.
        dims_of_kernels: the sizes that each kernel wants, in order, by its name.
        pinned: kernel sources that a person wrote, by file name, and where they came from.
        warnings: what the import passed over in the model, and why the kernel cache was not used.
        named: the model's weights, where the library takes others by name.
        origins: operators of the imported model's nodes, by the names of these that are alone in having them.
        constants_bytes: of the constants that the imported model's nodes read.
        needs: what inputs have to be like, so that a run computes something.
        tolerances: how far each output may be from a reference's.
        accuracy: how far outputs and results of kernels are expected to be off.
        loose: the form for sizes of 1 that broadcast, or why there is none; None where no size may be such a 1.
        variants: forms for some sizes, the better first.
        custom: operators of the model that users declare.
        trained: what the library trains; None for one that runs the model.
        recorded: how many recordings of runs a card keeps, by what profiles saw; 0 for the usual number.
        rank: which of how many processes that share the model it is for; (0, 0) for a model that is whole.
        model_sha256: of the model's file, without what lies beside it; empty where there was none.
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
    texts: Mapping[str, str]
    sources: dict[str, str]
    seconds: dict[str, float] = field(default_factory=dict)
    compiled: int = 0
    script: Script | None = None
    spans: tuple[range, ...] = ()
    warnings: tuple[str, ...] = ()
    dims_of_kernels: Mapping[str, tuple[Expr, ...]] = field(default_factory=dict)
    pinned: Mapping[str, str] = field(default_factory=dict)
    named: tuple[NamedWeight, ...] = ()
    constants_bytes: int = 0
    origins: Mapping[str, str] = field(default_factory=dict)
    needs: InputNeeds = field(default_factory=InputNeeds)
    tolerances: tuple[Tolerance, ...] = ()
    accuracy: Accuracy = field(default_factory=Accuracy)
    loose: Loose | None = None
    variants: tuple[Variant, ...] = ()
    custom: tuple[type[Custom], ...] = ()
    recorded: int = 0
    rank: tuple[int, int] = (0, 0)
    trained: Trained | None = None
    model_sha256: str = ""

    @property
    def forms(self) -> tuple[Compilation, ...]:
        """This one, the variants, and the loose form where there is one."""
        form = self.loose.form if self.loose is not None else None
        return (self, *(v.form for v in self.variants if v.form is not None), *([form] if form is not None else []))

    @property
    def interface(self) -> Graph:
        """The graph whose inputs and outputs have the sizes of all forms."""
        form = self.loose.form if self.loose is not None else None
        return (form or self).graph

    @property
    def unseen(self) -> str:
        """Why a device does not compare inputs in its memory with what variants assume; empty where it does."""
        if not self.target.host.choice[0]:
            return f"on {self.target.name} the processor alone chooses a form"
        if self.program.script is not None:
            return "the steps are known only in a run"
        if self.rank[1]:
            return "several processes share the model"
        if self.fallbacks:
            return "some steps run on the processor"
        return "the steps are timed, and not recorded" if self.options.profile else ""

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """What took a slower path in some form, and why."""
        return tuple(dict.fromkeys(u.fallback for form in self.forms for u in form.units if u.fallback))

    @property
    def refusals(self) -> tuple[str, ...]:
        """What runs on the processor in some form because the target has no kernel for it, and why."""
        return tuple(dict.fromkeys(u.fallback for form in self.forms for u in form.units if u.refused))

    @property
    def held_nodes(self) -> dict[str, str]:
        """The nodes of each kernel source, by file name; of many the first few."""
        found: dict[str, str] = {}
        for unit in self.units:
            nodes = [node.describe() for node in unit.group.nodes]
            rest = f" and {len(nodes) - 3} others" if len(nodes) > 3 else ""
            found |= {file: ", ".join(nodes[:3]) + rest for file in unit.files if file not in found}
        return found

    @property
    def approximations(self) -> tuple[str, ...]:
        """What trades accuracy for speed, by method, with the number of launches."""
        methods = Counter(getattr(k, "approximation", "") for u in self.units for k in u.kernels)
        found = [f"{name} in {_count(n, 'launch', 'es')}" for name, n in sorted(methods.items()) if name]
        if self.options.precision in HALVES:
            factors = [[v.dtype.name for v in n.operands[:2]] for n in self.graph.nodes if getattr(n.op, "out", "")]
            halves = Counter(f"{w} {'operands' if x == w else 'weights'}" for x, w in factors)
            found += [f"{name} in {_count(n, 'node', 's')}" for name, n in sorted(halves.items())]
        narrow = sum(is_narrow(w, self.options.weights_dtype) for w in self.program.weights)
        found += [f"{_count(narrow, 'weight', 's')} stored as {self.options.weights_dtype}"] if narrow else []
        return tuple(found)

    @property
    def thresholds(self) -> tuple[str, ...]:
        """Where the bits of a row depend on how many rows there are."""
        own = [k for u in self.units for k in u.kernels]
        found = {text for k in own if (text := getattr(k, "threshold", ""))}
        kinds = {type(k) for k in own}
        others = [k for v in self.variants if v.form is not None for u in v.form.units for k in u.kernels]
        return tuple(sorted(found | {k.few_rows for k in others if k.few_rows and type(k) not in kinds}))

    @property
    def arena_bytes(self) -> Expr:
        return self.program.arena_bytes

    @property
    def weights_bytes(self) -> int:
        """Of the weights in the bundle."""
        return stored_bytes(self.program.weights, self.options.weights_dtype)

    @property
    def held_weights_bytes(self) -> int:
        """Of the weights that an open model has in memory: on a card what states begin with is not among them."""
        bundled, device = self.weights_bytes, self.target.device
        return bundled if device == CPU else self.program.host(weights_bytes=bundled, device=device).used_bytes

    @property
    def copied_bytes(self) -> int:
        """Of what the bundle stores beyond the model's constants: a weight that two kernels read in two layouts."""
        more = self.weights_bytes - self.constants_bytes
        return more if more > max(self.constants_bytes // 10, 1 << 20) else 0  # less is what panels are padded with


def put_forms(c: Compilation, forms: Sequence[Compilation]) -> Compilation:
    """A compilation with others in place of all its forms, in their order."""
    own, *rest = forms
    others = iter(rest)
    variants = tuple(replace(v, form=next(others)) if v.form is not None else v for v in c.variants)
    loose = replace(c.loose, form=next(others)) if c.loose is not None and c.loose.form is not None else c.loose
    return replace(own, variants=variants, loose=loose)


def _count(n: int, what: str, plural: str) -> str:
    return f"{n} {what}{plural if n != 1 else ''}"


def origins_of(graph: Graph) -> dict[str, str]:
    """The operators of the model's nodes by their names; of names that several nodes have, none."""
    counts = Counter(n.name for n in graph.nodes)
    return {n.name: n.op.name for n in graph.nodes if n.name and counts[n.name] == 1}


def constant_bytes(graph: Graph) -> int:
    """Bytes of the constants that a graph's nodes read."""
    read = {v: v.const for n in graph.nodes for v in n.operands}
    return sum(array.nbytes for array in read.values() if array is not None)


def kernel_headers(compilation: Compilation) -> dict[str, str]:
    """What the kernels include, by file name: the target's, and those of C when some of it runs on the processor."""
    texts = compilation.target.header_texts()
    if any(unit.device != compilation.target.device for unit in compilation.units):
        texts |= compilation.target.on_processor().header_texts()
    return texts


def commented_sources(compilation: Compilation) -> dict[str, str]:
    """Kernel sources as people read them: each opens with what it computes; the cache key leaves that comment out.

    No name of a model may reach a source: sizes have the names that the host program has for them (s0). A kernel that
    is launched with several sizes in one place has the names of its first launch; the comment lists the others'.
    """
    host = compilation.program.size_names
    notes: dict[str, dict[tuple[str, str], list[str]]] = {}
    names: dict[str, list[str]] = {}
    for unit in compilation.units:
        for kernel, symbol, sizes in zip(unit.kernels, unit.symbols, unit.sizes, strict=True):
            here = [host[str(e.data) if e.op in SYMBOLS else e] for e in sizes]
            differ = [f"{a} is {b}" for a, b in zip(names.setdefault(symbol, here), here, strict=True) if a != b]
            what, cost = _what_it_computes(unit, kernel, host)
            cost += f" Here {', '.join(differ)}." if differ else ""
            notes.setdefault(symbol, {}).setdefault((what, cost), []).append(_runs(unit.group.numbers))
    written = {
        file: text if file in compilation.pinned else with_names(compilation.texts[file], names[file.partition(".")[0]])
        for file, text in compilation.sources.items()
    }
    heads = {symbol: "\n".join(itertools.starmap(_note, note.items())) for symbol, note in notes.items()}
    return {file: f"/*\n{heads[file.partition('.')[0]]}\n */\n{text.lstrip()}" for file, text in written.items()}


def _note(what_and_cost: tuple[str, str], nodes: Sequence[str]) -> str:
    """The lines of a comment on launches that compute the same of other tensors; of many, it names the first nodes."""
    what, cost = what_and_cost
    first, *others = nodes
    listed = "; ".join(others[:3]) + (f"; and {len(others) - 3} times more" if len(others) > 3 else "")
    again = f" Again for nodes {listed}." if others else ""
    line = textwrap.wrap(f"{what}, nodes {first}: {cost}{again}", 116, break_long_words=False)
    return " * " + "\n *   ".join(line)


def _runs(numbers: Sequence[int]) -> str:
    """Numbers in order, three neighbours and more as ``4 to 7``.

    >>> _runs([4, 5, 6, 7, 9, 10])
    '4 to 7, 9, 10'
    """
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][-1] + 1:
            found[-1].append(n)
        else:
            found.append([n])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(map(str, r)) for r in found)


def _what_it_computes(unit: Unit, kernel: Kernel, names: Mapping[Any, str]) -> tuple[str, str]:
    """``Conv+Relu -> f32[s0,4,4,32]`` and ``296448*s0 flops, ...``; of several kernels of a group, which it is."""
    group = unit.group
    of_several = f"{kernel.kind} of " if len(unit.kernels) > 1 else ""
    results = " and ".join(
        f"{v.dtype.name}[{','.join(to_text(d, 16, names) for d in v.shape)}]" for v in group.outputs[:4]
    )
    more = f" and {len(group.outputs) - 4} more" if len(group.outputs) > 4 else ""
    flops, nbytes = (to_text(e, 64, names) for e in (kernel.flops, kernel.nbytes))
    return f"{of_several}{group.operators} -> {results}{more}", f"{flops} flops, {nbytes} bytes."


def with_edited(sources: Mapping[str, str], file: str, text: str) -> dict[str, str]:
    """Sources with an edited text of a kernel, which is for all devices, in place of all its forms."""
    symbol = file.partition(".")[0]
    return {name: old for name, old in sources.items() if name.partition(".")[0] != symbol} | {file: text}


def _size(e: Expr) -> int | str:
    known = as_int(e)
    return to_text(e) if known is None else known


def _condition(c: Condition) -> ConditionSpec:
    """A condition in words; its right side is empty where it is no equation."""
    names = tuple(dims_of(c.left, c.right))
    if c.stated is not None:
        return ConditionSpec(to_text(c.stated), "", names)
    return ConditionSpec(to_text(c.left), to_text(c.right), names)


def _use(use: Use) -> UseSpec:
    return UseSpec(use.input, use.kind, use.least, None if use.most is None else _size(use.most))


def _tensor(name: str, v: Value) -> TensorSpec:
    return TensorSpec(name, v.dtype.name, tuple(_size(d) for d in v.shape), _inner(v.type.inner))


def _inner(p: Partial | None) -> TensorSpec | None:
    """What a sequence or an optional holds; "?" for a dimension that differs from element to element."""
    if p is None:
        return None
    dims = ("...",) if p.dims is None else tuple("?" if d is None else _size(d) for d in p.dims)
    return TensorSpec("", p.dtype.name, dims, _inner(p.inner))


def _kernels_of(c: Compilation) -> tuple[tuple[KernelInfo, ...], tuple[StepInfo, ...]]:
    """The distinct kernels, and the steps that launch them."""
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
                file in c.pinned,
                unit.tuned,
            )
            steps.append(StepInfo(kernels[symbol].id, names, unit.device))
    return tuple(kernels.values()), tuple(steps)


def _version(c: Compilation) -> VersionInfo:
    loose = _form(c.loose.form) if c.loose is not None else None
    return VersionInfo(_isa(c), *_kernels_of(c), _size(c.arena_bytes), loose, _variants(c))


def _isa(c: Compilation) -> IsaInfo:
    return IsaInfo(c.isa.arch, c.isa.processor, c.isa.extras, c.isa.lanes)


def _loose(c: Compilation) -> LooseInfo | None:
    return None if c.loose is None else LooseInfo(c.loose.sizes, c.loose.why, _form(c.loose.form))


def _variants(c: Compilation) -> tuple[VariantInfo, ...]:
    there = c.target.device != CPU and not c.unseen
    return tuple(
        VariantInfo(v.sizes, v.seen, v.why, _form(v.form), v.guards, v.padded, there and bool(v.guards and v.form))
        for v in c.variants
    )


def _form(c: Compilation | None) -> FormInfo | None:
    if c is None:
        return None
    return FormInfo(tuple(map(_condition, c.program.conditions)), *_kernels_of(c), _size(c.arena_bytes))


def manifest_of(c: Compilation, *others: Compilation) -> Manifest:
    """The manifest, without what is known only once the library is built: its hash, weights and tools.

    Args:
        others: of the same model for lesser processors.
    """
    kernels, steps = _kernels_of(c)
    p = c.program
    symbols = tuple(
        SymbolSpec(n, s.input, s.dim, s.min, s.max, s.kind) for n, s in zip(p.names, p.symbols, strict=False)
    )
    return Manifest(
        torshc=__version__,
        model=c.name,
        prefix=c.options.prefix,
        inputs=tuple(_tensor(v.name, v) for v in c.interface.given),
        outputs=tuple(_tensor(n, v) for n, v in zip(c.interface.output_names, c.interface.returned, strict=False)),
        symbols=symbols,
        conditions=tuple(map(_condition, p.conditions)),
        preferences=tuple(ConditionSpec(to_text(e), "", tuple(dims_of(e))) for e in c.needs.preferences),
        uses=tuple(map(_use, c.needs.uses)),
        target=c.options.target,
        device=c.target.device,
        isa=_isa(c),
        opt_level=c.options.opt_level,
        profile=c.options.profile,
        threads=c.options.threads,
        passes=tuple(r.name for r in c.records),
        kernels=kernels,
        steps=steps,
        operators=tuple(
            OperatorInfo(script.first_node + n.id, n.op.name, n.name)
            for form in c.forms
            if (script := form.program.script) is not None
            for n in script.script.operators()
        ),
        fallbacks=c.fallbacks,
        approximations=c.approximations,
        tolerances=tuple(ToleranceSpec(t.relative, t.quantum, dict(t.roundings)) for t in c.tolerances),
        dynamic=c.script is not None,
        arena_bytes=_size(c.arena_bytes),
        weights=None,
        library_sha256="",
        tools=(),
        other_versions=tuple(_version(o) for o in others),
        loose=_loose(c),
        variants=_variants(c),
        custom=tuple(
            CustomInfo(o.name, o.domain, o.declared.form, Path(o.declared.file).name, o.declared.sha256)
            for o in c.custom
        ),
        training=_training(c),
        shared=tuple(
            SharedSpec(output, given)
            for output, given in enumerate(shared_by_all([f.program.shared for v in (c, *others) for f in v.forms]))
            if given >= 0
        ),
    )


def _training(c: Compilation) -> TrainingInfo | None:
    if c.trained is None:
        return None
    step, states = c.trained.training, c.program.states
    found = tuple(StateInfo(s.name, s.dtype, s.dims, s.trained) for s in states)
    return TrainingInfo(step.loss.kind, name_of(step.optimizer), c.trained.model, found)
