"""What a model of a machine says that ranks take: a few figures, enough to choose by and to compare with a measurement.

A sum over N ranks moves 2 (N - 1) / N of its bytes over each link, and a sum of which each rank gets a part, half of
that (R. Thakur, R. Rabenseifner and W. Gropp, "Optimization of collective communication operations in MPICH", 2005).
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Machine:
    """What a rank runs on, and what lies between ranks.

    Attributes:
        operations: operations of f32 a second.
        halves: operations of f16 or bf16 a second.
        memory: bytes a second.
        link: bytes a second in each direction, of a rank to others.
        latency: seconds of an exchange of nothing.
        launch: seconds of a kernel that does nothing.
    """

    operations: float
    halves: float
    memory: float
    link: float
    latency: float
    launch: float = 0.0


# A core of a server of these years, and processes of one machine that give each other tensors through memory.
CORE = Machine(operations=100e9, halves=100e9, memory=10e9, link=5e9, latency=20e-6)
# An H200 with NVLink: products of f32 take three of tf32. A link has 450 GB/s, of which NCCL reached a third with the
# 4 to 8 MB of a layer.
CARD = Machine(operations=100e12, halves=600e12, memory=4e12, link=150e9, latency=8e-6, launch=2e-6)


def machine_of(on_cards: bool, precision: str) -> Machine:
    """What ranks run on; with a precision of halves, floats are multiplied as these."""
    machine = CARD if on_cards else CORE
    return replace(machine, operations=machine.halves) if precision in ("f16", "bf16") else machine


def compute_seconds(machine: Machine, operations: float, nbytes: float, narrow: bool = False) -> float:
    """What a rank takes for work on so many bytes.

    Args:
        narrow: whether its numbers are halves.
    """
    rate = machine.halves if narrow else machine.operations
    return machine.launch + max(operations / rate, nbytes / machine.memory)


def exchange_seconds(machine: Machine, kind: str, nbytes: float, ranks: int) -> float:
    """What an exchange takes in which each rank gives so many bytes."""
    return machine.latency + link_bytes(kind, nbytes, ranks) / machine.link


def link_bytes(kind: str, nbytes: float, ranks: int) -> float:
    """Bytes that leave a rank in an exchange in which it gives so many, and that come."""
    factor = {
        "AllReduce": 2 * (ranks - 1) / ranks,
        "AllGather": ranks - 1,
        "ReduceScatter": (ranks - 1) / ranks,
    }.get(kind, 1.0)
    return factor * nbytes
