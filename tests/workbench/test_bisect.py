"""Faults that are put in, and found: in a pass, in fusion, in a node, in two nodes together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.support.cli_models import CHAIN
from tests.support.models import save
from torshc.base.errors import ConfigError, ModelError, OutputError
from torshc.base.options import CompileOptions
from torshc.pipeline.compiler import prepare
from torshc.pipeline.tolerance import Tolerance
from torshc.workbench import bisect
from torshc.workbench.bisect import bisect_model
from torshc.workbench.eject import eject
from torshc.workbench.verify import OutputCheck, compare, verify_model

WRONG = """
- name: wrong
  match: "Tanh(x)"
  replace: "Sigmoid(x)"
"""
MASKED = """
<ir_version: 8, opset_import: ["" : 18]>
masked (float[3,4] x) => (float[3,4] y) {
  kept, mask = Dropout(x)
  y = Tanh(kept)
  unread = Not(mask)
}
"""
TOGETHER = """
- name: wrong
  match: "Add(Sigmoid(y), x)"
  replace: "Sub(Sigmoid(y), x)"
"""


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Path]:
    return save(CHAIN, tmp_path / "chain.onnx")


def rules(folder: Path, text: str) -> CompileOptions:
    (folder / "wrong.yaml").write_text(text)
    return CompileOptions(rules=(folder / "wrong.yaml",))


def test_a_right_model(chain: Path, tmp_path: Path) -> None:
    for against in bisect.AGAINST:
        found = bisect_model(chain, CompileOptions(), tmp_path / "small.onnx", against)
        assert found.ok and [o.ok for o in found.outputs] == [True, True] and found.dims == {"batch": 2}
    assert not (tmp_path / "small.onnx").exists()


@pytest.mark.parametrize("against", ["reference", "O0"])
def test_a_wrong_pass(chain: Path, tmp_path: Path, against: str) -> None:
    """A rewrite that is none; the smallest model shows it with the same options, and only with them."""
    options, small = rules(tmp_path, WRONG), tmp_path / "small.onnx"
    found = bisect_model(chain, options, small, against)
    assert [o.ok for o in found.outputs] == [True, False]
    place = found.place
    assert place is not None and place.step == "rewrite" and place.without == "--pass rewrite=off"
    assert place.node == "'activation' (Tanh)" and place.nodes == 1 and place.check.error > 0.1
    assert [k.template for k in place.kernels] == ["map.c.j2"] and "activation" in place.kernels[0].nodes[0]
    assert [n.op_type for n in onnx.load(small).graph.node] == ["Tanh"]
    given = [str(small.with_suffix(".npz"))]
    assert verify_model(small, CompileOptions(), inputs=given).ok
    assert not verify_model(small, options, inputs=given).ok


def test_two_nodes_that_are_wrong_together(chain: Path, tmp_path: Path) -> None:
    found = bisect_model(chain, rules(tmp_path, TOGETHER), tmp_path / "small.onnx").place
    assert found is not None and found.node == "'mixed' (Add)" and found.nodes == 2
    small = onnx.load(tmp_path / "small.onnx").graph
    assert [n.op_type for n in small.node] == ["Sigmoid", "Add"] and {v.name for v in small.input} == {"scaled", "x"}


def test_wrong_fusion(chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right with all passes, wrong once kernels are fused."""
    wrong, real = rules(tmp_path, WRONG), bisect.compile_model

    def compile(source: Any, out: Any, options: CompileOptions, observer: Any, **how: Any) -> Any:
        return real(source, out, options if options.fusion == "none" else wrong, observer, **how)

    monkeypatch.setattr(bisect, "compile_model", compile)
    found = bisect_model(chain, CompileOptions(), tmp_path / "small.onnx").place
    assert found is not None and found.step == "fusion" and found.without == "--fusion none"


def test_a_wrong_kernel(chain: Path, tmp_path: Path) -> None:
    """Wrong with no pass too: from the gate on, whatever comes behind it."""
    seen = []

    def judge(name: str, got: Any, wanted: Any) -> OutputCheck:
        seen.append(name)
        assert np.allclose(got, wanted, rtol=1e-4)
        return compare(name, got, wanted, Tolerance(1.0 if name in ("scaled", "x") else -1.0))

    found = bisect_model(chain, CompileOptions(), tmp_path / "small.onnx", judge=judge)
    assert found.place is not None and found.place.step == "" == found.place.without
    assert found.place.node == "'gate' (Sigmoid)" and found.place.nodes == 1
    assert {"scaled", "gate"} <= set(seen) and not found.ok


def test_values_that_no_one_reads(tmp_path: Path) -> None:
    """A reference may give another mask, which no output depends on."""

    def judge(name: str, got: Any, wanted: Any) -> OutputCheck:
        return compare(name, got, wanted, Tolerance(-1.0 if name in ("y", "mask") else 1.0))

    model, small = save(MASKED, tmp_path / "masked.onnx"), tmp_path / "small.onnx"
    place = bisect_model(model, CompileOptions(), small, judge=judge).place
    assert place is not None and place.node == "'y' (Tanh)"


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_wrong_edited_kernel(wrong: int, chain: Path, tmp_path: Path) -> None:
    """Of two edited ones: it is named, though parts of the model have no place for the other."""
    done, folder = prepare(chain, CompileOptions(fusion="none")), tmp_path / "kernels"
    places = [eject(done, number, folder)[0] for number in (0, 2)]  # of Mul and Add
    source = places[wrong] / "kernel.c"
    source.write_text(source.read_text().replace((") * t_load", ") + t_load")[wrong], ") - t_load"))
    options = CompileOptions(fusion="none", kernels=folder)
    found = bisect_model(chain, options, tmp_path / "small.onnx").place
    assert found is not None and found.step == "kernels" and found.without == ""
    assert (found.node, found.nodes) == (("'scaled' (Mul)", 1), ("'mixed' (Add)", 3))[wrong]
    assert [k.edited for k in found.kernels] == [f"{places[wrong].name}/kernel.c"]


def test_a_fault_beside_edited_kernels(chain: Path, tmp_path: Path) -> None:
    """Kernels that are right are left out, and the pass is found."""
    folder = tmp_path / "kernels"
    options = replace(rules(tmp_path, WRONG), fusion="none")
    eject(prepare(chain, options), 0, folder)
    found = bisect_model(chain, replace(options, kernels=folder), tmp_path / "small.onnx").place
    assert found is not None and found.step == "rewrite"


def test_what_cannot_be_bisected(chain: Path, tmp_path: Path) -> None:
    samples = Path(__file__).resolve().parents[2] / "samples"
    options = CompileOptions()
    with pytest.raises(ConfigError, match="--against 'truth'"):
        bisect_model(chain, options, tmp_path / "small.onnx", "truth")
    with pytest.raises(ConfigError, match="is not the name of a model"):
        bisect_model(chain, options, tmp_path / "small.npz")
    with pytest.raises(ModelError, match=r"mlp\.json is a JSON graph"):
        bisect_model(samples / "mlp.json", options, tmp_path / "small.onnx")
    with pytest.raises(OutputError, match="cannot write"):
        bisect_model(chain, rules(tmp_path, WRONG), tmp_path / "nowhere" / "small.onnx")
