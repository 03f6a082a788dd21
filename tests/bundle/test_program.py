"""What the host program holds."""

from __future__ import annotations

import pytest

from tests.targets.test_index import winding
from torshc.bundle.program import Assembler
from torshc.errors import UnsupportedError
from torshc.graph import Graph
from torshc.plan.place import Plan


def test_sizes_that_take_too_long_are_refused() -> None:
    """Each step writes the one before three times."""
    assembler = Assembler(Plan(Graph()), (), ("a", "b", "c"))
    assert "s0" in str(assembler.size(winding(3)))
    with pytest.raises(UnsupportedError, match="more than 8192 steps"):
        assembler.size(winding(40))
