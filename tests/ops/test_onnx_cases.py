"""ONNX's own test cases of every operator: each that is supported gives ONNX's result, each other says so."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.conformance.cases import Case, all_cases
from tests.conformance.compare import defined
from tests.support.evaluate import Array, run
from torshc.base.errors import UnsupportedError
from torshc.formats import import_model
from torshc.ops import REGISTRY

# What a registered operator may still refuse.
REFUSALS = re.compile(
    r"element type|a cast to ONNX type|in training mode|a value of kind|strings|spatial = 0|known only at run time"
    r"|BitCast of"
)
SEQUENCES = {"SequenceInsert", "SplitToSequence", "OptionalGetElement", "OptionalHasElement"}  # no tensors alone
HEAVY = {"LSTM", "GRU", "RNN"}  # no loop nest defines them; their kernels are tested where they are made
FUNCTIONS = "(functions)"  # operators written as other operators
PARTS = 12  # of their cases
ROUGH = {"bfloat16": 2e-2, "float16": 2e-3}
# Operators without cases that begin with them, and where they are tested instead.
ELSEWHERE = {
    "Upsample", "ConstantOfShape", "GlobalLpPool", "LpNormalization",  # test_operators.py
    "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",  # test_random.py
    "ConcatFromSequence", "Optional", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase",
    "SequenceLength",  # test_sequence.py
    "SimplifiedLayerNormalization",  # test_contrib.py
    "Affine", "ConstantFill", "Crop", "DynamicSlice", "GivenTensorFill", "ImageScaler", "ParametricSoftplus", "Scale",
    "ScaledTanh",  # experimental/
}  # fmt: skip


@lru_cache(maxsize=1)
def cases() -> dict[str, list[Case]]:
    """The cases by operator."""
    out: dict[str, list[Case]] = defaultdict(list)
    for case in all_cases():
        if not case.operator.startswith("["):
            op = FUNCTIONS if "_expanded" in case.name else case.model.graph.node[0].op_type
            out[op].append(case)
    return dict(out)


def tensors(values: Any) -> list[Array] | None:
    """The values as arrays, or None when one is a sequence or is absent."""
    if any(isinstance(v, list) or v is None for v in values):
        return None
    return [np.asarray(v) for v in values]


def load(model: onnx.ModelProto, feeds: dict[str, Array]) -> Any:
    """Import a model; operands that must be known at compile time become initializers."""
    try:
        return import_model(model.SerializeToString())
    except UnsupportedError as e:
        if "run time" not in str(e):
            raise
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    whole = len(feeds) == 1 or model.graph.node[0].op_type in ("MelWeightMatrix", "Range")
    for name in list(feeds) if whole else list(feeds)[1:]:
        fixed.graph.initializer.append(numpy_helper.from_array(feeds[name], name))
    return import_model(fixed.SerializeToString())


def compare(got: Array, wanted: Array, rtol: float, held: Any) -> None:
    """Whether the elements that are `held` are what they should be."""
    assert got.shape == wanted.shape
    assert got.dtype == wanted.dtype
    got, wanted = got[held], wanted[held]
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted)
        return
    rough = max(rtol, ROUGH.get(got.dtype.name, 1e-5))
    np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=rough, atol=1e-6)


# Cases are made when the first test needs them, seconds long: whoever collects tests does without.
@pytest.mark.parametrize("op", sorted({name for domain, name in REGISTRY if not domain} - ELSEWHERE))
def test_cases(op: str) -> None:
    """Every case of an operator, so that one message names all that fail."""
    check(op, cases()[op])


def test_cases_of_others() -> None:
    """Those of operators that are not registered."""
    for op in sorted(cases().keys() - {name for domain, name in REGISTRY if not domain} - {FUNCTIONS}):
        check(op, cases()[op])


@pytest.mark.parametrize("part", range(PARTS))
def test_functions(part: int) -> None:
    check(FUNCTIONS, cases()[FUNCTIONS][part::PARTS])


def check(op: str, found: list[Case]) -> None:
    failures = []
    done = elsewhere = 0
    for case in found:
        names = [v.name for v in case.model.graph.input]
        for index, (ins, outs) in enumerate(case.data_sets):
            inputs, outputs = tensors(ins), tensors(outs)
            try:
                graph = load(case.model, dict(zip(names, inputs or (), strict=False)))
                if inputs is None or outputs is None or op in HEAVY:
                    continue
                if any(n.op.family == "host" or n.op.name == "Draw" for n in graph.nodes):
                    elsewhere += 1  # tests/conformance compiles and runs these
                    continue
                results = run(graph, dict(zip(names, inputs, strict=True)))
                for got, wanted in zip(results, outputs, strict=True):
                    compare(got, wanted, case.rtol, defined(case, index))
                done += 1
            except UnsupportedError as e:
                if ("", op) in REGISTRY and not REFUSALS.search(str(e)):
                    failures.append(f"{case.name}: {e}")
            except AssertionError as e:
                failures.append(f"{case.name}: {e}")
    assert not failures, "\n".join(failures)
    assert done or elsewhere or op in HEAVY or ("", op) not in REGISTRY or op in SEQUENCES


def test_every_operator_has_cases() -> None:
    assert {name for domain, name in REGISTRY if not domain} - set(cases()) <= ELSEWHERE
