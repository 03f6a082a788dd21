"""An operator that ONNX does not have takes one class, here, and is imported, fused, folded and compiled everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import torshc
from tests.emulation.emulated import emulated_tools
from tests.support import models
from tests.support.models import node
from torshc.base.errors import ModelError
from torshc.expr import as_int, const, select
from torshc.graph import Node, TensorType
from torshc.ops import REGISTRY
from torshc.ops.core.base import Constraints, Index, Inputs, LoopNest, Op, Read, axis_of, need, operator
from torshc.ops.core.scalar import Scalar, where
from torshc.pipeline.compilation import Compilation

DOMAIN = "test.torshc"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Leap(Op):
    """x[i] + scale * x[i - step] along an axis; what lies before the first element is 0."""

    family: ClassVar[str] = "nest"
    axis: int = -1
    step: int = 1
    scale: float = 0.5

    def infer(self, inputs: Inputs, constraints: Constraints) -> list[TensorType]:
        x = need(inputs[0], "the operand of Leap")
        axis_of(self.axis, x.type.rank)
        if self.step < 0:
            raise ModelError(f"Leap with a step of {self.step}")
        return [x.type]

    def nest(self, node: Node, output: int) -> LoopNest:
        a = axis_of(self.axis, len(node.output.shape))

        def body(at: Index, _: Index, read: Read) -> Scalar:
            back = at[a] - self.step
            before = (*at[:a], select(back >= 0, back, const(0)), *at[a + 1 :])
            return read(0, at) + where(back >= 0, read(0, before), 0) * self.scale

        return LoopNest(body)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    operator("Leap", DOMAIN)(Leap)
    yield
    del REGISTRY[DOMAIN, "Leap"]


def model(x: Array | None = None, **attributes: Any) -> ModelProto:
    """Neg(Leap(Exp(x))), for an input, or for a constant of which an input takes the product."""
    leap = node("Leap", "a", "b", domain=DOMAIN, name="the_leap", **attributes)
    nodes = [node("Exp", "x", "a"), leap, node("Neg", "b", "c")]
    if x is None:
        return models.model([*nodes, node("Relu", "c", "y")], {"x": ["n", 7]}, "y", opset=18)
    return models.model([*nodes, node("Mul", "c k", "y")], {"k": []}, "y", {"x": x}, opset=18)


def compiled(made: ModelProto, folder: Path, **options: Any) -> Compilation:
    onnx.save(made, folder / "m.onnx")
    return torshc.compile(folder / "m.onnx", folder / "m.tsc", **options)


def leap(x: Array, step: int, scale: float) -> Array:
    """Along the last axis."""
    out = np.exp(x)
    before = np.pad(out, ((0, 0), (step, 0)))[:, : x.shape[1]]
    return np.asarray(out + np.float32(scale) * before)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("target", ["c", "cuda"])
def test_compiled(target: str, level: int, tmp_path: Path) -> None:
    with emulated_tools() if target == "cuda" else pytest.MonkeyPatch.context():
        compilation = compiled(model(step=2, scale=-3.0), tmp_path, target=target, opt_level=level)
        if level:  # with what follows in one kernel
            assert any({"Leap", "Neg", "Relu"} <= {n.op.name for n in g.nodes} for g in compilation.plan.groups)
        with torshc.load(tmp_path / "m.tsc") as loaded:
            for rows in (0, 1, 2, 7):
                x = np.random.default_rng(rows).standard_normal((rows, 7)).astype(np.float32)
                (got,) = loaded.run({"x": x}).values()
                np.testing.assert_allclose(got, np.maximum(-leap(x, 2, -3.0), 0), rtol=1e-5, atol=1e-6)


def test_folded(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((3, 7)).astype(np.float32)
    compilation = compiled(model(x), tmp_path)
    assert [n.op.name for n in compilation.graph.nodes] == ["Mul"]
    assert as_int(compilation.graph.outputs[0].type.size) == x.size
    with torshc.load(tmp_path / "m.tsc") as loaded:
        (got,) = loaded.run({"k": np.float32(2)}).values()
    np.testing.assert_allclose(got, -2 * leap(x, 1, 0.5), rtol=1e-6)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [({"stride": 2}, "'stride'"), ({"axis": 2}, "axis 2"), ({"step": -1}, "step of -1"), ({"scale": "x"}, "scale")],
)
def test_refused_by_name(attributes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"the_leap.*{message}"):
        compiled(model(**attributes), tmp_path)
