"""What ``--accuracy`` allows: how many roundings kernels may add for speed, and how large an error is expected.

A rounding to a type is off by up to u of a number (:data:`~torshc.pipeline.tolerance.UNIT`), evenly spread: of numbers
of all sizes by 0.42 u in the mean, the root of (1 - 1/4) / (6 ln 2). Of n behind each other it is 0.42 u sqrt(n), as in
:func:`~torshc.pipeline.tolerance.spread`, which counts them: K for a sum of K terms, though its first partial sums are
smaller, so that 0.30 u sqrt(K) is measured. The largest of many errors stands to their mean as the largest element
does to the mean one, so this is the error as part of the largest element. A path through a model adds up its
roundings; the path that has the most counts. What a model amplifies is left out, as it is there; what it dampens too.

Roundings that the model itself asks for, as those of its quantised integers and halves, are no choice and not counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..base.errors import ConfigError
from ..base.features import Features
from ..base.options import ACCURACIES, USUAL_ACCURACY, CompileOptions
from ..expr import BF16, F32
from ..graph import Graph, Node
from ..kernels.base import Kernel
from ..passes.half_products import rounded_factors
from ..plan.group import Group
from .tolerance import UNIT, Paths, Tolerance, relative_tolerance, spread

MEAN = 0.42
PLAIN = ("exact", "rounding")
_SHOWN = 3  # kernels that a message names


@dataclass(frozen=True)
class Error:
    """The expected error of the kernels of a group.

    Attributes:
        method: "exact": the products and sums that the model has, in their type; "rounding": others, whose expected
            error is no larger; else what has a larger one.
        expected: how far a result is off by its own roundings, as part of its largest element.
    """

    method: str
    expected: float


@dataclass(frozen=True)
class Accuracy:
    """The expected errors of a model.

    Attributes:
        level: what bounds the choice of kernels, see :class:`torshc.base.options.CompileOptions`.
        expected: how far the output that is off most is expected to be off, as part of its largest element.
        groups: the same for each group of the plan, in order.
    """

    level: str = "exact"
    expected: float = 0.0
    groups: tuple[Error, ...] = ()


def level_of(options: CompileOptions) -> str:
    """The level that holds: the one that is given, else that of the optimisation level."""
    return options.accuracy or (USUAL_ACCURACY if options.opt_level == 3 else "exact")


def slack_of(
    graphs: Sequence[Graph], options: CompileOptions, features: Features, on_device: bool = False
) -> int | None:
    """The roundings that the form of a kernel may have, as :attr:`torshc.kernels.machine.Machine.slack`.

    What the level leaves beside the model's own roundings is shared alike by the 3x3 convolutions. Where the host runs
    loops between segments, nothing is known of how often a kernel runs, so none may have more than a plain sum. Weights
    that a library takes by name (``named_weights``) are not transformed.

    Kernels of devices have few roundings more than short sums. There a model without 3x3 convolutions leaves them all;
    where its own are more than the level allows, as of gradients of weights that sum all pixels of a batch, they share
    a sixteenth of these, which makes the error 3 % larger.

    Args:
        graphs: the optimised segments of a model.
        features: what the target has kernels for.
        on_device: whether its kernels run on a device.
    """
    level = level_of(options)
    if level == "exact" or options.opt_level < 3 or options.named_weights:
        return None
    if level == "rounding" or len(graphs) != 1:
        return 0
    (graph,) = graphs
    paths = Paths(options, features)
    paths.walk(graph)
    own = max((paths.roundings(v).get(F32.name, 0) for v in graph.results), default=0)
    left, sharing = _roundings(float(level)) - own, sum(map(_is_3x3, graph.nodes))
    if on_device:
        return (left if left >= 0 else own // 16) // max(sharing, 1)
    return max(left // sharing, 0) if sharing else 0


def _roundings(error: float) -> int:
    return int((error / (MEAN * UNIT[F32.name])) ** 2)


def _is_3x3(node: Node) -> bool:
    if node.op.family != "conv" or node.operands[0].dtype not in (F32, BF16):
        return False
    return node.operands[1].type.static_shape[2:] == (3, 3) if node.operands[1].type.static_shape else False


def account_for(
    graph: Graph,
    groups: Sequence[tuple[Group, Sequence[Kernel]]],
    imported: Sequence[Tolerance],
    options: CompileOptions,
    features: Features,
    on_device: bool = False,
) -> tuple[Accuracy, tuple[Tolerance, ...]]:
    """The expected errors of a model, and its outputs' tolerances with the roundings of the forms that kernels have.

    Args:
        graph: the optimised graph.
        groups: its groups, with their kernels.
        imported: tolerances of the model as it was imported.
        features: what the target has kernels for.
        on_device: whether kernels run on a device; what their forms add is then counted beside the model as it was
            imported, as the sums that composites are made of, over all pixels in a training step, are many more.

    Raises:
        ConfigError: the accuracy that is asked for cannot be kept.
    """
    forms = {
        group.anchor: int(count)
        for group, kernels in groups
        if group.anchor is not None and (count := max((getattr(k, "roundings", 0) for k in kernels), default=0))
    }
    paths = Paths(options, features, forms)
    paths.walk(graph)
    plain = Paths(options, features)
    if on_device and forms:
        plain.walk(graph)
    tolerances = []
    for v, known in zip(graph.results, imported, strict=False):
        own, most = known.roundings.get(F32.name, 0), paths.roundings(v).get(F32.name, 0)
        most = max(own, own + most - plain.roundings(v).get(F32.name, 0) if on_device else most)
        roundings = {**known.roundings, F32.name: most} if forms and most else known.roundings
        tolerances.append(replace(known, relative=relative_tolerance(roundings, v.dtype.name), roundings=roundings))
    expected = max((error_of(t.roundings, options) for t in tolerances), default=0.0)
    errors = tuple(_error(group, kernels, paths, options) for group, kernels in groups)
    found = Accuracy(level_of(options), expected, errors)
    if options.accuracy:
        _require(found, [group for group, _ in groups], options)
    return found, (*tolerances, *imported[len(tolerances) :])


def error_of(roundings: Mapping[str, int], options: CompileOptions) -> float:
    """The error to expect of roundings behind each other, of those that are not the model's own."""
    counted = {F32.name, "f64", options.precision, options.weights_dtype}
    return MEAN * math.sqrt(sum(n * UNIT[t] ** 2 for t, n in roundings.items() if t in counted))


def _error(group: Group, kernels: Sequence[Kernel], paths: Paths, options: CompileOptions) -> Error:
    total: Counter[str] = Counter()
    methods = dict.fromkeys(text for k in kernels if (text := getattr(k, "approximation", "")))
    for node in group.nodes:
        owns = [paths.own(node, v) for v in node.outputs]
        total.update(max(owns, key=spread, default={}))
    if options.precision != F32.name and total[options.precision]:
        both = rounded_factors("gemm", False, options.precision, paths.features)  # also what no weight is
        methods[f"{options.precision} {'factors' if both else 'weights'}"] = None
    usual = "rounding" if any(getattr(k, "roundings", 0) for k in kernels) else "exact"
    return Error(", ".join(methods) or usual, error_of(total, options))


def _require(found: Accuracy, groups: Sequence[Group], options: CompileOptions) -> None:
    """Raises ConfigError where a model is expected to err by more than it may."""
    level = found.level
    kept = (
        found.expected <= float(level)
        if level not in PLAIN
        else not (_suggest_options(options) or _methods(found, level))
    )
    if kept:
        return
    known = sorted(zip(found.groups, groups, strict=True), key=lambda pair: -pair[0].expected)
    worst = [(e, g) for e, g in known if e.expected]
    if level in PLAIN:
        worst = [(e, g) for e, g in worst if e.method not in PLAIN] or worst
    shown = [f"{(g.anchor or g.nodes[-1]).describe()} ({e.method}, {e.expected:.1e})" for e, g in worst[:_SHOWN]]
    more = [f"{len(worst) - _SHOWN} others"] if len(worst) > _SHOWN else []
    needed = next((a for a in ACCURACIES if a not in PLAIN and found.expected <= float(a)), "")
    remedies = [f"give --accuracy {needed}" if needed else "leave out --accuracy", *_suggest_options(options)]
    raise ConfigError(
        f"--accuracy {level} cannot be kept: outputs are expected to be off by {found.expected:.1e} of their largest "
        f"element, most of it by {', '.join([*shown, *more])}",
        " or ".join(remedies),
    )


def _methods(found: Accuracy, level: str) -> list[Error]:
    """The kernels of a method that a level without a number does not have."""
    allowed = PLAIN[: PLAIN.index(level) + 1]
    return [e for e in found.groups if e.method not in allowed]


def _suggest_options(options: CompileOptions) -> list[str]:
    """The options that a remedy may ask to leave out."""
    names = {"precision": options.precision, "weights-dtype": options.weights_dtype}
    return [f"leave out --{name} {value}" for name, value in names.items() if value != F32.name]
