"""For all tests."""

from __future__ import annotations

import os

import pytest

from tests.emulation.emulated import missing
from tests.support.slow import thin
from torshc.folders import private_folder
from torshc.resources import cache_folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew-golden", action="store_true", help="write the files of tests/golden again")
    parser.addoption("--mutants", type=int, default=0, help="how many mutants tests/robust/test_mutants.py compiles")
    parser.addoption("--whole", action="store_true", help="sanitizers over all core cases of onnx's suite, not a part")


def pytest_configure(config: pytest.Config) -> None:
    """One cache for all processes of a run, and for tools that they start with another HOME.

    Processes keep their bytecode whatever the machine's habit is, as many of them are started.
    """
    os.environ["TORSHC_CACHE_DIR"] = str(private_folder(cache_folder()))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(tryfirst=True)  # before what the markers deselect
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    thin(items)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out the Metal half of a test where its emulator cannot work."""
    values = item.callspec.params.values() if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ()
    if any(isinstance(v, str) and v == "metal" for v in values) and (reason := missing(metal=True)):
        pytest.skip(reason)
