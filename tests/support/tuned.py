"""Variants of kernels of devices: what a tuner may try of a template."""

from __future__ import annotations

import random
from typing import Any

import pytest

from torshc.kernels.machine import Machine
from torshc.pipeline.records import Choices, choices_text
from torshc.targets.gpu.cuda.target import CudaTarget
from torshc.targets.parameters import parameters_of


def variants_of(template: str, together: int = 4) -> list[Any]:
    """Each value of each parameter of a template alone, and some of all parameters together; for parametrize."""
    stated = parameters_of(CudaTarget.search, template, 8)
    found = [((p.name, value),) for p in stated for value in p.values]
    draw = random.Random(template)
    found += [tuple(sorted((p.name, draw.choice(p.values)) for p in stated)) for _ in range(together)]
    return [pytest.param(choices, id=choices_text(choices)) for choices in dict.fromkeys(found)]


def tuned(choices: Choices, arch: str = "") -> CudaTarget:
    """CUDA's target with what a record says."""
    return CudaTarget(Machine(archs=(arch,) if arch else (), choices=choices))
