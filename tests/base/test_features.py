"""Features of targets: what derives from a target has its features, and so the kernels that passes choose by them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, helper

from tests.support.models import model
from torshc.base.errors import ToolchainError
from torshc.base.features import Feature
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare
from torshc.targets import TARGETS
from torshc.targets.base import register
from torshc.targets.cc import CToolchain
from torshc.targets.cpu.c import CTarget
from torshc.targets.isa import resolve

PACKAGE = Path(__file__).resolve().parents[2] / "torshc"
# Layers that get a target and must not ask which it is. What is above them (the command line's defaults, functions that
# are compiled where they are called) says which target it means.
NAMELESS = ("expr", "graph", "ops", "gradient", "formats", "passes", "training", "plan", "kernels", "bundle",
            "pipeline", "explain", "workbench")  # fmt: skip


@pytest.fixture
def derived() -> Iterator[str]:
    @register
    class Derived(CTarget):
        """C for another compiler."""

        name = "derived"

    yield Derived.name
    del TARGETS[Derived.name]


def quantised_product() -> ModelProto:
    rng = np.random.default_rng(0)
    constants = {"w": rng.integers(-127, 128, (64, 48)).astype(np.int8), "ws": np.float32(0.02), "xs": np.float32(0.1),
                 "xz": np.uint8(128)}  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws"], ["wd"]),
        helper.make_node("MatMul", ["d", "wd"], ["y"]),
    ]
    return model(nodes, {"x": [16, 64]}, "y", constants, 21)


def product_of_halves() -> ModelProto:
    w = np.random.default_rng(0).standard_normal((64, 48)).astype(np.float16)
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("float16", [16, 64])}, "y", {"w": w}, 21)


@pytest.mark.parametrize("make", [quantised_product, product_of_halves])
def test_a_derived_target_has_the_kernels_of_its_parent(make: Callable[[], ModelProto], derived: str) -> None:
    data = make().SerializeToString()
    own, parents = (prepare(data, CompileOptions(target=t)) for t in (derived, "c"))
    assert [g.kernels[0].template for g in own.units] == [g.kernels[0].template for g in parents.units]
    assert own.sources == parents.sources and any("gemm" in u.kernels[0].template for u in own.units)


def test_a_derived_target_has_a_compiler_of_its_own(derived: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Toolchain(CToolchain):
        compiler = "no-such-compiler"

    monkeypatch.setattr(TARGETS[derived], "toolchain", Toolchain())
    with pytest.raises(ToolchainError, match="no-such-compiler"):
        TARGETS[derived].toolchain.find(CompileOptions(target=derived), resolve())
    with pytest.raises(ToolchainError, match="other"):
        TARGETS[derived].toolchain.find(CompileOptions(target=derived, cc="other"), resolve())


def test_each_feature_is_asked_for_and_had() -> None:
    asking = "".join(p.read_text() for folder in ("passes", "pipeline") for p in (PACKAGE / folder).glob("*.py"))
    asked = {f for f in Feature if f"Feature.{f.name}" in asking}
    assert asked == set(Feature) == set().union(*(t.features for t in TARGETS.values()))


def test_no_layer_below_the_ways_in_names_a_target() -> None:
    names = TARGETS.keys() - {"c"}  # "c" is also a folder of templates
    files = {part: list((PACKAGE / part).rglob("*.py")) for part in NAMELESS}
    assert all(files.values())
    files["workbench"].remove(PACKAGE / "workbench/torch_baseline.py")  # it names PyTorch's devices
    found = [
        f"{file.relative_to(PACKAGE)}:{node.lineno}: {node.value}"
        for file in chain.from_iterable(files.values())
        for node in ast.walk(ast.parse(file.read_text()))
        if (isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in names)
        or (file.parent.name == "passes" and isinstance(node, ast.Attribute) and ast.unparse(node) == "options.target")
    ]
    assert found == []
