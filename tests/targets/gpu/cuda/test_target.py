"""What all kernels of CUDA keep to."""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.base.resources import templates
from torshc.kernels.machine import Machine
from torshc.passes.policy import Policy
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.targets import find_target

from ....support.kernels import Maker

KERNELS = sorted(p for part in ("cuda", "gpu") for p in (templates(part) / "kernels").glob("*.j2"))


@pytest.mark.parametrize("path", [p for p in KERNELS if "{% call kernel(" in p.read_text()], ids=lambda p: p.stem)
def test_kernels_wait_for_those_before_them(path: Path) -> None:
    """When they open, or later where they say so; what a kernel of early blocks read before would not be there yet."""
    text = path.read_text()
    assert text.count("t_wait_for_earlier();") == ("early=true" in text)


@pytest.mark.parametrize(("rows", "waits"), [(4096, True), (4097, False)])
def test_kernels_of_many_blocks_start_when_the_one_before_has_ended(rows: int, waits: bool) -> None:
    """Those that do not wait are not among the early ones."""
    m = Maker()
    x = m.input(rows, 1024)
    graph = m.output(m.add("ReduceSum", x, axes=(1,)))
    plan, cuda = make_plan(finalise(graph, Policy.of())), find_target("cuda")(Machine())
    text = cuda.render(cuda.lower(graph, plan.groups[0], plan.storage)[0]).source
    assert ("t_wait_for_earlier();" in text, "T_LAUNCH_AFTER(" in text) == (waits, not waits)
