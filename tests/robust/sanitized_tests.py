"""Runs tests with libraries that have the address and undefined-behaviour sanitizers: ``make tests-sanitized``.

    python -m tests.robust.sanitized_tests tests/pipeline/test_training.py -k refused

What tests compile by the default compiler has the sanitizers, in a cache of its own, and the tests run in a process
that has their runtime preloaded. The first finding ends it with 99. Without arguments these are the tests of training
that run libraries of C.
"""

from __future__ import annotations

import os
import sys

from tests.conformance.sanitized import compiler, environment
from torshc.base.resources import cache_folder

# Its program has the thread sanitizer, which cannot work beside the address sanitizer's runtime.
LEFT_OUT = "tests/pipeline/test_serving.py::test_a_program_trains_and_runs_by_two_headers[thread]"
TRAINING = (
    "tests/pipeline/test_training.py", "tests/pipeline/test_train_memory.py", "tests/runtime/test_training.py",
    "tests/robust/test_killed.py", "tests/workbench/test_verify_training.py", "tests/training",
    "tests/pipeline/test_serving.py",
)  # fmt: skip


def main() -> None:
    own = {"TORSHC_CC": compiler(), "TORSHC_CACHE_DIR": str(cache_folder() / "sanitized"), "OPENBLAS_NUM_THREADS": "1"}
    options = ["-p", "no:faulthandler", "-n", "0", f"--deselect={LEFT_OUT}"]
    command = [sys.executable, "-m", "pytest", *options, *(sys.argv[1:] or TRAINING)]
    sys.stdout.flush()
    os.execve(sys.executable, command, {**os.environ, **environment(), **own})


if __name__ == "__main__":
    main()
