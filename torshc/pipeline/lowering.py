"""From fusion groups to kernels of a target, with tuned choices, and to their sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from dataclasses import dataclass

from ..base.budget import afford
from ..base.errors import UnsupportedError
from ..base.options import CompileOptions
from ..bundle.host import CPU
from ..bundle.program import Placed
from ..graph import Graph, Value
from ..kernels.base import Kernel
from ..plan.group import Group
from ..plan.place import Plan
from ..targets import NoKernel, Rendered, Target
from .compilation import Unit
from .records import Choices, Tuning, choices_text, name_of, tunable


@dataclass(frozen=True)
class Lowered:
    """A group with its kernels, the target that they are for, why that is not the one asked for, and tuned choices."""

    group: Group
    kernels: list[Kernel]
    target: Target
    refused: str = ""
    choices: Choices = ()


def lower_groups(graph: Graph, plan: Plan, target: Target, options: CompileOptions, tuning: Tuning) -> list[Lowered]:
    """Each group with its kernels.

    Raises:
        UnsupportedError: naming every group that the target cannot compute, when there is no falling back.
    """
    lowered: list[Lowered] = []
    problems = []
    last = {v: group for group in plan.groups for v in group.reads}
    for group in plan.groups:
        try:
            lowered.append(
                _apply_record(graph, plan, Lowered(group, target.lower(graph, group, plan.storage), target), tuning)
            )
        except NoKernel as reason:
            if not options.fallback or options.emit == "page":
                problems.append(f"{', '.join(n.describe() for n in group.nodes)}: {reason}")
                continue
            processor = target.on_processor()
            kernels = processor.lower(graph, group, plan.storage)
            lowered.append(Lowered(group, kernels, processor, str(reason)))
        ended = {v for v in group.reads if last[v] is group}
        lowered[-1] = dataclasses.replace(lowered[-1], kernels=[_end(k, ended) for k in lowered[-1].kernels])
        for kernel in lowered[-1].kernels:
            named = ", ".join(n.describe() for n in group.nodes[:4])
            afford("steps", kernel.trips, f"{named}: loops of {kernel.trips} steps")
    if problems:
        remedy = (
            "a page has no other place to run them: compile a library"
            if options.emit == "page"
            else "leave out --no-fallback to run them on the processor"
        )
        raise UnsupportedError(problems, remedy)
    return lowered


def _end(kernel: Kernel, ended: set[Value]) -> Kernel:
    """The kernel with marks on the operands that nothing reads after it."""
    buffers = tuple(dataclasses.replace(b, last=not b.written and b.operand in ended) for b in kernel.buffers)
    return kernel if buffers == kernel.buffers else dataclasses.replace(kernel, buffers=buffers)


def _apply_record(graph: Graph, plan: Plan, usual: Lowered, tuning: Tuning) -> Lowered:
    """A group with the kernels of its record, if it has one."""
    named = tunable(usual.target, usual.kernels) if tuning.choices else None
    choices = tuning.choices.get(name_of(usual.target, named)) if named is not None else None
    if choices is None:
        return usual
    kernels = usual.target.with_choices(choices).lower(graph, usual.group, plan.storage)
    return dataclasses.replace(usual, kernels=kernels, choices=choices)


def render_groups(lowered: list[Lowered], wanted: Target) -> tuple[list[Unit], list[Placed], dict[str, str]]:
    units, placed = [], []
    texts: dict[str, str] = {}
    known: dict[Hashable, Rendered] = {}
    for made_of in lowered:
        group, target, refused = made_of.group, made_of.target, made_of.refused
        symbols, sizes = [], []
        away = bool(refused) and wanted.device != CPU  # operands of a fallback are copied from a device only
        for kernel in made_of.kernels:
            key = target.text_key(kernel)
            made = known.get((target.name, key)) if key is not None else None
            if made is None:
                made = known[target.name, key] = target.render(kernel)
                texts |= made.files(target.suffix)
            symbols.append(made.symbol)
            sizes.append(made.dims)
            comment, threads = _comment(group, kernel), target.threads(kernel)
            faults, bound = "" if threads else kernel.faults, target.explicit_bindings
            placed.append(
                Placed(kernel, made.symbol, made.dims, comment, threads, away, bound, faults, kernel.collective)
            )
        tuned = choices_text(made_of.choices)
        found = group, tuple(made_of.kernels), tuple(symbols), tuple(sizes)
        units.append(Unit(*found, target.suffix, refused, target.device, tuned))
    return units, placed, texts


def _comment(group: Group, kernel: Kernel) -> str:
    numbers = group.numbers
    shown = " ".join(map(str, numbers[:12])) + (" ..." if len(numbers) > 12 else "")
    return f"{kernel.kind}: nodes {shown}"
