"""What operators of com.microsoft share."""

from __future__ import annotations

from typing import TypedDict

from ..core.tensor import Tensor

DOMAIN = "com.microsoft"


class Window(TypedDict, total=False):
    """Attributes of windows that slide."""

    auto_pad: str
    dilations: tuple[int, ...]
    kernel_shape: tuple[int, ...]
    pads: tuple[int, ...]
    strides: tuple[int, ...]


class Convolution(Window, total=False):
    """Attributes of convolutions."""

    group: int


def put_channels_first(x: Tensor) -> Tensor:
    """x[N, spatial, C] as [N, C, spatial]."""
    return x.transpose(0, x.rank - 1, *range(1, x.rank - 1))


def put_channels_last(x: Tensor) -> Tensor:
    """x[N, C, spatial] as [N, spatial, C]."""
    return x.transpose(0, *range(2, x.rank), 1)
