"""The explanation of a compilation as plain data; every rendering is made from it and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..base.manifest import PaddedInput, sizes_text
from ..bundle.host import CPU
from ..bundle.shared_weights import bytes_beside
from ..expr import const, to_text
from ..graph import Node, Value
from ..pipeline.fitting import NoSizes
from ..plan.group import REASONS, Boundary, Group, operator_of
from ..plan.views import behind_views
from .host_steps import Course, course
from .memory import live_bytes
from .rules import RuleInfo, made_by, rule_infos, standing
from .sizes import Evaluator, bind, choose_sizes, plain, type_text
from .training import TrainingInfo, training_info

if TYPE_CHECKING:
    from ..kernels.base import Kernel
    from ..passes import PassRecord
    from ..pipeline.accuracy import Error
    from ..pipeline.compilation import Compilation, Unit, Variant


@dataclass(frozen=True)
class Tensor:
    """A value at the edge of a group or of the model.

    Attributes:
        name: the model's name, or ``%<id>`` where it has none.
        type: such as ``f32[batch,10]``.
        groups: the groups that write it; empty for inputs and weights.
        kind: "input", "weight", "value".
    """

    name: str
    type: str
    kind: str
    groups: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeInfo:
    """A node.

    Attributes:
        id: its number.
        op: its operator; "copy" of one that only moves a value.
        name: the model's name of it.
        type: type of its first result.
        operands: numbers of the nodes that it reads.
        origin: the operator of the model's node of that name, where passes replaced it.
    """

    id: int
    op: str
    name: str
    type: str
    operands: tuple[int, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class CustomInfo:
    """An operator of the model that a user declares: its name, domain and form, and the file and line."""

    op: str
    domain: str
    form: str
    place: str


@dataclass(frozen=True)
class KernelInfo:
    """A kernel of a group.

    Attributes:
        symbol: its name in C.
        kind, template: what it is and the file that renders it.
        flops, bytes: at the given dimensions.
        flops_text, bytes_text: as written, numbers or text over the symbols.
        tasks, scratch: number of independent tasks and bytes of scratch a thread, likewise.
        pinned: the file that a person edited in place of the generated source, or empty.
        tuned: the choices of a tuning record that it was made with, or empty.
        when: the sizes for which it is launched, where others of its group serve the rest; empty for all.
    """

    symbol: str
    kind: str
    template: str
    flops: int
    bytes: int
    flops_text: int | str
    bytes_text: int | str
    tasks: int | str
    scratch: int | str
    pinned: str = ""
    tuned: str = ""
    when: str = ""


@dataclass(frozen=True)
class Stop:
    """A place where fusion stopped.

    Attributes:
        reason: a code of :data:`torshc.plan.group.REASONS`; ``meaning`` says it in words.
        rule: the fusion rule that says so, with file and line when it is the user's; empty where none does.
        value: the value that goes through memory.
        producer, consumer: the nodes that could have shared a kernel; the producer is None for an input.
        source: the group that makes the value, or None.
    """

    reason: str
    meaning: str
    value: str
    producer: NodeInfo | None
    consumer: NodeInfo
    source: int | None
    rule: str = ""


@dataclass(frozen=True)
class GroupInfo:
    """A group: what one launch (or a packing launch and one more) computes; ``rules`` brought its nodes together.

    ``method`` and ``error`` are how it computes and by how much its results are expected to be off, as in
    :class:`torshc.pipeline.accuracy.Error`.
    """

    id: int
    kind: str
    rules: tuple[str, ...]
    operators: str
    nodes: tuple[NodeInfo, ...]
    folded: tuple[NodeInfo, ...]
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    kernels: tuple[KernelInfo, ...]
    stops: tuple[Stop, ...]
    method: str
    error: float

    @property
    def templates(self) -> tuple[str, ...]:
        """Names of the templates, without their endings."""
        return tuple(dict.fromkeys(k.template.partition(".")[0] for k in self.kernels))

    @property
    def flops(self) -> int:
        return sum(k.flops for k in self.kernels)

    @property
    def bytes(self) -> int:
        return sum(k.bytes for k in self.kernels)


@dataclass(frozen=True)
class PassInfo:
    """A pass: how often it ran and changed the graph, nodes taken away (below 0: added), seconds."""

    name: str
    runs: int
    changes: int
    removed: int
    seconds: float


@dataclass(frozen=True)
class RunInfo:
    """A run of a pass that changed the graph: nodes before and after, and by how many of each operator."""

    name: str
    before: int
    after: int
    operators: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class LooseInfo:
    """What there is for runs in which one of ``sizes`` is 1 and broadcasts: a loose form, or ``why`` there is none.

    ``kernels`` counts those of its launches that the fast form lacks.
    """

    sizes: tuple[str, ...]
    why: str
    launches: int = 0
    kernels: int = 0


@dataclass(frozen=True)
class VariantInfo:
    """What there is for runs of some ``sizes`` ("batch=1 mask=1"): a form of the model, or ``why`` there is none.

    ``guards`` say what is looked at before a run takes it, ``on_device`` what becomes of such inputs in a device's
    memory, ``padding`` which rows it leaves out.
    ``seen`` says what profiles saw of these sizes, and is empty where a person named them.
    ``kernels`` counts those of its launches that the usual form lacks, ``weights_bytes`` what it alone reads of the
    weights, since its kernels want them in another order.
    """

    sizes: str
    seen: str
    why: str
    launches: int = 0
    kernels: int = 0
    weights_bytes: int = 0
    guards: tuple[str, ...] = ()
    padding: tuple[str, ...] = ()
    on_device: str = ""


@dataclass(frozen=True)
class Explanation:
    """All that :func:`explain` finds; ``dims`` are the values at which flops and bytes were evaluated.

    ``unfit`` says why the model cannot take these, where no others were found; it is empty where it can.
    ``course`` is what the host does between launches, empty where it does nothing; ``live`` the bytes of values that
    are in use while each group runs; ``custom`` operators that users declare; ``loose`` what there
    is for sizes of 1, None where none could broadcast; ``variants`` what there is for sizes that were asked for;
    ``training`` what a step trains, None where there is none;
    ``accuracy`` the level that bounds the choice of kernels, and ``error`` how far outputs are expected to be off, as
    part of their largest element.
    """

    model: str
    target: str
    isa: str
    lanes: int
    opt_level: int
    fusion: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    dims: Mapping[str, int]
    imported_nodes: int
    optimised_nodes: int
    launches: int
    distinct_kernels: int
    passes: tuple[PassInfo, ...]
    groups: tuple[GroupInfo, ...]
    arena_bytes: int
    arena_text: int | str
    weights_bytes: int
    copied_bytes: int
    fallbacks: tuple[str, ...]
    approximations: tuple[str, ...]
    accuracy: str
    error: float
    thresholds: tuple[str, ...]
    custom: tuple[CustomInfo, ...]
    seconds: Mapping[str, float]
    course: tuple[Course, ...] = ()
    rules: tuple[RuleInfo, ...] = ()
    runs: tuple[RunInfo, ...] = ()
    live: tuple[int, ...] = ()
    unfit: str = ""
    loose: LooseInfo | None = None
    variants: tuple[VariantInfo, ...] = ()
    training: TrainingInfo | None = None

    @property
    def flops(self) -> int:
        return sum(g.flops for g in self.groups)

    @property
    def bytes(self) -> int:
        return sum(g.bytes for g in self.groups)

    @property
    def stops(self) -> tuple[Stop, ...]:
        return tuple(s for g in self.groups for s in g.stops)


def explain(compilation: Compilation, dims: Mapping[str, int] | None = None) -> Explanation:
    """What was done to a model.

    Args:
        compilation: from :func:`torshc.pipeline.compiler.prepare`.
        dims: values of symbolic dimensions at which work and traffic are evaluated; those left out are 1, or what the
            model can take.

    Raises:
        ConfigError: when `dims` names a dimension that the model does not have.
    """
    graph = compilation.graph
    unfit = ""
    try:
        sizes = Evaluator(choose_sizes(compilation, dims or {}))
    except NoSizes as error:
        sizes, unfit = Evaluator(bind(compilation.program.sizes, dims or {})), error.message
    describe = _Describer(compilation, sizes)
    symbols = [s for u in compilation.units for s in u.symbols]
    return Explanation(
        model=compilation.name,
        target=compilation.options.target,
        isa=" ".join(filter(None, (compilation.isa.arch, compilation.isa.processor))),
        lanes=compilation.isa.lanes if compilation.target.device == 1 else 0,
        opt_level=compilation.options.opt_level,
        fusion=compilation.options.fusion,
        inputs=tuple(Tensor(v.name, type_text(v.type), "input") for v in compilation.interface.given),
        outputs=tuple(
            Tensor(name, type_text(shown.type), "value", describe.writers(v))
            for name, v, shown in zip(graph.output_names, graph.returned, compilation.interface.returned, strict=False)
        ),
        dims=sizes.values,
        imported_nodes=compilation.imported_nodes,
        optimised_nodes=len(graph.nodes),
        launches=count_launches(compilation, sizes),
        distinct_kernels=len(set(symbols)),
        passes=pass_infos(compilation.records),
        groups=tuple(map(describe.group, compilation.units, compilation.accuracy.groups)),
        arena_bytes=sizes.total([compilation.arena_bytes]),
        arena_text=plain(compilation.arena_bytes),
        weights_bytes=compilation.weights_bytes,
        copied_bytes=compilation.copied_bytes,
        fallbacks=compilation.fallbacks,
        approximations=compilation.approximations,
        accuracy=compilation.accuracy.level,
        error=compilation.accuracy.expected,
        thresholds=compilation.thresholds,
        custom=tuple(CustomInfo(o.name, o.domain, o.declared.form, o.declared.place) for o in compilation.custom),
        seconds=compilation.seconds,
        course=course(compilation.script, compilation.spans) if compilation.script is not None else (),
        rules=rule_infos(compilation.plan, {r.name for r in compilation.records}),
        runs=tuple(
            RunInfo(r.name, r.before, r.after, r.operators, r.seconds) for r in compilation.records if r.changed
        ),
        live=live_bytes(compilation, sizes),
        unfit=unfit,
        loose=_loose(compilation),
        variants=tuple(_variant(compilation, v) for v in compilation.variants),
        training=training_info(compilation, sizes),
    )


def _loose(compilation: Compilation) -> LooseInfo | None:
    loose = compilation.loose
    if loose is None or loose.form is None:
        return None if loose is None else LooseInfo(loose.sizes, loose.why)
    return LooseInfo(loose.sizes, "", *_launches_of(loose.form, compilation))


def count_launches(compilation: Compilation, sizes: Evaluator | None = None) -> int:
    """How many kernels a run launches: of those that are chosen by size, the one for `sizes`, or for those of
    :func:`explain` without dims."""
    if sizes is None:
        try:
            sizes = Evaluator(choose_sizes(compilation, {}))
        except NoSizes:
            sizes = Evaluator(bind(compilation.program.sizes, {}))
    return sizes.total(k.if_launched(const(1)) for u in compilation.units for k in u.kernels)


def _launches_of(form: Compilation, usual: Compilation) -> tuple[int, int]:
    """How many launches a form has, and how many kernels that the usual one lacks."""
    symbols = {s for u in form.units for s in u.symbols}
    return count_launches(form), len(symbols - {s for u in usual.units for s in u.symbols})


def _variant(compilation: Compilation, variant: Variant) -> VariantInfo:
    sizes, form = sizes_text(variant.case), variant.form
    if form is None:
        return VariantInfo(sizes, variant.seen, variant.why)
    copied = bytes_beside(form.program, compilation.program)
    bytes_of = {v.name: to_text(v.type.nbytes) for v in form.interface.given}
    padded = tuple(_leaves_out(p) for p in variant.padded)
    guards = tuple(f"all elements of {g.name} are {g.value} ({bytes_of[g.name]} bytes)" for g in variant.guards)
    there = _on_device(compilation) if guards else ""
    return VariantInfo(sizes, variant.seen, "", *_launches_of(form, compilation), copied, guards, padded, there)


def _on_device(compilation: Compilation) -> str:
    """What becomes of inputs in a device's memory that have to have values; empty on processors."""
    if compilation.target.device == CPU:
        return ""
    if compilation.unseen:
        return f"one in the card's memory is not looked at, and misses, as {compilation.unseen}"
    return (
        "one in the card's memory is compared by the card, which takes the form there, from the second run of the same "
        "tensors on; with a driver older than CUDA 12.4 it misses"
    )


def _leaves_out(padded: PaddedInput) -> str:
    """What a variant does with rows of padding, and why it may."""
    why = "they are 0 in outputs, as was asked for" if padded.stated else "no output depends on them"
    return f"rows where {padded.name} is 0 are left out: {why}"


def pass_infos(records: Iterable[PassRecord]) -> tuple[PassInfo, ...]:
    """The records of one pass made one, in the order of their first runs."""
    by_name: dict[str, list[PassRecord]] = {}
    for record in records:
        by_name.setdefault(record.name, []).append(record)
    return tuple(
        PassInfo(
            name,
            len(found),
            sum(r.changed for r in found),
            sum(r.before - r.after for r in found),
            sum(r.seconds for r in found),
        )
        for name, found in by_name.items()
    )


class _Describer:
    """Turns groups into data; knows who writes what."""

    def __init__(self, compilation: Compilation, sizes: Evaluator) -> None:
        self.sizes = sizes
        self.storage = compilation.plan.storage
        self.rules = compilation.plan.policy.rules
        self.pinned = compilation.pinned
        self.origins = compilation.origins
        self.inputs = set(compilation.graph.inputs)
        self.makers: dict[Value, list[int]] = {}
        self.home: dict[Node, int] = {}
        for unit in compilation.units:
            for v in unit.group.outputs:
                for place in dict.fromkeys((v, self._root(v))):
                    self.makers.setdefault(place, []).append(unit.group.id)
            self.home.update(dict.fromkeys(unit.group.nodes, unit.group.id))

    def _root(self, v: Value) -> Value:
        found = self.storage.get(v)
        return found.root if found is not None else v

    def writers(self, v: Value) -> tuple[int, ...]:
        """The groups that write a value: its own, or all that write the memory that it is a part of."""
        return tuple(self.makers.get(v) or self.makers.get(self._root(v)) or ())

    def tensor(self, v: Value) -> Tensor:
        kind = "input" if v in self.inputs else "weight" if v.const is not None else "value"
        return Tensor(v.name or f"%{v.id}", type_text(v.type), kind, self.writers(v) if kind == "value" else ())

    def node(self, node: Node) -> NodeInfo:
        operands = dict.fromkeys(v.producer.id for v in node.operands if v.producer is not None)
        was = self.origins.get(node.name, "")
        origin = was if was != node.op.name else ""
        return NodeInfo(node.id, operator_of(node), node.name, type_text(node.output.type), tuple(operands), origin)

    def group(self, unit: Unit, error: Error) -> GroupInfo:
        g = unit.group
        return GroupInfo(
            id=g.id,
            kind=g.kind,
            rules=tuple(map(str, dict.fromkeys((*g.rules, *made_by(g, self.rules))))),
            operators=g.operators,
            nodes=tuple(map(self.node, g.nodes)),
            folded=tuple(map(self.node, g.folded)),
            reads=tuple(map(self.tensor, g.reads)),
            writes=tuple(map(self.tensor, g.outputs)),
            kernels=tuple(
                self.kernel(*k, unit.tuned) for k in zip(unit.kernels, unit.symbols, unit.files, strict=True)
            ),
            stops=self.stops(g),
            method=error.method,
            error=error.expected,
        )

    def kernel(self, kernel: Kernel, symbol: str, file: str, tuned: str) -> KernelInfo:
        return KernelInfo(
            symbol,
            kernel.kind,
            kernel.template,
            self.sizes.total([kernel.if_launched(kernel.flops)]),
            self.sizes.total([kernel.if_launched(kernel.nbytes)]),
            plain(kernel.flops),
            plain(kernel.nbytes),
            plain(kernel.tasks),
            plain(kernel.scratch),
            self.pinned.get(file, ""),
            tuned,
            "" if kernel.when is const(True) else to_text(kernel.when),
        )

    def stops(self, group: Group) -> tuple[Stop, ...]:
        """Where the group ends, and why."""
        return tuple(map(self._stop, standing(group)))

    def _stop(self, b: Boundary) -> Stop:
        maker = behind_views(b.value)[0].producer
        return Stop(
            b.reason,
            REASONS[b.reason],
            b.value.name or f"%{b.value.id}",
            self.node(maker) if maker is not None else None,
            self.node(b.consumer),
            self.home.get(maker) if maker is not None else None,
            str(b.rule) if b.rule is not None else "",
        )
