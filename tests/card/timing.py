"""Times: on a card of kernels by PyTorch's profiler and of calls by events; in a dry run by the clock."""

from __future__ import annotations

import importlib
import math
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

Call = Callable[[], object]
Turn = Callable[[int], object]  # of the number of the set of tensors that it uses


def kernels(torch: Any, call: Call, runs: int = 12, warm: int = 4) -> float:
    """Microseconds in which kernels of a call run, without the gaps between them, the median of calls.

    Kernels overlap where one's blocks wait for the one before it to end, also that of the call before.
    """
    for _ in range(warm):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(runs):
            call()
        torch.cuda.synchronize()
    on_card = [e for e in profile.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    spans = sorted((e.time_range.start, e.time_range.start + e.device_time) for e in on_card)
    each = -(-len(spans) // runs)
    parts = [spans[k : k + each] for k in range(0, len(spans), each or 1)]
    ends = [-math.inf, *accumulate((max(last for _, last in part) for part in parts), max)]
    return statistics.median(map(busy, parts, ends)) if parts else 0.0


def busy(spans: Sequence[tuple[float, float]], end: float = -math.inf) -> float:
    """How long some of these spans, in order of their beginnings, last together after an end of others.

    >>> busy([(0.0, 3.0), (1.0, 2.0), (2.5, 4.0), (6.0, 7.0)]), busy([(0.0, 3.0), (4.0, 5.0)], 2.0)
    (5.0, 2.0)
    """
    total = 0.0
    for first, last in spans:
        total += max(last - max(first, end), 0.0)
        end = max(end, last)
    return total


def calls(torch: Any, call: Call, seconds: float = 0.25) -> float:
    """Milliseconds from the beginning of a call to the end of its work on the card: the median."""
    for _ in range(4):
        call()
    torch.cuda.synchronize()
    times, end = list[float](), time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 10:
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last))
    return statistics.median(times)


class Card:
    """Measures on the first card.

    Attributes:
        torch: PyTorch.
        name: the card's.
        device, target: PyTorch's and torshc's names of it.
        cache: bytes of its second cache.
    """

    device = target = "cuda"

    def __init__(self) -> None:
        self.torch: Any = importlib.import_module("torch")
        importlib.import_module("torch.nn.attention")
        properties = self.torch.cuda.get_device_properties(0)
        self.name, self.cache = properties.name, properties.L2_cache_size

    def options(self) -> dict[str, Any]:
        """How a bundle is loaded."""
        return {"device": 0}

    def wait(self) -> None:
        """Until all work is done."""
        self.torch.cuda.synchronize()

    def kernels(self, turn: Turn, sets: int) -> float:
        """Microseconds of the kernels of a turn; turns take the sets of tensors one after the other."""
        count = iter(range(1 << 60))
        warm = -(-max(4, 3 * sets) // sets) * sets  # a recorded graph replays from the third run over a set
        return kernels(self.torch, lambda: turn(next(count) % sets), runs=12 if sets <= 4 else 2 * sets, warm=warm)

    def calls(self, turn: Turn, sets: int) -> float:
        """Microseconds of a turn as a caller sees it."""
        count = iter(range(1 << 60))
        return 1000 * calls(self.torch, lambda: turn(next(count) % sets))

    def copy_rate(self) -> float:
        """Bytes a microsecond that a copy of 1 GiB reads and writes."""
        source = self.torch.empty(1 << 28, device=self.device).normal_()
        target = self.torch.empty_like(source)
        return 2 * 4 * float(source.numel()) / self.calls(lambda _: target.copy_(source), 1)


class Processor(Card):
    """Stands in for a card in a dry run: right in what it computes, and of no meaning in its times."""

    device, target = "cpu", "c"

    def __init__(self) -> None:
        self.torch = importlib.import_module("torch")
        importlib.import_module("torch.nn.attention")
        self.name, self.cache = "this processor", 1 << 20

    def options(self) -> dict[str, Any]:
        return {}

    def wait(self) -> None:
        pass

    def kernels(self, turn: Turn, sets: int) -> float:
        return self.calls(turn, sets)

    def calls(self, turn: Turn, sets: int) -> float:
        times = []
        for k in range(max(3, sets)):
            began = time.perf_counter()
            turn(k % sets)
            times.append(time.perf_counter() - began)
        return 1e6 * statistics.median(times)

    def copy_rate(self) -> float:
        source = self.torch.ones(1 << 20)
        target = self.torch.empty_like(source)
        return 2 * 4 * float(source.numel()) / self.calls(lambda _: target.copy_(source), 1)
