"""Reductions of many elements to one as tasks: parts of them by themselves, what came of these, then each element.

The number of elements alone says how long parts are, so that sums have the same bits with any number of threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...expr import F32, F64, I32, I64, Expr, acc, as_int, axis, const, load, locals_of, product, substitute
from ...kernels.arguments import Arguments
from ...kernels.base import Kernel, Store, Temporary
from ...kernels.nest import CHUNK, Accumulator, MapKernel, RowKernel, Stage

LEAST = 4  # parts of which threads do some at once
MOST = 64


def in_parts(kernel: Kernel, owner: int) -> list[Kernel]:
    """A row kernel of one long row as one of its parts, one that joins these, and one of what follows for each element;
    any other as it is.

    Args:
        owner: the group's number.
    """
    if type(kernel) is not RowKernel or not kernel.across or len(kernel.stages) > 1 or kernel.kept:
        return [kernel]
    (stage,), (along, *others) = kernel.stages, kernel.reduce
    length = as_int(along.args[0]) or 0
    count = next((n for n in range(min(MOST, length // CHUNK), LEAST - 1, -1) if length % n == 0), 0)
    of_whole = _of_accumulators(s.value for s in kernel.element)
    plain = all(x.dtype in (F32, F64, I32, I64) for x in (*(a.term for a in stage.accumulators), *of_whole))
    if not count or others or not plain or as_int(product([a.args[0] for a in kernel.axes])) != 1:
        return [kernel]
    part, within, joined = axis("i0", count), axis("r0", length // count), axis("r0", count)
    left = [Temporary(f"part{a.name}", owner, const(count * a.term.dtype.size)) for a in stage.accumulators]
    many, one = Arguments(kernel), Arguments(kernel)
    sums, stores, rest = list[Accumulator](), list[Store](), list[Accumulator]()
    for a, to in zip(stage.accumulators, left, strict=True):
        term = many.bring(substitute(a.term, {along: part * (length // count) + within}))
        sums.append(Accumulator(a.name, a.combine, term, acc(f"a{a.name}", term.dtype)))
        stores.append(Store(many.add(to, term), part, acc(f"x{a.name}", term.dtype)))
        found = load(one.add(to, term, written=False), (joined,), term.dtype)
        rest.append(Accumulator(a.name, a.combine, found, one.bring(a.result)))
    row = [one.store(s) for s in kernel.row]
    following = list[Kernel]()
    if kernel.element:
        known = {x: (Temporary(f"whole{k}", owner, const(x.dtype.size)), const(0)) for k, x in enumerate(of_whole)}
        row += [Store(one.add(to, x), place, one.bring(x)) for x, (to, place) in known.items()]
        each, point = Arguments(kernel, known), axis("i0", length)
        elements = [
            Store(s.buffer, *(substitute(e, {along: point}) for e in (s.offset, s.value))) for s in kernel.element
        ]
        results = tuple(each.store(s) for s in elements)
        following.append(MapKernel(
            buffers=tuple(each.list), tasks=const(-(-length // CHUNK)), flops=const(0), nbytes=const(0), axes=(point,),
            stores=results, rows=1, chunk=CHUNK,
        ))  # fmt: skip
    return [
        replace(
            kernel, buffers=tuple(many.list), tasks=const(count), axes=(part,), reduce=(within,),
            stages=(Stage(tuple(sums)),), element=(), row=tuple(stores), rows=1,
        ),
        replace(
            kernel, buffers=tuple(one.list), flops=const(count * len(left)), nbytes=const(count * len(left) * 8),
            reduce=(joined,), stages=(Stage(tuple(rest)),), element=(), row=tuple(row),
        ),
        *following,
    ]  # fmt: skip


def _of_accumulators(values: Iterable[Expr]) -> list[Expr]:
    """The largest parts of these expressions that are the same for all elements."""
    found, pending = dict[Expr, None](), [*values]
    while pending:
        x = pending.pop()
        parts = locals_of(x)
        if parts and all(p.op == "acc" for p in parts):
            found.setdefault(x)
        elif x.op != "load":
            pending.extend(x.args)
    return [*found]
