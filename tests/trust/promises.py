"""The promises: what each says, how it is tried, the tests that try it, and the figures that they record.

A test records a figure with pytest's ``record_property(name, number)``. The figures of a promise are summed over its
tests; of those whose name begins with "at most" the largest counts. A promise without one of its figures was not tried.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST = "at most"
_ROBUST, _BUNDLE = "tests/robust", "tests/bundle"


@dataclass(frozen=True)
class Promise:
    """One line of the table.

    Attributes:
        number: from 1; one that has several parts has as many lines.
        says: what users may rely on.
        tried: how it is tried.
        tests: node ids of pytest.
        figures: names of the numbers that these tests must record.
    """

    number: int
    says: str
    tried: str
    tests: tuple[str, ...]
    figures: tuple[str, ...] = ()


PROMISES = (
    Promise(
        1,
        "A kill leaves a whole bundle or none",
        "at random moments, and at each call to the system",
        (
            f"{_ROBUST}/test_processes.py::test_killed_at_random_moments[40]",
            f"{_BUNDLE}/test_package.py",
            "tests/base/test_folders.py",
        ),
        ("kills at random moments", "kills at calls to the system"),
    ),
    Promise(
        2,
        "Processes share a cold cache",
        "16 at once compile 8 models into one empty cache",
        (
            f"{_ROBUST}/test_processes.py::test_sixteen_compilations_on_a_cold_cache",
            f"{_BUNDLE}/test_build.py::test_two_processes_a_model_on_a_cold_cache",
            "tests/base/test_cache.py::test_sixteen_processes",
        ),
        ("processes", "models", "different libraries"),
    ),
    Promise(
        3,
        "A full disk and its like: named, no debris",
        "ENOSPC, EIO, EMFILE, EROFS at each call; disks of all sizes",
        (
            f"{_ROBUST}/test_disks.py",
            f"{_BUNDLE}/test_package.py",
            "tests/base/test_cache.py",
            "tests/cli/test_main.py",
        ),
        ("failing calls", "full disks"),
    ),
    Promise(
        4,
        "A damaged cache entry is rebuilt, never used",
        "bits, lengths, other entries' content, other owners and modes",
        (
            "tests/base/test_cache.py",
            "tests/workbench/test_kept.py",
            f"{_BUNDLE}/test_build.py::test_a_damaged_cache_entry_is_rebuilt",
            f"{_BUNDLE}/test_build.py::test_a_wrapper_shares_no_objects_with_its_compiler",
        ),
        ("damaged entries",),
    ),
    Promise(
        5,
        "Senseless models: compiled or refused, in bounds",
        "mutants of the zoo and of ONNX's cases, limits of time and memory",
        (f"{_ROBUST}/test_mutants.py", f"{_ROBUST}/test_bad_input.py", "tests/formats/test_damage.py"),
        ("mutants", "at most seconds", "at most MiB"),
    ),
    Promise(
        6,
        "Generated C has no undefined behaviour",
        "address and undefined-behaviour sanitizers",
        (f"{_ROBUST}/test_sanitizers.py", "tests/conformance/test_conformance.py::test_sanitized_core_cases"),
        ("specimens", "conformance cases", "core cases there are"),
    ),
    Promise(
        7,
        "Rebuilds are equal bit for bit",
        "folders, users, locales, time zones, hash seeds, jobs",
        (
            f"{_ROBUST}/test_determinism.py",
            f"{_ROBUST}/test_order.py::test_sources_are_equal_under_all_seeds[20]",
            f"{_BUNDLE}/test_build.py::test_the_same_bytes_everywhere",
        ),
        ("rebuilds", "equal files", "at most users"),
    ),
    Promise(
        8,
        "Threads share a library and get the serial answer",
        "8 threads, bit for bit; the thread sanitizer",
        (
            f"{_ROBUST}/test_callers.py::test_eight_threads",
            f"{_ROBUST}/test_callers.py::test_eight_threads_under_the_thread_sanitizer",
            f"{_BUNDLE}/test_abi.py::test_sanitizers",
            f"{_ROBUST}/test_wrong_runs.py::test_threads_that_share_a_model",
            "tests/runtime/test_model.py::test_threads_share_a_model_and_models_share_a_process",
        ),
        ("calls", "calls under the thread sanitizer"),
    ),
    Promise(
        9,
        "Wrong buffers: a documented code, outputs untouched",
        "rank, dtype, shape, count, null, alignment, overlap, from C",
        (
            f"{_BUNDLE}/test_abi.py",
            f"{_BUNDLE}/test_script_abi.py",
            f"{_ROBUST}/test_wrong_runs.py",
            "tests/runtime/test_model.py",
            "tests/runtime/test_faults.py",
        ),
        ("wrong calls",),
    ),
    Promise(
        10,
        "NaN, infinities, signed zeros, denormals as ONNX says",
        "all modes of fusion, each target, against onnx's evaluator",
        (f"{_ROBUST}/test_values.py", "tests/templates/test_vec_math.py"),
        ("elements",),
    ),
    Promise(
        11,
        "Empty and rank-0 tensors; symbols of 0, 1, 2, 7",
        "core operators, each dimension symbolic, all sizes",
        (f"{_ROBUST}/test_sizes.py", "tests/ops/test_sizes.py", f"{_ROBUST}/test_zoo.py"),
        ("runs",),
    ),
    Promise(
        12,
        "Nothing grows; no allocation in a run of static shapes",
        "runs, open and close; calls of malloc counted",
        (
            "tests/runtime/test_model.py::test_no_growth[100000]",
            f"{_ROBUST}/test_callers.py::test_no_allocation",
            f"{_ROBUST}/test_wrong_runs.py::test_many_runs_take_no_more_memory",
        ),
        ("runs", "open and close", "runs without an allocation", "at most KiB of growth"),
    ),
    Promise(
        13,
        "Names reach no compiler, shell or path",
        "quotes, comments, newlines, templates, keywords, 5,000 characters",
        (f"{_ROBUST}/test_names.py", f"{_BUNDLE}/test_package.py::test_names_as_long_as_they_may_be"),
        ("files searched",),
    ),
    Promise(
        14,
        "Levels and passes agree within rounding",
        "-O0 to -O3, each pass off, modes of fusion",
        (f"{_ROBUST}/test_switched_off.py", "tests/passes/test_levels.py"),
        ("at most ways to compile a model", "compilations"),
    ),
    Promise(
        15,
        "What is unsupported is refused, all of it at once",
        "graphs with several faults; operators that are none",
        (f"{_ROBUST}/test_refused.py", f"{_ROBUST}/test_bad_input.py", "tests/formats/test_onnx_format.py"),
    ),
    Promise(
        16,
        "Data outside the folder, and what is too large, is refused",
        "external data that shrinks too, packed arrays, overflow, budgets",
        (
            f"{_ROBUST}/test_limits.py",
            f"{_ROBUST}/test_bad_input.py",
            f"{_ROBUST}/test_large.py",
            "tests/formats/test_onnx_tensor.py",
            "tests/formats/test_contents.py",
            "tests/formats/test_files.py",
            "tests/base/test_arrays.py",
            f"{_BUNDLE}/test_sizes.py",
        ),
    ),
    Promise(
        17,
        "Loading searches nothing; the caller's state stays",
        "rounding, FTZ, DAZ, traps; signals; no search path",
        (
            f"{_ROBUST}/test_callers.py::test_any_floating_point_state",
            f"{_ROBUST}/test_callers.py::test_between_signals",
            f"{_BUNDLE}/test_abi.py::test_library_is_closed",
            f"{_BUNDLE}/test_abi.py::test_status_codes",
        ),
        ("floating-point states", "signals"),
    ),
    Promise(
        18,
        "No value of an attribute gets another's meaning",
        "values outside, for every attribute of ONNX and com.microsoft",
        ("tests/formats/test_attribute_values.py",),
        ("values",),
    ),
    Promise(
        19,
        "verify judges what was computed, and says where nothing was",
        "draws by use; outputs of NaN, of one value, empty; quanta",
        (
            "tests/plan/test_uses.py",
            "tests/workbench/test_content.py",
            "tests/workbench/test_draws.py",
            "tests/pipeline/test_tolerance.py",
            "tests/workbench/test_verify.py",
        ),
        (),
    ),
    Promise(
        20,
        "A bundle may be replaced by renaming while others load it",
        "another process swaps two; replaced at each step of a load",
        ("tests/runtime/test_opening.py", f"{_BUNDLE}/test_abi.py::test_status_codes"),
        ("loads during replacement",),
    ),
    Promise(
        21,
        "A child of fork() gets a status, and hangs nowhere",
        "while threads of the parent run and load, from C and Python",
        (
            f"{_ROBUST}/test_surroundings.py::test_after_fork",
            "tests/runtime/test_locks.py",
            "tests/runtime/test_model.py::test_forked_children_are_told",
        ),
        ("children",),
    ),
    Promise(
        21,
        "Threads of a model take no signals of the program",
        "signals that the program's own threads block",
        (f"{_ROBUST}/test_surroundings.py::test_threads_of_a_model_take_no_signals",),
        ("signals to workers",),
    ),
    Promise(
        21,
        "What a call needs of stack is stated and does not grow",
        "painted stacks; 3 and 300 inputs, outputs and symbols",
        (
            f"{_ROBUST}/test_surroundings.py::test_the_stack_that_a_call_needs",
            f"{_ROBUST}/test_surroundings.py::test_the_stack_does_not_grow_with_the_model",
            f"{_ROBUST}/test_surroundings.py::test_the_stack_of_a_call_by_name",
        ),
        ("at most bytes of stack",),
    ),
    Promise(
        22,
        "A row's bits depend on no number of rows",
        "1 to 64 rows of each kind of kernel, threads, contexts, orders",
        (f"{_ROBUST}/test_batches.py", "tests/targets/cpu/test_attention.py::test_one_query_among_many"),
        ("results compared",),
    ),
    Promise(
        23,
        "No child process outlives its command",
        "killed at work: compilers, and what they started",
        ("tests/targets/test_processes.py",),
        (),
    ),
)
