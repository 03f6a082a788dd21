"""What does the arithmetic of a kernel, and how long that takes at the least."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from torshc.base.options import CompileOptions
from torshc.expr import BF16, F16, F32, I8, DType, const
from torshc.kernels.base import Buffer, Kernel, Temporary
from torshc.pipeline.compiler import prepare
from torshc.targets.cpu.bf16 import AmxKernel
from torshc.workbench.roofline import Meter, Roof, unit_of

from ..support.cli_models import STATIC
from ..support.models import save


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


@dataclass(frozen=True)
class Tiles(Plain):
    needs: ClassVar[tuple[str, ...]] = AmxKernel.needs


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
        (kernel(Plain, BF16, BF16, F32), "f32"),
        (kernel(Tiles, BF16, BF16, F32), "bf16"),
    ],
)
def test_units(made: Kernel, unit: str) -> None:
    assert unit_of(made) == unit


def test_the_least_time() -> None:
    roof = Roof(100.0, {"f32": 10.0})
    assert roof.least(20, 100, "f32") == (2.0, "flops") and roof.least(1, 100, "f32") == (1.0, "bytes")
    assert roof.least(20, 100, "f16") == (1.0, "bytes")


@pytest.mark.parametrize(("tiles", "known"), [(3.0, {"f32": 4.0, "bf16": 6.0}), (0.0, {"f32": 4.0})])
def test_tiles_have_a_rate_where_a_process_may_use_them(
    tiles: float, known: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rates are stated, in place of a library that measures them."""
    rates = SimpleNamespace(
        t_copy_rate=lambda *_: 1.0, t_flop_rate=lambda seconds: 2.0, t_tile_rate=lambda seconds: tiles
    )
    meter = Meter.__new__(Meter)
    monkeypatch.setattr(meter, "library", rates, raising=False)
    assert meter._processor(2) == Roof(2.0, known, "measured, 2 threads")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="tiles are of x86-64")
def test_the_rate_of_tiles_is_compiled_for_processors_with_them(tmp_path: Path) -> None:
    meter = Meter(prepare(save(STATIC, tmp_path / "m.onnx"), CompileOptions(isa=("x86-64-v4-amx",))))
    assert meter.library.t_tile_rate
