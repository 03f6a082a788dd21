"""Products of matrices of every rank against the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.nodes import check, given, numbers


def test_matmul_of_every_rank() -> None:
    ranks = [
        ((3,), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3,)),
        ((2, 1, 4, 3), (5, 3, 2)),
        ((2, 3), (4, 3, 2)),
        ((0, 3), (3, 2)),
    ]
    for a, b in ranks:
        check("MatMul", numbers(*a), numbers(*b, seed=5))
    check("MatMul", np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4))


def test_gemm() -> None:
    for ta in (0, 1):
        for tb in (0, 1):
            a, b = numbers(*((5, 3) if ta else (3, 5))), numbers(*((4, 5) if tb else (5, 4)), seed=2)
            for c in (None, numbers(4), numbers(3, 1), numbers()):
                check("Gemm", a, b, c, transA=ta, transB=tb, alpha=0.5, beta=2.0)


@pytest.mark.parametrize("size", [0, 1, 2, 4])
def test_determinants(size: int) -> None:
    """Larger ones are found by elimination."""
    x = numbers(3, size, size)
    (out,) = given("Det", x)
    np.testing.assert_allclose(out, np.linalg.det(x), rtol=1e-5)
