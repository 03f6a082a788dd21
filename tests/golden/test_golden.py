"""The generated sources of a small model of each kind, as files; `pytest tests/golden --renew-golden` renews them.

A difference is no fault by itself: look at it, and renew the files if it is what was meant.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from torshc.base.options import CompileOptions
from torshc.formats import import_model
from torshc.kernels.machine import Machine
from torshc.passes import pipeline_of, run_pipeline
from torshc.passes.policy import policy_of
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.targets.base import find_target

from .models import CASES, Case

HERE = Path(__file__).parent
ENDS = {"c": ".c", "cuda": ".cu", "metal": ".metal", "webgpu": ".wgsl", "llvm": ".ll"}
WGSL = ("map", "row")
LLVM = ("map", "gemm")  # one without a template, and one with
# Metal's kernels come from the templates of CUDA's: two show in what words they differ.
FILES = [f"c/{name}.c" for name in CASES] + [f"cuda/{name}.cu" for name, case in CASES.items() if case.device]
FILES += ["metal/row.metal", "metal/gemm.metal", *(f"webgpu/{name}.wgsl" for name in WGSL)]
FILES += [f"llvm/{name}.ll" for name in LLVM]


def generated(case: Case, target: str) -> tuple[str, str]:
    """The templates and the sources of a case's kernels, in the order of their launches."""
    options = CompileOptions(target=target, precision=case.precision)
    pipeline = pipeline_of(options)
    graph = import_model(case.model().SerializeToString())
    run_pipeline(graph, pipeline, options, find_target(target).features_on(case.archs, case.extras))
    plan = make_plan(finalise(graph, policy_of(options, pipeline)))
    made = find_target(target)(Machine(lanes=16, winograd=case.winograd, archs=case.archs, extras=case.extras))
    kernels = [k for group in plan.groups for k in made.lower(graph, group, plan.storage)]
    return " ".join(k.template.split(".")[0] for k in kernels), "\n".join(made.render(k).source for k in kernels)


@pytest.mark.parametrize("file", FILES)
def test_golden(file: str, request: pytest.FixtureRequest) -> None:
    place = HERE / file
    case, target = CASES[place.stem], place.parent.name
    templates, source = generated(case, target)
    assert templates == (case.c if target in ("c", "llvm") else case.device)
    if request.config.getoption("--renew-golden"):
        place.parent.mkdir(exist_ok=True)
        place.write_text(source)
    assert source == place.read_text(), f"{file} differs: if that is meant, renew it with --renew-golden"


def test_no_file_is_left_over() -> None:
    assert {str(p.relative_to(HERE)) for p in HERE.rglob("*.*") if p.suffix in ENDS.values()} == set(FILES)
