"""What a model of a machine says that ranks take: a few figures, enough to choose by and to compare with a measurement.

A core of a server of these years does about 100 GFLOP/s of f32 and reads 10 GB/s; processes of one machine give each
other 5 GB/s through memory, with 20 us for each exchange. A sum over N ranks moves 2 (N - 1) / N of its bytes over each
link (R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH", 2005).
"""

from __future__ import annotations

OPERATIONS = 100e9  # a second
MEMORY = 10e9  # bytes a second
LINK = 5e9  # bytes a second
LATENCY = 20e-6  # seconds


def compute_seconds(operations: float, nbytes: float) -> float:
    """What a core takes for work on so many bytes."""
    return max(operations / OPERATIONS, nbytes / MEMORY)


def exchange_seconds(kind: str, nbytes: float, ranks: int) -> float:
    """What an exchange takes in which each rank gives so many bytes."""
    factor = {"AllReduce": 2 * (ranks - 1) / ranks, "AllGather": ranks - 1}.get(kind, 1.0)
    return LATENCY + factor * nbytes / LINK
