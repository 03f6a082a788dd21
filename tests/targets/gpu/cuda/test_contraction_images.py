"""Windows of images that the card copies: which factors are such, and convolutions of them on the emulator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torshc.expr import F16, F32, DType, Expr, axis, call, const, dim
from torshc.targets.gpu import contraction, contraction_kernels
from torshc.targets.gpu.contraction_factor import Factor
from torshc.targets.gpu.contraction_tiles import GROUP_TILES, TF32_GROUP_TILES, AnyTile, GroupTile
from torshc.targets.gpu.cuda.contraction_images import Images, as_images

from ....support.kernels import Maker, random
from ....support.run_grid import GridProgram, needs_emulator
from ....support.seeded import seeded
from ...cpu.test_conv import Case
from ..test_contraction import HOPPER, convolve, forced

pytestmark = needs_emulator
VOLUME, LINE = (0, 2, 3, 4, 1), (0, 2, 1)
SMALL = GroupTile(64, 64, 0.4, turns=True)
CASES = [
    Case((2, 64, 9, 7), (40, 64, 3, 3), "", pads=(1, 1, 1, 1), residual=True),
    Case((1, 64, 9, 7), (40, 64, 3, 3), "", pads=(1, 1, 1, 1)),
    Case((3, 128, 10, 11), (24, 128, 3, 5), "", (2, 3), (1, 2, 0, 1)),
    Case((2, 64, 12, 9), (16, 64, 3, 3), "", pads=(2, 4, 2, 3), dilations=(2, 3)),
    Case((2, 320, 6, 6), (16, 320, 2, 2), "", pads=(0, 0, 1, 1)),
    Case((2, 64, 9, 9), (16, 64, 1, 1), "", (2, 2)),
    Case((3, 64, 40), (16, 64, 5), "", (2,), (2, 2), layout=LINE, out=LINE),
    Case((2, 64, 700), (16, 64, 3), "", dilations=(300,), layout=LINE, out=LINE),  # taps far apart
    Case((2, 64, 5, 6, 4), (16, 64, 3, 2, 3), "", (1, 2, 1), (1, 0, 1, 1, 1, 1), layout=VOLUME, out=VOLUME),
    Case(("b", 64, 8, 8), (16, 64, 3, 3), "", pads=(1, 1, 1, 1)),
]


def windows(
    start: Expr | None = None, guard: Expr | None = None, stride: int = 1, packet: int = 8, pitch: int = 64
) -> Factor:
    """Rows of 3 pixels of lines of 20, channels innermost."""
    n, x, tap, c = AXES
    zero = const(0) if start is None else start
    row, step = n * (20 * pitch) + x * (stride * pitch), tap * pitch + c
    return Factor(0, zero, row, step, const(True) if guard is None else guard, (n, x), True, packet)


AXES = (axis("n", 4), axis("x", 9), axis("tap", 3), axis("c", 64))


def test_what_counts_as_images() -> None:
    _, x, tap, c = AXES
    at = x * 2 + tap - 1
    below, above = call("le", const(0), at), call("lt", at, const(17))
    found = as_images(windows(const(-64), call("and", below, above), 2), [], AXES[2:], 8)
    assert isinstance(found, Images)
    (side,) = found.sides
    # The last of 9 windows begins at pixel 15, and the last pixel is 16.
    assert (found.start, side.size, side.step, side.first, side.last) == (0, 17, 2, -1, -1)
    # Without an upper bound the image ends where windows do, which is read no further.
    loose = as_images(windows(const(-64), below, 2), [], AXES[2:], 8)
    assert loose is not None and (loose.sides[0].size, loose.sides[0].last) == (18, -2)
    refused = {
        "steps of more than 8 pixels": windows(stride=9),
        "single elements": windows(packet=1),
        "pixels that begin within packets": windows(pitch=68),
        "an offset within a packet": windows(const(4)),
        "pixels that overlap": windows(pitch=32),
        "a condition on channels": windows(guard=call("lt", c, const(60))),
        "a condition on two windows": windows(guard=call("lt", x + AXES[0], const(9))),
        "another condition": windows(guard=call("le", const(1), at)),
        "a size that a run gives": windows(guard=call("lt", at, dim("w"))),
        "an offset that a run gives": windows(dim("w") * 8),
    }
    assert {name for name, f in refused.items() if as_images(f, [], AXES[2:], 8)} == set()
    batch = axis("g", 2)
    assert as_images(windows(batch * 64), [batch], AXES[2:], 8) is None


@pytest.mark.parametrize(("dtype", "tile"), [(F16, SMALL), (F16, GROUP_TILES[2]), (F32, TF32_GROUP_TILES[1])], ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolutions_of_images(monkeypatch: pytest.MonkeyPatch, case: Case, dtype: DType, tile: AnyTile) -> None:
    """One, two and three sides, steps, dilations, margins on one side, one image and a number that a run gives."""
    made = []

    def spy(*given: Any) -> Images | None:
        made.append(as_images(*given))
        return made[-1]

    forced(monkeypatch, tile, 1)
    monkeypatch.setattr(contraction_kernels, "as_images", spy)
    monkeypatch.setattr(type(tile), "blocks", 2)
    assert {x for x in convolve(case, dtype, HOPPER) if x != "map"} == {"contraction_group"}
    assert any(m is not None and len(m.sides) == max(1, len(case.w) - 2) for m in made)


def test_what_tf32_cannot_hold_beside_margins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of tiny, infinite and NaN elements once more in f32, in two pieces, with zeros in the margin."""
    forced(monkeypatch, TF32_GROUP_TILES[1], 2)
    monkeypatch.setattr(contraction, "COPIED", 1)
    maker, layout, rng = Maker(), (0, 2, 3, 1), seeded(4)
    images, weights = random(rng, (2, 64, 6, 5)), random(rng, (24, 64, 3, 3))
    images[0] *= np.float32(2.0**-110)
    images[1, 3, 0, 0], images[1, 63, 5, 2] = np.inf, np.nan
    attributes: dict[str, Any] = {"strides": (1, 1), "dilations": (1, 1), "pads": (const(1),) * 4, "group": 1}
    x = maker.input(*images.shape, layout=layout)
    made = maker.add("Conv", x, maker.input(*weights.shape), layout=layout, **attributes)
    program = GridProgram(maker.output(made), target=HOPPER)
    (source,) = (x.source for x in program.launches if "t_group.h" in x.source)
    assert "s = last; s-- > first;" in source  # nvcc 13.0 crashes at some of these loops that count up
    (found,) = program.run(images, weights)
    wide, expected = np.pad(images.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1))), np.zeros(found.shape)
    for i, j in np.ndindex(3, 3):
        part = wide[:, :, i : i + 6, j : j + 5, None] * weights.transpose(1, 0, 2, 3)[:, None, None, :, i, j]
        expected += part.sum(axis=1).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found[0] / 2.0**-110, expected[0] / 2.0**-110, rtol=0, atol=2e-4)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=2e-4)
    assert not np.isfinite(expected[1]).all()
