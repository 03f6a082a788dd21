"""Rows of picked elements against the operators' own nests: types, modes, sizes, layouts, and what is fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tests.support.seeded import seeded
from torshc.expr import DTYPES, call, const
from torshc.graph import Graph, Value
from torshc.kernels.machine import Machine
from torshc.ops.image.taps import ResizeAxis
from torshc.targets.cpu.picked import COLUMNS, PickKernel

from ...support.evaluate import run
from ...support.kernels import Maker, Shape
from ...support.run_kernel import Program, compilers, kind_of, native_lanes, number

RNG = seeded(11)
INFO = Path("/proc/cpuinfo")
WIDE = [16] if INFO.exists() and "avx512dq" in INFO.read_text() else []
LANES = sorted({*WIDE, native_lanes(), 4 if native_lanes() >= 4 else 1})
MACHINES = [(lanes, compiler) for lanes in LANES for compiler in compilers()]
DIMS = {"n": 2, "c": 3, "h": 7, "w": 21, "one": 1, "none": 0}
TRANSFORMS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
Fused = Callable[[Maker, Value], Value]


def resized(m: Maker, x: Value, scales: tuple[float, ...], **attributes: object) -> Value:
    axes = []
    for d, scale in zip(x.shape, scales, strict=True):
        exact = Fraction(scale).limit_denominator(16)
        up, down = const(exact.numerator), const(exact.denominator)
        axes.append(ResizeAxis(call("floordiv", d * up, down), up, down))
    return m.add("Resize", x, axes=tuple(axes), layout=x.layout, **attributes)


def check(
    graph: Graph,
    machine: Machine | None = None,
    compiler: str = "",
    tolerance: float = 3e-6,
    dims: Mapping[str, int] = DIMS,
) -> Program:
    """A graph compiled, with its inputs at random."""
    feeds = {}
    for v in graph.inputs:
        shape = [number(d, dims) for d in v.shape]
        feeds[v.name] = (RNG.random(shape) * 100).astype(v.dtype.numpy)
    wanted = run(graph, feeds)
    program = Program(graph, dims, machine=machine, compiler=compiler or None)
    for got, right in zip(program.run(*feeds.values()), wanted, strict=True):
        if right.dtype.kind in "iub":
            np.testing.assert_allclose(got.astype(np.int64), right.astype(np.int64), atol=0 if tolerance == 0 else 1)
        else:
            close = tolerance if right.dtype != np.float16 else 1e-3
            np.testing.assert_allclose(got.astype(np.float64), right.astype(np.float64), rtol=close, atol=50 * close)
    return program


def one(
    shape: Shape, scales: tuple[float, ...], dtype: str = "f32", layout: tuple[int, ...] | None = None, **more: object
) -> Graph:
    m = Maker()
    return m.output(resized(m, m.input(*shape, dtype=DTYPES[dtype], layout=layout), scales, **more))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "u8", "i16", "i64", "bool"])
def test_types(dtype: str, lanes: int, compiler: str) -> None:
    """By whole numbers, where a vector picks from half a one, and by others, where elements lie apart."""
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    for scales in ((1, 1, 2, 2), (1, 1, 1.5, 0.375)):
        program = check(one((1, 3, 4, 48), scales, dtype), machine, compiler, 0)
        assert [type(k) for k in program.kernels] == [PickKernel]
    if dtype in ("f32", "f64", "f16", "u8"):
        check(one((1, 3, 4, 40), (1, 1, 1.25, 2), dtype, mode="linear"), machine, compiler)


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_modes(mode: str, transform: str) -> None:
    check(one((1, 2, 9, 40), (1, 1, 2, 2), mode=mode, transform=transform))
    check(one(("n", "c", "h", "w"), (1, 1, 3, 0.75), mode=mode, transform=transform))


@pytest.mark.parametrize(
    "shape", [("n", "c", "one", "w"), ("n", "none", "h", "w"), (2, 3, 5, 3), ("n", "c", "h", "one")]
)
def test_sizes(shape: Shape) -> None:
    """One, none, and planes of which a vector holds several rows."""
    for mode in ("nearest", "linear"):
        check(one(shape, (1, 1, 2, 3), mode=mode))


@pytest.mark.parametrize(("lanes", "compiler"), MACHINES)
@pytest.mark.parametrize("width", [16, 21, 64, 83])
def test_vectors_that_take_the_same_of_their_windows(width: int, lanes: int, compiler: str) -> None:
    """By 2 all of them, by 4 all but the last, whose window must not reach behind the row, by 3 few or none."""
    machine = Machine(lanes=lanes, compiler=kind_of(compiler))
    for scale in (2, 3, 4):
        graph = one(("n", 3, 5, "w"), (1, 1, 2, scale), transform="asymmetric", rounding="floor")
        (kernel,) = check(graph, machine, compiler, 0, {**DIMS, "w": width}).kernels
        assert lanes == 4 or (isinstance(kernel, PickKernel) and kernel.only_picks)


def test_rows_in_pieces() -> None:
    """A row longer than the tables, over several tasks."""
    width = COLUMNS // 2 + 70
    program = check(one((1, 2, 9, width), (1, 1, 2, 2), mode="linear"))
    (launch,) = program.launches
    assert launch.tasks > 2 and isinstance(launch.kernel, PickKernel) and not launch.kernel.is_whole


@pytest.mark.parametrize("channels", [3, 32])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_channels_last(mode: str, channels: int) -> None:
    """Pixels and channels that do not fill a vector are one row."""
    program = check(one((1, channels, 5, 12), (1, 1, 2, 2), layout=(0, 2, 3, 1), mode=mode))
    assert [isinstance(k, PickKernel) for k in program.kernels] == [channels == 3]


def kept(program: Program) -> list[int]:
    """Numbers of rows that the kernel keeps."""
    (kernel,) = program.kernels
    assert isinstance(kernel, PickKernel)
    return [len(k.wanted) for k in kernel.kept]


def test_rows_are_kept() -> None:
    """As many as there are taps across rows; none where each row is read once, or no sum is made."""
    shape = (1, 2, 6, 40)
    assert kept(check(one(shape, (1, 1, 2, 2), mode="linear"))) == [2]
    assert kept(check(one(shape, (1, 1, 2, 2), mode="cubic"))) == [4]
    assert kept(check(one(shape, (1, 1, 1, 2), mode="linear"))) == []
    assert kept(check(one(shape, (1, 1, 2, 2), mode="nearest"))) == []
    assert kept(check(one((1, 2, 3, 4, 40), (1, 1, 2, 2, 2), mode="linear"))) == [4]


def test_fused_work() -> None:
    """What comes before is in the rows that are kept; what comes behind, with other operands, is not."""
    m = Maker()
    x, skip, scale = m.input(1, 3, 6, 40), m.input(1, 3, 12, 80), m.input(3, 1, 1)
    up = resized(m, m.add("Relu", m.add("Neg", x)), (1, 1, 2, 2), mode="linear")
    out = m.add("Mul", m.add("Relu", m.add("Sub", up, skip)), scale)
    assert kept(check(m.output(out))) == [2]


def test_two_images() -> None:
    """Of several scales, with tables of their own."""
    m = Maker()
    x, z = m.input(1, 3, 4, 20), m.input(1, 3, 16, 60)
    both = m.add("Add", resized(m, x, (1, 1, 3, 3), mode="linear"), resized(m, z, (1, 1, 0.75, 1), mode="cubic"))
    program = check(m.output(both))
    assert 2 in kept(program)


@pytest.mark.parametrize("outside", [False, True])
def test_antialias(outside: bool) -> None:
    check(one((1, 2, 24, 96), (1, 1, 0.5, 0.5), mode="linear", antialias=True, exclude_outside=outside))


def test_elements_of_hundreds_of_picks_are_made_by_plain_loops() -> None:
    """Cubic resizing of four dimensions picks 256 for each: a kernel of rows took compilers minutes."""
    program = check(one((2, 2, 3, 4), scales=(2, 2, 2, 2), mode="cubic"))
    assert not any(isinstance(k, PickKernel) for k in program.kernels)
