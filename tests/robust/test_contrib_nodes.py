"""Random nodes of com.microsoft answer as ONNX Runtime's kernels do; ``contrib_check`` runs any number of them."""

from __future__ import annotations

import pytest

from torshc.ops import REGISTRY

from .contrib_check import compare
from .contrib_nodes import DRAWS

SAMPLE = range(6)  # of each operator

# ONNX Runtime has no kernel of these for processors.
WITHOUT = {
    "BiasAdd", "BiasSoftmax", "BiasSplitGelu", "FusedMatMulActivation", "GroupNorm", "Irfft", "IsAllFinite",
    "MulInteger", "NhwcConv", "NhwcFusedConv", "QLinearReduceMean", "Rfft", "SkipGroupNorm",
}  # fmt: skip
# Steps of the host, which are compiled in tests of their own.
OF_THE_HOST = {"Inverse", "Tokenizer", "Unique"}


def test_every_operator_is_drawn() -> None:
    known = {name for domain, name in REGISTRY if domain == "com.microsoft"}
    assert known == set(DRAWS) | WITHOUT | OF_THE_HOST and not set(DRAWS) & (WITHOUT | OF_THE_HOST)


@pytest.mark.parametrize("op", sorted(DRAWS))
def test_random_nodes(op: str) -> None:
    pytest.importorskip("onnxruntime")
    found = [compare(op, seed) for seed in SAMPLE]
    told = {"same", "unsupported", "refused by ONNX Runtime"}
    assert not {k: what for k, what in enumerate(found) if what not in told} and "same" in found
