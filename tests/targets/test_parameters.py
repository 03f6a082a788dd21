"""Parameters of templates, as their front matter states them."""

from __future__ import annotations

import pytest

from torshc.targets.parameters import parameters_of

SHARED = "attention", "conv", "conv_first", "gemm", "winograd"


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_products_have_the_same_register_tiles(lanes: int) -> None:
    found = {parameters_of(("c",), f"{name}.c.j2", lanes)[0] for name in SHARED}
    assert len(found) == 1 and {p.name for p in found} == {"tile"}
    (tile,) = found
    assert (8, 1) in tile.values or (4, 3) in tile.values
    assert all(len(value) == 2 for value in tile.values)


def test_what_a_width_has_no_values_for_is_not_chosen() -> None:
    assert [p.name for p in parameters_of(("c",), "gemm.c.j2", 1)] == ["block", "depth"]
    assert parameters_of(("c",), "axes.j2", 16) == ()
