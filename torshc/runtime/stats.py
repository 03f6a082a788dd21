"""What has run, and how long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepStats:
    """What a step of a run has cost: its kernel, template and model nodes, how often it ran, and seconds in all.

    ``loose``: a step of the model's loose form, for runs in which a size of 1 broadcasts.
    """

    kernel: str
    template: str
    nodes: tuple[str, ...]
    calls: int
    seconds: float
    loose: bool = False


@dataclass(frozen=True)
class Stats:
    """What has run since the model was loaded.

    Attributes:
        runs: runs that succeeded.
        seconds: seconds inside the library in all; of runs that a stream goes on with, those until they are enqueued.
        isa: the instruction set that the kernels on the processor are for ("x86-64-v3"); of several, the one chosen.
        steps: each step; empty unless the model was compiled with profiling.
    """

    runs: int
    seconds: float
    isa: str
    steps: tuple[StepStats, ...]
