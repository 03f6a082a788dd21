"""Times on a card: of kernels by PyTorch's profiler, and of calls by events."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

Call = Callable[[], object]


def kernels(torch: Any, call: Call, runs: int = 12) -> float:
    """Microseconds of all kernels of a call, without the gaps between them: medians of each kernel's times."""
    for _ in range(4):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(runs):
            call()
        torch.cuda.synchronize()
    times: dict[str, list[float]] = {}
    for event in profile.events():
        copied = "emcpy" in event.name or "emset" in event.name
        if event.device_type == torch.autograd.DeviceType.CUDA and not copied:
            times.setdefault(event.name, []).append(event.device_time)
    return sum(statistics.median(t) * len(t) / runs for t in times.values())


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
