"""Index arithmetic that takes 32 bits in kernels whose indices have 64."""

from __future__ import annotations

import pytest

from torshc.expr import axis, const, dim, select
from torshc.targets.gpu.narrow_indices import INT_INDEX, NarrowIndices

N = dim("n")


def test_axes_of_known_sizes_are_narrow() -> None:
    i, j = axis("i", N), axis("j", const(112))
    indices = NarrowIndices([i * 12544 + j * 112])
    assert indices.axes == {j}
    assert j * 112 in indices and i * 12544 not in indices and i + j not in indices


@pytest.mark.parametrize(
    "large",
    [
        lambda i, j: i * 2**15 * j,
        lambda i, j: i * 2**26,
        lambda i, j: N + i * 2**26,  # the sum has 64 bits, the product 32
        lambda i, j: select(N > 3, i * 2**26, j),
        lambda i, j: i * 1_000_000_000,  # a literal of C that is an int
    ],
)
def test_none_is_narrow_where_products_leave_32_bits(large: object) -> None:
    i, j = axis("i", const(128)), axis("j", const(256))
    assert not NarrowIndices([i + j, large(i, j)]).axes  # type: ignore[operator]


def test_numbers_of_64_bits_keep_what_they_multiply_wide() -> None:
    i = axis("i", const(128))
    indices = NarrowIndices([i * 2**31])  # a literal that is a long
    assert indices.axes == {i} and i * 2**31 not in indices
    assert NarrowIndices([axis("k", const(INT_INDEX + 1))]).axes == set()
