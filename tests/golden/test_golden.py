"""The generated sources of a small model of each form, as files; `pytest tests/golden --renew-golden` renews them.

A difference is no fault by itself: look at it, and renew the files if it is what was meant.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from torshc.base.options import CompileOptions
from torshc.base.resources import find_template, templates
from torshc.formats import import_model
from torshc.kernels.machine import Machine
from torshc.passes import pipeline_of, run_pipeline
from torshc.passes.policy import policy_of
from torshc.plan.finalise import finalise
from torshc.plan.place import make_plan
from torshc.targets import find_target

from .models import CASES, Case

HERE = Path(__file__).parent
ENDS = {"c": ".c", "cuda": ".cu", "metal": ".metal", "webgpu": ".wgsl", "llvm": ".ll"}
# How the names of templates end.
KERNELS = {"c": ".c.j2", "cuda": ".j2", "metal": ".j2", "webgpu": ".j2", "llvm": ".ll.j2"}
# Devices share most templates: some texts show in what words Metal's and WGSL's differ, and what WGSL has of its own.
# LLVM's: one without a template, and some with.
OTHERS = {"metal": "row gemm", "webgpu": "map row gemm attention_row", "llvm": "map gemm pack topk"}
SHOWN = {"c": [n for n, case in CASES.items() if case.c], "cuda": [n for n, case in CASES.items() if case.device]}
SHOWN |= {target: names.split() for target, names in OTHERS.items()}
FILES = [f"{target}/{name}{ENDS[target]}" for target, names in SHOWN.items() for name in names]

# Templates that no text shows.
UNSEEN = {
    "c/collective.c.j2": "no model names exchanges: tests/sharding compiles and runs them",
    "cuda/collective.cu.j2": "no model names exchanges: tests/targets/gpu/cuda/test_collective.py runs them",
    "cuda/attention_cache.j2": "takes attention over a cache with all that belongs to it, which is no small model",
    "cuda/attention_group.j2": "prints 660 lines for the smallest model that it serves; groups.cu shows its products",
    "cuda/contraction_int4.j2": "takes weights of 4 bits as one format of models packs them",
    "c/gemm_nibbles.c.j2": "takes weights of 4 bits as one format of models packs them",
    "c/digits.c.j2": "makes what that one reads",
    "llvm/conv.ll.j2": "prints 680 lines around the tile that gemm.ll shows",
    "c/conv_weights.c.j2": "computes gradients, which no model that runs has",
    "c/depthwise_weights.c.j2": "computes gradients, which no model that runs has",
    "c/custom.c.j2": "calls a user's own function",
    "cuda/custom.cu.j2": "calls a user's own function",
    "c/custom_call.j2": "calls a user's own function",
    "llvm/depthwise.ll.j2": "prints 530 lines, of which each tap is some",
    "llvm/recurrent.ll.j2": "prints 750 lines around the tile that gemm.ll shows",
    "webgpu/prelude.j2": "holds functions, which kernels print if they call them",
}


def generated(case: Case, target: str) -> tuple[list[str], list[str]]:
    """The templates and the sources of a case's kernels, in the order of their launches."""
    options = CompileOptions(target=target, precision=case.precision)
    kind, pipeline = find_target(target), pipeline_of(options)
    graph = import_model(case.model().SerializeToString())
    run_pipeline(graph, pipeline, options, kind.features_on(case.archs, case.extras))
    policy = replace(
        policy_of(options, pipeline), max_buffers=kind.max_buffers, horizontal_fusion=kind.horizontal_fusion
    )
    plan = make_plan(finalise(graph, policy))
    made = kind(Machine(lanes=16, slack=case.slack, archs=case.archs, extras=case.extras, by_size=False))
    kernels = [k for group in plan.groups for k in made.lower(graph, group, plan.storage)]
    return [k.template.split(".")[0] for k in kernels], [made.render(k).source for k in kernels]


def expected(case: Case, target: str) -> list[str]:
    """Names of templates, in parentheses where they are not shown; those of one that is not listed are all shown."""
    return (case.c if target in ("c", "llvm") else case.device).split()


@pytest.mark.parametrize("file", FILES)
def test_golden(file: str, request: pytest.FixtureRequest) -> None:
    place = HERE / file
    case, target = CASES[place.stem], place.parent.name
    names, sources = generated(case, target)
    wanted = expected(case, target)
    assert names == [name.strip("()") for name in wanted]
    source = "\n".join(text for name, text in zip(wanted, sources, strict=True) if not name.startswith("("))
    if request.config.getoption("--renew-golden"):
        place.parent.mkdir(exist_ok=True)
        place.write_text(source)
    assert source == place.read_text(), f"{file} differs: if that is meant, renew it with --renew-golden"


def test_no_file_is_left_over() -> None:
    assert {str(p.relative_to(HERE)) for p in HERE.rglob("*.*") if p.suffix in ENDS.values()} == set(FILES)


def used(name: str, search: tuple[str, ...]) -> set[Path]:
    """The template of a name and all that it takes from others."""
    path = find_template(search, name)
    names = re.findall(r"""{%-?\s*(?:include|import|from|extends)\s+["']([^"']+)""", path.read_text())
    return {path}.union(*(used(n, search) for n in names))


def shown(target: str, name: str) -> set[Path]:
    """The templates that a text shows; LLVM prints some kernels without any."""
    end, search = (KERNELS[target], ("llvm",) if target == "llvm" else find_target(target).search)
    files = [n + end for n in expected(CASES[name], target) if not n.startswith("(")]
    folder = templates("llvm") / "kernels"
    return set().union(*(used(f, search) for f in files if target != "llvm" or (folder / f).exists()))


def test_each_template_of_kernels_is_shown() -> None:
    """Add a case that shows it, or a line to UNSEEN that says why not."""
    seen = set().union(*(shown(target, name) for target, names in SHOWN.items() for name in names))
    there = {p for target in SHOWN for f in ("gpu", target) for p in (templates(f) / "kernels").iterdir()}
    assert {f"{p.parents[1].name}/{p.name}" for p in there - seen} == set(UNSEEN)
