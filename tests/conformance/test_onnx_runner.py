"""A slice of the cases through onnx's own runner, ``onnx.backend.test.BackendTest``, as it stands.

``loop16_seq_none`` is not among them: the runner cannot compare a sequence that holds a tensor without dimensions.
"""

from __future__ import annotations

import re
import unittest
import warnings

from onnx.backend.test import BackendTest

from tests.support.slow import SLOW
from torshc import backend

CASES = {
    "sequences": (
        8,
        "sequence_insert_at_(back|front)|identity_sequence|split_to_sequence_1|sequence_map_extract_shapes"
        "|sequence_map_(add_1_sequence_1_tensor|identity_2_sequences)|sequence_model7",
    ),
    "optionals": (
        6,
        "identity_opt|optional_get_element_(tensor|optional_sequence)|optional_has_element_optional_input"
        "|optional_has_element_empty_(no_input_optional_input|optional_input)",
    ),
    "strings": (
        6,
        "string_(concat|split_basic)|regex_full_match_basic|ai_onnx_ml_label_encoder_string_int|equal_string"
        "|strnorm_model_monday_casesensintive_upper",
    ),
    "control flow": (6, "if|if_seq|if_opt|loop11|loop13_seq|scan9_sum"),
    "types": (
        7,
        "cast_FLOAT_to_(BFLOAT16|FLOAT8E5M2)|cast_INT4_to_FLOAT|quantizelinear_int4|dequantizelinear_e4m3fn_float16"
        "|cast_UINT2_to_UINT8|dynamicquantizelinear",
    ),
    "others": (
        10,
        "clip_default_int8_min|gemm_alpha|conv_with_strides_padding|softmax_axis_1|nonzero_example|top_k|det_2d"
        "|unique_sorted_without_axis|AvgPool2d|operator_addmm",
    ),
}


@SLOW  # most of it is onnx, which computes all of its cases; tests/test_backend.py tries the interface
def test_cases() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as cases are computed
        made = BackendTest(backend, __name__).test_cases.values()
    tests = [test for case in made for test in unittest.defaultTestLoader.loadTestsFromTestCase(case)]
    chosen = unittest.TestSuite()
    for group, (count, pattern) in CASES.items():
        name = re.compile(rf"test_({pattern})_cpu")
        found = [test for test in tests if name.fullmatch(test.id().rpartition(".")[2])]
        assert len(found) == count, group
        chosen.addTests(found)
    result = unittest.TestResult()
    chosen.run(result)
    assert result.testsRun == sum(count for count, _ in CASES.values()) and not result.skipped
    assert result.wasSuccessful(), "\n".join(told for _, told in result.failures + result.errors)
