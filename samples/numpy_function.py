#!/usr/bin/env python3
"""What ``make demo-numpy`` runs: a function written in NumPy, compiled when it is first called, beside NumPy itself.

The function is the price of European options by Black and Scholes, with the cumulative normal distribution as a
logistic curve: some 20 operations an element. NumPy writes an array for each of them; compiled, it is one loop.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import torshc

Array = NDArray[np.float32]
SIZES = 1_000, 100_000, 4_000_000
ROUNDS = 7


def prices(spot: Array, strike: Array, years: Array, rate: float = 0.02, volatility: float = 0.3) -> Array:
    """What a call option is worth, for each row of three arrays."""
    spread = volatility * np.sqrt(years)
    d1 = (np.log(spot / strike) + (rate + 0.5 * volatility**2) * years) / spread
    d2 = d1 - spread
    sooner, later = (1 / (1 + np.exp(-1.702 * d)) for d in (d1, d2))
    result: Array = spot * sooner - strike * np.exp(-rate * years) * later
    return result


def milliseconds(function: Callable[..., Any], *args: Array) -> float:
    """The median of some calls, after one that does not count."""
    function(*args)
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def main() -> None:
    """Compiles, compares, measures."""
    compiled = torshc.jit(prices)
    rng = np.random.default_rng(0)
    print(f"{'elements':>10}  {'NumPy':>9}  {'torshc':>9}  {'times':>5}  largest difference")
    for size in SIZES:
        arrays = [rng.uniform(low, high, size).astype(np.float32) for low, high in ((50, 150), (50, 150), (0.1, 2))]
        wanted, got = prices(*arrays), compiled(*arrays)
        here, there = milliseconds(compiled, *arrays), milliseconds(prices, *arrays)
        print(f"{size:>10}  {there:>6.3f} ms  {here:>6.3f} ms  {there / here:>5.1f}  {np.abs(wanted - got).max():.1e}")
    seen = compiled.stats()
    print(f"traces: {seen.traces}; compiled in {1e3 * seen.compile_seconds:.0f} ms, for all sizes")


if __name__ == "__main__":
    main()
