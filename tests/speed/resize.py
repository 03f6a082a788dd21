"""Speed of Resize on this processor beside ONNX Runtime: ``python -m tests.speed.resize [WORD ...]``.

Every row is one Resize, or a U-Net, on one thread; words choose rows that hold them all. ``copy`` is what
copying as many bytes as are read and written would take, a call included, as part of our time. A row is to be
1.2 times as fast as ONNX Runtime, or to take no longer than a copy at 90 %: ``below`` marks others, which are
measured again a few times first, since others use the machine.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from ..support.models import model, node
from ..support.networks import unet
from .beside import Times, empty_call, measured, processor

SHAPE = (1, 32, 64, 64)
RATIO, SHARE = 1.2, 0.9
MODES = [
    (mode, transform)
    for mode in ("nearest", "linear", "cubic")
    for transform in ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
]


def rows() -> Iterator[tuple[str, onnx.ModelProto, tuple[int, ...]]]:
    """Names, models and shapes of what is measured."""
    for mode, transform in MODES:
        for kind in ("static", "symbolic"):
            dims = list(SHAPE) if kind == "static" else ["batch", "channels", "height", "width"]
            yield f"{mode} {transform} planar {kind}", resize(mode, transform, dims), SHAPE
            dims = [1, 64, 64, 32] if kind == "static" else ["batch", "height", "width", 32]
            made = resize(mode, transform, dims, scales=(1, 2, 2, 1))
            yield f"{mode} {transform} channels-last {kind}", made, (1, 64, 64, 32)
    for mode in ("nearest", "linear"):
        yield f"{mode} half_pixel static to 96 x 90", resize(mode, "half_pixel", list(SHAPE), (96, 90)), SHAPE
        yield f"{mode} half_pixel static to 32 x 32", resize(mode, "half_pixel", list(SHAPE), (32, 32)), SHAPE
        yield f"U-Net {mode} static", unet(mode, 64), (1, 3, 64, 64)
        yield f"U-Net {mode} symbolic", unet(mode), (1, 3, 64, 64)


def resize(
    mode: str,
    transform: str,
    dims: list[int | str],
    to: tuple[int, int] | None = None,
    scales: tuple[int, ...] = (1, 1, 2, 2),
) -> onnx.ModelProto:
    """A Resize by scales, or to a height and a width."""
    more = {"nearest_mode": "floor"} if transform == "asymmetric" else {}
    given = {"s": np.array(scales, np.float32) if to is None else np.array([*SHAPE[:2], *to])}
    operands = "x _ s" if to is None else "x _ _ s"
    made = node("Resize", operands, "y", mode=mode, coordinate_transformation_mode=transform, **more)
    return model([made], {"x": dims}, ["y"], given)


def share(times: Times, empty: float) -> float:
    """What a copy and a call that does nothing take, as part of our time."""
    return (times.copy + empty) / times.ours


def is_below(times: Times, empty: float) -> bool:
    """Whether a row is neither as much faster than ONNX Runtime nor as near to a copy as it is to be."""
    return times.ratio < RATIO and share(times, empty) < SHARE


def main() -> int:
    words = sys.argv[1:]
    empty = empty_call()
    print(f"on {processor()}, one thread; a call takes {empty * 1e3:.4f} ms")
    print(f"{'x'.join(map(str, SHAPE))} by 2, or as said")
    print(f"{'row':42}{'ours ms':>9}{'ort ms':>9}{'ratio':>8}{'copy':>7}", flush=True)
    with tempfile.TemporaryDirectory(prefix="torshc-resampling-") as folder:
        for name, made, shape in rows():
            if not all(w in name.split() for w in words):
                continue
            feeds = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
            times = measured(made, feeds, Path(folder), again=lambda t: is_below(t, empty))
            figures = f"{times.ours * 1e3:9.4f}{times.theirs * 1e3:9.4f}{times.ratio:8.2f}"
            if "U-Net" not in name:
                figures += f"{share(times, empty):7.0%}{'  below' if is_below(times, empty) else ''}"
            print(f"{name:42}{figures}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
