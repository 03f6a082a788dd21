"""One group in full: its nodes by name, what it reads and writes, its kernels, and every boundary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..base.columns import Column, broken, paragraph, table
from ..base.errors import ConfigError
from ..base.escaping import printable, shortened
from ..base.quantities import bytes_text, flops_text
from .data import Explanation, GroupInfo, KernelInfo, NodeInfo, Tensor
from .text import intensity, reason_text, stop_text


def group_text(explanation: Explanation, number: int) -> str:
    """A group in full.

    Raises:
        ConfigError: there is no such group.
    """
    if not 0 <= number < len(explanation.groups):
        raise ConfigError(f"there is no group {number}", f"groups are 0 to {len(explanation.groups) - 1}")
    return "\n".join(_lines(explanation.groups[number])) + "\n"


def _lines(g: GroupInfo) -> Iterator[str]:
    yield f"Group {g.id}, {g.kind}"
    for k, rule in enumerate(g.rules):
        yield from paragraph("rules" if k == 0 else "", printable(rule))
    yield from paragraph("operators", printable(g.operators))
    yield from _nodes("Nodes", g.nodes)
    if g.folded:
        yield from _nodes("Read through, or computed again here", g.folded)
    for title, tensors in (("Reads", g.reads), ("Writes", g.writes)):
        yield title
        rows = (_tensor(tensor, title == "Reads") for tensor in tensors)
        yield from table([Column("", 32), Column("", 24), Column("", 20)], rows, indent=2)
    yield from paragraph("accuracy", f"{g.method}, expected error {g.error:.1e}")
    yield "Kernels"
    for kernel in g.kernels:
        yield from _kernel(kernel)
    yield "Where fusion stopped" if g.stops else "Fusion stopped nowhere here."
    for stop in g.stops:
        yield f"  {stop_text(stop, g.id, 78)}"
        yield from (f"    {line}" for line in broken(printable(f"{stop.reason}: {reason_text(stop)}"), 76))


def _nodes(title: str, nodes: Sequence[NodeInfo]) -> Iterator[str]:
    yield title
    rows = ([str(n.id), n.op, printable(n.type), shortened(n.name, 60)] for n in nodes)
    yield from table([Column("", 5, right=True), Column("", 20), Column("", 24), Column("", 26)], rows, indent=2)


def _tensor(tensor: Tensor, read: bool) -> list[str]:
    origin = {"input": "input of the model", "weight": "weight"}.get(tensor.kind)
    if origin is None:
        origin = f"from group {', '.join(map(str, tensor.groups))}" if read and tensor.groups else ""
    return [shortened(tensor.name, 60), printable(tensor.type), origin]


def _kernel(k: KernelInfo) -> Iterator[str]:
    yield f"  {k.symbol}  {k.kind}, template {k.template}"
    if k.pinned:
        yield from paragraph("pinned", printable(k.pinned), indent=4, hang=9)
    if k.tuned:
        yield from paragraph("tuned", k.tuned, indent=4, hang=9)
    if k.when:
        yield from paragraph("when", printable(k.when), indent=4, hang=9)
    yield from paragraph("flops", _both(k.flops_text, flops_text(k.flops)), indent=4, hang=9)
    yield from paragraph("bytes", _both(k.bytes_text, bytes_text(k.bytes)), indent=4, hang=9)
    yield from paragraph("flop/B", intensity(k.flops, k.bytes), indent=4, hang=9)
    yield from paragraph("tasks", printable(str(k.tasks)), indent=4, hang=9)
    if k.scratch:
        yield from paragraph("scratch", f"{printable(str(k.scratch))} bytes a thread", indent=4, hang=9)


def _both(written: int | str, evaluated: str) -> str:
    return evaluated if isinstance(written, int) else f"{printable(written)} = {evaluated}"
