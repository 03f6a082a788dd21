"""A bound of a training step's memory: how much of its forward pass is computed again, so that its plan fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Container
from functools import partial
from itertools import accumulate

from ..base.errors import ConfigError
from ..expr import as_int
from .compilation import Compilation

_SEGMENTS = (16, 12, 8, 6, 4)  # of the forward pass that are tried, one after the other
_ALL = 2**31
_PLANS = 6  # that are made at most between one that is too large and one that fits
_NEAR = 0.01  # of the bound that may be left free


def peak_bytes(c: Compilation) -> int | None:
    """Memory of an open model in a step: its states, weights and intermediate values; None where sizes are open."""
    arena = as_int(c.arena_bytes)
    return None if arena is None else sum(s.bytes for s in c.program.states) + c.held_weights_bytes + arena


def fit_memory(done: Compilation, bound: int, again: Callable[[int, Container[int]], Compilation]) -> Compilation:
    """The compilation of a step whose memory is within a bound, with as little computed again as was found.

    Recomputations are taken in their order, those first that free the most memory for their time: single activations,
    and where all of these are not enough, whole segments too. How many it takes is searched with whole plans, as what
    lies where decides the peak. Fewer segments keep less between them, and more at a time within one.

    Args:
        done: the step that computes nothing again.
        again: compiles the step cut into so many segments, with those of its recomputations that have these numbers.

    Raises:
        ConfigError: sizes are known only in a run, or no plan is small enough; the message says what the least is.
    """
    peak = peak_bytes(done)
    if peak is None:
        remedy = "pin the inputs' shapes with --shapes"
        raise ConfigError("--train-memory of a step whose sizes are known only in a run", remedy)
    if peak <= bound:
        return done
    least = peak
    for segments in (1, *_SEGMENTS):
        if segments == 1 and peak - sum(r.bytes for r in done.graph.recomputations) > bound:
            continue
        best = again(segments, range(_ALL))
        least = min(least, peak_bytes(best) or 0)
        if least <= bound:
            return _with_fewer(best, peak, bound, partial(again, segments))
    raise ConfigError(
        f"--train-memory {bound} is too small: a step of this model takes {least} bytes at least, "
        f"and {peak} with nothing computed again",
        f"allow {least} bytes, or give a batch in smaller parts (`accumulate`)",
    )


def _with_fewer(
    best: Compilation, peak: int, bound: int, again: Callable[[Container[int]], Compilation]
) -> Compilation:
    """A step that fits, with fewer recomputations where these do too.

    The peak falls about as the bytes grow that are free, so each guess lies where a line between the last two meets the
    bound. The last recomputation may free much more than is needed, and another behind it enough for less time.

    Args:
        best: the step that fits, with all recomputations.
        peak: bytes of the step that computes nothing again.
    """
    found = best.graph.recomputations
    freed = [0, *accumulate(r.bytes for r in found)]
    low, high, above, below = 0, len(found), peak - bound, bound - (peak_bytes(best) or 0)
    for _ in range(_PLANS):
        if high - low < 2 or below < _NEAR * bound:
            break
        wanted = freed[low] + (freed[high] - freed[low]) * above / (above + below)
        count = min(max(bisect_left(freed, wanted), low + 1), high - 1)
        tried = again(range(count))
        rest = bound - (peak_bytes(tried) or 0)
        if rest >= 0:
            high, below, best = count, rest, tried
        else:
            low, above = count, -rest
    others = [k for k in range(high, len(found)) if found[k].bytes >= above and found[k].cost < found[high - 1].cost]
    if high - low > 1 or not others:
        return best
    tried = again({*range(low), min(others, key=lambda k: found[k].cost)})
    return tried if (peak_bytes(tried) or 0) <= bound else best
