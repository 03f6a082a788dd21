"""Sizes that choose between branches of different ranks, of which the rest of the model fits one only.

PyTorch's exporter makes such an If of ``x.squeeze(1)`` where the dimension is symbolic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from tests.support import models
from tests.support.compare import compiled, reference
from torshc.base.errors import ModelError, RunError, UnsupportedError
from torshc.formats import build, import_model

from ..support.evaluate import Array

F, B = TensorProto.FLOAT, TensorProto.BOOL
WEIGHTS = {
    "one": np.asarray(1), "axis": np.array([1]), "last": np.array([-1]), "at": np.asarray(1),
    "zero": np.array([0]), "zero_": np.asarray(0), "five": np.array([5]), "k2": np.ones((1, 5), np.float32),
    "w": np.linspace(-1, 1, 10, dtype=np.float32).reshape(5, 2), "k": np.ones((4, 2, 1), np.float32),
}  # fmt: skip
info = helper.make_tensor_value_info


def node(op: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs.split(",") if inputs else [], [output], **attributes)


def body(*nodes: NodeProto) -> GraphProto:
    return helper.make_graph(nodes, "body", [], [helper.make_empty_tensor_value_info(nodes[-1].output[0])])


def squeezed(x: str, out: str) -> list[NodeProto]:
    """What is exported for ``out = x.squeeze(1)``."""
    then, other = body(node("Squeeze", f"{x},axis", f"{out}s")), body(node("Identity", x, f"{out}i"))
    return [
        node("Shape", x, f"{out}shape"), node("Gather", f"{out}shape,at", f"{out}d"),
        node("Equal", f"{out}d,one", f"{out}c"), node("If", f"{out}c", out, then_branch=then, else_branch=other),
    ]  # fmt: skip


def model(*nodes: NodeProto, more: list[Any] | None = None) -> ModelProto:
    return models.model(nodes, [info("x", F, [2, "n", 5]), *(more or [])], "y", WEIGHTS, 17)


def x_of(n: int) -> Array:
    return np.random.default_rng(n).standard_normal((2, n, 5)).astype(np.float32)


def answer(m: ModelProto, folder: Path, feeds: dict[str, Array]) -> Array:
    return compiled(m, feeds, folder, threads=1, opt_level=1)["y"]


def agree(m: ModelProto, folder: Path, **feeds: Array) -> None:
    (wanted,) = reference(m, feeds)
    np.testing.assert_allclose(answer(m, folder, feeds), wanted, rtol=1e-5, atol=1e-6)


def test_what_follows_fits_the_first_branch(tmp_path: Path) -> None:
    """A Gemm takes matrices only, so that n is 1."""
    m = model(*squeezed("x", "s"), node("Gemm", "s,w", "y"))
    agree(m, tmp_path, x=x_of(1))
    for n in (0, 2, 3):
        with pytest.raises(RunError, match="fit"):
            answer(m, tmp_path, {"x": x_of(n)})


def test_what_follows_fits_the_second_branch(tmp_path: Path) -> None:
    """A Conv takes three dimensions at least, so that n is not 1; it is 2, by the weights."""
    m = model(*squeezed("x", "s"), node("Conv", "s,k", "y"))
    agree(m, tmp_path, x=x_of(2))
    m = model(*squeezed("x", "s"), node("Transpose", "s", "y", perm=[1, 2, 0]))
    agree(m, tmp_path, x=x_of(3))
    with pytest.raises(RunError, match="fit"):
        answer(m, tmp_path, {"x": x_of(1)})


def test_one_choice_after_the_other(tmp_path: Path) -> None:
    nodes = [*squeezed("x", "s"), *squeezed("x", "r"), node("Gemm", "s,w", "g"), node("Gemm", "r,w", "h")]
    agree(model(*nodes, node("Sub", "g,h", "y")), tmp_path, x=x_of(1))


def test_a_choice_inside_of_a_branch_that_a_run_takes(tmp_path: Path) -> None:
    """Sizes are checked only if the run comes there."""
    then = body(*squeezed("x", "s"), node("Gemm", "s,w", "g"))
    other = body(node("ReduceSum", "x,axis", "r", keepdims=0), node("Gemm", "r,w", "h"))
    m = model(node("If", "c", "y", then_branch=then, else_branch=other), more=[info("c", B, [])])
    agree(m, tmp_path, x=x_of(1), c=np.asarray(True))
    for n in (1, 3):
        agree(m, tmp_path, x=x_of(n), c=np.asarray(False))
    with pytest.raises(RunError, match="fit"):
        answer(m, tmp_path, {"x": x_of(3), "c": np.asarray(True)})


def test_a_choice_by_a_count_that_nothing_else_needs(tmp_path: Path) -> None:
    """It is counted for the check alone, in the model as in a branch: only without elements is there a matrix."""
    then, other = body(node("Identity", "v", "t")), body(node("Unsqueeze", "v,zero", "u"))
    counted = [
        node("Reshape", "x,last", "v"), node("NonZero", "v", "at_"), node("Size", "at_", "count"),
        node("Greater", "count,zero_", "some"), node("If", "some", "r", then_branch=then, else_branch=other),
        node("Slice", "r,zero,five,axis", "s"), node("Gemm", "s,w", "y"),
    ]  # fmt: skip
    inside = [*counted[:-1], node("Gemm", "s,w", "g")]
    outer = node("If", "c", "y", then_branch=body(*inside), else_branch=body(node("Gemm", "k2,w", "h")))
    zeros = np.zeros((2, 1, 5), np.float32)
    for m, more in ((model(*counted), {}), (model(outer, more=[info("c", B, [])]), {"c": np.asarray(True)})):
        assert answer(m, tmp_path, {"x": zeros, **more}).shape == (1, 2)
        with pytest.raises(RunError, match="does not hold"):
            answer(m, tmp_path, {"x": x_of(1), **more})


REFUSED = (
    "its branches give f32[2, 5] and f32[2, n, 5], and which one is known only at run time: pin the inputs' shapes"
)


def test_what_fits_both_branches_is_refused() -> None:
    """With all that is unsupported besides."""
    m = model(*squeezed("x", "s"), node("Mystery", "x", "m", domain="elsewhere"), node("Relu", "s", "y"))
    with pytest.raises(UnsupportedError) as e:
        import_model(m.SerializeToString())
    assert REFUSED in e.value.problems[0] and "Mystery" in e.value.problems[1] and len(e.value.problems) == 2


def test_what_fits_no_branch_is_refused() -> None:
    m = model(*squeezed("x", "s"), node("Gemm", "s,w", "g"), node("Conv", "g,k", "y"))
    with pytest.raises(UnsupportedError) as e:
        import_model(m.SerializeToString())
    assert REFUSED in e.value.problems[0] and len(e.value.problems) == 1


def test_a_mistake_elsewhere_is_named() -> None:
    """No choice of a branch mends it, so that none is tried."""
    m = model(node("Gemm", "w,w", "g"), *squeezed("x", "s"), node("Gemm", "s,w", "y"))
    with pytest.raises(ModelError, match=r"node 'g' .Gemm."):
        import_model(m.SerializeToString())


def test_many_choices_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes two imports, and there is a limit to them."""
    monkeypatch.setattr(build, "_ATTEMPTS", 8)
    nodes = [n for k in range(5) for n in (*squeezed("x", f"s{k}"), node("Gemm", f"s{k},w", f"g{k}"))]
    few, many = (model(*nodes[: 5 * count], node("Neg", f"g{count - 1}", "y")) for count in (2, 5))
    assert len(import_model(few.SerializeToString()).outputs) == 1
    with pytest.raises(UnsupportedError, match=r"'s0' .If.: its branches give"):
        import_model(many.SerializeToString())
