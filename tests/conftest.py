"""For all tests."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from tests.emulation.emulated import missing
from tests.support.skips import RanWriter, SkippedWriter, drop_ran
from tests.support.slow import thin
from torshc.base.folders import private_folder
from torshc.base.resources import cache_folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write the files of tests/golden again")
    parser.addoption("--mutants", type=int, default=0, help="how many mutants tests/robust/test_mutants.py compiles")
    parser.addoption("--write-ran", type=Path, help="append each test that is not skipped to this file")
    parser.addoption("--all-but", type=Path, help="leave out the tests that --write-ran wrote")
    parser.addoption("--write-skipped", type=Path, help="append each test that is skipped, with its reason")
    parser.addoption("--whole", action="store_true", help="sanitizers over all core cases of onnx's suite, not a part")


def pytest_configure(config: pytest.Config) -> None:
    """One cache for all processes of a run, and for tools that they start with another HOME.

    Processes keep their bytecode whatever the machine's habit is, as many of them are started.
    """
    os.environ["TORSHC_CACHE_DIR"] = str(private_folder(cache_folder()))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if not config.getoption("numprocesses", None) or hasattr(config, "workerinput"):  # else each worker writes
        for option, writer in (("--write-ran", RanWriter), ("--write-skipped", SkippedWriter)):
            if (file := config.getoption(option)) is not None:
                config.pluginmanager.register(writer(file.absolute()))


@pytest.hookimpl(tryfirst=True)  # before what the markers deselect
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    thin(items)
    if (file := config.getoption("--all-but")) is not None:
        config.hook.pytest_deselected(items=drop_ran(items, file))


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and never what stands until the end: modules, and some ten thousand tests.

    Graphs are many small objects, of which Python's own threshold of 700 makes it look through all others again and
    again. Tests of what is freed collect by themselves.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out the Metal half of a test where its emulator cannot work."""
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    if any(isinstance(v, str) and v == "metal" for v in values) and (reason := missing(metal=True)):
        pytest.skip(reason)
