"""What a model has run, and how long that took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StepStats:
    """What a step of a run has cost: its kernel, template and model nodes, how often it ran, and seconds in all.

    ``form``: the number of the form of the model that it is a step of, among those of :class:`Stats`.
    ``loose``: whether that is the loose form, for runs in which a size of 1 broadcasts.
    """

    kernel: str
    template: str
    nodes: tuple[str, ...]
    calls: int
    seconds: float
    loose: bool = False
    form: int = 0


@dataclass(frozen=True)
class FormStats:
    """A form of the model, and how many runs took it.

    ``sizes``: those that a variant is for, with values of inputs ("batch=1 mask=1"); empty for the usual form and the
    loose one. ``missed``: runs of these sizes that had other values, so that they took another form.
    """

    sizes: str
    loose: bool
    runs: int
    missed: int = 0


@dataclass(frozen=True)
class Stats:
    """What has run since the model was loaded.

    Attributes:
        runs: runs that succeeded.
        seconds: seconds inside the library in all; for runs that go on in a stream, until they were enqueued.
        isa: the instruction set that the kernels on the processor are for ("x86-64-v3"); of several, the one chosen.
        steps: each step; empty unless the model was compiled with profiling.
        forms: the usual form of the model, its variants, and the loose form, as far as there are some. Empty for a
            library that does not count them, and once the model is closed.
    """

    runs: int
    seconds: float
    isa: str
    steps: tuple[StepStats, ...]
    forms: tuple[FormStats, ...] = ()
