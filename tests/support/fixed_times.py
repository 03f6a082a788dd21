"""Tuning whose outcome does not depend on how long anything takes; Dask's workers preload this module."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torshc.kernels.base import Kernel
from torshc.pipeline import records
from torshc.targets.cpu.c import CTarget
from torshc.targets.parameters import Parameter
from torshc.workbench.measure import KernelBench, Variant

VALUES = ((4, 2), (2, 1))
Patch = Callable[[object, str, object], object]


def fix_times(patch: Patch) -> None:
    """A template has two tiles to choose from, and the second takes half the time.

    Args:
        patch: sets an attribute, as setattr does.
    """
    usual, add = CTarget.parameters, KernelBench.add

    def few(self: CTarget, kernel: Kernel) -> tuple[Parameter, ...]:
        return (Parameter("tile", "a tile", VALUES),) if usual(self, kernel) else ()

    def said(self: KernelBench, variants: Sequence[Variant]) -> dict[Variant, Callable[[], float]]:
        def run(variant: Variant, real: Callable[[], float]) -> float:
            assert real() > 0
            return 0.5 if dict(variant.choices).get("tile") == VALUES[1] else 1.0

        return {v: lambda v=v, real=real: run(v, real) for v, real in add(self, variants).items()}  # type: ignore[misc]

    patch(CTarget, "parameters", few)
    patch(KernelBench, "add", said)
    patch(records, "_check", lambda record, target: None)


def dask_setup(worker: object) -> None:
    """What Dask calls when a worker begins."""
    fix_times(setattr)
