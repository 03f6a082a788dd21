"""Einsum against the reference evaluator."""

from __future__ import annotations

import pytest

from tests.support.nodes import check, numbers


@pytest.mark.parametrize(
    "equation",
    ["ij,jk->ik", "bhqd,bhkd->bhqk", "bij,bkj->bik", "ij->ji", "ii->i", "ij->", "i,j->ij", "...ij,...jk->...ik",
     "abc,cd", "ij,ij->i", "bc,bd->bcd", "ijk,jk->ki", "ab,bc,cd->ad", "BTNH,BSNH->BNTS",
     "...Ij,...jA->...AI", "bA,Ac"],
)  # fmt: skip
def test_einsum(equation: str) -> None:
    sizes = {c: k + 2 for k, c in enumerate("abcdhijkqABHINST")}
    sizes["j"] = sizes["i"] if equation == "ii->i" else sizes["j"]
    shapes = [
        [7, 1][k % 2 :][:1] * ("..." in t) + [sizes[c] for c in t if c.isalpha()]
        for k, t in enumerate(equation.split("->")[0].split(","))
    ]
    check("Einsum", *(numbers(*s, seed=k) for k, s in enumerate(shapes)), equation=equation)
