"""Heavy operators as plain loop nests: every dtype, rank and layout, without tiles."""

from __future__ import annotations

from collections.abc import Mapping

from ..base.errors import InternalError
from ..graph import Value
from ..plan.group import Group
from ..plan.inline import Inliner
from ..plan.storage import Storage
from .base import Kernel
from .epilogue import lower_epilogue
from .nest import KEEP_COST, Buffers, Rows, accumulate, finish_row


def lower_generic(group: Group, storage: Mapping[Value, Storage], keep: int | None = KEEP_COST) -> list[Kernel]:
    """The row kernel of a heavy operator that states its own nest, with the group's epilogue."""
    anchor = group.anchor
    assert anchor is not None
    nest = anchor.op.nest(anchor, 0)
    if nest is None:
        raise InternalError(f"{anchor.describe()} has no loop nest")
    rows = Rows([anchor], {anchor: nest}, anchor.output.layout)
    inliner, buffers = Inliner(group.folded), Buffers(storage)
    total = accumulate(anchor, nest, 0, rows, inliner, buffers)
    made = inliner.known[anchor.output]
    stores = lower_epilogue(group, anchor, {anchor.output: (made, rows.index)}, buffers)
    return [finish_row(rows, [[total]], [], stores, buffers, group.outputs, keep)]
