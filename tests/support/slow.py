"""What `make test` leaves to `make test-all`: the marker `slow`, and lists of which only a part has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

SLOW = pytest.mark.slow
# Tests that compile a kernel or a bundle for each case, by the start of their names (the first that fits counts), and
# of how many cases one runs by default: those whose parameters, by number, add up to a multiple of it, so that values
# of parameters run side by side.
THINNED = {
    "tests/bundle/test_abi.py::test_status_codes": 2,
    "tests/bundle/test_abi.py::test_sanitizers": 2,
    "tests/bundle/test_build_script.py::test_kept_sources": 2,
    "tests/bundle/test_device.py": 4,
    "tests/bundle/test_weight_names.py::test_new_weights_from_c": 4,
    "tests/card/test_card.py::test_cases_are_what": 3,
    "tests/pipeline/test_compiler_nests.py::test_agrees_with_reference": 2,
    "tests/cli/test_main.py::test_a_full_stdout": 2,
    "tests/conformance/test_conformance.py::test_sample_on_devices": 5,
    "tests/formats/test_habits.py::test_old_attributes": 2,
    "tests/formats/test_quantized_lstm.py::test_answers": 5,
    "tests/ops/core/test_custom_kernel.py::test_a_function": 3,
    "tests/ops/math/test_bits.py::test_bits": 2,
    "tests/ops/nn/test_onnx_attention.py::test_as_the_reference": 4,
    "tests/ops/nn/test_recurrent_parts.py": 3,
    "tests/ops/quant/test_integer.py::test_zero_points": 2,
    "tests/ops/quant/test_narrow.py": 6,
    "tests/ops/test_onnx_cases.py::test_functions": 6,
    "tests/ops/test_runtime_operands.py::test_compiled": 3,
    "tests/ops/test_sizes.py::test_every_size": 3,
    "tests/ops/tensor/test_select.py::test_nonzero": 4,
    "tests/ops/tensor/test_index_compiled.py::test_among_others": 2,
    "tests/passes/test_half_products.py": 5,
    "tests/passes/test_integer_products.py::test_n": 2,
    "tests/pipeline/test_tolerance.py::test_a_right": 2,
    "tests/pipeline/test_tolerance.py::test_small": 2,
    "tests/pipeline/test_accuracy.py::test_stacks": 2,
    "tests/pipeline/test_forms_loose.py": 6,
    "tests/robust/test_many_layers.py::test_many_layers": 2,
    "tests/robust/test_broadcast_graphs.py::test_random_broadcasts_in": 2,
    "tests/robust/test_broadcast_graphs.py::test_random_broadcasts": 3,
    "tests/robust/test_names.py::test_names_reach": 5,
    "tests/robust/test_shape_graphs.py": 6,
    "tests/robust/test_sizes.py::test_every_symbolic_size": 2,
    "tests/robust/test_warnings.py": 3,
    "tests/robust/test_zoo.py::test_agrees": 2,
    "tests/robust/test_wrong_runs.py::test_an_index_out": 2,
    "tests/runtime/test_device.py::test_host_arrays": 2,
    "tests/runtime/test_opening.py::test_a_bundle_that_is_replaced": 2,
    "tests/runtime/test_ranks.py::test_processes_meet": 2,
    "tests/runtime/test_training.py::test_a_damaged": 2,
    "tests/sharding/test_tensors.py::test_what_follows": 3,
    "tests/sharding/test_tensors.py::test_attention_an": 2,
    "tests/targets/cpu/test_attention": 8,
    "tests/targets/cpu/test_bf16.py::test_a_row_has": 2,
    "tests/targets/cpu/test_c.py::test_known_sizes": 3,
    "tests/targets/cpu/test_bf16.py::test_product": 12,
    "tests/targets/cpu/test_bf16.py::test_windows": 12,
    "tests/targets/cpu/test_conv_weights": 4,
    "tests/targets/cpu/test_conv": 8,
    "tests/targets/cpu/test_dot": 7,
    "tests/targets/cpu/test_gemm": 6,
    "tests/targets/cpu/test_int8.py::test_convolutions": 6,
    "tests/targets/cpu/test_int8.py::test_products": 5,
    "tests/targets/cpu/test_nibbles.py::test_sizes": 4,
    "tests/targets/cpu/test_picked": 5,
    "tests/targets/cpu/test_recurrent": 12,
    "tests/targets/cpu/test_scan": 5,
    "tests/targets/cpu/test_topk": 5,
    "tests/targets/cpu/test_tables.py::test_bits": 2,
    "tests/targets/cpu/test_transpose": 3,
    "tests/targets/cpu/test_trees.py::test_forms": 4,
    "tests/targets/cpu/test_vector": 5,
    "tests/targets/gpu/test_attention": 15,
    "tests/targets/gpu/test_contraction_choice": 1,
    "tests/targets/gpu/test_contraction": 15,
    "tests/targets/gpu/test_grid_tuned": 10,
    "tests/targets/gpu/test_metal.py::test_agrees_with_c": 4,
    "tests/targets/gpu/test_nests": 3,
    "tests/targets/gpu/test_recurrent": 20,
    "tests/targets/gpu/test_scan": 3,
    "tests/targets/gpu/cuda/test_attention_cache": 4,
    "tests/targets/gpu/cuda/test_collective.py::test_ranks_give": 2,
    "tests/targets/gpu/cuda/test_contraction": 10,
    "tests/targets/gpu/cuda/test_sort.py::test_types": 12,
    "tests/targets/gpu/cuda/test_sort": 10,
    "tests/targets/gpu/test_topk": 6,
    "tests/targets/gpu/webgpu/test_target.py::test_rows_that": 3,
    "tests/targets/test_computed_indices.py::test_against": 2,
    "tests/targets/test_devices.py": 10,
    "tests/targets/test_sharing.py": 3,
    "tests/targets/test_toy.py::test_specimens": 6,
    "tests/targets/test_uniform_operands.py::test_against": 2,
    "tests/templates/test_narrow.py": 22,
    "tests/templates/test_scalar.py::test_equals": 2,
    "tests/templates/test_vec_math.py::test_unary": 3,
    "tests/templates/test_vec_math.py": 2,
    "tests/workbench/test_corrected.py": 2,
    "tests/training/test_scaling.py::test_steps_of": 2,
}


def some(cases: Iterable[Any], every: int) -> list[Any]:
    """The cases, of which only one of ``every`` runs by default; the first is among them."""
    return [case if k % every == 0 else pytest.param(case, marks=SLOW) for k, case in enumerate(cases)]


def some_pairs(often: Iterable[Any], seldom: Iterable[Any], every: int) -> list[Any]:
    """Pairs of both, for parametrize: by default all with the first of ``seldom``, one of ``every`` with the rest."""
    first, *rest = seldom
    all_ = list(often)
    pairs = [pytest.param(a, first) for a in all_]
    other = [(k, a, b) for b, (k, a) in product(rest, enumerate(all_))]
    return pairs + [pytest.param(a, b, marks=() if k % every == 0 else SLOW) for k, a, b in other]


def thin(items: Iterable[pytest.Item]) -> None:
    """Mark as slow most cases of the tests that :data:`THINNED` names."""
    functions: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for name, cases in functions.items():
        every = next((n for start, n in THINNED.items() if name.startswith(start)), 1)
        for case in _left_out(cases, every):
            case.add_marker(SLOW)


def _left_out(cases: Sequence[pytest.Function], every: int) -> list[pytest.Function]:
    """Cases of one test that do not run by default."""
    numbers: dict[str, dict[int, int]] = {}
    left = []
    for case in cases:
        each = {name: numbers.setdefault(name, {}) for name in case.callspec.params}
        # A value is one object in all cases that have it. (pytest's own indices count cases, not values.)
        place = [n.setdefault(id(case.callspec.params[name]), len(n)) for name, n in each.items()]
        left += [case] if sum(place) % every else []
    return left
