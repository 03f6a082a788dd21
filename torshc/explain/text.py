"""The explanation as text that reads well in 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ..base.columns import WIDTH, Column, broken, paragraph, table
from ..base.escaping import printable, shortened, sizes_text
from ..base.quantities import bytes_text, flops_text, short
from .data import Explanation, GroupInfo, LooseInfo, PassInfo, Stop, VariantInfo
from .rules import RuleInfo
from .training import TrainingInfo

_GROUPS = (
    Column("id", 3, right=True),
    Column("kind/template", 14),
    Column("operators", 22),
    Column("result", 16),
    Column("MFLOP", 7, right=True),
    Column("kB", 7, right=True),
    Column("F/B", 5, right=True),
)
_PASSES = (
    Column("  pass", 28),
    Column("changed in runs", 16),
    Column("nodes", 6, right=True),
    Column("ms", 9, right=True),
)
_RULES = (Column("  rule", 38), Column("effect", 41))
_METHODS = (Column("  computed", 24), Column("expected error", 16), Column("groups", 38))
_SHOWN = 3  # places shown for each reason
_SYMBOLS = 4  # symbols up to which the value of each is shown
_OPERATORS = 66  # characters of a group's operators in the table: three lines


def to_text(explanation: Explanation, everything: bool = False) -> str:
    """The whole explanation.

    Args:
        everything: list every place where fusion stopped, not only the first few for each reason.
    """
    e = explanation
    parts = [
        _header(e),
        _passes(e.passes),
        _groups(e),
        _course(e),
        _stops(e, everything),
        _rules(e),
        _accuracy(e),
        _totals(e),
    ]
    return "\n".join("\n".join(line.rstrip() for line in part) + "\n" for part in map(list, parts) if part)


def _header(e: Explanation) -> Iterator[str]:
    yield f"{shortened(e.model or 'model', 76)}"
    lanes = f", {e.lanes} f32 lanes" if e.lanes > 1 else ", no vectors" if e.lanes else ""
    machine = e.isa if e.lanes else f"host {e.isa}"
    yield from paragraph("target", f"{e.target}, {machine}{lanes}, -O{e.opt_level}, fusion {e.fusion}")
    for label, tensors in (("inputs", e.inputs), ("outputs", e.outputs)):
        for k, tensor in enumerate(tensors):
            yield from paragraph(label if k == 0 else "", f"{printable(tensor.name)} {printable(tensor.type)}")
    launches = f"{e.launches} launch{'es' if e.launches != 1 else ''}"
    kernels = f"{e.distinct_kernels} kernel{'s' if e.distinct_kernels != 1 else ''}"
    launches += f" of {kernels}" if e.distinct_kernels != e.launches else ""
    counts = f"{e.imported_nodes} imported, {e.optimised_nodes} after passes, {launches}"
    yield from paragraph("nodes", counts)
    if e.loose is not None:
        yield from paragraph("sizes of 1", _loose(e.loose))
    for variant in e.variants:
        yield from paragraph("variant", _variant(variant))
        yield from _guards(variant)
        for text in variant.padding:
            yield from paragraph("padding", printable(text))
    if e.training is not None:
        yield from _training(e.training)


def _training(t: TrainingInfo) -> Iterator[str]:
    yield from paragraph("trains", f"{printable(', '.join(t.weights))}: {bytes_text(t.weights_bytes)}")
    yield from paragraph("step", f"{t.loss}, {t.optimizer}; states {bytes_text(t.state_bytes)}")
    if t.loss_scale:
        yield from paragraph("loss scale", t.loss_scale)
    if t.moving:
        yield from paragraph("statistics", f"{printable(', '.join(t.moving))}: moved by each batch")
    yield from paragraph("kept", f"{t.kept} values for the backward pass, {bytes_text(t.kept_bytes)}")
    if t.again:
        yield from paragraph("again", f"{printable(', '.join(t.again))}: {bytes_text(t.again_bytes)} not kept")


def _loose(loose: LooseInfo) -> str:
    names = printable(", ".join(loose.sizes))
    if loose.why:
        return f"runs in which {names} would broadcast are refused: {printable(loose.why)}"
    form = _launches(loose)
    return f"where {names} broadcast, runs take a second, loose form: {form} (--loose none leaves it out)"


def _launches(form: LooseInfo | VariantInfo) -> str:
    launches = f"{form.launches} launch{'es' if form.launches != 1 else ''}"
    return f"{launches}, {form.kernels} more kernel{'s' if form.kernels != 1 else ''}"


def _variant(variant: VariantInfo) -> str:
    seen = f" ({variant.seen})" if variant.seen else ""
    if variant.why:
        return f"none for {printable(variant.sizes)}{seen}: {printable(variant.why)}"
    copied = f", {bytes_text(variant.weights_bytes)} of weights in another order" if variant.weights_bytes else ""
    return f"for {printable(variant.sizes)}{seen}: {_launches(variant)}{copied}"


def _guards(variant: VariantInfo) -> Iterator[str]:
    if not variant.guards:
        return
    where = f"; {variant.on_device}" if variant.on_device else ""
    yield from paragraph("guard", f"{printable(', and '.join(variant.guards))}: compared before each run{where}")


def _passes(passes: tuple[PassInfo, ...]) -> Iterator[str]:
    yield "Passes"
    yield from table(_PASSES, (_pass(p) for p in passes if p.changes))
    if idle := [p.name for p in passes if not p.changes]:
        yield from paragraph("no change", ", ".join(idle))


def _pass(p: PassInfo) -> list[str]:
    return [f"  {p.name}", f"{p.changes} of {p.runs}", _nodes(p), f"{p.seconds * 1e3:.1f}"]


def _nodes(p: PassInfo) -> str:
    return f"{-p.removed:+}" if p.removed else "0"


def _groups(e: Explanation) -> Iterator[str]:
    yield from broken("Launch groups" + _at(e), WIDTH)
    yield from table(_GROUPS, map(_row, e.groups))


def _course(e: Explanation) -> Iterator[str]:
    if not e.course:
        return
    yield "Course (sizes or steps are known only at run time: the host works between the launches)"
    for line in e.course:
        yield shortened("  " + "  " * line.depth + printable(line.text), 80)


def _at(e: Explanation) -> str:
    """At which sizes the numbers hold."""
    if not e.dims:
        return ""
    ((usual, many),) = Counter(e.dims.values()).most_common(1)
    shown = [n for n, value in e.dims.items() if value != usual or len(e.dims) <= _SYMBOLS]
    texts = [sizes_text({n: e.dims[n] for n in shown})] if shown else []
    if len(shown) < len(e.dims):
        texts.append(f"{many} {'others' if shown else 'sizes'}={usual}")
    unfit = f"; {printable(e.unfit)}" if e.unfit else ""
    return f" (numbers at {', '.join(texts)}{unfit})"


def _row(g: GroupInfo) -> list[str]:
    template = "+".join(g.templates)
    result = g.writes[0].type.removeprefix("f32") if g.writes else ""
    more = f" +{len(g.writes) - 1} more" if len(g.writes) > 1 else ""
    return [
        str(g.id),
        g.kind if template == g.kind else f"{g.kind}/{template}",
        _cut(printable(g.operators)),
        _cut(printable(result)) + more,
        short(g.flops / 1e6),
        short(g.bytes / 1e3),
        intensity(g.flops, g.bytes),
    ]


def _cut(operators: str) -> str:
    """The first operators of a long group, and how many follow."""
    if len(operators) <= _OPERATORS:
        return operators
    names = operators.split("+")
    shown: list[str] = []
    while names and len("+".join([*shown, names[0]])) <= _OPERATORS - 10:
        shown.append(names.pop(0))
    return f"{'+'.join(shown)}+{len(names)} more" if shown else operators[: _OPERATORS - 3] + "..."


def intensity(flops: int, nbytes: int) -> str:
    """Operations for each byte moved."""
    return short(flops / nbytes) if nbytes else "-"


def _stops(e: Explanation, everything: bool) -> Iterator[str]:
    counts = Counter((s.reason, s.rule) for s in e.stops)
    if e.fusion == "none" and not counts:
        yield "Fusion is off: every node is a launch of its own."
        return
    if not counts:
        yield "Fusion stopped nowhere."
        return
    yield "Where fusion stopped"
    for (reason, rule), count in counts.most_common():
        found = [(g, s) for g in e.groups for s in g.stops if (s.reason, s.rule) == (reason, rule)]
        yield from paragraph(f"{count:4}  {reason}", printable(reason_text(found[0][1])), indent=0, hang=16)
        shown = found if everything else found[:_SHOWN]
        for group, stop in shown:
            yield "        " + stop_text(stop, group.id, 72)
        if len(shown) < len(found):
            yield f"        and {len(found) - len(shown)} more"


def _rules(e: Explanation) -> Iterator[str]:
    if not e.rules:
        return
    yield "Fusion rules"
    yield from table(_RULES, ([f"  {_rule_name(r)}", _effect(r)] for r in e.rules))


def _rule_name(r: RuleInfo) -> str:
    return printable(f"{r.name} ({r.where})" if r.where else r.name)


def _effect(r: RuleInfo) -> str:
    if r.where and not (r.places or r.stops or r.unmet):
        return f"{r.action}: matches nothing in this model"
    parts = [f"group{'s' if len(r.groups) > 1 else ''} {', '.join(map(str, r.groups))}"] if r.groups else []
    if r.stops:
        parts.append(f"stops at {r.stops} place{'s' if r.stops > 1 else ''}")
    parts += [f"cannot be had: {printable(line)}" for line in r.unmet]
    return f"{r.action}: {'; '.join(parts) or f'{r.places} places, no effect'}"


def reason_text(stop: Stop) -> str:
    """Why fusion stopped, in words, with the rule that says so."""
    return f"{stop.meaning}: {stop.rule}" if stop.rule else stop.meaning


def stop_text(stop: Stop, group: int, width: int) -> str:
    """One boundary on one line: which node of which group could not join which."""
    maker = f"{stop.producer.op} ({_group(stop.source)})" if stop.producer else "an input"
    line = f"{maker} -> {stop.consumer.op} (group {group})"
    name = stop.consumer.name
    return f"{line}  {shortened(name, width - len(line) - 2)}" if name and width - len(line) > 12 else line


def _group(source: int | None) -> str:
    return f"group {source}" if source is not None else "in its readers"


def _accuracy(e: Explanation) -> Iterator[str]:
    """Groups by how they compute, with the largest error of one; what all come to, and the level that bounds it."""
    yield "Accuracy (errors relative to a result's largest element; exact: plain sums)"
    rows = []
    for method in dict.fromkeys(g.method for g in e.groups):
        found = [g for g in e.groups if g.method == method]
        rows.append([f"  {method}", f"{max(g.error for g in found):.1e}", _ranges([g.id for g in found])])
    yield from table(_METHODS, rows)
    yield from paragraph("outputs", f"{e.error:.1e}, with --accuracy {e.accuracy}")


def _ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as text.

    >>> _ranges([0, 1, 2, 5, 7, 8])
    '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] == n - 1:
            runs[-1][1:] = [n]
        else:
            runs.append([n])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _totals(e: Explanation) -> Iterator[str]:
    yield from broken("Totals" + _at(e), WIDTH)
    yield from paragraph("work", f"{flops_text(e.flops)}, {bytes_text(e.bytes)} moved, {_ratio(e)} flop/byte")
    arena = bytes_text(e.arena_bytes)
    copied = f", {bytes_text(e.copied_bytes)} of them in a second layout" if e.copied_bytes else ""
    states = (
        f", states {bytes_text(e.training.state_bytes)}; in all {bytes_text(e.training.peak_bytes)}"
        if e.training
        else ""
    )
    yield from paragraph("memory", f"arena {arena}, weights {bytes_text(e.weights_bytes)}{copied}{states}")
    if e.approximations:
        yield from paragraph("inexact", "; ".join(map(printable, e.approximations)))
    for k, c in enumerate(e.custom):
        what = f"{c.op}{f' of {c.domain}' if c.domain else ''}: {c.form}, {c.place}"
        yield from paragraph("custom" if k == 0 else "", printable(what))
    for line in e.thresholds:
        yield from paragraph("rows", f"{line}, unless --exact-batches is given")
    pinned = dict.fromkeys(f"group {g.id}: {k.pinned}" for g in e.groups for k in g.kernels if k.pinned)
    for k, line in enumerate(pinned):
        yield from paragraph("pinned" if k == 0 else "", printable(line))
    tuned = dict.fromkeys(f"group {g.id}: {k.tuned}" for g in e.groups for k in g.kernels if k.tuned)
    for k, line in enumerate(tuned):
        yield from paragraph("tuned" if k == 0 else "", line)
    yield from paragraph("fallbacks", "; ".join(map(printable, e.fallbacks)) or "none")


def _ratio(e: Explanation) -> str:
    return intensity(e.flops, e.bytes)
