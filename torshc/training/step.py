"""The graph of a training step: its runs give the loss, and change the weights that they keep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from ..base.budget import budget
from ..base.errors import ConfigError, UnsupportedError, did_you_mean
from ..base.safetensors import OWN
from ..expr import F32, F64, I64, DType, as_int
from ..gradient import gradients
from ..graph import Builder, Graph, Node, Rewriter, Shape, State, TensorType, Value, ints_of
from ..ops.control.flow import Looping, bodies
from ..ops.core.bounds import LOSS, RATE, RATE_MOST
from ..ops.core.functions import abs, where
from ..ops.core.tensor import Tensor
from ..ops.tensor.random import salt
from ..passes.config import Problems
from .config import SEED, Choice, Training
from .losses import add_loss
from .maxima import find_maxima_early, mask_maxima
from .mode import Mode
from .optimizers import INPUT, At, clipped
from .order import bring_forward
from .replicas import Replicas
from .scaling import RESULTS, Scaling

STEP, PART, SEED_STATE, SUM = (f"{OWN}{name}" for name in ("step", "micro_step", "seed", "gradient"))
_STATISTICS = {"BatchNormalization": (3, 4), "BatchNormalizationTraining": (3, 4)}  # operands that no step trains
Held = tuple[Value, Value]  # what holds a state, and what takes its place
_LOSS = "loss"  # what a step calls its loss
_SHOWN = 12  # names in a message


def make_training_graph(graph: Graph, training: Training) -> None:
    """Make the graph of a model, which has its weights by name, that of a training step.

    Its inputs are the model's, what the loss compares with, and the learning rate and the seed if these are inputs; its
    outputs are the loss, and the model's outputs and the gradients that the step asks for. The weights that are trained
    become states, as do the statistics that batches move, the number of updates, the seed of what steps draw, and what
    the optimizer keeps of each weight. Of several ranks each has a part of the batch, and all take the means of
    gradients, losses and statistics (`replicas.py`): states stay equal. Where the loss is scaled (`scaling.py`), the
    outputs also say by what, and whether the update was left out.

    Raises:
        ConfigError: a weight or an output is not there, or cannot be trained or made a loss of.
        UnsupportedError: operators between the weights and the loss have no gradient, or cannot be in training; all are
            named.
    """
    require_straight(graph)
    builder = Builder(graph)
    loss, target = add_loss(builder, training.loss)
    chosen = choose_weights(graph, training.weights, loss)
    asked = _choose_outputs(graph, training)
    mode = Mode(graph, training)
    held, (loss, *given) = _as_inputs(graph, chosen, [loss, *asked.values()], mode)
    replicas = Replicas(builder, training.rank, training.ranks, training.shard_states)
    rate = _add_number_input(graph, training, RATE, F32) if training.optimizer.learning_rate == INPUT else None
    seed = _add_number_input(graph, training, SEED, I64) if mode.draws and training.seed is None else None
    if rate is not None:
        given_rate = Tensor(builder, rate)
        graph.demand((~((given_rate >= 0.0) & (given_rate <= RATE_MOST))).value, RATE)
    if training.refuse_nan:
        graph.demand(_not_finite(Tensor(builder, loss)).value, LOSS)
    at, scaling = _count_steps(builder, training), Scaling(builder, training.loss_scale)
    seeds = dict[str, Held]()
    if mode.draws:
        by = seed or graph.new_value(TensorType(I64, ()), SEED_STATE)
        for number in (by, at.step, at.part, scaling.skipped):
            if number is not None:
                salt(graph.nodes, number)
        seeds |= {SEED_STATE: (by, by)} if seed is None else {}
        replicas.salt_draws()
    own = dict(zip(held, _gradients(builder, held, scaling.scaled(loss)), strict=True))
    behind = len(graph.nodes)
    totals = replicas.totals(own, {_LOSS: loss} | {name: new for name, (_, new) in mode.running.items()})
    if training.ranks > 1:  # updates stay behind all exchanges, which go on while gradients are computed
        bring_forward(graph, behind, held.values())
    found = scaling.unscaled([replicas.mean(totals[name]) for name in held])
    chosen_slopes = _choose_gradients(training, dict(zip(held, found, strict=True)))
    slopes = {f"gradient/{name}": replicas.whole(g, held[name]) for name, g in chosen_slopes.items()}
    weights, kept, parts = _updates(builder, training, held, found, rate, at, scaling, replicas)
    if training.ranks == 1:
        bring_forward(graph, behind, held.values())
    running = {name: (old, replicas.mean(totals[name])) for name, (old, _) in mode.running.items()}
    loss = replicas.mean(totals[_LOSS])
    replicas.settle()
    pairs = at.pairs(scaling) | scaling.pairs | seeds | weights | running | kept
    first = {name: graph.weights[name] for name in pairs if name in graph.weights} | scaling.first
    if training.seed:
        first[SEED_STATE] = builder.constant(np.array(training.seed))
    graph.declare_inputs([*graph.inputs, *filter(None, (target, rate, seed)), *(old for old, _ in pairs.values())])
    results = {_LOSS: loss} | scaling.results | dict(zip(asked, given, strict=True)) | slopes
    graph.declare_outputs([*results.values(), *(new for _, new in pairs.values())], [*results, *pairs])
    mask_maxima(graph)
    find_maxima_early(graph)
    graph.recomputes = training.recompute
    graph.declare_states(State(name, first.get(name), name in weights, parts.get(name)) for name in pairs)


def require_straight(graph: Graph, remedy: str = "") -> None:
    """Refuse branches and loops, which no step has.

    Args:
        remedy: what else may be done.

    Raises:
        UnsupportedError: naming all of them, each with the reason why it is not written out.
    """
    problems: dict[str, None] = {}
    for node in graph.nodes:
        if isinstance(node.op, Looping):
            problems[f"{_name_of(node)}: {_why_it_loops(node, node.op)}"] = None
        elif [*bodies(node)]:
            problems[f"{_name_of(node)}: a branch by a condition that is known only in a run"] = None
    if problems:
        usual = "pin the inputs' shapes with --shapes, or raise the budget with --budget unrolled=NUMBER"
        raise UnsupportedError([*problems], usual + remedy)


def _name_of(node: Node) -> str:
    return repr(node.name) if node.name else node.describe()


def _why_it_loops(node: Node, op: Looping) -> str:
    limit = node.inputs[0]
    known = ints_of(limit.data) if limit is not None else None
    if known is None:
        return "a loop of as many turns as a run says, and a training step has no loops"
    most, turns = budget().unrolled, f"a loop of {'at most ' if op.uses_condition else ''}{known[0]} turns"
    run = " or its condition is known only in a run" if op.uses_condition else ""
    return f"{turns}, and a training step has no loops: it is more than the budget 'unrolled' of {most}{run}"


@dataclass(frozen=True)
class _Count:
    """Where training is.

    Attributes:
        step, part: the states that count updates and, where a batch is given in parts, the parts since the last one.
        update: the number of the update that this step makes, or makes a part of, from 1 on.
        last: whether this step has the last part; None where each has.
        parts: what `part` becomes.
    """

    step: Value
    update: Tensor
    part: Value | None = None
    last: Tensor | None = None
    parts: Tensor | None = None

    def pairs(self, scaling: Scaling) -> dict[str, Held]:
        """The states that count."""
        found = {STEP: (self.step, scaling.settle(self.last, self.update, self.step).value)}
        return found if self.part is None or self.parts is None else found | {PART: (self.part, self.parts.value)}


def _count_steps(builder: Builder, training: Training) -> _Count:
    step, part = (builder.graph.new_value(TensorType(I64, ()), name) for name in (STEP, PART))
    update = Tensor(builder, step) + 1
    if training.accumulate == 1:
        return _Count(step, update)
    parts = Tensor(builder, part) + 1
    last = parts >= training.accumulate
    return _Count(step, update, part, last, where(last, 0, parts))


def _not_finite(loss: Tensor) -> Tensor:
    return ~(abs(loss) < math.inf)


def choose_weights(graph: Graph, choices: Sequence[Choice], loss: Value) -> dict[str, Value]:
    """The weights that are trained, by name in the model's order.

    A pattern takes those that can be trained, no running statistics of batch normalisation, and no single numbers, as
    exporters write the scale of scores and the like.

    Raises:
        ConfigError: with all that cannot be trained, each with its line.
    """
    read = {v for n in graph.nodes for v in n.operands}
    statistics = {n.inputs[k] for n in graph.nodes for k in _STATISTICS.get(n.op.name, ()) if k < len(n.inputs)}
    reached, counted = _behind(loss), _behind(loss, floats=False)

    def why_not(name: str) -> str:
        v = graph.weights[name]
        if not v.dtype.is_float:
            return f"is {v.type!r}, and only floats have gradients"
        if v.dtype not in (F32, F64):
            return f"is {v.type!r}; training needs weights of f32 or f64, so convert the model first"
        if name.startswith(OWN):
            return f"begins with {OWN!r}, as only torshc's own entries of state files do; rename it"
        if v not in read:
            return "is read by no node: the import folded it into something else, or nothing uses it"
        if v in statistics:
            return "is a running statistic of batch normalisation, which stays as it is"
        if v not in reached and v in counted:
            return "influences the loss through integers or truth values alone, which have no gradient"
        return "" if v in reached else "does not influence the loss"

    def single(name: str) -> str:
        return "is a single number, which no pattern takes" if as_int(graph.weights[name].type.size) == 1 else ""

    problems, chosen = Problems(), set[str]()
    for choice in choices:
        exact = choice.text in graph.weights
        names = [n for n in graph.weights if n == choice.text or (not exact and fnmatchcase(n, choice.text))]
        faults = {n: why_not(n) or ("" if exact else single(n)) for n in names}
        with problems.gather():
            if not names:
                hint = did_you_mean(choice.text, [*graph.weights])
                shown = ", ".join([*graph.weights][:_SHOWN]) + (", ..." if len(graph.weights) > _SHOWN else "")
                message = f"{choice.where}: the model has no weight {choice.text!r}{hint}"
                raise ConfigError(message, f"its weights are {shown}" if shown else "it has none")
            if all(faults.values()):
                name, why = next(iter(faults.items()))
                raise ConfigError(f"{choice.where}: weight {name!r} cannot be trained: it {why}", "leave it out")
        chosen.update(n for n, why in faults.items() if not why)
    problems.settle()
    return {name: v for name, v in graph.weights.items() if name in chosen}


def _behind(loss: Value, floats: bool = True) -> set[Value]:
    """The values that a loss depends on; or only those of floats that it depends on through floats."""
    found, pending = set[Value](), [loss]
    while pending:
        v = pending.pop()
        if v not in found and (v.dtype.is_float or not floats):
            found.add(v)
            pending += v.producer.operands if v.producer is not None else ()
    return found


def _choose_outputs(graph: Graph, training: Training) -> dict[str, Value]:
    """The outputs of the model that a step gives too, by name.

    Raises:
        ConfigError: with all that the model does not have, each with its line.
    """
    known, problems = dict(zip(graph.output_names, graph.results, strict=False)), Problems()
    own = (_LOSS,) if training.loss_scale is None else (_LOSS, *RESULTS)
    for choice in training.outputs:
        with problems.gather():
            if choice.text not in known:
                hint, names = did_you_mean(choice.text, [*known]), ", ".join(map(repr, known))
                raise ConfigError(f"{choice.where}: the model has no output {choice.text!r}{hint}", f"it has {names}")
            if choice.text in own:
                raise ConfigError(f"{choice.where}: a step gives its own {choice.text!r}", "leave it out")
    problems.settle()
    return {choice.text: known[choice.text] for choice in training.outputs}


def _choose_gradients(training: Training, found: Mapping[str, Value]) -> dict[str, Value]:
    """The gradients that a step gives, by the names of the weights.

    Raises:
        ConfigError: with all names that are of no trained weight, each with its line.
    """
    chosen, problems = dict[str, Value](), Problems()
    for choice in training.gradients:
        names = [choice.text] if choice.text in found else [n for n in found if fnmatchcase(n, choice.text)]
        with problems.gather():
            if not names:
                hint = did_you_mean(choice.text, [*found])
                raise ConfigError(f"{choice.where}: no weight {choice.text!r} is trained{hint}", "name one that is")
        chosen |= {name: found[name] for name in names}
    problems.settle()
    return chosen


def _as_inputs(
    graph: Graph, chosen: Mapping[str, Value], roots: Sequence[Value], mode: Mode
) -> tuple[dict[str, Value], list[Value]]:
    """New values without contents in place of weights, by name, and what `roots` are in training then."""
    reached = {v.producer for root in roots for v in _behind(root, floats=False)}
    rewriter = Rewriter(graph, "training")
    held = {name: graph.new_value(v.type, name) for name, v in chosen.items()}
    for name, v in chosen.items():
        rewriter.replace(v, held[name])
    for node in rewriter:
        found = mode.replaced(rewriter.builder(node.name), node) if node in reached else None
        if found is None:
            rewriter.keep(node)
            continue
        for old, new in zip(node.outputs, found, strict=False):
            rewriter.replace(old, new)
    mode.settle()
    rewriter.finish()
    return held, [rewriter.newest.get(v, v) for v in roots]


def _add_number_input(graph: Graph, training: Training, name: str, dtype: DType) -> Value:
    """An input of a step that is one number."""
    if name in {v.name for v in graph.inputs} or training.loss.target == name:
        what = "rate" if name == RATE else name
        raise ConfigError(f"{training.file}: the model has an input {name!r} already", f"state the {what} as a number")
    return graph.new_value(TensorType(dtype, ()), name)


def _gradients(builder: Builder, held: Mapping[str, Value], loss: Value) -> list[Value]:
    """The gradient of each weight."""
    try:
        return gradients(builder, loss, [*held.values()])
    except UnsupportedError as e:
        raise UnsupportedError(
            e.problems, "train only weights behind them, or compute the loss from a value before"
        ) from e


def _updates(
    builder: Builder,
    training: Training,
    held: Mapping[str, Value],
    slopes: Sequence[Value],
    rate: Value | None,
    count: _Count,
    scaling: Scaling,
    replicas: Replicas,
) -> tuple[dict[str, Held], dict[str, Held], dict[str, Shape]]:
    """The weights, and what is kept of them: by the optimizer, and the sums of gradients between two updates.

    Args:
        slopes: the gradients, or this rank's parts of them.
        scaling: learns here whether they are finite.

    Returns:
        The last is of what each rank keeps a part of the dimensions of the whole.
    """
    optimizer, graph = training.optimizer, builder.graph
    found = [Tensor(builder, g) for g in slopes]
    weights, kept, sums = dict[str, Held](), dict[str, Held](), dict[str, Held]()
    if count.last is not None:
        before = [graph.new_value(g.type, f"{SUM}/{name}") for name, g in zip(held, found, strict=True)]
        found = [Tensor(builder, s) + g * (1 / training.accumulate) for s, g in zip(before, found, strict=True)]
        sums = {s.name: (s, where(count.last, 0.0, g).value) for s, g in zip(before, found, strict=True)}
    scaling.judge(found, count.last, replicas.sum)
    if training.clip_norm is None:
        found = scaling.gated(found)
    else:
        squares = [replicas.squares(g, v) for g, v in zip(found, held.values(), strict=True)]
        found = clipped(found, training.clip_norm, squares, replicas.sum)
    parts = {f"{SUM}/{name}": v.shape for name, v in held.items() if sums and replicas.shares(v)}
    for (name, v), gradient in zip(held.items(), found, strict=True):
        old = replicas.part(v)
        weight = Tensor(builder, old)
        given = weight.constant(float(optimizer.learning_rate)) if rate is None else Tensor(builder, rate).cast(v.dtype)
        names = [f"{OWN}{state}/{name}" for state in optimizer.states]
        kept_now = [graph.new_value(old.type, n) for n in names]
        parts |= {n: v.shape for n in names if replicas.shares(v)}
        at = At(given, count.update.cast(v.dtype), training.weight_decay)
        new, *renewed = optimizer.update(at, weight, gradient, *(Tensor(builder, s) for s in kept_now))
        weights[name] = v, replicas.whole(scaling.settle(count.last, new, old).value, v)
        kept |= {
            n: (s, scaling.settle(count.last, t, s).value) for n, s, t in zip(names, kept_now, renewed, strict=True)
        }
    return weights, kept | sums, parts
