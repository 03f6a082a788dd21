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
    "tests/bundle/test_abi.py::test_status_codes": 4,
    "tests/bundle/test_abi.py::test_sanitizers": 4,
    "tests/bundle/test_build_script.py::test_kept_sources": 2,
    "tests/bundle/test_device.py": 8,
    "tests/bundle/test_weight_names.py::test_new_weights_from_c": 8,
    "tests/card/test_card.py::test_cases_are_what": 6,
    "tests/pipeline/test_compiler_nests.py::test_agrees_with_reference": 4,
    "tests/cli/test_main.py::test_a_closed": 3,
    "tests/cli/test_main.py::test_a_limit": 2,
    "tests/cli/test_main.py::test_a_full_stdout": 2,
    "tests/conformance/test_conformance.py::test_sample_on_devices": 10,
    "tests/formats/test_habits.py::test_old_attributes": 4,
    "tests/formats/test_quantized_lstm.py::test_answers": 5,
    "tests/kernels/test_totals.py::test_steps": 4,
    "tests/ops/core/test_custom_kernel.py::test_a_function": 3,
    "tests/ops/math/test_bits.py::test_bits": 2,
    "tests/ops/microsoft/test_attention.py::test_a_mask_of_lengths": 3,
    "tests/ops/nn/test_onnx_attention.py::test_as_the_reference": 8,
    "tests/ops/math/test_elimination.py": 2,
    "tests/ops/nn/test_recurrent_parts.py": 3,
    "tests/ops/quant/test_integer.py::test_zero_points": 3,
    "tests/ops/quant/test_narrow.py": 6,
    "tests/ops/test_onnx_cases.py::test_functions": 6,
    "tests/ops/test_runtime_operands.py::test_compiled": 5,
    "tests/ops/test_sizes.py::test_every_size": 6,
    "tests/ops/tensor/test_select.py::test_nonzero": 4,
    "tests/ops/tensor/test_select_compiled.py": 2,
    "tests/ops/text/test_regex.py::test_the_longest": 3,
    "tests/ops/tensor/test_index_compiled.py::test_among_others": 2,
    "tests/passes/test_match.py::test_a_pattern_with_endless": 2,
    "tests/passes/test_narrow_weights.py": 2,
    "tests/passes/test_half_products.py": 5,
    "tests/passes/test_integer_products.py::test_n": 2,
    "tests/pipeline/test_tolerance.py::test_a_right": 4,
    "tests/pipeline/test_tolerance.py::test_small": 4,
    "tests/pipeline/test_accuracy.py::test_stacks": 2,
    "tests/pipeline/test_forms_guards.py::test_runs_take": 2,
    "tests/pipeline/test_forms_guards.py::test_values_of": 2,
    "tests/pipeline/test_forms_loose.py::test_a_size_of_1": 12,
    "tests/pipeline/test_forms_padding.py::test_ro": 2,
    "tests/pipeline/test_forms_padding.py::test_runs": 2,
    "tests/pipeline/test_forms_variants.py::test_runs_take": 2,
    "tests/pipeline/test_forms_loose.py": 6,
    "tests/robust/test_many_layers.py::test_many_layers": 3,
    "tests/robust/test_broadcast_graphs.py::test_random_broadcasts_in": 4,
    "tests/robust/test_broadcast_graphs.py::test_random_broadcasts": 8,
    "tests/robust/test_graphs.py::test_random": 6,
    "tests/robust/test_names.py::test_names_reach": 10,
    "tests/robust/test_shape_graphs.py": 6,
    "tests/robust/test_sizes.py::test_every_symbolic_size": 4,
    "tests/robust/test_sizes.py::test_static_sizes": 4,
    "tests/robust/test_sizes.py::test_dimensions": 2,
    "tests/robust/test_values.py::test_weights_that": 2,
    "tests/robust/test_warnings.py": 3,
    "tests/robust/test_zoo.py::test_agrees": 2,
    "tests/robust/test_wrong_runs.py::test_an_index_out": 2,
    "tests/runtime/test_device.py::test_host_arrays": 2,
    "tests/runtime/test_locks.py::test_children": 2,
    "tests/runtime/test_opening.py::test_a_bundle_that_is_replaced": 2,
    "tests/runtime/test_opening.py::test_loads": 2,
    "tests/runtime/test_ranks.py::test_processes_meet": 3,
    "tests/runtime/test_training.py::test_a_damaged": 2,
    "tests/samples/test_generate.py::test_a_cache": 2,
    "tests/sharding/test_tensors.py::test_what_follows": 3,
    "tests/sharding/test_tensors.py::test_attention_an": 2,
    "tests/targets/cpu/llvm/test_functions.py::test_elements_of": 2,
    "tests/targets/cpu/test_append.py::test_groups": 3,
    "tests/targets/cpu/test_attention": 8,
    "tests/targets/cpu/test_bf16.py::test_a_row_has": 4,
    "tests/targets/cpu/test_c.py::test_known_sizes": 6,
    "tests/targets/cpu/test_bf16.py::test_product": 24,
    "tests/targets/cpu/test_bf16.py::test_the_largest": 6,
    "tests/targets/cpu/test_bf16.py::test_pi": 4,
    "tests/targets/cpu/test_bf16.py::test_a_whole_model": 2,
    "tests/targets/cpu/test_bf16.py::test_floats": 3,
    "tests/targets/cpu/test_bf16.py::test_tiles": 2,
    "tests/targets/cpu/test_bf16.py::test_windows": 24,
    "tests/targets/cpu/test_c.py::test_results_that_no": 3,
    "tests/targets/cpu/test_c.py::test_extremes": 2,
    "tests/targets/cpu/test_conv_weights": 4,
    "tests/targets/cpu/test_conv": 12,
    "tests/targets/cpu/test_dot": 10,
    "tests/targets/cpu/test_gemm": 10,
    "tests/targets/cpu/test_int8.py::test_convolutions": 6,
    "tests/targets/cpu/test_int8.py::test_products": 8,
    "tests/targets/cpu/test_nibbles.py::test_sizes": 8,
    "tests/targets/cpu/test_nibbles.py::test_the_largest": 4,
    "tests/targets/cpu/test_picked": 8,
    "tests/targets/cpu/test_recurrent": 12,
    "tests/targets/cpu/test_scan": 8,
    "tests/targets/cpu/test_topk": 8,
    "tests/targets/cpu/test_tables.py::test_bits": 4,
    "tests/targets/cpu/test_transpose": 3,
    "tests/targets/cpu/test_trees": 4,
    "tests/targets/cpu/test_vector": 8,
    "tests/targets/cpu/test_winograd.py::test_errors": 2,
    "tests/targets/cpu/test_winograd.py::test_larger": 3,
    "tests/targets/cpu/test_winograd.py::test_numbers": 3,
    "tests/targets/cpu/test_winograd.py::test_bits": 2,
    "tests/targets/gpu/test_attention": 30,
    "tests/targets/gpu/test_contraction_choice": 1,
    "tests/targets/gpu/test_contraction": 30,
    "tests/targets/gpu/test_depthwise": 3,
    "tests/targets/gpu/test_grid_tuned": 20,
    "tests/targets/gpu/test_metal.py::test_agrees_with_c": 8,
    "tests/targets/gpu/test_nests": 6,
    "tests/targets/gpu/test_recurrent": 40,
    "tests/targets/gpu/test_scan": 6,
    "tests/targets/gpu/cuda/test_attention_cache": 8,
    "tests/targets/gpu/cuda/test_collective.py::test_ranks_give": 4,
    "tests/targets/gpu/cuda/test_contraction": 20,
    "tests/targets/gpu/cuda/test_sort.py::test_types": 12,
    "tests/targets/gpu/cuda/test_sort": 20,
    "tests/targets/gpu/test_topk": 12,
    "tests/targets/gpu/test_trees": 3,
    "tests/targets/gpu/test_xcrun.py::test_sources": 2,
    "tests/targets/gpu/webgpu/test_blocks.py::test_convolutions": 3,
    "tests/targets/gpu/webgpu/test_blocks.py::test_tiles": 3,
    "tests/targets/gpu/webgpu/test_target_host.py::test_copies": 4,
    "tests/targets/gpu/webgpu/test_target_recurrent.py": 3,
    "tests/targets/gpu/webgpu/test_target.py::test_rows_that": 6,
    "tests/targets/test_computed_indices.py::test_against": 2,
    "tests/targets/test_devices.py": 20,
    "tests/targets/test_sharing.py": 3,
    "tests/targets/test_toy.py::test_specimens": 12,
    "tests/targets/test_uniform_operands.py::test_against": 2,
    "tests/templates/test_narrow.py": 22,
    "tests/templates/test_scalar.py::test_equals": 2,
    "tests/templates/test_vec_math.py::test_unary": 3,
    "tests/templates/test_vec_math.py": 2,
    "tests/workbench/test_bisect.py::test_a_wrong": 2,
    "tests/workbench/test_corrected.py": 4,
    "tests/workbench/test_kept.py::test_damage": 3,
    "tests/workbench/test_kept.py::test_other": 3,
    "tests/workbench/test_kept.py::test_what_is_never": 4,
    "tests/training/test_replicas.py::test_optimizers": 2,
    "tests/training/test_replicas.py::test_ranks_learn": 2,
    "tests/training/test_replicas.py::test_small": 2,
    "tests/training/test_scaling.py::test_steps_of": 3,
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
