"""Convolutions against the reference evaluator, transposed ones against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import contrib
from tests.support.nodes import check, numbers, refused

CONVS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 3, 7, 9), (4, 3, 3, 3), {}),
    ((2, 4, 7, 8), (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1]}),
    ((1, 6, 9), (6, 1, 3), {"group": 6, "dilations": [2], "pads": [2, 2]}),
    ((1, 2, 5, 4, 3), (3, 2, 2, 2, 2), {"strides": [2, 1, 1]}),
    ((1, 2, 8, 9), (2, 2, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((1, 2, 8, 9), (2, 2, 2, 2), {"auto_pad": "SAME_LOWER"}),
]


@pytest.mark.parametrize(("x", "w", "attributes"), CONVS)
def test_conv(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    check("Conv", numbers(*x), numbers(*w, seed=1), **attributes)
    check("Conv", numbers(*x), numbers(*w, seed=1), numbers(w[0], seed=2), **attributes)


@pytest.mark.parametrize(
    ("dilations", "message"),
    [
        ([1, 1], "a kernel of 5 does not fit into 4 with margins 0 and 0"),
        ([2, 1], "a kernel of 3 with a dilation of 2 does not fit into 4 with margins 0 and 0"),
    ],
)
def test_conv_larger_than_its_image(dilations: list[int], message: str) -> None:
    refused("Conv", numbers(1, 2, 4, 4), numbers(2, 2, 3, 5), dilations=dilations, match=message)


@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((1, 3, 4, 5), (3, 2, 3, 3), {}),
        ((1, 4, 4, 5), (4, 3, 2, 3), {"group": 2, "strides": [2, 3], "pads": [1, 0, 0, 1]}),
        ((1, 2, 6), (2, 2, 3), {"strides": [2], "output_padding": [1], "dilations": [2]}),
        ((1, 2, 5, 4), (2, 3, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        ((1, 2, 5, 4), (2, 3, 3, 2), {"strides": [2, 3], "output_shape": [10, 12]}),
    ],
)
def test_conv_transpose(x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any]) -> None:
    """Against ONNX Runtime: the reference evaluator fails on groups."""
    operands = (numbers(*x), numbers(*w, seed=1), numbers(w[1] * attributes.get("group", 1), seed=2))
    contrib.check("ConvTranspose", *operands, domain="", atol=1e-6, **attributes)
