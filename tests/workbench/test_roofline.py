"""What does the arithmetic of a kernel, and how long that takes at the least."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from torshc.expr import BF16, F16, F32, I8, DType, const
from torshc.kernels.base import Buffer, Kernel, Temporary
from torshc.workbench.roofline import Roof, unit_of


@dataclass(frozen=True)
class Tile:
    products: int = 3


@dataclass(frozen=True)
class Product(Kernel):
    kind: ClassVar[str] = "contraction"
    template: ClassVar[str] = "contraction_mma.j2"
    tile: Tile = Tile()


@dataclass(frozen=True)
class Plain(Product):
    template: ClassVar[str] = "contraction.j2"


def kernel(kind: type[Product], *dtypes: DType) -> Product:
    """A product of operands of these types; the last is its result."""
    buffers = tuple(Buffer(Temporary("t", k, 4), t, k == len(dtypes) - 1) for k, t in enumerate(dtypes))
    return kind(buffers=buffers, tasks=const(1), flops=const(1), nbytes=const(1))


@pytest.mark.parametrize(
    ("made", "unit"),
    [
        (kernel(Product, F16, F16, F32), "f16"),
        (kernel(Product, BF16, F32, F32), "f16"),
        (kernel(Product, F32, F32, F16), "3tf32"),
        (replace(kernel(Product, F32, F32), tile=Tile(1)), "tf32"),
        (kernel(Plain, F16, F32), "f32"),
        (kernel(Plain, I8, I8, F32), ""),
    ],
)
def test_units(made: Kernel, unit: str) -> None:
    assert unit_of(made) == unit


def test_the_least_time() -> None:
    roof = Roof(100.0, {"f32": 10.0})
    assert roof.least(20, 100, "f32") == (2.0, "flops") and roof.least(1, 100, "f32") == (1.0, "bytes")
    assert roof.least(20, 100, "f16") == (1.0, "bytes")
