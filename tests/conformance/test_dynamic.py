"""What is made dynamic of a case, and what is left as it is."""

from __future__ import annotations

from functools import lru_cache

import onnx

from .cases import Case, all_cases
from .dynamic import variants


@lru_cache(maxsize=1)
def _cases() -> dict[str, Case]:
    return {c.name: c for c in all_cases()}


def _shapes(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    inputs = {v.name: v.type.tensor_type.shape.dim for v in model.graph.input}
    return {name: [d.dim_param or d.dim_value for d in dims] for name, dims in inputs.items()}


def _forms(case: Case) -> dict[str, dict[str, list[int | str]]]:
    return {verdict: _shapes(model) for verdict, model, _ in variants(case)}


def test_the_most_general_form_comes_first() -> None:
    assert _forms(_cases()["prelu_broadcast"]) == {
        "passed": {"x": ["d0", "d1", "d2"], "slope": ["d3"]},
        "shared": {"x": ["n3", "n4", "n5"], "slope": ["n5"]},
    }
    assert list(_forms(_cases()["gemm_default_vector_bias"])) == ["passed", "ones", "shared"]


def test_shape_operands_keep_their_length() -> None:
    (first, *_) = variants(_cases()["reshape_extended_dims"])
    assert _shapes(first[1])["shape"] == [4]
    assert not first[2]


def test_what_an_operator_fixes_stays() -> None:
    assert _forms(_cases()["lstm_defaults"])["passed"] == {"X": ["d0", "d1", "d2"], "W": [1, 12, "d3"], "R": [1, 12, 3]}


def test_constant_shape_operands_become_inputs() -> None:
    _, model, more = next(iter(variants(_cases()["softmax_axis_0_expanded_ver18"])))
    assert more and set(more) <= {v.name for v in model.graph.input}
    assert not any(n.op_type == "Constant" and n.output[0] in more for n in model.graph.node)


def test_nothing_to_be_made_dynamic() -> None:
    assert not list(variants(_cases()["constant"])) and not list(variants(_cases()["range_float_type_positive_delta"]))


def test_every_form_is_a_valid_model() -> None:
    for name in (
        "conv_with_strides_padding",
        "loop11",
        "if",
        "nonmaxsuppression_two_classes",
        "gathernd_example_int32",
    ):
        for _, model, _ in variants(_cases()[name]):
            onnx.checker.check_model(model)
