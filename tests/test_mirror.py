"""Tests mirror the source: a file below a layer's folder is named after a module there, or is listed here.

``tests/ops/tensor/test_sort.py`` tests ``torshc/ops/tensor/sort.py``; a word may follow the module's name
(``test_select_compiled.py``). What looks across modules is in ``ACROSS``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PACKAGE = TESTS.parent / "torshc"

ACROSS = {
    "bundle/test_abi.py": "the C interface, from C and C++",
    "bundle/test_device.py": "libraries for devices, from C++",
    "cli/test_main.py": "the command as a whole",
    "cli/test_readme.py": "what the READMEs show and say",
    "cli/test_verbs.py": "the short commands",
    "explain/test_explain.py": "the report in all its forms",
    "explain/test_forms.py": "numbers, tables and escapes of all renderings",
    "expr/test_sizes.py": "sizes that are computed in several types",
    "formats/test_damage.py": "damaged files of every format",
    "formats/test_forks.py": "branches of different ranks",
    "formats/test_habits.py": "what older exporters write",
    "formats/test_tolerance.py": "what deviates from ONNX and has one meaning",
    "gradient/test_contrib_operators.py": "the gradients of all operators of other domains",
    "gradient/test_operators.py": "the gradients of all operators",
    "ops/test_extension.py": "an operator from outside",
    "ops/test_older_forms.py": "forms of older opsets",
    "ops/test_onnx_cases.py": "ONNX's own cases",
    "ops/test_runtime_operands.py": "shape operands that are known at run time",
    "ops/test_sizes.py": "dimensions of 0, 1, 2 and 7",
    "ops/test_symbolic.py": "symbolic dimensions",
    "passes/test_levels.py": "the optimisation levels",
    "plan/test_rules.py": "fusion rules of a user's file, from file to kernel",
    "bundle/test_versions.py": "libraries with versions for several processors",
    "targets/cpu/test_arm.py": "products of narrow types by Arm's instructions",
    "targets/cpu/test_dot.py": "products of bytes in every kernel that has them",
    "targets/test_computed_indices.py": "indices computed from data, on devices",
    "targets/test_devices.py": "whole bundles for devices",
    "targets/test_drawn_numbers.py": "random numbers on devices",
    "targets/test_sharing.py": "parts of an expression that are printed once, on every target",
    "targets/test_toy.py": "a target from outside",
    "targets/test_uniform_operands.py": "operands without axes, on devices",
}
FOLDERS = sorted(p.name for p in TESTS.iterdir() if (PACKAGE / p.name).is_dir())


def named(test: Path) -> bool:
    """Whether a test file is named after a module."""
    folder = PACKAGE / test.parent.relative_to(TESTS)
    subject = test.stem.removeprefix("test_")
    modules = {p.stem for p in folder.iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()}
    return any(subject == m or subject.startswith(f"{m}_") for m in modules - {"__init__"})


def below(folder: str) -> list[Path]:
    return sorted((TESTS / folder).rglob("test_*.py"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_file_names_its_module(folder: str) -> None:
    """Else name it after the module that it tests, or add it to ACROSS with what it looks at."""
    strangers = {str(p.relative_to(TESTS)) for p in below(folder) if not named(p)}
    listed = {name for name in ACROSS if name.startswith(f"{folder}/")}
    assert strangers == listed
