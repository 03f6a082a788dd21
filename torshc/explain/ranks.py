"""A model that several processes share, as text and as JSON: what each rank has, and what goes between them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..base.columns import Column, table
from ..base.escaping import printable, sizes_text
from ..base.quantities import bytes_text, flops_text, short
from ..pipeline.compilation import Compilation
from ..pipeline.ranks import Ranks, exchanges_of
from ..sharding import Machine, compute_seconds, exchange_seconds, link_bytes, machine_of
from .data import Explanation, explain
from .sizes import Evaluator

_ALL = -1


def ranks_json(ranks: Ranks, dims: dict[str, int] | None = None) -> dict[str, Any]:
    """What the ranks are, and what they exchange in a run."""
    found, machine = _explained(ranks, dims), _machine(ranks)
    return {
        "ranks": [
            {
                "launches": e.launches,
                "predicted_ms": predicted_seconds(e, c, machine) * 1e3,
                "flops": _flops(e),
                "weights_bytes": e.weights_bytes,
                "arena_bytes": e.arena_bytes,
                **_states(e),
                "fallbacks": list(e.fallbacks),
            }
            for e, c in zip(found, ranks.compilations, strict=True)
        ],
        "chosen": ranks.cut.chosen,
        "exchanged_by": "NCCL" if ranks.on_cards else "ranks",
        "exchanges": [
            {
                "kind": t.kind,
                "from": t.source,
                "to": t.target,
                "name": t.name,
                "dims": list(t.dims),
                "dtype": t.dtype,
                "bytes": n,
                "link_bytes": round(link_bytes(t.kind, n, len(found))),
                "predicted_ms": exchange_seconds(machine, t.kind, n, len(found)) * 1e3,
            }
            for t, n in zip(exchanges_of(ranks.cut), _bytes(ranks, found[0]), strict=True)
        ],
    }


def ranks_text(ranks: Ranks, dims: dict[str, int] | None = None) -> str:
    """Tables of the ranks and of the links between them, at the sizes of `explain`."""
    found, machine = _explained(ranks, dims), _machine(ranks)
    columns = [Column("rank", 5), Column("launches", 9, right=True), Column("operations", 12, right=True)]
    columns += [Column(title, 12, right=True) for title in ("weights", "arena", "predicted")]
    rows = [
        [
            str(k),
            str(e.launches),
            flops_text(_flops(e)),
            bytes_text(e.weights_bytes),
            bytes_text(e.arena_bytes),
            f"{short(predicted_seconds(e, ranks.compilations[k], machine) * 1e3)} ms",
        ]
        for k, e in enumerate(found)
    ]
    links: dict[tuple[int, int, str], int] = {}
    times: dict[tuple[int, int, str], float] = {}
    counts = Counter[tuple[int, int, str]]()
    for t, n in zip(ranks.cut.transfers, _bytes(ranks, found[0]), strict=True):
        link = (t.source, t.target, t.kind)
        links[link] = links.get(link, 0) + n
        times[link] = times.get(link, 0) + exchange_seconds(machine, t.kind, n, len(found))
        counts[link] += 1
    between = [Column("between", 16), Column("operator", 14), Column("number", 8, right=True)]
    between += [Column("bytes a run", 14, right=True), Column("over links", 14, right=True)]
    between += [Column("predicted", 12, right=True)]
    more = [
        [
            "all ranks" if source == _ALL else f"{source} -> {target}",
            kind,
            str(counts[source, target, kind]),
            bytes_text(n),
            bytes_text(round(link_bytes(kind, n, len(found)))),
            f"{short(times[source, target, kind] * 1e3)} ms",
        ]
        for (source, target, kind), n in links.items()
    ]
    lines = [*table(columns, rows), "", *table(between, more)]
    if ranks.on_cards:
        lines.append("NCCL exchanges them, in CUDA graphs")
    if (trains := found[0].training) is not None:
        lines.append(f"each rank keeps states of {bytes_text(trains.state_bytes)}")
        if trains.shared_bytes:
            whole = f"; those of {printable(', '.join(trains.whole))} are whole on each" if trains.whole else ""
            lines[-1] += f", its part of the optimizer's, {bytes_text(trains.shared_bytes)} less than all{whole}"
    if found[0].dims:
        lines.append(f"at {sizes_text(found[0].dims)}")
    chosen = f"\nas chosen:\n{ranks.cut.chosen}" if ranks.cut.chosen else ""
    return "\n".join(lines) + "\n" + chosen


def _states(e: Explanation) -> dict[str, int]:
    """Bytes of what a rank that trains keeps, and of what others keep for it."""
    t = e.training
    return {} if t is None else {"state_bytes": t.state_bytes, "shared_state_bytes": t.shared_bytes}


def _explained(ranks: Ranks, dims: dict[str, int] | None) -> list[Explanation]:
    return [explain(c, dims or {}) for c in ranks.compilations]


def _flops(e: Explanation) -> int:
    return sum(k.flops for g in e.groups for k in g.kernels)


def _machine(ranks: Ranks) -> Machine:
    return machine_of(ranks.on_cards, ranks.compilations[0].options.precision)


def predicted_seconds(e: Explanation, compilation: Compilation, machine: Machine) -> float:
    """What a core or a card takes for a rank's kernels, by the cost model of `sharding/cost.py`."""
    narrow = [[any(b.dtype.size == 2 for b in k.buffers) for k in u.kernels] for u in compilation.units]
    return sum(
        compute_seconds(machine, k.flops, k.bytes, half)
        for g, halves in zip(e.groups, narrow, strict=True)
        if g.kind != "collective"
        for k, half in zip(g.kernels, halves, strict=True)
    )


def _bytes(ranks: Ranks, shown: Explanation) -> list[int]:
    """Bytes that a rank gives in each exchange."""
    at = Evaluator(shown.dims)
    return [at.integer(t.nbytes) or 0 for t in ranks.cut.transfers]
